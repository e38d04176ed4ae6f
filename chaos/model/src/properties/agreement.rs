//! Agreement (architecture §7.7): all nodes that applied index i have the same chain head at i, and here also the same
//! records. State* of the leader is the same again once nothing is in flight, and while something is, in the way in
//! which a leader holds it: records in flight over applied ones that move on below them.
//! Absent on purpose: what a lost batch would have made of it.

use std::cell::RefCell;
use std::sync::Arc;

use placet_core::fold::fold;
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use placet_core::policy::PolicySet;
use placet_core::state::{
    ApprovalRecord, Counter, CounterKey, MerkleKey, Meta, Overlay, PermitRecord, PolicyRecord, Read, ReadError,
    RequestRecord,
};

use super::Property;
use crate::snapshot::Snapshot;
use crate::system::{News, System};
use crate::world::World;

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct Agreement;

impl Property for Agreement {
    fn name(&self) -> &'static str {
        "agreement"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.7"
    }

    fn of_state(&self, _world: &World, system: &System, news: &News) -> Result<(), String> {
        let (follower, lead) = (&system.follower, &system.lead);
        for (who, log, state) in
            [("leader", &system.history, &system.applied), ("follower", &follower.at, &follower.applied)]
        {
            let (head, logged) = (state.records.meta.chain_head, log.chain_head());
            if head != logged {
                return Err(format!("the chain head of the {who} is {head}, its log ends with {logged}"));
            }
        }
        if news.followed && follower.at.id == system.history.id {
            differ("the leader and the follower", &system.applied, &follower.applied)?;
        }
        let idle = lead.in_flight.is_empty() && lead.draft.outcomes == 0 && !lead.draining;
        if idle && news.committed {
            differ("state* and what is applied", &lead.star, &system.applied)?;
        }
        if lead.in_flight.len() > 1 && lead.draft.outcomes == 0 && !lead.draining {
            pipeline(system)?;
        }
        Ok(())
    }
}

fn differ(what: &str, one: &Snapshot, two: &Snapshot) -> Result<(), String> {
    one.difference(two).map_or(Ok(()), |part| Err(format!("{what} differ in {part}")))
}

/// Holds the batches in flight as a leader does, lets them be applied one after the other, and reads state* each time.
fn pipeline(system: &System) -> Result<(), String> {
    let unreadable = |error: ReadError| error.to_string();
    let base = Moving(RefCell::new(system.applied.clone()));
    let mut star = Overlay::new(&base);
    let mut sealed = Vec::new();
    for one in &system.lead.in_flight {
        for event in &one.batch.events {
            fold(&mut star, event).map_err(unreadable)?;
        }
        sealed.push(star.seal());
    }
    for (one, number) in system.lead.in_flight.iter().zip(sealed) {
        let below = base.now();
        let mut applied = Overlay::new(&*below);
        for event in &one.batch.events {
            fold(&mut applied, event).map_err(unreadable)?;
        }
        let changes = applied.into_changes();
        base.0.replace(Arc::new(below.after(below.id, changes)));
        reads_as(&star, &system.lead.star).map_err(unreadable)??;
        star.forget(number);
        reads_as(&star, &system.lead.star).map_err(unreadable)??;
    }
    Ok(())
}

/// Whether every record reads as in `whole`.
fn reads_as(star: &impl Read, whole: &Snapshot) -> Result<Result<(), String>, ReadError> {
    let records = &whole.records;
    let mut same = star.meta()? == records.meta;
    for (id, record) in &records.requests {
        same &= star.request(id)?.as_ref() == Some(record);
    }
    for (id, record) in &records.permits {
        same &= star.permit(id)?.as_ref() == Some(record);
    }
    for (id, record) in &records.approvals {
        same &= star.approval(id)?.as_ref() == Some(record);
    }
    for (key, record) in &records.counters {
        same &= star.counter(key)?.as_ref() == Some(record);
    }
    for (key, hash) in &records.merkle {
        same &= star.merkle(*key)?.as_ref() == Some(hash);
    }
    for index in (1..records.meta.next_index.0).map(EvidenceIndex) {
        same &= star.entry(index)?.as_deref() == whole.bytes(index);
    }
    Ok(if same { Ok(()) } else { Err("state* reads otherwise while its batches are applied below it".to_owned()) })
}

/// Applied records that move on while something stands on them.
#[derive(Debug)]
struct Moving(RefCell<Arc<Snapshot>>);

impl Moving {
    fn now(&self) -> Arc<Snapshot> {
        self.0.borrow().clone()
    }
}

impl Read for Moving {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.now().meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.now().request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        self.now().permit(id)
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.now().approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.now().counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.now().policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.now().policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.now().merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.now().entry(index)
    }
}
