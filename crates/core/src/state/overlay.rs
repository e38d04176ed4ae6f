//! Records that were folded and are not applied yet, over records that are.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash as StdHash;
use std::sync::Arc;

use bytes::Bytes;

use super::{
    ApprovalRecord, Counter, CounterKey, MerkleKey, Meta, PermitRecord, PolicyRecord, Read, ReadError, RequestRecord,
};
use crate::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use crate::policy::PolicySet;
use crate::search::Marks;

/// What folding wrote: each key once, with its last value.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "one field per kind of record")]
pub struct Changes {
    pub meta: Option<Meta>,
    pub requests: HashMap<RequestId, RequestRecord>,
    pub permits: HashMap<PermitId, PermitRecord>,
    pub approvals: HashMap<ApprovalId, ApprovalRecord>,
    pub counters: HashMap<CounterKey, Counter>,
    /// Canonical documents of newly published policies.
    pub policies: HashMap<PolicyDigest, Arc<PolicySet>>,
    /// What is known about policies; `None` for one that is no longer kept.
    pub policy_records: HashMap<PolicyDigest, Option<PolicyRecord>>,
    /// Nodes of the tree over the entries that became complete.
    pub merkle: HashMap<MerkleKey, Hash>,
    /// Canonical bytes of new entries.
    pub entries: BTreeMap<EvidenceIndex, Bytes>,
    /// What those say about themselves, in their order; whoever writes adds it, who judges has no use for it.
    pub marks: Vec<(EvidenceIndex, Marks)>,
}

/// A value and the batch that wrote it.
type Tagged<V> = (u64, V);

/// Unapplied records over `base`. Batches are sealed in order, and forgotten in order once the base holds them.
#[derive(Debug)]
pub struct Overlay<R> {
    base: R,
    meta: Option<Meta>,
    requests: HashMap<RequestId, Tagged<RequestRecord>>,
    permits: HashMap<PermitId, Tagged<PermitRecord>>,
    approvals: HashMap<ApprovalId, Tagged<ApprovalRecord>>,
    counters: HashMap<CounterKey, Tagged<Counter>>,
    policies: HashMap<PolicyDigest, Tagged<Arc<PolicySet>>>,
    policy_records: HashMap<PolicyDigest, Tagged<Option<PolicyRecord>>>,
    merkle: HashMap<MerkleKey, Tagged<Hash>>,
    entries: HashMap<EvidenceIndex, Tagged<Bytes>>,
    batch: u64,
    touched: Touched,
    sealed: VecDeque<(u64, Touched)>,
}

/// The keys that one batch wrote.
#[derive(Debug, Default)]
struct Touched {
    requests: Vec<RequestId>,
    permits: Vec<PermitId>,
    approvals: Vec<ApprovalId>,
    counters: Vec<CounterKey>,
    policies: Vec<PolicyDigest>,
    policy_records: Vec<PolicyDigest>,
    merkle: Vec<MerkleKey>,
    entries: Vec<EvidenceIndex>,
}

impl<R: Read> Overlay<R> {
    /// Nothing unapplied yet.
    pub fn new(base: R) -> Self {
        Self {
            base,
            meta: None,
            requests: HashMap::new(),
            permits: HashMap::new(),
            approvals: HashMap::new(),
            counters: HashMap::new(),
            policies: HashMap::new(),
            policy_records: HashMap::new(),
            merkle: HashMap::new(),
            entries: HashMap::new(),
            batch: 0,
            touched: Touched::default(),
            sealed: VecDeque::new(),
        }
    }

    /// The records below.
    pub fn base(&self) -> &R {
        &self.base
    }

    /// Closes the current batch and returns its number.
    pub fn seal(&mut self) -> u64 {
        let number = self.batch;
        self.sealed.push_back((number, std::mem::take(&mut self.touched)));
        self.batch += 1;
        number
    }

    /// Forgets the batches up to `number`: the base holds what they wrote. The work is the size of those batches.
    pub fn forget(&mut self, number: u64) {
        fn drop_keys<K: Eq + StdHash, V>(map: &mut HashMap<K, Tagged<V>>, keys: &[K], number: u64) {
            for key in keys {
                if map.get(key).is_some_and(|(tag, _)| *tag <= number) {
                    map.remove(key);
                }
            }
        }
        while self.sealed.front().is_some_and(|(sealed, _)| *sealed <= number) {
            let Some((_, keys)) = self.sealed.pop_front() else { break };
            drop_keys(&mut self.requests, &keys.requests, number);
            drop_keys(&mut self.permits, &keys.permits, number);
            drop_keys(&mut self.approvals, &keys.approvals, number);
            drop_keys(&mut self.counters, &keys.counters, number);
            drop_keys(&mut self.policies, &keys.policies, number);
            drop_keys(&mut self.policy_records, &keys.policy_records, number);
            drop_keys(&mut self.merkle, &keys.merkle, number);
            drop_keys(&mut self.entries, &keys.entries, number);
        }
    }

