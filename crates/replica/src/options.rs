//! What a node is told at its start. Absent on purpose: files and command lines; `server` fills this in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use placet_core::cluster::MemberAddresses;
use placet_core::evaluate::Keys;

use crate::network::wire::Dial;
use crate::space::DiskSpace;
use crate::work::Work;

/// Where the leader reads the time, in milliseconds since the Unix epoch.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock of one's own, for tests and simulation.
    pub fn new(read: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The clock of this machine.
    pub fn system() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// Now.
    pub fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Mutual TLS between peers: everything in PEM.
#[derive(Clone)]
pub struct PeerTls {
    /// The authority that signed every peer's certificate.
    pub ca: Vec<u8>,
    /// This node's certificate chain.
    pub cert: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// The name that every peer's certificate holds; `None` takes the host of the peer's address.
    pub domain: Option<String>,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// What [`Options::log_format_max`] may be: the formats that this program reads and writes.
pub const LOG_FORMATS: std::ops::RangeInclusive<u32> = placet_wire::log::OLDEST..=placet_wire::log::NEWEST;

/// The smallest [`Options::log_bytes_max`]: batches in flight need room.
pub const LOG_BYTES_MAX_LEAST: u64 = 4 << 20;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node.
    pub node_id: u64,
    /// Folder of snapshots, built and incoming; on the same file system as the state.
    pub snapshot_dir: PathBuf,
    /// The founding members. The smallest id founds the cluster once all of them are there and empty. Keep the list
    /// afterwards: a member that lost its data asks them what it may have promised before it votes again.
    /// Empty for a node that is added later.
    pub initial_cluster: BTreeMap<u64, MemberAddresses>,
    /// Mutual TLS between peers; `None` for plain text on a trusted network.
    pub tls: Option<PeerTls>,
    /// How peers are reached; `None` for TCP, at the addresses of the membership.
    pub dial: Option<Dial>,
    /// Who does work that blocks on a disk.
    pub work: Work,
    /// How much space the disk has left.
    pub disk: DiskSpace,
    /// The secrets that judging needs.
    pub keys: Arc<Keys>,
    /// The leader's clock.
    pub clock: Clock,
    /// How far two clocks may be apart and still agree. A node whose clock agrees with no majority does not decide.
    pub clock_skew_max: Duration,
    /// How long a caller waits before the answer is "unknown".
    pub deadline: Duration,
    /// Calls that wait for the Decider; one more is refused.
    pub queue_max: usize,
    /// Events in one batch.
    pub batch_events_max: usize,
    /// Bytes of events in one batch: well below the message limit of the peer door.
    pub batch_bytes_max: usize,
    /// Batches that are proposed and not applied.
    pub in_flight_batches_max: usize,
    /// Bytes of those.
    pub in_flight_bytes_max: usize,
    /// How often the leader looks for what is due when nothing else happens.
    pub expire_every: Duration,
    /// Raft: between heartbeats.
    pub heartbeat: Duration,
    /// Raft: the election timeout lies between these.
    pub election: (Duration, Duration),
    /// Log entries between two snapshots; `None` for none.
    pub snapshot_every: Option<u64>,
    /// Log entries kept behind a snapshot, so that a slow follower or a running transfer needs no other one.
    pub log_kept: u64,
    /// Bytes of entries in the log; over that, a snapshot is taken and the log is purged to half of it, whatever
    /// `snapshot_every` and `log_kept` say. `None` for no bound.
    pub log_bytes_max: Option<u64>,
    /// The newest format of log records that this node says it reads, so that no leader writes a newer one: keeps the way
    /// back to the version before open during an upgrade.
    pub log_format_max: u32,
    /// A follower this many entries behind is sent a snapshot; more than `snapshot_every`.
    pub replication_lag_max: u64,
    /// How long one snapshot transfer may take.
    pub snapshot_timeout: Duration,
}

impl Options {
    /// The defaults for a node.
    pub fn new(node_id: u64, snapshot_dir: impl Into<PathBuf>) -> Self {
        Self {
            node_id,
            snapshot_dir: snapshot_dir.into(),
            initial_cluster: BTreeMap::new(),
            tls: None,
            dial: None,
            work: Work::threads(),
            disk: DiskSpace::unwatched(),
            keys: Arc::default(),
            clock: Clock::system(),
            clock_skew_max: Duration::from_secs(1),
            deadline: Duration::from_secs(5),
            queue_max: 16_384,
            batch_events_max: 256,
            batch_bytes_max: 1 << 20,
            in_flight_batches_max: 64,
            in_flight_bytes_max: 32 << 20,
            expire_every: Duration::from_millis(100),
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(300), Duration::from_millis(600)),
            snapshot_every: Some(100_000),
            log_kept: 50_000,
            log_bytes_max: Some(1 << 30),
            log_format_max: placet_wire::log::NEWEST,
            replication_lag_max: 200_000,
            snapshot_timeout: Duration::from_secs(1800),
        }
    }
}
