//! The chain: canonical bytes of an entry, and the hash that ties each entry to all before it (AADP §14.6).
//! Absent on purpose: a way to skip it. INVARIANT (chain): the hash of entry n covers the hash of entry n-1.

use thiserror::Error;

use crate::event::Entry;
use crate::ids::{EvidenceIndex, Hash};

/// Version of the entry form; a new meaning is a new number.
pub const ENTRY_VERSION: u32 = 1;

/// Precedes every hashed entry, so that these hashes mean nothing elsewhere.
const PREIMAGE_TAG: &[u8] = b"placet/evidence/1\n";

/// Room for the entry of a usual permit.
const USUAL_BYTES: usize = 2048;

/// The canonical bytes of an entry: AADP Canonical JSON.
pub fn encode(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    // An entry is strings, integers and lists; serialising it to memory has no way to fail.
    if serde_json::to_writer(&mut bytes, entry).is_err() { Vec::new() } else { bytes }
}

/// Reads an entry back.
pub fn decode(bytes: &[u8]) -> Result<Entry, EvidenceError> {
    serde_json::from_slice(bytes).map_err(|source| EvidenceError::Undecodable { source })
}

/// Whether `bytes`, which `entry` was read from, are its one spelling. `spelt` is overwritten: whoever asks often keeps it.
pub fn is_canonical(entry: &Entry, bytes: &[u8], spelt: &mut Vec<u8>) -> bool {
    spelt.clear();
    entry.body.decided().is_none_or(|decided| decided.trace.is_canonical())
        && serde_json::to_writer(&mut *spelt, entry).is_ok()
        && spelt == bytes
}

/// The hash of an entry from its canonical bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(PREIMAGE_TAG).update(bytes);
    Hash(*hasher.finalize().as_bytes())
}

/// Why an entry does not continue the chain.
#[derive(Debug, Error)]
pub enum EvidenceError {
    /// The bytes are not an entry of a version that this program knows.
    #[error("an evidence entry cannot be decoded")]
    Undecodable {
        /// What the decoder found.
        source: serde_json::Error,
    },
    /// The entry has another position than the one that follows.
    #[error("evidence entry `{found}` stands where `{expected}` belongs")]
    Position {
        /// Where the chain stands.
        expected: EvidenceIndex,
        /// What the entry says.
        found: EvidenceIndex,
    },
    /// The entry names another predecessor.
    #[error("evidence entry `{index}` names predecessor {found}, the chain has {expected}")]
    Broken {
        /// Which entry.
        index: EvidenceIndex,
        /// The hash of the entry before.
        expected: Hash,
        /// What the entry says.
        found: Hash,
    },
}

/// Which of `entries` are not what was recorded, against a head from elsewhere. From the newest back: an entry that its
/// trusted successor names is trusted, so a changed entry is named itself and not the one behind it. What stands before
/// a changed entry has no trusted word about it and is believed, so one change is reported once.
pub fn damaged(entries: &[(EvidenceIndex, &[u8])], head: Hash) -> Vec<EvidenceIndex> {
    let mut found = Vec::new();
    let mut expected = Some(head);
    for (index, bytes) in entries.iter().rev() {
        let named = expected.is_none_or(|expected| hash(bytes) == expected);
        let entry = decode(bytes).ok().filter(|entry| named && entry.index == *index);
        if entry.is_none() {
            found.push(*index);
        }
        expected = entry.map(|entry| entry.prev);
    }
    found.reverse();
    found
}

/// A walk along the chain, one entry at a time, from the first or from a known head.
#[derive(Clone, Copy, Debug)]
pub struct ChainWalk {
    /// The position that comes next.
    pub next: EvidenceIndex,
    /// The hash of the entry before it.
    pub head: Hash,
}

impl Default for ChainWalk {
    fn default() -> Self {
        Self { next: EvidenceIndex(1), head: Hash::GENESIS }
    }
}

impl ChainWalk {
    /// Takes the next entry, or says how it fails to follow. After a failure the walk stands behind the bad entry,
    /// on the entry's own hash, so one bad entry is reported once.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Entry, EvidenceError> {
        let (expected, head) = (self.next, self.head);
        self.next = self.next.next();
        self.head = hash(bytes);
        let entry = decode(bytes)?;
        if entry.index != expected {
            self.next = entry.index.next();
            return Err(EvidenceError::Position { expected, found: entry.index });
        }
        if entry.prev != head {
            return Err(EvidenceError::Broken { index: expected, expected: head, found: entry.prev });
        }
        Ok(entry)
    }
}
