//! The storage ports: what the replica asks of a disk. A store implements them and never hears of Raft.
//! Absent on purpose: what the bytes mean (this crate encodes and decodes them), and any way to change or delete
//! evidence. Architecture §3.
//!
//! All calls are synchronous. Calls on one port come from one task at a time, except reads, which come from many.

use std::fmt::Debug;
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

pub use crate::backup::CopiedState;

/// Small values that live beside the log and share its order of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogKey {
    /// The last vote (Raft §5.2).
    Vote,
    /// The last position known to be committed.
    Committed,
    /// The last position that was purged.
    LastPurged,
    /// What a node that lost its data must reach before it votes again.
    Recovery,
}

/// The log: values by ascending index.
///
/// INVARIANT (order): writes reach the disk in the order of the calls, whatever is synced when. A synced write makes
/// every earlier one durable.
pub trait Log: Debug + Send + Sync + 'static {
    /// Writes entries, readable at once, not durable yet.
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()>;
    /// Makes everything durable that was written before this call.
    fn sync(&self) -> io::Result<()>;
    /// Removes the entry at `index` and all behind it.
    fn truncate_from(&self, index: u64) -> io::Result<()>;
    /// Removes the entries up to and including `index` and notes `last_purged`, in one write.
    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()>;
    /// Entries in `range`, in order; ends early once `bytes_max` is reached, never before the first.
    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>>;
    /// The entry with the highest index.
    fn last(&self) -> io::Result<Option<(u64, Bytes)>>;
    /// Sets a small value; durable on return if `durable`, else no sooner than the next append.
    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()>;
    /// Reads a small value.
    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>>;
    /// About how many bytes of entries there are; asked once, at the start. A log that cannot tell counts from nothing.
    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }
    /// `false` when syncs are switched off, for tests.
    fn durable(&self) -> bool;
}

/// The state: records, and how far they have come, changed together.
pub trait State: List + Debug + Send + Sync + 'static {
    /// Writes changes and position in one step: after a crash both are there, or neither.
    fn apply(&self, changes: Changes, position: &[u8]) -> io::Result<()>;
    /// The position of the last [`State::apply`] or [`State::install`].
    fn position(&self) -> io::Result<Option<Vec<u8>>>;
    /// Makes everything durable that was applied before this call.
    fn flush(&self) -> io::Result<()>;
    /// Copies the state as it is into a new `folder`, durable on return, and returns the copy's position, if anything
    /// was ever applied. Runs beside [`State::apply`].
    fn checkpoint(&self, folder: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Opens a received copy without taking it over, reads all of it, and returns its position.
    fn verify(&self, folder: &Path) -> io::Result<Option<Vec<u8>>>;
    /// The position of a copy that was verified before.
    fn peek(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        self.verify(folder)
    }
    /// Opens a copy to read its records, without changing it.
    fn read_copy(&self, folder: &Path) -> io::Result<Box<dyn CopiedState>> {
        let _ = folder;
        Err(io::Error::new(io::ErrorKind::Unsupported, "this state has no copies that can be read"))
    }
    /// Replaces the whole state by a verified copy; `folder` stays as it is. A crash leaves the old state or the new.
    fn install(&self, folder: &Path) -> io::Result<()>;
}

/// A shared handle to the state that can be listed and overlaid.
#[derive(Clone, Debug)]
pub struct Records(pub Arc<dyn State>);

impl Read for Records {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.0.meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.0.request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        self.0.permit(id)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.0.approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.0.counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.0.policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.0.policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.0.merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.entry(index)
    }
}

impl List for Records {
    fn open_permits(
        &self,
        after: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError> {
        self.0.open_permits(after, limit)
    }
    fn open_approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.0.open_approvals(after, limit)
    }
    fn approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        self.0.approvals(after, limit)
    }
    fn counters(&self, after: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError> {
        self.0.counters(after, limit)
    }
    fn policies(
        &self,
        after: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError> {
        self.0.policies(after, limit)
    }
    fn entries(&self, after: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError> {
        self.0.entries(after, limit)
    }
    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError> {
        self.0.summaries(from_run, limit)
    }
}
