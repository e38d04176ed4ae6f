//! Architecture §7.7: all nodes that applied index i have the same chain head at i. Also: evidence is a chain without a
//! hole, and its times never run backwards (§1).

use placet_core::evaluate::rederive;
use placet_core::event::Entry;
use placet_core::evidence;
use placet_core::ids::{EvidenceIndex, Hash};
use placet_core::stamp::Stamp;
use placet_core::state::Changes;

use super::{End, Property};
use crate::disk::StateContent;

#[derive(Debug, Default)]
pub struct Agreement {
    /// The bytes of each entry, by position from 1.
    entries: Vec<Vec<u8>>,
    heads: Vec<Hash>,
    last: Stamp,
}

impl Agreement {
    fn head_at(&self, next: EvidenceIndex) -> Option<Hash> {
        match next.0.checked_sub(2) {
            None => Some(Hash::GENESIS),
            Some(at) => self.heads.get(usize::try_from(at).ok()?).copied(),
        }
    }
}

impl Property for Agreement {
    fn name(&self) -> &'static str {
        "agreement"
    }

    fn entry(&mut self, entry: &Entry, bytes: &[u8]) -> Result<(), String> {
        let expected = self.heads.last().copied().unwrap_or(Hash::GENESIS);
        if entry.prev != expected {
            return Err(format!(
                "entry {} follows {}, the entry before it has hash {expected}",
                entry.index, entry.prev
            ));
        }
        if entry.at < self.last {
            return Err(format!("entry {} is of {}, the one before it of {}", entry.index, entry.at, self.last));
        }
        self.last = entry.at;
        self.entries.push(bytes.to_vec());
        self.heads.push(evidence::hash(bytes));
        Ok(())
    }

    fn written(&mut self, node: u64, state: &StateContent, changes: &Changes) -> Result<(), String> {
        for (index, bytes) in &changes.entries {
            let at = usize::try_from(index.0 - 1).unwrap_or(usize::MAX);
            match self.entries.get(at) {
                Some(known) if known == bytes => {}
                Some(_) => return Err(format!("node {node} applied another entry {index} than a node before it")),
                None => return Err(format!("node {node} applied entry {index}, nobody the one before it")),
            }
        }
        let meta = &state.mem.meta;
        let expected = self.head_at(meta.next_index);
        if expected != Some(meta.chain_head) {
            let expected = expected.map_or_else(|| "unknown".to_owned(), |hash| hash.to_string());
            return Err(format!(
                "node {node} has head {} before {}, it is {expected}",
                meta.chain_head, meta.next_index
            ));
        }
        Ok(())
    }

    fn end(&mut self, end: &End<'_>) -> Result<(), String> {
        for (node, state) in end.states {
            let one = end.state;
            let same = (&state.requests, &state.permits, &state.approvals, &state.counters)
                == (&one.requests, &one.permits, &one.approvals, &one.counters);
            if !same || state.meta != one.meta || state.entries != one.entries || state.merkle != one.merkle {
                return Err(format!("node {node} has applied the same and holds other records"));
            }
        }
        if end.state.entries.len() != self.entries.len() {
            return Err(format!("{} entries at the end, {} were applied", end.state.entries.len(), self.entries.len()));
        }
        let entries = end.state.entries.values().map(Vec::as_slice);
        rederive(entries).map(drop).map_err(|difference| format!("the evidence does not derive again: {difference}"))
    }
}
