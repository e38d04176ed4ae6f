//! Cases 125 to 128: `fail_static`, its list, and the queue of acts that were decided here.

use std::time::Duration;

use placet_pep::testing::Fault;
use placet_pep::{Action, Basis, RunError, StaticList, Unreachable};
use serde_json::{Value, json};

use crate::support::{CountingSink, House, builder, flush, lamp};

const MODE: Unreachable = Unreachable::FailStatic { max_age: Duration::from_secs(600) };

async fn listed() -> House {
    let house = House::with(MODE, |b| b.read("read.status")).await;
    house.pep.refresh_static().await.unwrap();
    house
}

#[tokio::test]
async fn case_125_fail_static_acts_on_the_list_and_queues_evidence() {
    let mut house = listed().await;
    let policy = house.pdp.received("/v1/static").len();
    assert!(policy >= 1);
    house.pdp.stop().await;
    let sink = CountingSink::default();
    for (action, basis) in [(lamp(), Basis::FailStatic), (Action::new("read.status"), Basis::FailStatic)] {
        assert_eq!(house.pep.run(action, sink.act()).await.unwrap().basis, basis);
    }
    assert_eq!((sink.calls(), house.pep.outbox().local), (2, 2));
    house.pdp.resume().await.unwrap();
    house.flush().await;
    let acts = house.pdp.local_acts();
    assert_eq!(acts.len(), 2);
    assert_eq!((&acts[0]["action_type"], &acts[0]["mode"]), (&json!("lamp.toggle"), &json!("fail_static")));
    assert_eq!(acts[0]["policy"].as_str().unwrap().len(), 64);
    assert_eq!(acts[0]["source"], "system");
    let members: Vec<&str> = acts[0].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "action_type completed_at decided_at mode outcome params policy rationale request_id source";
    assert_eq!(members, expected.split(' ').collect::<Vec<_>>());
}

/// A sink that fails, and one that hangs, under a local permit: the outcome is queued with its error.
#[tokio::test]
async fn case_125_outcomes_of_local_acts_are_queued() {
    let mut house = listed().await;
    house.pdp.stop().await;
    let failed = house.pep.run::<(), _, _>(lamp(), async |_| Err(placet_pep::SinkError::failed("no"))).await;
    assert!(matches!(failed, Err(RunError::Failed { .. })), "{failed:?}");
    let hung = house.pep.run::<(), _, _>(lamp(), async |_| std::future::pending().await).await;
    assert!(matches!(hung, Err(RunError::TimedOut { .. })), "{hung:?}");
    house.pdp.resume().await.unwrap();
    house.flush().await;
    let outcomes: Vec<Value> = house.pdp.local_acts().iter().map(|act| act["outcome"].clone()).collect();
    assert_eq!(outcomes, ["failure", "timeout"]);
}

#[tokio::test]
async fn case_126_everything_else_waits_for_the_decision_point() {
    let mut house = listed().await;
    house.pdp.stop().await;
    for action in [
        Action::new("pay.small").param("payee", "x").param("amount_eur", "1.00"),
        Action::new("wire.send"),
        Action::new("cell.open"),
        Action::new("log.audit"),
        Action::new("reh.a"),
        Action::new("no.such"),
        // On the list, and outside its bounds.
        Action::new("lamp.toggle").param("state", "broken"),
        Action::new("lamp.toggle"),
        lamp().param("extra", 1),
    ] {
        let refused = house.refused(action).await;
        assert!(refused.contains("Unreachable"), "{refused}");
    }
    assert_eq!(house.pep.outbox().local, 0);
}

/// A read on the list passes only where this enforcement point lists it as a read.
#[tokio::test]
async fn case_126_a_read_on_the_list_that_is_no_read_here_waits() {
    let mut house = House::with(MODE, |b| b).await;
    house.pep.refresh_static().await.unwrap();
    house.pdp.stop().await;
    house.refused(Action::new("read.status")).await;
}

