//! Disks that fail or fill while a node works on them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use placet_core::cluster::{HealthStatus, MembershipChange};
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Query, Reject};
use placet_replica::bytes::Bytes;
use placet_replica::ports::{Log, LogKey, State};
use placet_replica::{Node, Options, serve_peers};
use tokio::net::TcpListener;

use crate::harness::{Cluster, PATIENCE, POLICY, START_MS, decide_body, permit, wait_for};

/// A log whose syncs fail once somebody says so, and succeed again afterwards, as a kernel's do.
#[derive(Debug)]
struct FailingLog {
    inner: Arc<dyn Log>,
    fail: AtomicBool,
    writes_after: AtomicU64,
    failed: AtomicBool,
}

impl FailingLog {
    fn wrote(&self) {
        if self.failed.load(Ordering::SeqCst) {
            self.writes_after.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Log for FailingLog {
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        self.wrote();
        self.inner.append(entries)
    }
    fn sync(&self) -> io::Result<()> {
        self.wrote();
        if self.fail.swap(false, Ordering::SeqCst) {
            self.failed.store(true, Ordering::SeqCst);
            return Err(io::Error::other("Input/output error"));
        }
        self.inner.sync()
    }
    fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.inner.truncate_from(index)
    }
    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()> {
        self.inner.purge_to(index, last_purged)
    }
    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        self.inner.read(range, bytes_max)
    }
    fn last(&self) -> io::Result<Option<(u64, Bytes)>> {
        self.inner.last()
    }
    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()> {
        self.wrote();
        self.inner.put(key, value, durable)
    }
    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>> {
        self.inner.get(key)
    }
    fn durable(&self) -> bool {
        self.inner.durable()
    }
}

fn decide(number: u64) -> Call {
    Call { principal: Principal::new("agent:test"), op: Op::Decide(decide_body(number)) }
}

