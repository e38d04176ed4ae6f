//! Cases 109, 110, 114, 117, 118, L15, L16: obligations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use placet_pep::{Action, Obligation, ObligationHandler, Sink, Unreachable};
use serde_json::{Value, json};

use crate::support::{CountingSink, House, in_ms, lamp, with_deadline, with_obligations};

/// Discharges by counting.
#[derive(Clone, Default)]
struct Audit(Arc<AtomicU32>);

#[async_trait::async_trait]
impl ObligationHandler for Audit {
    fn check(&self, obligation: &Obligation) -> Result<(), String> {
        if obligation.text() == Some("full") { Ok(()) } else { Err("only `full`".to_owned()) }
    }

    async fn discharge(&self, obligation: &Obligation) -> Result<Value, String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(json!({ "audit": obligation.text() }))
    }
}

/// A permit with an obligation that nobody here knows: no act, one report that names it.
#[tokio::test]
async fn case_109_an_unknown_obligation_stops_the_act() {
    let house = House::open().await;
    let refused = house.refused(Action::new("log.audit")).await;
    assert!(refused.contains("x-acme.audit"), "{refused}");
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("x-acme.audit"), "{report}");
}

/// `required: false` does not make an unknown type known.
#[tokio::test]
async fn case_109_an_unknown_obligation_stops_the_act_also_when_it_is_advisory() {
    let house = House::open().await;
    with_obligations(&house.pdp, |list| list.push(json!({ "type": "x-acme.teleport", "required": false })));
    house.refused(lamp()).await;
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("x-acme.teleport"), "{report}");
}

/// The second of two is unknown: the first is not executed either.
#[tokio::test]
async fn case_110_all_obligations_are_checked_before_the_first_is_discharged() {
    let audit = Audit::default();
    let handler = audit.clone();
    let house = House::with(Unreachable::FailClosed, |b| b.obligation("x-acme.audit", handler)).await;
    house.refused(Action::new("beam.up")).await;
    assert_eq!(audit.0.load(Ordering::SeqCst), 0);
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("x-acme.teleport"), "{report}");
}

#[tokio::test]
async fn case_114_a_deadline_that_has_passed_stops_the_act() {
    let house = House::open().await;
    with_deadline(&house.pdp, || in_ms(-1));
    house.refused(lamp()).await;
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("execute_within"), "{report}");
}

/// The deadline passes while a handler works: the act does not begin.
#[tokio::test]
async fn case_114_a_deadline_that_passes_during_discharge_stops_the_act() {
    struct Slow;
    #[async_trait::async_trait]
    impl ObligationHandler for Slow {
        async fn discharge(&self, _: &Obligation) -> Result<Value, String> {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            Ok(Value::Null)
        }
    }
    let house = House::with(Unreachable::FailClosed, |b| b.obligation("x-acme.audit", Slow)).await;
    with_deadline(&house.pdp, || in_ms(200));
    house.refused(Action::new("log.audit")).await;
    house.only_report("not_attempted").await;
}

