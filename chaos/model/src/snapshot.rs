//! The state at one point of a log: the core's own records in memory, and the evidence beside them, shared between all
//! points that hold it.
//! Absent on purpose: rules. What the records hold is what the core's folding wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use placet_core::event::Event;
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use placet_core::policy::PolicySet;
use placet_core::state::{
    ApprovalRecord, Changes, Counter, CounterKey, MemState, MerkleKey, Meta, PermitRecord, PolicyRecord, Read,
    ReadError, RequestRecord,
};

use crate::identity::Id;

/// The state that some events add up to.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The name of the events, in order.
    pub id: Id,
    /// All records but the evidence.
    pub records: MemState,
    entries: BTreeMap<EvidenceIndex, Bytes>,
}

impl Snapshot {
    /// Before the first event.
    pub fn empty() -> Self {
        Self { id: Id::of(&"nothing"), records: MemState::default(), entries: BTreeMap::new() }
    }

    /// What it is called after these events.
    pub fn id_after<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> Id {
        events.into_iter().fold(self.id, |id, event| Id::of(&(id, event.hash, &event.permit_id)))
    }

    /// With what folding wrote.
    pub fn after(&self, id: Id, mut changes: Changes) -> Self {
        let mut entries = self.entries.clone();
        // Evidence is only ever added.
        for (index, bytes) in std::mem::take(&mut changes.entries) {
            entries.entry(index).or_insert(bytes);
        }
        let mut records = self.records.clone();
        records.write(changes);
        Self { id, records, entries }
    }

    /// Another state, under a name of its own: for a subject that reads something else than it should.
    pub fn patched(&self, with: &str, patch: impl FnOnce(&mut MemState)) -> Self {
        let mut records = self.records.clone();
        patch(&mut records);
        Self { id: Id::of(&(self.id, with)), records, entries: self.entries.clone() }
    }

    /// The same state once in memory: `other`, when it is equal.
    pub fn shared(self: Arc<Self>, other: &Arc<Self>) -> Arc<Self> {
        if self.id == other.id && self.difference(other).is_none() { other.clone() } else { self }
    }

    /// The canonical bytes of an entry.
    pub fn bytes(&self, index: EvidenceIndex) -> Option<&[u8]> {
        self.entries.get(&index).map(|bytes| &**bytes)
    }

    /// The first part in which the records of two states differ.
    pub fn difference(&self, other: &Self) -> Option<String> {
        fn of<T: PartialEq + std::fmt::Debug>(name: &str, one: &T, two: &T) -> Option<String> {
            (one != two).then(|| format!("{name}: {one:?} and {two:?}"))
        }
        let (one, two) = (&self.records, &other.records);
        if std::ptr::eq(self, other) {
            return None;
        }
        of("meta", &one.meta, &two.meta)
            .or_else(|| of("requests", &one.requests, &two.requests))
            .or_else(|| of("permits", &one.permits, &two.permits))
            .or_else(|| of("approvals", &one.approvals, &two.approvals))
            .or_else(|| of("counters", &one.counters, &two.counters))
            .or_else(|| of("policies", &one.policy_records, &two.policy_records))
            .or_else(|| of("tree", &one.merkle, &two.merkle))
            .or_else(|| of("entries", &self.entries, &other.entries))
    }
}

impl Read for Snapshot {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.records.meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.records.request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        self.records.permit(id)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.records.approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.records.counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.records.policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.records.policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.records.merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.bytes(index).map(<[u8]>::to_vec))
    }
}