/// Goal: a sync that failed is not tried again, nothing is acknowledged after it, and the node stops with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_stops_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let store = placet_store::open(folder.path(), &placet_store::StoreOptions::default()).unwrap();
    let inner: Arc<dyn Log> = store.log.clone();
    let log = Arc::new(FailingLog {
        inner,
        fail: AtomicBool::new(false),
        writes_after: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = listener.local_addr().unwrap().to_string();
    let mut options = Options::new(1, &store.snapshot_dir);
    let at = placet_core::cluster::MemberAddresses { peer, http: "http://x".to_owned(), grpc: "http://x".to_owned() };
    options.initial_cluster = BTreeMap::from([(1, at)]);
    options.clock = placet_replica::Clock::new(|| START_MS);
    let node = Node::start(options, log.clone(), store.state.clone()).await.unwrap();
    let served = node.clone();
    tokio::spawn(async move { serve_peers(&served, listener, std::future::pending()).await.unwrap() });
    let publish = Op::PublishPolicy { document: POLICY.to_owned(), expect: None, activate: true };
    node.submit(Call { principal: Principal::new("desk"), op: publish }).await.unwrap();
    permit(node.submit(decide(1)).await);

    log.fail.store(true, Ordering::SeqCst);
    let lost = node.submit(decide(2)).await;
    assert!(matches!(lost, Err(Reject::Unknown { .. } | Reject::Unavailable { .. })), "{lost:?}");
    let reason = tokio::time::timeout(PATIENCE, node.stopped()).await.unwrap();
    assert!(reason.contains("the log could not be synced: Input/output error"), "{reason}");
    assert_eq!((node.health().status, node.health().detail), (HealthStatus::Fatal, Some(reason)));
    let after = node.submit(decide(3)).await;
    assert!(matches!(after, Err(Reject::Unknown { .. } | Reject::Unavailable { .. })), "{after:?}");
    node.shutdown().await;
    assert_eq!(log.writes_after.load(Ordering::SeqCst), 0, "nothing is written or synced after the failure");
}

/// Goal: a state with a damaged block refuses to start with a message, and never answers "not found".
#[test]
fn a_state_that_cannot_be_read_refuses_to_start() {
    let mut cluster = Cluster::start(3, |_| {});
    cluster.publish();
    cluster.work(1, 50);
    cluster.agree();
    let victim = cluster.follower();
    // A start moves what was written into tables.
    cluster.kill(victim);
    cluster.spawn(victim);
    cluster.agree();
    cluster.kill(victim);
    let tables = std::fs::read_dir(cluster.data(victim).join("state/1")).unwrap().map(|entry| entry.unwrap().path());
    for path in tables.filter(|path| path.extension().is_some_and(|kind| kind == "sst")) {
        // The first block holds records; what RocksDB reads on opening lies at the end.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let opened = placet_store::open(&cluster.data(victim), &placet_store::StoreOptions::default());
    let text = opened.map(drop).unwrap_err().to_string();
    assert!(text.contains("placet repair --config FILE"), "{text}");
    let leader = cluster.leader();
    cluster.work(leader, 3);
}

/// Goal: a member whose data was moved away by a repair comes back without harm, also one that was added later.
#[test]
fn a_repaired_member_that_was_added_later_does_not_vote_before_it_knows() {
    let mut cluster = Cluster::start(3, |_| {});
    cluster.publish();
    cluster.work(1, 20);
    cluster.allot(4);
    cluster.spawn(4);
    let change =
        |cluster: &Cluster, change: MembershipChange| cluster.block_on(1, cluster.node(1).change_membership(change));
    change(&cluster, MembershipChange::AddLearner { id: 4, addresses: cluster.addresses(4) }).unwrap();
    wait_for("a promotion", || change(&cluster, MembershipChange::Promote { id: 4 }).ok());
    cluster.work(4, 5);
    cluster.agree();
    (1..=4).for_each(|id| cluster.kill(id));
    // What `placet repair --from-peers` does.
    let store = placet_store::open(&cluster.data(4), &placet_store::StoreOptions::default()).unwrap();
    let members = placet_replica::members_in(&store.state.position().unwrap().unwrap()).unwrap();
    assert_eq!(members.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    drop(store);
    cluster.wipe(4);
    let store = placet_store::open(&cluster.data(4), &placet_store::StoreOptions::default()).unwrap();
    placet_replica::forget(store.log.as_ref(), members).unwrap();
    drop(store);
    // Three of four run, and three are a quorum; but one of them does not know what it promised to the fourth.
    [1, 2, 4].into_iter().for_each(|id| cluster.spawn(id));
    let refused = cluster.submit(1, Op::Decide(decide_body(99)));
    assert!(matches!(refused, Err(Reject::Unavailable { .. } | Reject::Unknown { .. })), "{refused:?}");
    assert!([1, 2, 4].into_iter().all(|id| !cluster.node(id).leads()));
    cluster.spawn(3);
    wait_for("full standing", || cluster.node(4).health().detail.is_none().then_some(()));
    cluster.work(4, 5);
    let view = cluster.agree();
    assert!(view.evidence_index.0 >= 31, "{view:?}");
    assert_eq!(cluster.submit(4, Op::Query(Query::Position)), Ok(Answer::Position(view.evidence_index)));
}

/// Free bytes of each node's disk, as its probe sees them.
static FREE: [AtomicU64; 4] = [const { AtomicU64::new(u64::MAX) }; 4];

fn watched(options: &mut Options) {
    let id = usize::try_from(options.node_id).unwrap();
    options.disk = placet_replica::DiskSpace::watched(1000, move || Ok(FREE[id].load(Ordering::SeqCst)));
}

fn fill(id: u64, free: u64) {
    FREE[usize::try_from(id).unwrap()].store(free, Ordering::SeqCst);
}

/// Goal: a leader whose disk is low makes way; when no voter has space decides are refused, and nothing else; when space
/// returns everything goes on by itself.
#[test]
fn a_full_disk_sheds_decides_and_recovers() {
    let mut cluster = Cluster::start(3, watched);
    cluster.publish();
    let open = cluster.work(1, 3);
    let first = cluster.leader();
    fill(first, 999);
    let second = wait_for("a leader with space", || Some(cluster.leader()).filter(|id| *id != first));
    let detail = cluster.node(first).health().detail.unwrap();
    assert!(detail.contains("the disk is low: 999 bytes are free and 1000 are kept"), "{detail}");
    cluster.work(first, 2);

    (1..=3).for_each(|id| fill(id, 10));
    // Until the guard has looked, a decide still passes: another request each time, because a replay is answered.
    let (body, refused) = wait_for("a refusal", || {
        let body = cluster.body();
        let refused = cluster.submit(second, Op::Decide(body.clone())).err()?;
        Some((body, refused))
    });
    assert!(matches!(&refused, Reject::Unavailable { detail } if detail.contains("the disk is low")), "{refused:?}");
    // What was decided before is still answered; reports, the switch and reads go on.
    let again = permit(cluster.submit(second, Op::Decide(decide_body(1))));
    assert_eq!(again.permit_id, open[0].permit_id);
    let report = |permit: &str| {
        let body = format!(
            r#"{{"protocol":"aadp/0.2","permit_id":"{permit}","outcome":"success","completed_at":"2026-08-17T09:00:00Z"}}"#
        );
        cluster.submit(second, Op::Report(body.into_bytes()))
    };
    let accepted = report(open[0].permit_id.as_ref().unwrap().as_str());
    assert!(matches!(&accepted, Ok(Answer::Report(reply)) if reply.accepted), "{accepted:?}");
    let switch = |engaged| Op::SetKillSwitch { engaged, origin: "test".to_owned(), note: None, scope: None };
    cluster.submit(second, switch(true)).unwrap();
    cluster.submit(second, switch(false)).unwrap();
    assert!(cluster.submit(second, Op::Query(Query::Intents { after: None, limit: 10 })).is_ok());

    // A little above the reserve is not enough to be believed; well above it is.
    (1..=3).for_each(|id| fill(id, 2000));
    wait_for("decides again", || cluster.submit(second, Op::Decide(body.clone())).ok());
    wait_for("health", || cluster.ids().into_iter().all(|id| cluster.node(id).health().detail.is_none()).then_some(()));
    cluster.agree();
}
