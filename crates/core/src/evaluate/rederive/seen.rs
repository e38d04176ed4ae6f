//! The records as one decision sees them when it is derived again: permits by their digests, and in place of what only a
//! digest is kept of, what the record says about it.

use std::sync::Arc;

use super::stand_in;
use crate::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use crate::policy::PolicySet;
use crate::state::{
    ApprovalRecord, Counter, CounterKey, MemState, MerkleKey, Meta, PermitRecord, PolicyRecord, Read, ReadError,
    RequestRecord,
};

pub(super) struct Seen<'a> {
    pub(super) state: &'a MemState,
    /// What the client named. INVARIANT: it finds a permit by being one, never by being a stand-in's name.
    pub(super) named: Option<&'a str>,
    /// The policy in force, where it is another.
    pub(super) policy: Option<Arc<PolicySet>>,
    pub(super) approval: Option<ApprovalRecord>,
    pub(super) entry: Option<(EvidenceIndex, Vec<u8>)>,
}

impl Read for Seen<'_> {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.state.meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.state.request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        if self.named == Some(id.as_str()) { self.state.permit(&stand_in(id.digest())) } else { self.state.permit(id) }
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        match &self.approval {
            Some(approval) if approval.approval_id == *id => Ok(Some(approval.clone())),
            _ => self.state.approval(id),
        }
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.state.counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        match &self.policy {
            Some(policy) if self.state.meta.active_policy.as_ref() == Some(digest) => Ok(Some(Arc::clone(policy))),
            _ => self.state.policy(digest),
        }
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.state.policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.state.merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        match &self.entry {
            Some((other, bytes)) if *other == index => Ok(Some(bytes.clone())),
            _ => self.state.entry(index),
        }
    }
}
