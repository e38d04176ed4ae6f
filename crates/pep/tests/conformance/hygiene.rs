//! Cases 115, 116, 131, 133, 135: no act without a permit, and a minimal enforcement point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use placet_pep::testing::Fault;
use placet_pep::{Action, Governed, NotPermittedError, Outcome, Pep, Report, RunError, Unreachable, Verdict};
use serde_json::json;

use crate::support::{House, builder, lamp};

#[tokio::test]
async fn case_115_proposals_and_rehearsals_are_refusals() {
    let house = House::open().await;
    for action in ["wire.send", "reh.a", "no.such"] {
        house.refused(Action::new(action)).await;
    }
    house.flush().await;
    assert!(house.reports().is_empty(), "no permit, so no report is owed");
}

/// Where it is configured, a refusal is noted under its request id.
#[tokio::test]
async fn case_115_refusals_can_be_noted() {
    let house = House::with(Unreachable::FailClosed, |b| b.note_refusals()).await;
    for action in ["wire.send", "reh.a"] {
        house.refused(Action::new(action)).await;
    }
    house.flush().await;
    let reports = house.reports();
    assert_eq!(reports.len(), 2);
    for report in &reports {
        assert_eq!(report["outcome"], "not_attempted");
        assert!(report["request_id"].is_string() && report.get("permit_id").is_none(), "{report}");
    }
    assert!(house.pdp.results().is_empty());
}

/// A verdict that nobody knows: no act, in every mode.
#[tokio::test]
async fn case_116_an_unknown_verdict_stops_the_act_in_every_mode() {
    let max_age = std::time::Duration::from_secs(60);
    for mode in [Unreachable::FailClosed, Unreachable::FailStatic { max_age }, Unreachable::FailOpen] {
        let house = House::with(mode, |b| b.read("lamp.toggle")).await;
        for verdict in ["frobnicate", "replay", "PERMIT", ""] {
            house.pdp.rewrite_decisions(move |decision| decision["verdict"] = json!(verdict));
            let refused = house.refused(lamp()).await;
            assert!(refused.contains("FailClosed"), "{refused}");
        }
        assert!(house.pep.outbox().is_delivered());
    }
}

