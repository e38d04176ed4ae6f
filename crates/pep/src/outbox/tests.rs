//! The outbox without a network: room, a disk that fails, and what a next life finds.

use super::*;

fn permit(id: &str) -> Subject {
    Subject::Permit { permit_id: id.to_owned(), request_id: "r".to_owned(), action_type: "a".to_owned() }
}

/// A full outbox refuses new acts; a slot that is given back makes room.
#[test]
fn a_full_outbox_refuses_new_acts() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, _) = Outbox::open(folder.path()).unwrap();
    let mut slots: Vec<Slot> = (0..OUTBOX_ITEMS_MAX).map(|_| outbox.reserve().unwrap()).collect();
    assert!(matches!(outbox.reserve(), Err(OutboxError::Full { .. })));
    slots.pop();
    assert!(outbox.reserve().is_ok());
}

/// A disk that takes nothing: no act may begin; what never began is still reported, from memory.
#[tokio::test]
async fn without_a_disk_nothing_begins_and_reports_still_leave() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = Log::open(folder.path()).unwrap();
    log.take_no_more();
    let (outbox, _) = Outbox::start(log, Items::default(), 0).unwrap();
    assert!(outbox.begin(permit("pmt-1"), None).1.wait().await.is_err());
    assert_eq!(outbox.status(), OutboxStatus::default());
    let recorded = outbox.record(permit("pmt-1"), Ending::new(Outcome::NotAttempted, "no disk"));
    assert!(recorded.wait().await.is_err());
    assert_eq!(outbox.status().reports, 1);
}

/// Opened again, an outbox holds what was not delivered, and what was begun and never ended is `timeout`.
#[tokio::test]
async fn an_outbox_comes_back_with_what_is_owed() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, thread) = Outbox::open(folder.path()).unwrap();
    let (torn, begun) = outbox.begin(permit("pmt-1"), None);
    begun.wait().await.unwrap();
    let (over, _) = outbox.begin(permit("pmt-2"), None);
    outbox.end(over, Ending::new(Outcome::Success, "")).wait().await.unwrap();
    let (gone, _) = outbox.begin(permit("pmt-3"), None);
    outbox.end(gone, Ending::new(Outcome::Success, "")).wait().await.unwrap();
    outbox.delivered(&[gone]).wait().await.unwrap();
    outbox.close();
    thread.join().unwrap();
    for _ in 0..2 {
        let (outbox, thread) = Outbox::open(folder.path()).unwrap();
        let outcomes: Vec<_> =
            outbox.items().by_key.iter().map(|(key, item)| (*key, item.ending.clone().unwrap().outcome)).collect();
        assert_eq!(outcomes, [(torn, Outcome::Timeout), (over, Outcome::Success)]);
        assert!(!outbox.claim("pmt-1") && outbox.claim("pmt-4"), "a permit that is owed a report is known");
        outbox.close();
        thread.join().unwrap();
    }
}

/// A claim outlives its act: delivered, rewritten and opened again, the request id is still taken.
#[tokio::test]
async fn a_claim_outlives_what_was_done_under_it() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, thread) = Outbox::open(folder.path()).unwrap();
    assert!(outbox.claim_request("r-1"));
    let (key, begun) = outbox.begin(permit("pmt-1"), Some("r-1"));
    begun.wait().await.unwrap();
    outbox.end(key, Ending::new(Outcome::Success, "")).wait().await.unwrap();
    outbox.delivered(&[key]).wait().await.unwrap();
    assert!(outbox.claim_request("r-2"));
    outbox.write_claim("r-2").wait().await.unwrap();
    let records = outbox.items().records();
    outbox.close();
    thread.join().unwrap();
    let (mut log, _) = Log::open(folder.path()).unwrap();
    log.rewrite(&records).unwrap();
    drop(log);
    let (outbox, _) = Outbox::open(folder.path()).unwrap();
    assert!(outbox.items().by_key.is_empty());
    for (id, free) in [("r-1", false), ("r-2", false), ("r-3", true)] {
        assert_eq!((outbox.is_claimed(id), outbox.claim_request(id)), (!free, free), "{id}");
    }
}

/// A claim that the disk did not take is none: nothing was done under it.
#[tokio::test]
async fn a_claim_that_was_not_written_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = Log::open(folder.path()).unwrap();
    log.take_no_more();
    let (outbox, _) = Outbox::start(log, Items::default(), 0).unwrap();
    assert!(outbox.claim_request("r-1"));
    assert!(outbox.begin(permit("pmt-1"), Some("r-1")).1.wait().await.is_err());
    assert!(!outbox.is_claimed("r-1"));
}

/// The oldest is forgotten first, and what is forgotten on purpose makes room.
#[test]
fn memory_has_a_bound() {
    let mut recent = Recent::new(2);
    assert!(recent.claim("a") && !recent.claim("a") && recent.claim("b"));
    recent.forget("b");
    assert!(recent.claim("c") && recent.holds("a"));
    assert!(recent.claim("d") && !recent.holds("a") && recent.holds("c"));
    assert_eq!(recent.len(), 2);
}
