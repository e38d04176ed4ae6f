//! Nodes in one process: real RocksDB in temporary folders, real gRPC on loopback, one runtime for each node. A node is
//! killed by dropping its runtime, at whatever point its tasks are; nothing is flushed or said goodbye.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use placet_core::cluster::{ClusterView, MemberAddresses};
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Reject};
use placet_core::reply::{DecideReply, Verdict};
use placet_core::state::Read;
use placet_replica::{Clock, Node, Options, serve_peers};
use placet_store::{OpenError, StoreOptions};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The longest that anything may take; generous, because other builds share the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const POLICY: &str = r#"apiVersion: placet/v1
defaults: { execute_within: 10m }
budgets:
  calls: { kind: rate, limit: 100000, window: day }
policies:
  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, draws: [calls], bounds: { strict_params: false } }
"#;

/// 2026-08-17T09:00:00Z
pub(crate) const START_MS: i64 = 1_786_957_200_000;

struct Running {
    node: Node,
    runtime: Runtime,
}

pub(crate) struct Cluster {
    root: tempfile::TempDir,
    addresses: BTreeMap<u64, MemberAddresses>,
    founders: BTreeMap<u64, MemberAddresses>,
    running: BTreeMap<u64, Running>,
    pub(crate) clock: Arc<AtomicI64>,
    /// Time passes since then; without it, only when a test says so.
    begun: Option<Instant>,
    skews: BTreeMap<u64, Arc<AtomicI64>>,
    pub(crate) tune: fn(&mut Options),
    requests: u64,
}

impl Cluster {
    /// `founders` nodes, running.
    pub(crate) fn start(founders: u64, tune: fn(&mut Options)) -> Self {
        Self::start_at(founders, tune, None)
    }

    /// The same, with clocks that go.
    pub(crate) fn start_ticking(founders: u64, tune: fn(&mut Options)) -> Self {
        Self::start_at(founders, tune, Some(Instant::now()))
    }

    fn start_at(founders: u64, tune: fn(&mut Options), begun: Option<Instant>) -> Self {
        let mut cluster = Self {
            root: tempfile::tempdir().unwrap(),
            addresses: BTreeMap::new(),
            founders: BTreeMap::new(),
            running: BTreeMap::new(),
            clock: Arc::new(AtomicI64::new(START_MS)),
            begun,
            skews: BTreeMap::new(),
            tune,
            requests: 0,
        };
        (1..=founders).for_each(|id| cluster.allot(id));
        cluster.founders = cluster.addresses.clone();
        (1..=founders).for_each(|id| cluster.spawn(id));
        cluster
    }

    /// Gives a node an address of its own.
    pub(crate) fn allot(&mut self, id: u64) {
        let port = free_port();
        let peer = format!("127.0.0.1:{port}");
        let (http, grpc) = (format!("http://n{id}.example:7100"), format!("http://n{id}.example:7101"));
        self.addresses.insert(id, MemberAddresses { peer, http, grpc });
    }

    pub(crate) fn addresses(&self, id: u64) -> MemberAddresses {
        self.addresses[&id].clone()
    }

    pub(crate) fn data(&self, id: u64) -> PathBuf {
        self.root.path().join(id.to_string())
    }

