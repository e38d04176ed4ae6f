//! The end of a node whose disk failed: after the first failure nothing is written, synced or promised any more.
//! Absent on purpose: a second attempt. After a failed sync the kernel may have dropped what it could not write and
//! says so only once, so a sync that succeeds afterwards proves nothing.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use placet_core::policy::PolicySet;
use placet_core::search::Summary;
use placet_core::state::{
    ApprovalRecord, Changes, Counter, CounterKey, List, MerkleKey, Meta, PermitRecord, PolicyRecord, Read, ReadError,
    RequestRecord,
};
use tokio::sync::watch;

use crate::ports::{CopiedState, Log, LogKey, State};
use crate::state_machine::FatalReason;

const SEE: &str = "`placet repair --config FILE` shows what is damaged";

/// Blows once.
#[derive(Clone, Debug)]
pub(crate) struct Fuse {
    reason: FatalReason,
    blown: watch::Sender<bool>,
}

impl Fuse {
    pub(crate) fn new(reason: FatalReason) -> Self {
        Self { reason, blown: watch::Sender::new(false) }
    }

    /// Returns once a disk has failed.
    pub(crate) async fn blown(&self) {
        // This value holds a sender, so the wait ends for that reason only.
        let _ = self.blown.subscribe().wait_for(|blown| *blown).await;
    }

    fn check(&self) -> io::Result<()> {
        if !*self.blown.borrow() {
            return Ok(());
        }
        let reason = self.reason.get().cloned().unwrap_or_default();
        Err(io::Error::other(format!("this node stops: {reason}")))
    }

    fn blow(&self, what: &str, error: &dyn std::fmt::Display, kind: io::ErrorKind) {
        let mut text = format!("{what}: {error}");
        if kind == io::ErrorKind::StorageFull {
            text.push_str("; the disk is full: make room and start this node again");
        } else if kind == io::ErrorKind::InvalidData && !text.contains("placet repair") {
            text = format!("{text}; {SEE}");
        }
        tracing::error!(reason = text, "the disk failed; this node stops");
        self.reason.get_or_init(|| text);
        self.blown.send_replace(true);
    }

    fn io<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.blow(what, error, error.kind()))
    }

    fn read<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.inspect_err(|error| self.blow("a record cannot be read", error, io::ErrorKind::InvalidData))
    }
}

/// A log behind the fuse.
#[derive(Debug)]
pub(crate) struct FusedLog {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) fuse: Fuse,
}

impl FusedLog {
    fn write<T>(&self, what: &str, write: impl FnOnce(&dyn Log) -> io::Result<T>) -> io::Result<T> {
        self.fuse.check()?;
        self.fuse.io(what, write(self.log.as_ref()))
    }
}

impl Log for FusedLog {
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        self.write("the log could not be written", |log| log.append(entries))
    }
    fn sync(&self) -> io::Result<()> {
        self.write("the log could not be synced", |log| log.sync())
    }
    fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.write("the log could not be truncated", |log| log.truncate_from(index))
    }
    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()> {
        self.write("the log could not be purged", |log| log.purge_to(index, last_purged))
    }
    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        self.fuse.io("the log cannot be read", self.log.read(range, bytes_max))
    }
    fn last(&self) -> io::Result<Option<(u64, Bytes)>> {
        self.fuse.io("the log cannot be read", self.log.last())
    }
    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()> {
        self.write("the log could not be written", |log| log.put(key, value, durable))
    }
    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>> {
        self.fuse.io("the log cannot be read", self.log.get(key))
    }
    fn size(&self) -> io::Result<u64> {
        self.fuse.io("the log cannot be read", self.log.size())
    }
    fn durable(&self) -> bool {
        self.log.durable()
    }
}

/// A state behind the fuse.
#[derive(Debug)]
pub(crate) struct FusedState {
    pub(crate) state: Arc<dyn State>,
    pub(crate) fuse: Fuse,
}

impl State for FusedState {
    fn apply(&self, changes: Changes, position: &[u8]) -> io::Result<()> {
        self.fuse.check()?;
        self.fuse.io("the state could not be written", self.state.apply(changes, position))
    }
    fn position(&self) -> io::Result<Option<Vec<u8>>> {
        self.fuse.io("the state cannot be read", self.state.position())
    }
    fn flush(&self) -> io::Result<()> {
        self.fuse.check()?;
        self.fuse.io("the state could not be synced", self.state.flush())
    }
    fn checkpoint(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        self.fuse.check()?;
        self.fuse.io("a snapshot of the state could not be taken", self.state.checkpoint(folder))
    }
    fn verify(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        // A copy that arrived damaged is refused; it says nothing about this disk.
        self.state.verify(folder)
    }
    fn peek(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        self.state.peek(folder)
    }
    fn read_copy(&self, folder: &Path) -> io::Result<Box<dyn CopiedState>> {
        // A copy that cannot be read says nothing about the disk of the state.
        self.state.read_copy(folder)
    }
    fn install(&self, folder: &Path) -> io::Result<()> {
        self.fuse.check()?;
        self.fuse.io("a snapshot could not be installed", self.state.install(folder))
    }
}

impl Read for FusedState {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.fuse.read(self.state.meta())
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.fuse.read(self.state.request(id))
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        self.fuse.read(self.state.permit(id))
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.fuse.read(self.state.approval(id))
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.fuse.read(self.state.counter(key))
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        // A document that this version cannot compile is no damage: the call fails, the node goes on.
        self.state.policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.fuse.read(self.state.policy_record(digest))
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.fuse.read(self.state.merkle(node))
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.fuse.read(self.state.entry(index))
    }
}

impl List for FusedState {
    fn open_permits(
        &self,
        after: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError> {
        self.fuse.read(self.state.open_permits(after, limit))
    }
    fn open_approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.fuse.read(self.state.open_approvals(after, limit))
    }
    fn approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.fuse.read(self.state.approvals(after, limit))
    }
    fn counters(&self, after: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError> {
        self.fuse.read(self.state.counters(after, limit))
    }
    fn policies(
        &self,
        after: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError> {
        self.fuse.read(self.state.policies(after, limit))
    }
    fn entries(&self, after: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError> {
        self.fuse.read(self.state.entries(after, limit))
    }
    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError> {
        self.fuse.read(self.state.summaries(from_run, limit))
    }
}
