//! The replicated log of the model: batches of events, and what an Applier makes of them.
//! Absent on purpose: votes, heartbeats and acknowledgements. Which suffix survives a change of the leader is chosen
//! by the search: every prefix of what was in flight is a choice that Raft may make (Raft §5.4).

use std::sync::Arc;

use placet_core::event::Event;
use placet_core::evidence;
use placet_core::ids::{EvidenceIndex, Hash};
use placet_core::state::{Read, ReadError};

use crate::identity::Id;

/// The events of some calls, as one log entry carries them.
#[derive(Debug)]
pub struct Batch {
    /// Its name.
    pub id: Id,
    /// The term in which it was judged.
    pub term: u64,
    /// The position of its first event.
    pub base: EvidenceIndex,
    /// The chain head behind it.
    pub head: Hash,
    /// The facts, in order.
    pub events: Vec<Event>,
}

impl Batch {
    /// Seals events into a batch; `None` without any.
    pub fn of(term: u64, events: Vec<Event>) -> Option<Arc<Self>> {
        let base = events.first()?.entry.index;
        let head = events.last()?.hash;
        let facts: Vec<_> = events.iter().map(|event| (event.hash, &event.permit_id)).collect();
        let id = Id::of(&(term, base, facts));
        Some(Arc::new(Self { id, term, base, head, events }))
    }
}

/// What an Applier made of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Its events are in the state.
    Folded,
    /// It was judged on another state than it met, and has no effect.
    Fenced,
}

/// Whether a batch may be folded: the Applier's check of base, predecessor and chain head, in its order. An error stops
/// the node.
pub fn admit(state: &dyn Read, entry_term: u64, batch: &Batch) -> Result<Applied, String> {
    let unreadable = |error: ReadError| error.to_string();
    let meta = state.meta().map_err(unreadable)?;
    if batch.term != entry_term || batch.base != meta.next_index {
        // What was judged on an older state must have been judged on an older state of ours.
        let before = EvidenceIndex(batch.base.0.saturating_sub(1));
        return match (batch.events.first(), state.entry(before).map_err(unreadable)?) {
            (Some(first), Some(bytes)) if evidence::hash(&bytes) != first.entry.prev => {
                Err(format!("`{}` follows another entry `{before}` than the one here", first.entry.index))
            }
            _ => Ok(Applied::Fenced),
        };
    }
    let (mut next, mut head) = (meta.next_index, meta.chain_head);
    for event in &batch.events {
        if event.entry.index != next || event.entry.prev != head {
            return Err(format!("`{}` does not follow the state before `{next}`", event.entry.index));
        }
        next = next.next();
        head = event.hash;
    }
    if head != batch.head {
        return Err(format!("the chain head is {head} here and {} in the log", batch.head));
    }
    Ok(Applied::Folded)
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The term of the leader that wrote it.
    pub term: u64,
    /// What it carries.
    pub batch: Arc<Batch>,
    /// What became of it.
    pub applied: Applied,
}

/// A committed log. Shared: a longer one names the one that it continues.
#[derive(Debug)]
pub struct History {
    /// Its name.
    pub id: Id,
    /// The log without its last entry.
    pub before: Option<Arc<History>>,
    /// How many entries it has.
    pub length: usize,
    /// The last one.
    pub last: Option<LogEntry>,
    /// Every fact that was folded, as an Applier reads it from the log's bytes.
    pub events: Vec<Arc<Event>>,
}

impl History {
    /// The empty log.
    pub fn empty() -> Self {
        Self { id: Id::of(&"no log"), before: None, length: 0, last: None, events: Vec::new() }
    }

    /// What it is called with one more entry.
    pub fn id_after(&self, term: u64, batch: &Batch) -> Id {
        Id::of(&(self.id, term, batch.id))
    }

    /// The log with one more entry. Its events are read back from their bytes: nothing travels that is not in them.
    pub fn after(self: &Arc<Self>, entry: LogEntry) -> Result<Self, String> {
        let mut events = self.events.clone();
        if entry.applied == Applied::Folded {
            for event in &entry.batch.events {
                let read = Event::decode(event.bytes.clone(), event.permit_id.clone());
                events.push(Arc::new(read.map_err(|error| error.to_string())?));
            }
        }
        let id = self.id_after(entry.term, &entry.batch);
        Ok(Self { id, before: Some(self.clone()), length: self.length + 1, last: Some(entry), events })
    }

    /// The entries behind the log called `id`, oldest first; `None` when this one does not continue it.
    pub fn behind(&self, id: Id) -> Option<Vec<&LogEntry>> {
        let mut entries = Vec::new();
        let mut at = self;
        while at.id != id {
            entries.push(at.last.as_ref()?);
            at = at.before.as_deref()?;
        }
        entries.reverse();
        Some(entries)
    }

    /// The fact at a position.
    pub fn event(&self, index: EvidenceIndex) -> Option<&Arc<Event>> {
        self.events.iter().find(|event| event.entry.index == index)
    }

    /// The chain head behind the last fact.
    pub fn chain_head(&self) -> Hash {
        self.events.last().map_or(Hash::GENESIS, |event| event.hash)
    }
}