#[tokio::test]
async fn case_127_a_list_that_says_more_is_refused() {
    let list = |entry: Value| {
        let list = json!({ "policy": "d", "as_of": "2026-08-17T09:00:00Z", "actions": [entry] });
        StaticList::read(list.to_string().as_bytes())
    };
    let entry = |tier: u8, members: Value| {
        let bounds = json!({ "enum": {}, "numeric": {}, "required": [], "strict_params": true });
        let mut entry = json!({ "action_type": "lamp.toggle", "tier": tier, "params": bounds });
        entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        entry
    };
    assert_eq!(list(entry(1, json!({}))).unwrap().len(), 1);
    for wrong in [
        entry(2, json!({})),
        entry(3, json!({})),
        entry(1, json!({ "approval": true })),
        entry(1, json!({ "approval": null })),
        entry(1, json!({ "obligations": [] })),
        entry(1, json!({ "budget": "day" })),
        entry(1, json!({ "params": {} })),
        entry(1, json!({ "params": { "enum": {}, "numeric": {}, "required": [], "strict_params": true, "cost": 1 } })),
    ] {
        assert!(list(wrong.clone()).is_err(), "{wrong}");
    }

    // The same in the cached file: nothing is done on it.
    let mut house = listed().await;
    house.pdp.stop().await;
    house.pep.close().await;
    let file = house.folder.path().join("static.json");
    let text = std::fs::read_to_string(&file).unwrap();
    for edited in [
        text.replace(r#"\"tier\":1"#, r#"\"tier\":1,\"approval\":true"#),
        text.replace(r#"\"lamp.toggle\""#, r#"\"wire.send\""#),
        text.replace("20", "21"),
        "{".to_owned(),
    ] {
        assert_ne!(edited, text);
        std::fs::write(&file, edited).unwrap();
        let again = builder(house.folder.path()).endpoint(house.pdp.url()).unreachable(MODE).build().unwrap();
        let sink = CountingSink::default();
        for action in [lamp(), Action::new("wire.send")] {
            let refused = again.run(action, sink.act()).await;
            assert!(matches!(refused, Err(RunError::Unreachable { .. })), "{refused:?}");
        }
        assert_eq!(sink.calls(), 0);
        again.close().await;
    }
    // As it was, it serves the next life.
    std::fs::write(&file, &text).unwrap();
    let again = builder(house.folder.path()).endpoint(house.pdp.url()).unreachable(MODE).build().unwrap();
    assert_eq!(again.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::FailStatic);
}

/// Refreshes at once do not get in each other's way.
#[tokio::test(flavor = "multi_thread")]
async fn many_refreshes_at_once() {
    let mut house = House::with(MODE, |b| b).await;
    let refreshes = (0..20).map(|_| {
        let pep = house.pep.clone();
        tokio::spawn(async move { pep.refresh_static().await })
    });
    for refresh in refreshes.collect::<Vec<_>>() {
        refresh.await.unwrap().unwrap();
    }
    house.pdp.stop().await;
    assert_eq!(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::FailStatic);
}

/// A list is not used beyond its age.
#[tokio::test]
async fn case_126_an_old_list_is_not_used() {
    let mode = Unreachable::FailStatic { max_age: Duration::from_millis(900) };
    let mut house = House::with(mode, |b| b.attempts(1)).await;
    house.pep.refresh_static().await.unwrap();
    house.pdp.stop().await;
    let started = std::time::Instant::now();
    while house.pep.run(lamp(), async |_| Ok(())).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(10), "the list is used for ever");
    }
    let refused = house.refused(lamp()).await;
    assert!(refused.contains("older"), "{refused}");
}

