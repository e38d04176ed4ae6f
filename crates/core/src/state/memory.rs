//! The whole state in memory: for tests, simulation, enforcement points' own tests and offline re-derivation.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::{
    ApprovalRecord, Changes, Counter, CounterKey, List, MerkleKey, Meta, PermitRecord, PermitStatus, PolicyRecord,
    Read, ReadError, RequestRecord,
};
use crate::event::ApprovalState;
use crate::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use crate::policy::PolicySet;
use crate::search::{OpenRun, Summary};

/// The whole state in ordered maps: for tests, simulation and offline re-derivation.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "one field per kind of record")]
pub struct MemState {
    pub meta: Meta,
    pub requests: BTreeMap<RequestId, RequestRecord>,
    pub permits: BTreeMap<PermitId, PermitRecord>,
    pub approvals: BTreeMap<ApprovalId, ApprovalRecord>,
    pub counters: BTreeMap<CounterKey, Counter>,
    pub policies: BTreeMap<PolicyDigest, Arc<PolicySet>>,
    pub policy_records: BTreeMap<PolicyDigest, PolicyRecord>,
    pub merkle: BTreeMap<MerkleKey, Hash>,
    pub entries: BTreeMap<EvidenceIndex, Vec<u8>>,
    pub summaries: BTreeMap<u64, Summary>,
    pub open_run: OpenRun,
}

impl MemState {
    /// Takes what folding wrote. Evidence is only ever added.
    pub fn write(&mut self, changes: Changes) {
        self.meta = changes.meta.unwrap_or_else(|| self.meta.clone());
        self.requests.extend(changes.requests);
        self.permits.extend(changes.permits);
        self.approvals.extend(changes.approvals);
        self.counters.extend(changes.counters);
        self.policies.extend(changes.policies);
        for (digest, record) in changes.policy_records {
            match record {
                Some(record) => drop(self.policy_records.insert(digest, record)),
                None => {
                    self.policy_records.remove(&digest);
                    self.policies.remove(&digest);
                }
            }
        }
        self.merkle.extend(changes.merkle);
        for (index, bytes) in changes.entries {
            self.entries.entry(index).or_insert_with(|| bytes.to_vec());
        }
        for (index, marks) in changes.marks {
            self.summaries.extend(self.open_run.push(index, &marks));
        }
    }
}

impl Read for MemState {
    fn meta(&self) -> Result<Meta, ReadError> {
        Ok(self.meta.clone())
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        Ok(self.requests.get(id).cloned())
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        Ok(self.permits.get(id).cloned())
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        Ok(self.approvals.get(id).cloned())
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        Ok(self.counters.get(key).cloned())
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        Ok(self.policies.get(digest).cloned())
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        Ok(self.policy_records.get(digest).cloned())
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        Ok(self.merkle.get(&node).copied())
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.entries.get(&index).cloned())
    }
}

/// Listings walk the maps: these states are small.
impl List for MemState {
    fn open_permits(
        &self,
        after: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError> {
        let open = self.permits.iter().filter(|(_, permit)| permit.status == PermitStatus::Held);
        let behind = open.filter(|(_, permit)| after.is_none_or(|after| permit.index > after));
        let mut found: Vec<_> = behind.map(|(id, permit)| (id.clone(), permit.clone())).collect();
        found.sort_by_key(|(_, permit)| permit.index);
        found.truncate(limit);
        Ok(found)
    }

    fn open_approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        let open =
            |approval: &&ApprovalRecord| matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved);
        Ok(behind(&self.approvals, after).map(|(_, approval)| approval).filter(open).take(limit).cloned().collect())
    }

    fn approvals(&self, after: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        Ok(behind(&self.approvals, after).map(|(_, approval)| approval.clone()).take(limit).collect())
    }

    fn counters(&self, after: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError> {
        Ok(behind(&self.counters, after).map(|(key, counter)| (key.clone(), counter.clone())).take(limit).collect())
    }

    fn policies(
        &self,
        after: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError> {
        let kept = behind(&self.policy_records, after);
        Ok(kept.map(|(digest, record)| (digest.clone(), record.clone())).take(limit).collect())
    }

    fn entries(&self, after: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError> {
        let entries = behind(&self.entries, Some(&after));
        Ok(entries.map(|(index, bytes)| (*index, bytes.clone())).take(limit).collect())
    }

    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError> {
        Ok(self.summaries.range(from_run..).map(|(run, summary)| (*run, summary.clone())).take(limit).collect())
    }
}

fn behind<'m, K: Ord, V>(map: &'m BTreeMap<K, V>, after: Option<&K>) -> impl Iterator<Item = (&'m K, &'m V)> {
    map.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}
