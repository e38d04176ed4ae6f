//! The disks of nodes: what was written, what of it is durable, and what a crash leaves of the rest.
//!
//! A log keeps its unsynced writes in order; a crash keeps some first part of them, cut anywhere, also inside one write.
//! The state is written without syncs; a crash takes it back to some point since its last flush. Checkpoints live in
//! memory under a number that a small file names, so the real code that builds, sends, verifies and installs snapshot
//! folders moves real files.

mod log;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use placet_core::state::MemState;

pub use log::{LogDisk, SimLog};
pub use state::{SimState, StateDisk};

/// A state and how far it has come.
#[derive(Clone, Debug, Default)]
pub struct StateContent {
    /// The records.
    pub mem: MemState,
    /// The position, as the replica writes it.
    pub position: Option<Vec<u8>>,
}

/// The checkpoints of a run, by the number in their file.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    next: Arc<AtomicU64>,
    kept: Arc<Mutex<BTreeMap<u64, Arc<StateContent>>>>,
}

impl Checkpoints {
    fn keep(&self, content: StateContent) -> u64 {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.kept.lock().insert(number, Arc::new(content));
        number
    }

    fn get(&self, number: u64) -> Option<Arc<StateContent>> {
        self.kept.lock().get(&number).cloned()
    }
}

/// Faults of one node's disks that can be switched on and off.
#[derive(Clone, Debug, Default)]
pub struct DiskFaults {
    /// The next syncs fail.
    pub sync_fails: Arc<AtomicBool>,
    /// There is no space for new writes.
    pub full: Arc<AtomicBool>,
    /// Milliseconds that work on the disk takes at most.
    pub slow_ms: Arc<AtomicU64>,
}

/// Both disks of one node; empty and whole at first.
#[derive(Debug, Default)]
pub struct Disks {
    /// The log's.
    pub log: Arc<Mutex<LogDisk>>,
    /// The state's.
    pub state: Arc<Mutex<StateDisk>>,
    /// What is wrong with them.
    pub faults: DiskFaults,
}
