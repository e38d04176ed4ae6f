//! The store behind the ports: what it keeps, what it refuses, what survives. One binary, because each links RocksDB.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests; a failure here is a failed test"
)]

mod damage;

use std::path::Path;
use std::sync::Arc;

use placet_core::evaluate::evaluate;
use placet_core::event::Event;
use placet_core::evidence;
use placet_core::fold::fold;
use placet_core::ids::{Entropy, EvidenceIndex, Hash, Principal};
use placet_core::op::{Call, Op};
use placet_core::search::{Marks, OpenRun};
use placet_core::stamp::Stamp;
use placet_core::state::{Changes, Counter, CounterKey, List, Overlay, Read};
use placet_replica::bytes::Bytes;
use placet_replica::ports::{Log, LogKey, State};
use placet_store::{OpenError, Store, StoreOptions, open};

fn store(path: &Path) -> Store {
    open(path, &StoreOptions { block_cache_bytes: 4 << 20, ..StoreOptions::default() }).unwrap()
}

/// What folding kill-switch flips would write next, on top of `store`.
fn flips(store: &Store, count: usize) -> (Changes, Vec<Event>) {
    let mut overlay = Overlay::new(store.state.clone());
    let mut all = Vec::new();
    for at in 0..count {
        let op = Op::SetKillSwitch { engaged: at % 2 == 0, origin: "test".to_owned(), note: None, scope: None };
        let call = Call { principal: Principal::new("ops"), op };
        let outcome = evaluate(&overlay, &call, Stamp(1_000), Entropy::default(), &Default::default()).unwrap();
        for event in outcome.events {
            fold(&mut overlay, &event).unwrap();
            all.push(event);
        }
    }
    let marks = all.iter().map(|event| (event.entry.index, Marks::of(&event.entry))).collect();
    (Changes { marks, ..overlay.into_changes() }, all)
}

fn entries(range: std::ops::Range<u64>) -> Vec<(u64, Bytes)> {
    range.map(|index| (index, Bytes::from(vec![u8::try_from(index % 256).unwrap(); 100]))).collect()
}

fn indexes(found: &[(u64, Bytes)]) -> Vec<u64> {
    found.iter().map(|(index, _)| *index).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_adapter_passes_the_suite_of_openraft() {
    let fresh = || {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let (log, state): (Arc<dyn Log>, Arc<dyn State>) = (store.log, store.state);
        (log, state, store.snapshot_dir, dir)
    };
    placet_replica::conformance::run(fresh).await.unwrap();
}

#[test]
fn a_folder_has_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path());
    assert!(matches!(open(dir.path(), &StoreOptions::default()), Err(OpenError::InUse(_))));
    drop(first);
    store(dir.path());
}

#[test]
fn the_log_reads_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path());
    first.log.append(&entries(1..11)).unwrap();
    // Readable before it is durable.
    assert_eq!(indexes(&first.log.read(3..6, usize::MAX).unwrap()), [3, 4, 5]);
    assert_eq!(indexes(&first.log.read(3..9, 250).unwrap()), [3, 4], "bounded by bytes");
    assert_eq!(indexes(&first.log.read(3..9, 1).unwrap()), [3], "never empty");
    first.log.truncate_from(9).unwrap();
    assert_eq!(first.log.last().unwrap().unwrap().0, 8);
    first.log.purge_to(4, b"four").unwrap();
    first.log.put(LogKey::Vote, b"vote", true).unwrap();
    first.log.sync().unwrap();
    drop(first);
    let again = store(dir.path());
    assert_eq!(indexes(&again.log.read(0..100, usize::MAX).unwrap()), [5, 6, 7, 8]);
    assert_eq!(again.log.get(LogKey::LastPurged).unwrap().unwrap(), b"four");
    assert_eq!(again.log.get(LogKey::Vote).unwrap().unwrap(), b"vote");
    assert_eq!(again.log.get(LogKey::Committed).unwrap(), None);
    again.log.purge_to(20, b"twenty").unwrap();
    assert!(again.log.last().unwrap().is_none(), "a purge may run ahead of the log");
}

/// Goal: what is committed is read back at once, comes with the next append, and with the end of the log.
#[test]
fn what_is_committed_comes_with_the_next_append() {
    let dir = tempfile::tempdir().unwrap();
    let committed = |store: &Store| store.log.get(LogKey::Committed).unwrap();
    let first = store(dir.path());
    first.log.put(LogKey::Committed, b"one", false).unwrap();
    assert_eq!(committed(&first).unwrap(), b"one");
    first.log.append(&entries(1..3)).unwrap();
    assert_eq!(committed(&first).unwrap(), b"one");
    first.log.put(LogKey::Committed, b"two", false).unwrap();
    first.log.put(LogKey::Committed, b"three", false).unwrap();
    // As the files are now, a killed process would leave them.
    let killed = tempfile::tempdir().unwrap();
    damage::copy(dir.path(), killed.path());
    assert_eq!(committed(&store(killed.path())).unwrap(), b"one");
    drop(first);
    let again = store(dir.path());
    assert_eq!(committed(&again).unwrap(), b"three");
    again.log.put(LogKey::Committed, b"four", false).unwrap();
    again.log.put(LogKey::Committed, b"five", true).unwrap();
    assert_eq!(committed(&again).unwrap(), b"five");
}

