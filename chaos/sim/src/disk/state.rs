//! A state's disk.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use placet_core::planted::{self, Bug};
use placet_core::policy::PolicySet;
use placet_core::search::Summary;
use placet_core::state::{
    ApprovalRecord, Changes, Counter, CounterKey, List, MerkleKey, Meta, PermitRecord, PolicyRecord, Read, ReadError,
    RequestRecord,
};
use placet_replica::ports::State;

use super::{Checkpoints, DiskFaults, StateContent};
use crate::entropy::Rng;
use crate::life::Life;

/// The file of a checkpoint that holds its number.
const NUMBER: &str = "checkpoint";

/// A file that only has weight, so that transfers have several parts.
const WEIGHT: &str = "weight";
const WEIGHT_BYTES: usize = 600 << 10;

/// What is applied, and what of it is durable.
#[derive(Debug, Default)]
pub struct StateDisk {
    /// As it is read.
    pub now: StateContent,
    /// What no crash takes away.
    pub durable: StateContent,
    pending: Vec<(Changes, Vec<u8>)>,
}

impl StateDisk {
    fn flush(&mut self) {
        for (changes, position) in self.pending.drain(..) {
            self.durable.mem.write(changes);
            self.durable.position = Some(position);
        }
    }

    /// Goes back to some point since the last flush.
    pub fn crash(&mut self, rng: &mut Rng) {
        let kept = usize::try_from(rng.below(self.pending.len() as u64 + 1)).unwrap_or_default();
        self.pending.truncate(kept);
        self.flush();
        self.now = self.durable.clone();
    }

    /// A process ended and its machine did not.
    pub fn outlive(&mut self) {
        self.flush();
        self.now = self.durable.clone();
    }
}

/// Who is told of every write to a state.
pub type Observer = Arc<dyn Fn(u64, &StateContent, &Changes) + Send + Sync>;

/// The state of one life.
pub struct SimState {
    disk: Arc<Mutex<StateDisk>>,
    checkpoints: Checkpoints,
    faults: DiskFaults,
    life: Life,
    observer: Observer,
}

impl std::fmt::Debug for SimState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimState({:?})", self.life)
    }
}

impl SimState {
    /// A state on `disk`.
    pub fn new(
        disk: Arc<Mutex<StateDisk>>,
        checkpoints: Checkpoints,
        faults: DiskFaults,
        life: Life,
        observer: Observer,
    ) -> Self {
        Self { disk, checkpoints, faults, life, observer }
    }

    fn read<T>(&self, of: impl FnOnce(&StateContent) -> Result<T, ReadError>) -> Result<T, ReadError> {
        of(&self.disk.lock().now)
    }

    fn content_of(&self, folder: &Path) -> io::Result<Arc<StateContent>> {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let number = fs::read_to_string(folder.join(NUMBER))?;
        let number = number.parse().map_err(|_| damaged("a checkpoint without a number"))?;
        if fs::metadata(folder.join(WEIGHT))?.len() != WEIGHT_BYTES as u64 {
            return Err(damaged("a checkpoint with a torn file"));
        }
        self.checkpoints.get(number).ok_or_else(|| damaged("a checkpoint that was never taken"))
    }
}

impl State for SimState {
    fn apply(&self, changes: Changes, position: &[u8]) -> io::Result<()> {
        if self.faults.full.load(Ordering::SeqCst) {
            self.life.allow_stop();
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on the simulated disk"));
        }
        self.life.operate()?;
        let mut disk = self.disk.lock();
        disk.now.mem.write(changes.clone());
        disk.now.position = Some(position.to_vec());
        disk.pending.push((changes.clone(), position.to_vec()));
        (self.observer)(self.life.node(), &disk.now, &changes);
        Ok(())
    }

    fn position(&self) -> io::Result<Option<Vec<u8>>> {
        self.life.operate()?;
        Ok(self.disk.lock().now.position.clone())
    }

    fn flush(&self) -> io::Result<()> {
        self.life.operate()?;
        self.disk.lock().flush();
        Ok(())
    }

    fn checkpoint(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        self.life.operate()?;
        let content = self.disk.lock().now.clone();
        let position = content.position.clone();
        fs::create_dir_all(folder)?;
        fs::write(folder.join(WEIGHT), vec![7u8; WEIGHT_BYTES])?;
        fs::write(folder.join(NUMBER), self.checkpoints.keep(content).to_string())?;
        Ok(position)
    }

    fn verify(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        self.life.operate()?;
        Ok(self.content_of(folder)?.position.clone())
    }

    fn install(&self, folder: &Path) -> io::Result<()> {
        self.life.operate()?;
        let mut content = StateContent::clone(&*self.content_of(folder)?);
        if planted::on(Bug::DedupNotInSnapshot) {
            content.mem.requests.clear();
        }
        let mut disk = self.disk.lock();
        disk.pending.clear();
        disk.durable = content.clone();
        disk.now = content;
        (self.observer)(self.life.node(), &disk.now, &Changes::default());
        Ok(())
    }
}

impl Read for SimState {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.read(|state| state.mem.meta())
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.read(|state| state.mem.request(id))
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        self.read(|state| state.mem.permit(id))
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.read(|state| state.mem.approval(id))
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.read(|state| state.mem.counter(key))
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.read(|state| state.mem.policy(digest))
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.read(|state| state.mem.policy_record(digest))
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.read(|state| state.mem.merkle(node))
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.read(|state| state.mem.entry(index))
    }
}

impl List for SimState {
    fn open_permits(
        &self,
        after: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError> {
        self.read(|state| state.mem.open_permits(after, limit))
    }
    fn open_approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.read(|state| state.mem.open_approvals(after, limit))
    }
    fn approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.read(|state| state.mem.approvals(after, limit))
    }
    fn counters(&self, after: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError> {
        self.read(|state| state.mem.counters(after, limit))
    }
    fn policies(
        &self,
        after: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError> {
        self.read(|state| state.mem.policies(after, limit))
    }
    fn entries(&self, after: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError> {
        self.read(|state| state.mem.entries(after, limit))
    }
    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError> {
        self.read(|state| state.mem.summaries(from_run, limit))
    }
}
