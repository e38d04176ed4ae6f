//! Batches that this node judged itself and that are on their way through Raft: when they come back to be applied, the
//! Applier need not decode what the Decider encoded.
//! Absent on purpose: trust. What comes back is compared byte for byte, and other bytes are decoded.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use placet_wire::log::Batch;

/// As many as are in flight, which the Decider bounds.
#[derive(Debug, Default)]
pub(crate) struct Judged(Mutex<VecDeque<(Bytes, Batch)>>);

impl Judged {
    /// `batch` is proposed as `bytes`.
    pub(crate) fn add(&self, bytes: Bytes, batch: Batch) {
        self.0.lock().push_back((bytes, batch));
    }

    /// The batch that `bytes` are, if it was judged here. Those before it are forgotten: the log keeps the order.
    pub(crate) fn take(&self, bytes: &Bytes) -> Option<Batch> {
        let mut judged = self.0.lock();
        let at = judged.iter().position(|(known, _)| known == bytes)?;
        judged.drain(..=at).next_back().map(|(_, batch)| batch)
    }

    /// A leadership ended: whatever still comes back of it is decoded.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use placet_core::ids::{EvidenceIndex, Hash};

    use super::*;

    fn batch(term: u64) -> Batch {
        Batch { term, base: EvidenceIndex(1), chain_head: Hash::GENESIS, events: Vec::new() }
    }

    /// Goal: only the same bytes are taken for the batch, and nothing stays behind.
    #[test]
    fn a_batch_is_taken_by_its_bytes() {
        let judged = Judged::default();
        for (text, term) in [("one", 1), ("two", 2), ("three", 3)] {
            judged.add(Bytes::from_static(text.as_bytes()), batch(term));
        }
        assert_eq!(judged.take(&Bytes::from_static(b"other")), None);
        assert_eq!(judged.take(&Bytes::from_static(b"two")), Some(batch(2)));
        assert_eq!(judged.take(&Bytes::from_static(b"one")), None, "it is before one that was applied");
        assert_eq!(judged.take(&Bytes::from_static(b"three")), Some(batch(3)));
        judged.add(Bytes::from_static(b"four"), batch(4));
        judged.clear();
        assert_eq!(judged.take(&Bytes::from_static(b"four")), None);
    }
}