/// The sink cannot be reached around the decision: without one, with the permit of another action, or with a permit
/// that is used up. (That none can be made is a compile-fail example on `Governed`.)
#[tokio::test]
async fn case_131_a_governed_sink_does_nothing_without_its_permit() {
    let executed = Arc::new(AtomicU32::new(0));
    let lamp_sink = Arc::new(Governed::new("lamp.toggle", executed.clone()));
    let house = House::open().await;

    // The decide step is out of reach.
    let folder = tempfile::tempdir().unwrap();
    let alone = builder(folder.path()).endpoint("http://127.0.0.1:1").unreachable(Unreachable::FailClosed);
    let alone = alone.build().unwrap();
    let sink = lamp_sink.clone();
    let refused = alone
        .run(lamp(), async move |permit| {
            sink.enter(&permit)?.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .await;
    assert!(matches!(refused, Err(RunError::Unreachable { .. })), "{refused:?}");

    // A permit for something else.
    let payment = Action::new("pay.small").param("payee", "acme").param("amount_eur", "1.00");
    let sink = lamp_sink.clone();
    let other = house
        .pep
        .run(payment, async move |permit| {
            sink.enter(&permit)?.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .await;
    assert!(matches!(other, Err(RunError::NotAttempted { .. })), "{other:?}");
    house.only_report("not_attempted").await;

    // A permit that was kept beyond its run.
    let kept = house.pep.run(lamp(), async |permit| Ok(permit)).await.unwrap().value;
    assert_eq!(lamp_sink.enter(&kept).unwrap_err(), NotPermittedError::Over);
    assert_eq!(executed.load(Ordering::SeqCst), 0);

    // And with one, it does.
    let sink = lamp_sink.clone();
    house
        .pep
        .run(lamp(), async move |permit| {
            sink.enter(&permit)?.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(executed.load(Ordering::SeqCst), 1);
}

/// The answer is on the wire, recorded, before the act starts; the report comes after it.
#[tokio::test]
async fn case_133_the_decision_is_answered_before_the_act_starts() {
    let house = House::open().await;
    let pdp = &house.pdp;
    let done = house
        .pep
        .run(lamp(), async |_| {
            let kinds =
                pdp.evidence().iter().map(|entry| entry["body"].get("exec_intent").is_some()).collect::<Vec<_>>();
            Ok((kinds, pdp.received("/v1/decide").len(), pdp.received("/v1/report").len()))
        })
        .await
        .unwrap();
    assert_eq!(done.value, (vec![true], 1, 0));
    house.only_report("success").await;
    assert_eq!(house.pdp.received("/v1/decide").len(), 1);
}

/// Decide and report are enough to conform.
#[tokio::test]
async fn case_135_a_minimal_enforcement_point_needs_decide_and_report_only() {
    let house = House::open().await;
    let decision = house.pep.decide(lamp()).await.unwrap();
    assert_eq!(decision.verdict, Verdict::Permit);
    assert!(decision.obligations.iter().any(|obligation| obligation.kind == "report_result"));
    let report = Report::new(decision.permit_id.unwrap(), Outcome::Success).payload(json!({ "state": "on" }));
    // The first answer is lost; the same report again was delivered before.
    house.pdp.fault("/v1/report", Fault::LoseAnswer);
    let receipt = house.pep.report(&report).await.unwrap();
    assert_eq!((receipt.accepted, receipt.reason.as_deref()), (false, Some("x-placet.already_reported")));
    assert_eq!(house.pdp.results(), ["success"]);

    for (action, verdict) in [
        ("wire.send", Verdict::Propose),
        ("reh.a", Verdict::DryRun),
        ("no.such", Verdict::Deny),
        ("read.status", Verdict::Observe),
    ] {
        let decision = house.pep.decide(Action::new(action)).await.unwrap();
        assert_eq!(decision.verdict, verdict);
        assert!(decision.permit_id.is_none());
        let noted = Report::on_request(decision.request_id.unwrap(), Outcome::NotAttempted);
        assert!(house.pep.report(&noted).await.unwrap().accepted);
    }
    assert_eq!(house.pdp.results(), ["success"]);
}

/// With the kill switch engaged nothing runs, in every mode.
#[tokio::test]
async fn the_kill_switch_stops_the_act_in_every_mode() {
    for mode in [Unreachable::FailClosed, Unreachable::FailOpen] {
        let house = House::with(mode, |b| b).await;
        house.pdp.set_kill_switch(true);
        let refused = house.refused(lamp()).await;
        assert!(refused.contains("kill_switch"), "{refused}");
    }
}

/// The builder is where a mode, an endpoint and an outbox are demanded.
#[tokio::test]
async fn what_is_not_configured_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let whole = || builder(folder.path()).endpoint("http://127.0.0.1:1").unreachable(Unreachable::FailClosed);
    let zero = std::time::Duration::ZERO;
    for (wrong, word) in [
        (Pep::builder().outbox(folder.path()).unreachable(Unreachable::FailOpen), "endpoint"),
        (Pep::builder().endpoint("http://pdp").unreachable(Unreachable::FailOpen), "outbox"),
        (whole().endpoint("pdp:7101"), "pdp:7101"),
        (whole().attempts(0), "attempts"),
        (whole().bearer_token("two\nlines"), "token"),
        (whole().bearer_token(""), "token"),
        (whole().bearer_token("naïve"), "token"),
        (whole().unreachable(Unreachable::FailStatic { max_age: zero }), "max_age"),
        (whole().root_ca_pem("not a certificate"), "root CA"),
        (whole().identity_pem("not a key"), "identity"),
    ] {
        let error = wrong.build().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