    pub(crate) fn spawn(&mut self, id: u64) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = wait_for("the data folder", || {
            match placet_store::open(
                &self.data(id),
                &StoreOptions { block_cache_bytes: 4 << 20, ..StoreOptions::default() },
            ) {
                Ok(store) => Some(store),
                Err(OpenError::InUse(_)) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
        let mut options = Options::new(id, &store.snapshot_dir);
        options.initial_cluster = if self.founders.contains_key(&id) { self.founders.clone() } else { BTreeMap::new() };
        let clock = self.clock.clone();
        let skew = self.skews.entry(id).or_default().clone();
        let begun = self.begun;
        options.clock = Clock::new(move || since(begun) + clock.load(Ordering::Relaxed) + skew.load(Ordering::Relaxed));
        options.deadline = Duration::from_secs(10);
        (self.tune)(&mut options);
        let peer: SocketAddr = self.addresses[&id].peer.parse().unwrap();
        let node = runtime.block_on(async move {
            let node = Node::start(options, store.log, store.state).await.unwrap();
            let listener = TcpListener::bind(peer).await.unwrap();
            let served = node.clone();
            tokio::spawn(async move { serve_peers(&served, listener, std::future::pending()).await.unwrap() });
            node
        });
        self.running.insert(id, Running { node, runtime });
    }

    /// Ends a node wherever it is.
    pub(crate) fn kill(&mut self, id: u64) {
        let Running { node, runtime } = self.running.remove(&id).unwrap();
        runtime.shutdown_timeout(PATIENCE);
        drop(node);
    }

    /// What a right clock shows.
    pub(crate) fn now_ms(&self) -> i64 {
        since(self.begun) + self.clock.load(Ordering::Relaxed)
    }

    /// Sets how far a node's clock is ahead, from now on.
    pub(crate) fn skew(&self, id: u64, ms: i64) {
        self.skews[&id].store(ms, Ordering::Relaxed);
    }

    pub(crate) fn wipe(&self, id: u64) {
        assert!(!self.running.contains_key(&id));
        std::fs::remove_dir_all(self.data(id)).unwrap();
    }

    pub(crate) fn node(&self, id: u64) -> &Node {
        &self.running[&id].node
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    pub(crate) fn view(&self, id: u64) -> ClusterView {
        self.node(id).cluster().unwrap()
    }

    /// The node that leads, once every running node agrees.
    pub(crate) fn leader(&self) -> u64 {
        wait_for("a leader", || {
            let leaders =
                self.running.values().map(|one| one.node.leader().map(|(id, _)| id)).collect::<Option<Vec<_>>>()?;
            let first = *leaders.first()?;
            let led = self.running.get(&first)?.node.leads();
            (led && leaders.iter().all(|id| *id == first)).then_some(first)
        })
    }

    pub(crate) fn follower(&self) -> u64 {
        let leader = self.leader();
        self.ids().into_iter().find(|id| *id != leader).unwrap()
    }

    pub(crate) fn submit(&self, at: u64, op: Op) -> Result<Answer, Reject> {
        let Running { node, runtime } = &self.running[&at];
        let call = Call { principal: Principal::new("agent:test"), op };
        runtime.block_on(node.submit(call))
    }

    pub(crate) fn block_on<T>(&self, at: u64, work: impl Future<Output = T>) -> T {
        self.running[&at].runtime.block_on(work)
    }

    pub(crate) fn publish(&self) {
        self.leader();
        let op = Op::PublishPolicy { document: POLICY.to_owned(), expect: None, activate: true };
        assert!(matches!(self.submit(1, op), Ok(Answer::PolicyPublished(_))));
    }

    /// A new decide body.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        self.requests += 1;
        decide_body(self.requests)
    }

    /// Decides `count` times at one node; every answer is a permit.
    pub(crate) fn work(&mut self, at: u64, count: usize) -> Vec<DecideReply> {
        let one = |cluster: &mut Self| {
            let body = cluster.body();
            permit(cluster.submit(at, Op::Decide(body)))
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// All running nodes hold the same evidence, up to the last entry of the leader.
    pub(crate) fn agree(&self) -> ClusterView {
        let leader = self.leader();
        wait_for("agreement", || {
            let target = self.view(leader);
            let same = self.ids().into_iter().all(|id| {
                let view = self.view(id);
                (view.evidence_index, view.chain_head, view.applied_index)
                    == (target.evidence_index, target.chain_head, target.applied_index)
            });
            same.then_some(target)
        })
    }

    pub(crate) fn open_permits(&self, id: u64) -> u64 {
        self.node(id).records().meta().unwrap().open_permits
    }
}

fn since(begun: Option<Instant>) -> i64 {
    begun.map_or(0, |begun| i64::try_from(begun.elapsed().as_millis()).unwrap())
}

/// A port for a node, below those that the system gives to outgoing connections: one of those could take a node's port
/// while the node is down.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + u16::try_from(std::process::id() % 200).unwrap() * 64;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn decide_body(number: u64) -> Vec<u8> {
    format!(
        r#"{{"protocol":"aadp/0.2","request_id":"00000000-0000-4000-8000-{number:012x}","action_type":"act",
        "params":{{}},"source":"llm","rationale":"test","created_at":"2026-08-17T09:00:00Z"}}"#
    )
    .into_bytes()
}

pub(crate) fn permit(answer: Result<Answer, Reject>) -> DecideReply {
    match answer {
        Ok(Answer::Decide(reply)) if reply.verdict == Verdict::Permit => reply,
        other => panic!("not a permit: {other:?}"),
    }
}

/// Asks until there is an answer; no sleep is ever a proof.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