/// Goal: every complete run of entries has its summary, whatever restarts and repeated writes interrupted it.
#[test]
fn a_run_of_entries_has_its_summary() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path());
    let (changes, _) = flips(&first, 100);
    first.state.apply(changes.clone(), b"1").unwrap();
    first.state.apply(changes, b"2").unwrap();
    drop(first);
    let again = store(dir.path());
    assert!(again.state.summaries(0, 9).unwrap().is_empty());
    let (changes, _) = flips(&again, 500);
    again.state.apply(changes, b"3").unwrap();
    drop(again);
    let summaries = store(dir.path()).state.summaries(1, 9).unwrap();
    let mut open = OpenRun::default();
    let state = store(dir.path()).state;
    let entries = state.entries(EvidenceIndex(0), 10_000).unwrap();
    assert_eq!(entries.len(), 600);
    let marked = entries.iter().map(|(index, bytes)| (*index, Marks::of(&evidence::decode(bytes).unwrap())));
    let expected: Vec<_> = marked.filter_map(|(index, marks)| open.push(index, &marks)).collect();
    assert_eq!((expected.len(), summaries.len()), (2, 1));
    assert_eq!(state.summaries(0, 9).unwrap(), expected);
    assert_eq!(summaries, expected[1..]);
}

#[test]
fn case_101_evidence_is_written_once() {
    // Conformance case 101: nothing changes or removes an entry.
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let (changes, events) = flips(&store, 3);
    store.state.apply(changes.clone(), b"1").unwrap();
    store.state.apply(changes.clone(), b"2").unwrap();
    assert_eq!(store.state.position().unwrap().unwrap(), b"2", "the same bytes again change nothing");

    let mut other = Changes::default();
    other.entries.insert(EvidenceIndex(2), (&b"{\"forged\":true}"[..]).into());
    let error = store.state.apply(other, b"3").unwrap_err().to_string();
    assert!(error.contains("`aud-2` exists and is never changed"), "{error}");

    let mut gap = Changes::default();
    gap.entries.insert(EvidenceIndex(9), (&b"{}"[..]).into());
    let error = store.state.apply(gap, b"3").unwrap_err().to_string();
    assert!(error.contains("`aud-9` would leave a gap after `aud-4`"), "{error}");

    assert_eq!(store.state.position().unwrap().unwrap(), b"2", "a refused write writes nothing");
    for event in events {
        assert_eq!(store.state.entry(event.entry.index).unwrap().unwrap(), event.bytes);
    }
}

#[test]
fn a_state_comes_back_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path());
    first.state.apply(flips(&first, 5).0, b"five").unwrap();
    let meta = first.state.meta().unwrap();
    drop(first);
    let again = store(dir.path());
    assert_eq!(again.state.meta().unwrap(), meta);
    assert_eq!(again.state.position().unwrap().unwrap(), b"five");
    let listed = again.state.entries(EvidenceIndex(2), 2).unwrap();
    assert_eq!(listed.iter().map(|(index, _)| index.0).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_snapshot_replaces_the_state_whole() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, target) = (store(from.path()), store(to.path()));
    source.state.apply(flips(&source, 7).0, b"seven").unwrap();
    let copy = from.path().join("copy");
    assert_eq!(source.state.checkpoint(&copy).unwrap().unwrap(), b"seven");
    source.state.apply(flips(&source, 1).0, b"eight").unwrap();
    target.state.apply(flips(&target, 2).0, b"two").unwrap();
    assert_eq!(target.state.verify(&copy).unwrap().unwrap(), b"seven");
    target.state.install(&copy).unwrap();
    assert_eq!(target.state.meta().unwrap().next_index, EvidenceIndex(8));
    // The copy stays good, and the new state goes on by itself.
    target.state.apply(flips(&target, 1).0, b"own").unwrap();
    assert_eq!(target.state.verify(&copy).unwrap().unwrap(), b"seven");
    drop(target);
    let again = store(to.path());
    assert_eq!(again.state.position().unwrap().unwrap(), b"own");
    assert_eq!(again.state.meta().unwrap().next_index, EvidenceIndex(9));
}

#[test]
fn a_crash_while_installing_leaves_the_old_state() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path());
    first.state.apply(flips(&first, 2).0, b"two").unwrap();
    drop(first);
    // As far as an installation gets before the pointer is renamed.
    std::fs::create_dir(dir.path().join("state/2")).unwrap();
    std::fs::write(dir.path().join("state/2/000009.sst"), b"half a table").unwrap();
    std::fs::write(dir.path().join("state/CURRENT.new"), b"2").unwrap();
    let again = store(dir.path());
    assert_eq!(again.state.position().unwrap().unwrap(), b"two");
    assert!(!dir.path().join("state/2").exists());
}

