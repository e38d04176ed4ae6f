//! One run's cluster: its nodes, their lives, and what is known about all of them together.

mod nodes;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use placet_core::cluster::MemberAddresses;
use placet_replica::Node;
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::disk::{Checkpoints, Disks};
use crate::entropy::Rng;
use crate::life::Life;
use crate::network::Net;
use crate::properties::{self, Property};
use crate::trace::Trace;

pub use watch::Violation;

/// A cluster and everything around it; cheap to clone.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    seed: u64,
    began: Instant,
    net: Net,
    checkpoints: Checkpoints,
    root: tempfile::TempDir,
    founders: BTreeMap<u64, MemberAddresses>,
    tuning: Tuning,
    slots: Mutex<BTreeMap<u64, Slot>>,
    properties: Mutex<Vec<Box<dyn Property>>>,
    /// Entries that were shown to the properties.
    shown: Mutex<u64>,
    trace: Trace,
    violation: Arc<Mutex<Option<Violation>>>,
    /// Set once faults are over: nodes start again at once.
    calm: AtomicBool,
}

/// What differs between runs.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Founding members.
    pub nodes: u64,
    /// Log entries between snapshots.
    pub snapshot_every: u64,
    /// Log entries kept behind one.
    pub log_kept: u64,
    /// Events in a batch.
    pub batch_events: usize,
    /// Batches in flight.
    pub batches: usize,
}

impl Tuning {
    fn of(rng: &mut Rng) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(1);
        Self {
            nodes: if rng.chance(200) { 5 } else { 3 },
            snapshot_every: rng.within(20, 120),
            log_kept: rng.within(2, 40),
            batch_events: size(*rng.pick(&[1, 2, 8, 64, 256]).unwrap_or(&8)),
            batches: size(*rng.pick(&[1, 2, 4, 64]).unwrap_or(&4)),
        }
    }
}

/// One node, alive or not.
struct Slot {
    disks: Disks,
    clock: SimClock,
    life: Option<Life>,
    node: Option<Node>,
    lives: u64,
    /// A bit of its log was turned, or it lost its disks, and it has not come back since.
    damaged: bool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({})", self.0.seed)
    }
}

/// Where snapshots of simulated nodes lie: in memory, if the machine has a folder there.
fn base() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// How the folders of a process begin; of one length, so that no name differs in it.
fn folder_of(process: u32) -> String {
    format!("placet-sim.{process:010}.")
}

/// Removes what an ended process left behind: tasks that wait for ever keep its folder, and one that is killed removes
/// nothing.
pub fn sweep(process: u32) -> std::io::Result<()> {
    let prefix = folder_of(process);
    for entry in std::fs::read_dir(base())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

impl World {
    /// Nodes that are not started yet.
    pub fn new(seed: u64, trace: Trace) -> anyhow::Result<Self> {
        let mut rng = Rng::new(seed, "tuning");
        let tuning = Tuning::of(&mut rng);
        let began = Instant::now();
        let founders = (1..=tuning.nodes).map(|id| (id, addresses(id))).collect();
        let root = tempfile::Builder::new().prefix(&folder_of(std::process::id())).tempdir_in(base())?;
        let world = Self(Arc::new(Inner {
            seed,
            began,
            net: Net::new(Rng::new(seed, "network")),
            checkpoints: Checkpoints::default(),
            root,
            founders,
            tuning,
            slots: Mutex::default(),
            properties: Mutex::new(properties::all()),
            shown: Mutex::new(0),
            trace,
            violation: Arc::default(),
            calm: AtomicBool::new(false),
        }));
        (1..=tuning.nodes).for_each(|id| world.make_room(id));
        Ok(world)
    }

    fn make_room(&self, id: u64) {
        let slot = Slot {
            disks: Disks::default(),
            clock: SimClock::new(self.0.began),
            life: None,
            node: None,
            lives: 0,
            damaged: false,
        };
        self.0.slots.lock().insert(id, slot);
    }

    /// A node that is not a member yet; the next free id.
    pub fn add_spare(&self) -> (u64, MemberAddresses) {
        let id = self.ids().last().copied().unwrap_or_default() + 1;
        self.make_room(id);
        (id, addresses(id))
    }

    /// Whether a node founded the cluster.
    pub fn is_founder(&self, id: u64) -> bool {
        self.0.founders.contains_key(&id)
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// What differs in this run.
    pub fn tuning(&self) -> Tuning {
        self.0.tuning
    }

    /// The network.
    pub fn net(&self) -> &Net {
        &self.0.net
    }

    /// Ids of all nodes.
    pub fn ids(&self) -> Vec<u64> {
        self.0.slots.lock().keys().copied().collect()
    }

    /// Notes something that happened.
    pub fn note(&self, what: impl FnOnce() -> String) {
        self.0.trace.note(self.0.began.elapsed(), what);
    }

    /// The trace of this run.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Milliseconds since the start.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// No more faults: whoever is down starts again at once.
    pub fn calm_down(&self) {
        self.0.calm.store(true, Ordering::SeqCst);
    }

    fn is_calm(&self) -> bool {
        self.0.calm.load(Ordering::SeqCst)
    }
}

fn addresses(id: u64) -> MemberAddresses {
    MemberAddresses {
        peer: format!("n{id}.sim:7103"),
        http: format!("http://n{id}.sim:7101"),
        grpc: format!("http://n{id}.sim:7102"),
    }
}