/// In order, once each although an answer is lost, and before anything new is decided here.
#[tokio::test]
async fn case_128_the_queue_arrives_in_order_once_and_first() {
    let mut house = listed().await;
    house.pdp.stop().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().request_id);
    }
    // The decision point is back, and takes no local acts yet.
    let busy = || Fault::Answer { status: 503, body: json!({ "code": "unavailable", "detail": "d" }).to_string() };
    for _ in 0..50 {
        house.pdp.fault("/v1/local", busy());
    }
    house.pdp.resume().await.unwrap();
    assert_eq!(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
    // It is gone again: what waits goes first, so nothing new is decided here.
    house.pdp.stop().await;
    let refused = house.refused(lamp()).await;
    assert!(refused.contains("not delivered yet"), "{refused}");
    assert!(house.pdp.local_acts().is_empty());

    // It is back for good; the first answer is lost.
    house.pdp.clear_faults();
    house.pdp.fault("/v1/local", Fault::LoseAnswer);
    house.pdp.resume().await.unwrap();
    house.flush().await;
    let arrived: Vec<String> =
        house.pdp.local_acts().iter().map(|act| act["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(arrived, ids);

    // And then new ones are.
    house.pdp.stop().await;
    assert_eq!(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::FailStatic);
}

/// `fail_open` means it: what is not delivered does not stop the next act, and still arrives in order.
#[tokio::test]
async fn case_128_fail_open_acts_on_while_the_queue_waits() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    for _ in 0..100 {
        house.pdp.fault("/v1/local", Fault::Answer { status: 503, body: "{}".to_owned() });
    }
    let mut ids = Vec::new();
    for _ in 0..2 {
        house.pdp.stop().await;
        ids.push(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().request_id);
        house.pdp.resume().await.unwrap();
        assert_eq!(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
    }
    house.pdp.clear_faults();
    house.flush().await;
    let arrived: Vec<String> =
        house.pdp.local_acts().iter().map(|act| act["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(arrived, ids);
}

/// The queue survives a restart in the middle of the outage.
#[tokio::test]
async fn case_128_the_queue_survives_a_restart() {
    let mut house = listed().await;
    house.pdp.stop().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().request_id);
    }
    house.pep.close().await;
    let again = builder(house.folder.path()).endpoint(house.pdp.url()).bearer_token(house.pdp.token());
    let again = again.unreachable(MODE).build().unwrap();
    assert_eq!(again.outbox().local, 2);
    ids.push(again.run(lamp(), async |_| Ok(())).await.unwrap().request_id);
    house.pdp.resume().await.unwrap();
    flush(&again).await;
    let arrived: Vec<String> =
        house.pdp.local_acts().iter().map(|act| act["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(arrived, ids);
}

/// One act that the decision point will not take does not hold the others back.
#[tokio::test]
async fn a_local_act_that_is_refused_is_set_aside_alone() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    house.pdp.stop().await;
    for _ in 0..3 {
        house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    }
    house.pdp.fault("/v1/local", refusal(400));
    house.pdp.fault("/v1/local", refusal(400));
    house.pdp.resume().await.unwrap();
    house.flush().await;
    assert_eq!(house.pdp.local_acts().len(), 2);
    assert_eq!(house.pep.outbox().set_aside, 1);
}

/// A conflict with what is on record is a refusal of that act alone: the others arrive.
#[tokio::test]
async fn a_local_act_that_conflicts_is_set_aside_alone() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    house.pdp.stop().await;
    for _ in 0..3 {
        house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    }
    house.pdp.fault("/v1/local", refusal(409));
    house.pdp.fault("/v1/local", refusal(409));
    house.pdp.resume().await.unwrap();
    house.flush().await;
    assert_eq!((house.pdp.local_acts().len(), house.pep.outbox().set_aside), (2, 1));
}

/// What could be decided but never delivered is not done: too large, or nested too deep inside a delivery.
#[tokio::test]
async fn a_local_act_that_could_not_be_delivered_is_not_done() {
    let mut house = House::with(Unreachable::FailOpen, |b| b).await;
    let deep = (0..62).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let large = || Action::new("wire.send").param("text", "x".repeat(950_000));
    for action in [large(), Action::new("wire.send").param("deep", deep.clone())] {
        assert_eq!(house.pep.decide(action).await.unwrap().verdict, placet_pep::Verdict::Propose);
    }
    house.pdp.stop().await;
    for action in [large(), Action::new("wire.send").param("deep", deep)] {
        let refused = house.refused(action).await;
        assert!(refused.contains("delivered afterwards"), "{refused}");
    }
    // The largest that fits arrives, whatever its error.
    let fits = Action::new("wire.send").param("text", "x".repeat(900_000));
    let failed = async |_| Err(placet_pep::SinkError::failed("\u{1}".repeat(5000)));
    assert!(house.pep.run::<(), _, _>(fits, failed).await.is_err());
    house.pdp.resume().await.unwrap();
    house.flush().await;
    assert_eq!((house.pdp.local_acts().len(), house.pep.outbox().set_aside), (1, 0));
}

fn refusal(status: u16) -> Fault {
    Fault::Answer { status, body: "{}".to_owned() }
}
