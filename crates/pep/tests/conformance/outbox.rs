//! The outbox: retries of a report, torn tails, damage, the lock.

use std::fs;
use std::io::Write;

use placet_pep::testing::Fault;
use placet_pep::{BuildError, OutboxError, RunError, Unreachable};
use serde_json::json;

use crate::support::{CountingSink, House, builder, flush, lamp};

/// Whatever happens on the way, the report arrives, and becomes the result once.
#[tokio::test]
async fn a_report_is_repeated_until_it_is_answered() {
    let house = House::open().await;
    let unavailable = || Fault::Answer { status: 503, body: json!({ "code": "unknown" }).to_string() };
    for fault in [unavailable(), Fault::Answer { status: 200, body: "{".to_owned() }, Fault::LoseAnswer] {
        house.pdp.fault("/v1/report", fault);
    }
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.flush().await;
    assert_eq!(house.pdp.results(), ["success"]);
    let reports = house.reports();
    assert_eq!(reports.len(), 4);
    assert!(reports.iter().all(|report| *report == reports[0]), "{reports:?}");
}

/// A report that is refused with its payload arrives without it; one that is refused anyway is set aside.
#[tokio::test]
async fn a_report_that_is_refused_goes_without_its_payload() {
    let house = House::open().await;
    let refusal = || Fault::Answer { status: 413, body: "{}".to_owned() };
    house.pdp.fault("/v1/report", refusal());
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.flush().await;
    assert_eq!(house.pdp.results(), ["success"]);
    assert!(house.reports()[1].get("payload").is_none());

    house.pdp.fault("/v1/report", refusal());
    house.pdp.fault("/v1/report", refusal());
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.flush().await;
    assert_eq!((house.pep.outbox().set_aside, house.pdp.results().len()), (1, 1));
}

/// An endpoint that knows no such permit of this sender does not end a report: the others are asked, once each.
#[tokio::test]
async fn a_report_of_a_stranger_goes_to_the_other_endpoints() {
    let strange = || {
        let body =
            json!({ "protocol": "aadp/0.2", "accepted": false, "evidence_id": "aud-9", "reason": "sender_mismatch" });
        Fault::Answer { status: 200, body: body.to_string() }
    };
    let house = House::open().await;
    house.pdp.fault("/v1/report", strange());
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.flush().await;
    assert_eq!((house.pep.outbox().set_aside, house.reports().len(), house.pdp.results().len()), (1, 1, 0));

    let house = House::open().await;
    let again = house.pdp.url().replace("127.0.0.1", "localhost");
    let folder = tempfile::tempdir().unwrap();
    let two = builder(folder.path()).endpoint(house.pdp.url()).endpoint(again).bearer_token(house.pdp.token());
    let two = two.unreachable(Unreachable::FailClosed).build().unwrap();
    house.pdp.fault("/v1/report", strange());
    two.run(lamp(), async |_| Ok(())).await.unwrap();
    flush(&two).await;
    assert_eq!((two.outbox().set_aside, house.reports().len()), (0, 2));
    assert_eq!(house.pdp.results(), ["success"]);
    house.pdp.fault("/v1/report", strange());
    house.pdp.fault("/v1/report", strange());
    two.run(lamp(), async |_| Ok(())).await.unwrap();
    flush(&two).await;
    assert_eq!((two.outbox().set_aside, house.reports().len()), (1, 4));
}

/// A report that waited for the decision point to come back, over a restart with a torn tail.
#[tokio::test]
async fn a_torn_tail_is_cut_off_and_the_rest_is_delivered() {
    let mut house = House::open().await;
    let pdp = &house.pdp;
    pdp.fault("/v1/report", Fault::Hang);
    house.pep.run(lamp(), async |_| Ok(())).await.unwrap();
    house.pdp.stop().await;
    house.pep.close().await;
    let file = house.folder.path().join("outbox");
    for torn in ["0123", "\0\0\0\0", "abc\ndef", &format!("{} [", "a".repeat(64))] {
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(torn.as_bytes()).unwrap();
        let again = builder(house.folder.path()).endpoint(house.pdp.url()).unreachable(Unreachable::FailClosed);
        let again = again.build().unwrap();
        assert_eq!(again.outbox().reports, 1, "{torn:?}");
        again.close().await;
    }
    house.pdp.resume().await.unwrap();
    let again = builder(house.folder.path()).endpoint(house.pdp.url()).bearer_token(house.pdp.token());
    let again = again.unreachable(Unreachable::FailClosed).build().unwrap();
    flush(&again).await;
    assert_eq!(house.pdp.results(), ["success"]);
}

/// A broken frame with whole ones behind it is damage, not a torn tail: nothing starts.
#[tokio::test]
async fn damage_in_the_middle_stops_the_start() {
    let mut house = House::open().await;
    house.pdp.stop().await;
    house.pep.close().await;
    let open =
        || builder(house.folder.path()).endpoint("http://127.0.0.1:1").unreachable(Unreachable::FailOpen).build();
    let pep = open().unwrap();
    for _ in 0..2 {
        pep.run(lamp(), async |_| Ok(())).await.unwrap();
    }
    pep.close().await;
    let file = house.folder.path().join("outbox");
    let mut bytes = fs::read(&file).unwrap();
    bytes[80] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(matches!(open(), Err(BuildError::Outbox(OutboxError::Damaged { frame: 1 }))));
}

#[tokio::test]
async fn one_outbox_serves_one_enforcement_point() {
    let house = House::open().await;
    let second = builder(house.folder.path()).endpoint(house.pdp.url()).unreachable(Unreachable::FailClosed).build();
    assert!(matches!(second, Err(BuildError::Outbox(OutboxError::Locked))), "{second:?}");
    let pep = house.pep.clone();
    house.pep.close().await;
    // Closed, it takes nothing; and it can be opened again.
    let sink = CountingSink::default();
    let closed = pep.run(lamp(), sink.act()).await;
    assert!(matches!(closed, Err(RunError::Outbox(OutboxError::Closed))), "{closed:?}");
    assert_eq!(sink.calls(), 0);
    builder(house.folder.path()).endpoint(house.pdp.url()).unreachable(Unreachable::FailClosed).build().unwrap();
}

/// What is delivered leaves the file: it does not grow for ever.
#[tokio::test]
async fn a_file_of_delivered_acts_becomes_small() {
    let house = House::open().await;
    for _ in 0..40 {
        let big = async |permit: placet_pep::Permit| {
            permit.note("log", "x".repeat(60_000));
            Ok(())
        };
        house.pep.run(lamp(), big).await.unwrap();
    }
    house.flush().await;
    assert_eq!(house.pdp.results().len(), 40);
    let bytes = fs::metadata(house.folder.path().join("outbox")).unwrap().len();
    assert!(bytes < 2 << 20, "{bytes}");
}
