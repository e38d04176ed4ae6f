//! AADP §11.3, driven by the approver: the proposer collects a permit that was answered before, once; and the check of a
//! permit right before its act.

use placet_pep::testing::Fault;
use placet_pep::{Action, FailClosed, RunError, Unreachable};
use serde_json::{Value, json};

use crate::support::{CountingSink, House, builder, flush, lamp};

fn wire() -> Action {
    Action::new("wire.send").param("payee", "acme").param("amount_eur", "1.00")
}

/// Proposed, and approved: the ids to collect the permit with.
async fn approved(house: &House) -> (String, String) {
    let refused = house.pep.run(wire(), CountingSink::default().act()).await;
    let Err(RunError::Proposed(proposal)) = refused else { panic!("{refused:?}") };
    let approval_id = proposal.approval_id.unwrap();
    (house.pdp.approve(&approval_id).unwrap(), approval_id)
}

#[tokio::test]
async fn a_resumption_is_collected_once() {
    let mut house = House::open().await;
    let (request_id, approval_id) = approved(&house).await;
    let again = || wire().resumed(request_id.clone(), approval_id.clone());
    let sink = CountingSink::default();
    // Said to be nothing but an id of the caller's, it is someone else's permit.
    let by_hand = house.pep.run(wire().request_id(&request_id).approval_ref(&approval_id), sink.act()).await;
    assert!(matches!(by_hand, Err(RunError::FailClosed(FailClosed::Repeated(_)))), "{by_hand:?}");
    // Other arguments are another act.
    let other = Action::new("wire.send").param("payee", "other").resumed(request_id.clone(), approval_id.clone());
    assert!(matches!(house.pep.run(other, sink.act()).await, Err(RunError::FailClosed(_))));
    assert_eq!(sink.calls(), 0);

    let done = house.pep.run(again(), sink.act()).await.unwrap();
    assert!(done.decision.unwrap().replayed);
    assert_eq!(house.pdp.received("/v1/permits/check").len(), 1);
    let repeated = house.pep.run(again(), sink.act()).await;
    assert!(matches!(repeated, Err(RunError::FailClosed(FailClosed::Repeated(_)))), "{repeated:?}");
    house.only_report("success").await;

    // The next life knows it too, also without a decision point.
    house.pdp.stop().await;
    house.pep.close().await;
    let next = builder(house.folder.path()).endpoint(house.pdp.url()).bearer_token(house.pdp.token());
    let next = next.unreachable(Unreachable::FailOpen).build().unwrap();
    assert!(matches!(next.run(again(), sink.act()).await, Err(RunError::FailClosed(FailClosed::Repeated(_)))));
    // Another outbox does not know it, and learns from the decision point that it is over.
    house.pdp.resume().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = builder(folder.path()).endpoint(house.pdp.url()).bearer_token(house.pdp.token());
    let other = other.unreachable(Unreachable::FailOpen).build().unwrap();
    let late = other.run(again(), sink.act()).await;
    assert!(matches!(&late, Err(RunError::NotAttempted { why, .. }) if why.contains("reported")), "{late:?}");
    flush(&other).await;
    assert_eq!((sink.calls(), house.pdp.results()), (1, vec!["success".to_owned()]));
}

/// Between the approval and its collection the switch was engaged: the permit is given back.
#[tokio::test]
async fn a_resumption_under_the_kill_switch_is_not_attempted() {
    let house = House::open().await;
    let (request_id, approval_id) = approved(&house).await;
    house.pdp.set_kill_switch(true);
    let refused = house.refused(wire().resumed(request_id, approval_id)).await;
    assert!(refused.contains("kill_switch"), "{refused}");
    let report = house.only_report("not_attempted").await;
    assert!(report["error"].as_str().unwrap().contains("kill_switch"), "{report}");
}

/// By hand, the permit of a resumption is given out once.
#[tokio::test]
async fn a_resumption_is_decided_once() {
    let house = House::open().await;
    let (request_id, approval_id) = approved(&house).await;
    let again = || wire().resumed(request_id.clone(), approval_id.clone());
    assert!(house.pep.decide(again()).await.unwrap().permit_id.is_some());
    assert!(house.pep.decide(again()).await.is_err());
    assert!(matches!(house.pep.run(again(), async |_| Ok(())).await, Err(RunError::FailClosed(_))));
}

/// The check before the act: what it says, and what no answer means in the mode that acts without one.
#[tokio::test]
async fn a_permit_that_is_not_usable_any_more_is_not_acted_on() {
    let says = |usable: Value, reason: &str| Fault::Answer {
        status: 200,
        body: json!({ "usable": usable, "reason": reason }).to_string(),
    };
    let status = |status: u16| Fault::Answer { status, body: "{}".to_owned() };
    for (faults, word) in [
        (vec![says(json!(false), "kill_switch")], "kill_switch"),
        (vec![says(json!(false), "expired")], "expired"),
        (vec![says(json!("true"), "")], "usable"),
        (vec![status(404)], "404"),
        (vec![status(401)], "credential"),
        (vec![status(503), status(503)], "503"),
        (vec![Fault::Hang, Fault::LoseAnswer], "could not be checked"),
    ] {
        let house = House::with(Unreachable::FailOpen, |b| b.check_before_act(true)).await;
        faults.into_iter().for_each(|fault| house.pdp.fault("/v1/permits/check", fault));
        let refused = house.refused(lamp()).await;
        assert!(refused.contains(word), "{refused}");
        house.only_report("not_attempted").await;
    }
    let house = House::with(Unreachable::FailOpen, |b| b.check_before_act(true)).await;
    house.pdp.fault("/v1/permits/check", status(503));
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.only_report("success").await;
    assert_eq!(house.pdp.received("/v1/permits/check").len(), 2);
    // Off, nothing is asked.
    let house = House::open().await;
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    assert!(house.pdp.received("/v1/permits/check").is_empty());
}