    /// Everything that was folded, for one write.
    pub fn into_changes(self) -> Changes {
        fn bare<K: Eq + StdHash, V>(map: HashMap<K, Tagged<V>>) -> HashMap<K, V> {
            map.into_iter().map(|(key, (_, value))| (key, value)).collect()
        }
        Changes {
            meta: self.meta,
            requests: bare(self.requests),
            permits: bare(self.permits),
            approvals: bare(self.approvals),
            counters: bare(self.counters),
            policies: bare(self.policies),
            policy_records: bare(self.policy_records),
            merkle: bare(self.merkle),
            entries: self.entries.into_iter().map(|(key, (_, value))| (key, value)).collect(),
            marks: Vec::new(),
        }
    }

    pub(crate) fn put_meta(&mut self, meta: Meta) {
        self.meta = Some(meta);
    }

    pub(crate) fn put_request(&mut self, id: RequestId, record: RequestRecord) {
        self.touched.requests.push(id.clone());
        self.requests.insert(id, (self.batch, record));
    }

    pub(crate) fn put_permit(&mut self, id: PermitId, record: PermitRecord) {
        self.touched.permits.push(id.clone());
        self.permits.insert(id, (self.batch, record));
    }

    pub(crate) fn put_approval(&mut self, id: ApprovalId, record: ApprovalRecord) {
        self.touched.approvals.push(id.clone());
        self.approvals.insert(id, (self.batch, record));
    }

    /// The counter under `key`, to be changed in place: a hot one is changed by every event of a batch. Where there is
    /// none, a new one, if `create` is set.
    pub(crate) fn counter_mut(&mut self, key: CounterKey, create: bool) -> Result<Option<&mut Counter>, ReadError> {
        let (_, counter) = match self.counters.entry(key) {
            Entry::Occupied(place) => {
                if place.get().0 != self.batch {
                    self.touched.counters.push(place.key().clone());
                }
                let counter = place.into_mut();
                counter.0 = self.batch;
                counter
            }
            Entry::Vacant(place) => {
                let known = self.base.counter(place.key())?;
                if known.is_none() && !create {
                    return Ok(None);
                }
                self.touched.counters.push(place.key().clone());
                place.insert((self.batch, known.unwrap_or_default()))
            }
        };
        Ok(Some(counter))
    }

    pub(crate) fn put_policy(&mut self, digest: PolicyDigest, policy: Arc<PolicySet>) {
        self.touched.policies.push(digest.clone());
        self.policies.insert(digest, (self.batch, policy));
    }

    pub(crate) fn put_policy_record(&mut self, digest: PolicyDigest, record: Option<PolicyRecord>) {
        self.touched.policy_records.push(digest.clone());
        self.policy_records.insert(digest, (self.batch, record));
    }

    pub(crate) fn put_merkle(&mut self, node: MerkleKey, hash: Hash) {
        self.touched.merkle.push(node);
        self.merkle.insert(node, (self.batch, hash));
    }

    pub(crate) fn put_entry(&mut self, index: EvidenceIndex, bytes: Bytes) {
        self.touched.entries.push(index);
        self.entries.insert(index, (self.batch, bytes));
    }
}

macro_rules! through {
    ($self:ident, $map:ident, $key:ident, $read:ident) => {
        match $self.$map.get($key) {
            Some((_, value)) => Ok(Some(value.clone())),
            None => $self.base.$read($key),
        }
    };
}

impl<R: Read> Read for Overlay<R> {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.meta.clone().map_or_else(|| self.base.meta(), Ok)
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        through!(self, requests, id, request)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        through!(self, permits, id, permit)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        through!(self, approvals, id, approval)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        through!(self, counters, key, counter)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        if let Some((_, None)) = self.policy_records.get(digest) {
            return Ok(None);
        }
        through!(self, policies, digest, policy)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        match self.policy_records.get(digest) {
            Some((_, record)) => Ok(record.clone()),
            None => self.base.policy_record(digest),
        }
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        match self.merkle.get(&node) {
            Some((_, hash)) => Ok(Some(*hash)),
            None => self.base.merkle(node),
        }
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        match self.entries.get(&index) {
            Some((_, bytes)) => Ok(Some(bytes.to_vec())),
            None => self.base.entry(index),
        }
    }
}