/// What a handler does may be seen from outside: the intent is on disk before.
#[tokio::test]
async fn the_intent_is_on_disk_before_the_first_handler() {
    struct Looks(std::path::PathBuf, Arc<AtomicU32>);
    #[async_trait::async_trait]
    impl ObligationHandler for Looks {
        async fn discharge(&self, _: &Obligation) -> Result<Value, String> {
            let begun = std::fs::read_to_string(&self.0).unwrap().contains(r#""begun""#);
            self.1.fetch_add(u32::from(begun), Ordering::SeqCst);
            Err("the audit is closed".to_owned())
        }
    }
    let seen = Arc::new(AtomicU32::new(0));
    let pdp = placet_pep::testing::LocalPdp::start(crate::support::POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let handler = Looks(folder.path().join("outbox"), seen.clone());
    let pep = crate::support::builder(folder.path()).endpoint(pdp.url()).bearer_token(pdp.token());
    let pep = pep.unreachable(Unreachable::FailClosed).obligation("x-acme.audit", handler).build().unwrap();
    let house = House { pdp, pep, folder };
    house.refused(Action::new("log.audit")).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("the audit is closed"), "{report}");
}

#[tokio::test]
async fn case_117_isolation_is_refused_where_there_is_none() {
    for boundary in [None, Some("cell-2")] {
        let house = House::with(Unreachable::FailClosed, |b| match boundary {
            Some(name) => b.boundary(name),
            None => b,
        })
        .await;
        house.refused(Action::new("cell.open")).await;
        let report = house.only_report("not_attempted").await;
        assert!(report["error"].as_str().unwrap().contains("isolate"), "{report}");
    }
}

/// Evidence of discharge is in the report and on the entry.
#[tokio::test]
async fn case_118_discharge_evidence_reaches_the_entry() {
    let audit = Audit::default();
    let handler = audit.clone();
    let house =
        House::with(Unreachable::FailClosed, |b| b.obligation("x-acme.audit", handler).boundary("cell-1")).await;
    for (action, kind, evidence) in [
        ("log.audit", "x-acme.audit", json!({ "audit": "full" })),
        ("cell.open", "isolate", json!({ "boundary": "cell-1" })),
    ] {
        house.pep.run(Action::new(action), async |_| Ok(())).await.unwrap();
        house.flush().await;
        let report = house.reports().pop().unwrap();
        let list = report["payload"]["obligations"].as_array().unwrap();
        assert!(list.contains(&json!({ "type": kind, "evidence": evidence })), "{list:?}");
        assert!(list.iter().any(|entry| entry["type"] == "execute_within"), "{list:?}");
        let entry = house.pdp.evidence().pop().unwrap();
        let payload: Value = serde_json::from_str(entry["body"]["exec_result"]["payload"].as_str().unwrap()).unwrap();
        assert_eq!(payload, report["payload"]);
    }
    assert_eq!(audit.0.load(Ordering::SeqCst), 1);
}

/// A permit that is bound to a recipient is never used by an ordinary enforcement point.
#[tokio::test]
async fn case_l15_a_bound_permit_is_not_used_here() {
    for required in [true, false] {
        let house = House::open().await;
        with_obligations(&house.pdp, move |list| {
            list.push(json!({ "type": "present_bound", "value": "https://r.example", "required": required }));
        });
        house.refused(lamp()).await;
        let report = house.only_report("not_attempted").await;
        assert!(report["error"].as_str().unwrap().contains("present_bound"), "{report}");
    }
}

/// A sink that cannot send the key does not act; one that can gets the same key for the same permit.
#[tokio::test]
async fn case_l16_an_idempotency_key_is_sent_or_nothing_is_done() {
    let house = House::open().await;
    let refused = house.refused(Action::new("card.charge")).await;
    assert!(refused.contains("idempotency_key"), "{refused}");
    house.only_report("not_attempted").await;

    let house = House::open().await;
    // The first answer is lost, so the permit is told twice.
    house.pdp.fault("/v1/decide", placet_pep::testing::Fault::LoseAnswer);
    let sink = Sink::new(async |permit: placet_pep::Permit| {
        permit.discharged("idempotency_key", json!({ "acknowledgement": "tx-17" }));
        Ok(permit.idempotency_key().unwrap().to_owned())
    });
    let done = house.pep.run_sink(Action::new("card.charge"), sink.sends_idempotency_key()).await.unwrap();
    let decision = done.decision.unwrap();
    assert!(decision.replayed);
    let issued = house.pdp.evidence()[0]["body"]["exec_intent"]["obligations"].as_array().unwrap().clone();
    let key = issued.iter().find(|obligation| obligation["type"] == "idempotency_key").unwrap();
    assert_eq!(key["value"], done.value.as_str());
    let report = house.only_report("success").await;
    let expected = json!({ "type": "idempotency_key", "evidence": { "key": done.value, "acknowledgement": "tx-17" } });
    assert!(report["payload"]["obligations"].as_array().unwrap().contains(&expected), "{report}");
}

/// A known type that is advisory does not stop the act; what it would have demanded is not claimed.
#[tokio::test]
async fn an_advisory_obligation_of_a_known_type_is_advice() {
    let house = House::open().await;
    with_obligations(&house.pdp, |list| list.push(json!({ "type": "isolate", "value": "c", "required": false })));
    let sink = CountingSink::default();
    house.pep.run(lamp(), sink.act()).await.unwrap();
    assert_eq!(sink.calls(), 1);
    let report = house.only_report("success").await;
    let list = report["payload"]["obligations"].as_array().unwrap();
    assert!(list.iter().all(|entry| entry["type"] != "isolate"), "{list:?}");
}
