//! Cases 119 to 124: the unreachability mode, and everything that is not unreachable.

use placet_pep::testing::Fault;
use placet_pep::{Action, Basis, BuildError, Pep, RunError, Unreachable};
use serde_json::json;

use crate::support::{CountingSink, House, builder, lamp};

#[tokio::test]
async fn case_119_without_a_mode_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let built = Pep::builder().endpoint("http://127.0.0.1:1").outbox(folder.path()).build();
    assert!(matches!(built, Err(BuildError::NoMode)), "{built:?}");
}

#[tokio::test]
async fn case_120_fail_closed_does_nothing_without_a_decision_point() {
    let mut house = House::open().await;
    house.pdp.stop().await;
    let refused = house.refused(lamp()).await;
    assert!(refused.contains("fail_closed"), "{refused}");
    assert!(house.pep.outbox().is_delivered());
}

#[tokio::test]
async fn case_121_fail_open_acts_and_records() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    house.pdp.stop().await;
    let sink = CountingSink::default();
    let done = house.pep.run(Action::new("wire.send").param("amount_eur", "1.00"), sink.act()).await.unwrap();
    assert_eq!((done.basis, sink.calls()), (Basis::FailOpen, 1));
    assert_eq!(house.pep.outbox().local, 1);

    house.pdp.resume().await.unwrap();
    house.flush().await;
    let acts = house.pdp.local_acts();
    assert_eq!(acts.len(), 1);
    let act = &acts[0];
    assert_eq!(act["request_id"], done.request_id.as_str());
    assert_eq!((&act["mode"], &act["outcome"]), (&json!("fail_open"), &json!("success")));
    assert_eq!(act["params"], r#"{"amount_eur":"1.00"}"#);
    assert!(act.get("policy").is_none() && act["decided_at"].is_string() && act["completed_at"].is_string(), "{act}");
}

/// An answer that says the request is wrong, or that cannot be read: no act, whatever the mode. One table.
#[tokio::test]
async fn case_122_123_an_answer_that_refuses_stops_the_act_under_fail_open() {
    let house = House::with(Unreachable::FailOpen, |b| b).await;
    let malformed = json!({ "protocol": "aadp/0.2", "verdict": "deny", "reason": "malformed", "detail": "d",
        "nominal_tier": 3, "effective_tier": 3, "evidence_id": "aud-1" });
    let refusal = json!({ "code": "invalid", "detail": "d" });
    for (status, body) in [
        (200, malformed.to_string()),
        (400, refusal.to_string()),
        (422, refusal.to_string()),
        (413, malformed.to_string()),
        (415, malformed.to_string()),
        (401, refusal.to_string()),
        (403, refusal.to_string()),
        (404, refusal.to_string()),
        (500, refusal.to_string()),
        (302, String::new()),
        (204, String::new()),
        (200, "{".to_owned()),
        (200, "<html>".to_owned()),
        (200, String::new()),
        (200, json!({ "verdict": "permit" }).to_string()),
        (200, json!({ "verdict": "permit", "permit_id": "pmt-1" }).to_string()),
    ] {
        house.pdp.fault("/v1/decide", Fault::Answer { status, body: body.clone() });
        let refused = house.refused(lamp()).await;
        assert!(refused.contains("FailClosed"), "{status} {body}: {refused}");
    }
    house.flush().await;
    assert!(house.pdp.local_acts().is_empty() && house.reports().is_empty());
}

/// What means unreachable: the mode applies.
#[tokio::test]
async fn case_121_what_counts_as_unreachable() {
    for status in [502, 503, 504] {
        let house = House::with(Unreachable::FailOpen, |b| b).await;
        for code in ["unavailable", "unknown"] {
            let body = json!({ "code": code, "detail": "d" }).to_string();
            house.pdp.fault("/v1/decide", Fault::Answer { status, body });
        }
        let done = house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
        assert_eq!(done.basis, Basis::FailOpen, "{status}");
    }
    let house = House::with(Unreachable::FailOpen, |b| b).await;
    house.pdp.fault("/v1/decide", Fault::Hang);
    house.pdp.fault("/v1/decide", Fault::LoseAnswer);
    let done = house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    assert_eq!(done.basis, Basis::FailOpen);
    // The decision point did permit, and its answer was lost: the act ends that permit, once.
    house.flush().await;
    assert_eq!(house.pdp.received("/v1/local").len(), 1);
    assert_eq!(house.pdp.local_acts().len(), 1);
    assert_eq!(house.pdp.results(), ["success"]);

    // A known peer whose TLS handshake fails.
    let folder = tempfile::tempdir().unwrap();
    let url = house.pdp.url().replace("http:", "https:");
    let pep = builder(folder.path()).endpoint(url).unreachable(Unreachable::FailOpen).build().unwrap();
    assert_eq!(pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::FailOpen);
}

#[tokio::test]
async fn case_124_a_request_that_cannot_be_built_stops_the_act_under_fail_open() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    house.pdp.stop().await;
    let keys_that_are_no_strings = std::collections::BTreeMap::from([((1, 2), 3)]);
    for action in [
        Action::new("lamp.toggle").params(&keys_that_are_no_strings),
        Action::new("lamp.toggle").params(&"not an object"),
        Action::new("lamp toggle"),
        lamp().cost_eur("1,00"),
        lamp().request_id("17"),
    ] {
        let refused = house.refused(action).await;
        assert!(refused.contains("Malformed"), "{refused}");
    }
    assert!(house.pep.outbox().is_delivered());
    assert!(house.pdp.received("/v1/decide").is_empty());
}

/// A wrong token is no outage.
#[tokio::test]
async fn a_credential_that_is_refused_stops_the_act_under_fail_open() {
    let house = House::open().await;
    let folder = tempfile::tempdir().unwrap();
    let wrong =
        builder(folder.path()).endpoint(house.pdp.url()).bearer_token("wrong").unreachable(Unreachable::FailOpen);
    let sink = CountingSink::default();
    let refused = wrong.build().unwrap().run(lamp(), sink.act()).await;
    assert!(matches!(refused, Err(RunError::FailClosed(placet_pep::FailClosed::Credential(_)))), "{refused:?}");
    assert_eq!(sink.calls(), 0);
}
