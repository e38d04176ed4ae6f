//! What the run sees: every write, every answer, and the first property that does not hold.

use bytes::Bytes;
use placet_core::event::Entry;
use placet_core::ids::EvidenceIndex;
use placet_core::op::Answer;
use placet_core::reply::Verdict;
use placet_core::state::Changes;
use placet_replica::conformance::batch_in;
use placet_wire::log;

use super::World;
use crate::disk::StateContent;
use crate::properties::{Copies, End, Told};

/// A property that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub property: String,
    /// How.
    pub detail: String,
    /// When, in milliseconds of the run.
    pub at_ms: u64,
}

impl World {
    /// Notes the first violation; the run ends soon after.
    pub fn violate(&self, property: &str, detail: &str) {
        let mut violation = self.0.violation.lock();
        if violation.is_none() {
            self.note(|| format!("VIOLATION of {property}: {detail}"));
            *violation =
                Some(Violation { property: property.to_owned(), detail: detail.to_owned(), at_ms: self.elapsed_ms() });
        }
    }

    /// The first violation, if there is one.
    pub fn violation(&self) -> Option<Violation> {
        self.0.violation.lock().clone()
    }

    fn check(&self, mut of: impl FnMut(&mut dyn crate::properties::Property) -> Result<(), String>) {
        for property in self.0.properties.lock().iter_mut() {
            if let Err(detail) = of(property.as_mut()) {
                self.violate(property.name(), &detail);
            }
        }
    }

    /// Called from inside every write to a state.
    pub(super) fn observe(&self, node: u64, state: &StateContent, changes: &Changes) {
        for (index, bytes) in &changes.entries {
            if *self.0.shown.lock() + 1 != index.0 {
                continue;
            }
            match serde_json::from_slice::<Entry>(bytes) {
                Ok(entry) => {
                    self.note(|| format!("entry {} {} at node {node}", entry.index, entry.body.kind()));
                    self.check(|property| property.entry(&entry, bytes));
                }
                Err(error) => self.violate("agreement", &format!("entry {index} cannot be read: {error}")),
            }
            *self.0.shown.lock() = index.0;
        }
        self.check(|property| property.written(node, state, changes));
    }

    /// Durable copies of what an answer promises, if it promises something.
    pub fn copies(&self, answer: &Answer, holder: u64) -> Option<Copies> {
        let Answer::Decide(reply) = answer else { return None };
        if reply.verdict != Verdict::Permit {
            return None;
        }
        let index = reply.evidence_id;
        let slots = self.0.slots.lock();
        // A disk that was taken away had its copy; what is left does not tell what there was.
        if slots.values().any(|slot| slot.damaged) {
            return None;
        }
        let told = slots.get(&holder)?.disks.state.lock().now.mem.entries.get(&index).cloned();
        let wanted = told.or_else(|| {
            // Answered by the leader through this node, which has not applied it yet.
            slots.values().find_map(|slot| slot.disks.state.lock().now.mem.entries.get(&index).cloned())
        });
        let voters = self.0.founders.len();
        let needed = voters / 2 + 1;
        let Some(wanted) = wanted else { return Some(Copies { durable: 0, needed }) };
        let durable = slots.values().filter(|slot| {
            let in_state = slot.disks.state.lock().durable.mem.entries.get(&index) == Some(&wanted);
            in_state || slot.disks.log.lock().durable.entries.values().rev().any(|record| holds(record, index, &wanted))
        });
        Some(Copies { durable: durable.count(), needed })
    }

    /// A client is about to ask.
    pub fn ask(&self, op: &placet_core::op::Op) {
        self.0.properties.lock().iter_mut().for_each(|property| property.asked(op));
    }

    /// A client was told something, or was not.
    pub fn tell(&self, told: &Told) {
        self.check(|property| property.told(told));
    }

    /// The run is over.
    pub fn conclude(&self, end: &End<'_>) {
        self.check(|property| property.end(end));
    }
}

/// Whether a log record is the batch that holds an entry.
fn holds(record: &Bytes, index: EvidenceIndex, wanted: &[u8]) -> bool {
    let Some(batch) = batch_in(record) else { return false };
    let Ok(batch) = log::decode(batch) else { return false };
    let at = index.0.checked_sub(batch.base.0).and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| batch.events.get(at)).is_some_and(|event| *event.bytes == *wanted)
}