#[test]
fn a_damaged_copy_is_not_taken() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, target) = (store(from.path()), store(to.path()));
    source.state.apply(flips(&source, 7).0, b"seven").unwrap();
    let copy = from.path().join("copy");
    source.state.checkpoint(&copy).unwrap();
    let tables = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    tables.filter(|path| path.extension().is_some_and(|kind| kind == "sst")).for_each(|path| {
        std::fs::remove_file(path).unwrap();
    });
    assert!(target.state.verify(&copy).is_err());
    assert!(target.state.install(&copy).is_err());
    assert_eq!(target.state.meta().unwrap().next_index, EvidenceIndex(1), "the old state stays");
}

/// Goal: nobody else on the machine reads permits from the disk.
#[test]
fn a_new_data_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("node-1");
    drop(store(&data));
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Goal: a document that the version which folded it could not compile is there for the version that can.
#[test]
fn a_policy_is_read_from_its_entry_when_nothing_else_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let mut overlay = Overlay::new(store.state.clone());
    let document = "policies: [{ action_type: read.status, tier: 0 }]".to_owned();
    let op = Op::PublishPolicy { document, expect: None, activate: true };
    let call = Call { principal: Principal::new("desk"), op };
    let outcome = evaluate(&overlay, &call, Stamp(1_000), Entropy::default(), &Default::default()).unwrap();
    outcome.events.iter().for_each(|event| fold(&mut overlay, event).unwrap());
    let mut changes = overlay.into_changes();
    changes.policies.clear();
    store.state.apply(changes, b"1").unwrap();
    let digest = store.state.meta().unwrap().active_policy.unwrap();
    let policy = store.state.policy(&digest).unwrap().unwrap();
    assert_eq!(*policy.digest(), digest);
    assert!(policy.document().actions.contains_key("read.status"));
}

/// Goal: a folder that was written before records had checksums (two runs, the second killed) is read, and is guarded
/// from its first start on.
#[test]
fn a_store_of_before_checksums_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/store-v0");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    damage::copy(&golden, &data);
    let options = StoreOptions { block_cache_bytes: 4 << 20, ..StoreOptions::default() };
    let looked = placet_store::scan(&data, &options).unwrap();
    assert_eq!((looked.findings.len(), looked.log_records, looked.without_checksum), (0, 13, 13), "{looked:?}");
    assert_eq!(looked.entries, 10);
    let first = store(&data);
    let old = first.log.read(0..u64::MAX, usize::MAX).unwrap();
    assert_eq!(indexes(&old), (0..13).collect::<Vec<_>>());
    assert_eq!(first.state.meta().unwrap().next_index, EvidenceIndex(11));
    let vote = first.log.get(LogKey::Vote).unwrap().unwrap();
    first.log.append(&entries(13..15)).unwrap();
    first.log.sync().unwrap();
    drop(first);
    let again = store(&data);
    let all = again.log.read(0..u64::MAX, usize::MAX).unwrap();
    assert_eq!((&all[..13], indexes(&all[13..])), (&old[..], vec![13, 14]));
    assert_eq!(again.log.get(LogKey::Vote).unwrap().unwrap(), vote);
    drop(again);
    let looked = placet_store::scan(&data, &options).unwrap();
    assert_eq!((looked.findings.len(), looked.log_records, looked.without_checksum), (0, 15, 13), "{looked:?}");
    std::fs::remove_file(data.join("MARK")).unwrap();
    assert!(matches!(open(&data, &options), Err(OpenError::Damaged { .. })), "it was guarded");
}

/// Goal: what guards against lost files never refuses a good one: tables of different kinds are written at different
/// times, many write-ahead logs live and die, and copies are taken meanwhile.
#[test]
fn a_busy_state_is_never_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let first = store(&data);
    let state = first.state.clone();
    let writing = std::thread::spawn(move || {
        for number in 0..1500u64 {
            let mut changes = Changes::default();
            let long = format!("{number:06}{}", "x".repeat(60_000));
            let of = CounterKey { budget: long, window: "day".to_owned(), scope: None };
            changes.counters.insert(of, Counter::default());
            // A kind that hardly grows keeps old write-ahead logs alive.
            changes.merkle.insert((1, number), Hash([7; 32]));
            state.apply(changes, number.to_string().as_bytes()).unwrap();
        }
    });
    let mut copies = 0;
    while !writing.is_finished() {
        let copy = dir.path().join(format!("copy-{copies}"));
        first.state.checkpoint(&copy).unwrap();
        first.state.verify(&copy).unwrap();
        std::fs::remove_dir_all(&copy).unwrap();
        copies += 1;
    }
    writing.join().unwrap();
    assert!(copies > 2, "{copies}");
    drop(first);
    assert_eq!(store(&data).state.position().unwrap().unwrap(), b"1499");
}
