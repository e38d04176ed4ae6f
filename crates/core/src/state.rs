//! What the log adds up to: the records that evaluation reads and folding writes, behind one small [`Read`] port.
//! Absent on purpose: where the records live. A node keeps them in a database, tests in ordered maps; an
//! [`Overlay`] holds what was folded but is not applied yet.

mod memory;
mod overlay;
mod records;

pub use memory::MemState;
pub use overlay::{Changes, Overlay};
pub use records::{
    ApprovalRecord, Counter, CounterKey, KillSwitch, Mandate, Meta, PermitRecord, PermitStatus, PolicyRecord,
    RequestRecord, Spent,
};

use std::sync::Arc;

use thiserror::Error;

use crate::evidence;
use crate::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use crate::merkle::{self, MerkleError, Nodes};
use crate::policy::PolicySet;
use crate::search::Summary;

/// State could not be read. The operation fails as unavailable; nothing is decided on what is not known.
#[derive(Debug, Error)]
#[error("state cannot be read: {0}")]
pub struct ReadError(pub String);

impl From<MerkleError<ReadError>> for ReadError {
    fn from(error: MerkleError<ReadError>) -> Self {
        match error {
            MerkleError::Read { source } => source,
            other => Self(other.to_string()),
        }
    }
}

/// Level and index of an interior node.
pub type MerkleKey = (u8, u64);

/// The records of one domain, at one point of the log.
pub trait Read {
    /// Counters, switches and heads of the whole domain.
    fn meta(&self) -> Result<Meta, ReadError>;
    /// What a request id stands for.
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError>;
    /// A permit, open or closed.
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError>;
    /// An approval, in any state.
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError>;
    /// One counter of one budget.
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError>;
    /// A published policy, parsed.
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError>;
    /// What is known about a kept policy.
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError>;
    /// A complete interior node of the tree over the entries: level from 1, index from 0.
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError>;
    /// The canonical bytes of an evidence entry.
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError>;
}

/// The tree over the entries (RFC 6962), as state holds it.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a, R: ?Sized>(pub &'a R);

impl<R: Read + ?Sized> Nodes for Tree<'_, R> {
    type Error = ReadError;

    fn leaf(&self, index: u64) -> Result<Option<Hash>, ReadError> {
        let bytes = self.0.entry(EvidenceIndex(index).next())?;
        Ok(bytes.map(|bytes| merkle::leaf_hash(&evidence::hash(&bytes))))
    }

    fn node(&self, level: u8, index: u64) -> Result<Option<Hash>, ReadError> {
        self.0.merkle((level, index))
    }
}

/// Listings of open work and of counters, in key order, a page at a time.
pub trait List: Read {
    /// Permits without a result, behind `after`, by intent.
    fn open_permits(
        &self,
        after: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError>;
    /// Approvals that are pending or granted and not consumed, behind `after`, by id.
    fn open_approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError>;
    /// All approvals, behind `after`, by id.
    fn approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError>;
    /// Counters, behind `after`, by key.
    fn counters(&self, after: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError>;
    /// Kept policies, behind `after`, by digest.
    fn policies(
        &self,
        after: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError>;
    /// Evidence entries behind `after`, oldest first.
    fn entries(&self, after: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError>;
    /// Summaries of complete runs of entries, from a run on, oldest first; there may be some missing.
    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError>;
}

impl<R: Read + ?Sized> Read for &R {
    fn meta(&self) -> Result<Meta, ReadError> {
        (**self).meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        (**self).request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        (**self).permit(id)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        (**self).approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        (**self).counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        (**self).policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        (**self).policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        (**self).merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        (**self).entry(index)
    }
}

impl<R: Read + ?Sized> Read for Arc<R> {
    fn meta(&self) -> Result<Meta, ReadError> {
        (**self).meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        (**self).request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        (**self).permit(id)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        (**self).approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        (**self).counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        (**self).policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        (**self).policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        (**self).merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        (**self).entry(index)
    }
}
