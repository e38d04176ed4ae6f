//! The entries that were appended last, in memory: every one of them is read for each peer and to be applied, some
//! milliseconds after it was written.
//! Absent on purpose: what is not the end of the log. Whoever asks for that reads the store.

use std::collections::VecDeque;
use std::ops::Range;

use openraft::EntryPayload;
use parking_lot::Mutex;

use crate::types::{Blob, Entry};

/// Bytes of entries kept: all appends in flight, with room for a peer that is a little behind.
const BYTES_MAX: usize = 8 << 20;

/// What an entry takes beside its bytes.
const ENTRY_BYTES: usize = 128;

/// An end of the log without gaps.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Entry>,
    bytes: usize,
}

fn size(entry: &Entry) -> usize {
    let payload = if let EntryPayload::Normal(Blob(bytes)) = &entry.payload { bytes.len() } else { 0 };
    payload.saturating_add(ENTRY_BYTES)
}

impl Kept {
    fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.log_id.index)
    }

    fn end(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.log_id.index.saturating_add(1))
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    fn drop_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes = self.bytes.saturating_sub(size(&entry));
        }
    }

    fn drop_last(&mut self) {
        if let Some(entry) = self.entries.pop_back() {
            self.bytes = self.bytes.saturating_sub(size(&entry));
        }
    }
}

impl Recent {
    /// `entries` were written behind what is known. Anything else that is kept is not the end of the log any more.
    pub(crate) fn appended(&self, entries: Vec<Entry>) {
        let mut kept = self.0.lock();
        for entry in entries {
            if kept.end().is_some_and(|end| end != entry.log_id.index) {
                kept.clear();
            }
            kept.bytes = kept.bytes.saturating_add(size(&entry));
            kept.entries.push_back(entry);
        }
        while kept.bytes > BYTES_MAX && kept.entries.len() > 1 {
            kept.drop_first();
        }
    }

    /// The entry at `index` and all behind it are gone.
    pub(crate) fn truncated(&self, index: u64) {
        let mut kept = self.0.lock();
        while kept.end().is_some_and(|end| end > index) {
            kept.drop_last();
        }
    }

    /// The entries up to and including `index` are gone.
    pub(crate) fn purged(&self, index: u64) {
        let mut kept = self.0.lock();
        while kept.first().is_some_and(|first| first <= index) {
            kept.drop_first();
        }
    }

    /// All entries in `range`, or the first of them until they are `bytes_max` together, never fewer than one; `None`
    /// unless every one that was asked for is kept.
    pub(crate) fn read(&self, range: &Range<u64>, bytes_max: usize) -> Option<Vec<Entry>> {
        let kept = self.0.lock();
        let (first, end) = (kept.first()?, kept.end()?);
        if range.start < first || range.end > end {
            return None;
        }
        let skip = usize::try_from(range.start.saturating_sub(first)).ok()?;
        let count = usize::try_from(range.end.saturating_sub(range.start)).ok()?;
        let mut found = Vec::with_capacity(count);
        let mut bytes = 0usize;
        for entry in kept.entries.iter().skip(skip).take(count) {
            bytes = bytes.saturating_add(size(entry));
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::types::LogId;

    fn entries(range: Range<u64>, term: u64, bytes: usize) -> Vec<Entry> {
        let payload = || EntryPayload::Normal(Blob(Bytes::from(vec![0; bytes])));
        range.map(|index| Entry { log_id: LogId::new_term_index(term, index), payload: payload() }).collect()
    }

    fn ids(found: Option<Vec<Entry>>) -> Option<Vec<(u64, u64)>> {
        found.map(|all| all.iter().map(|entry| (entry.log_id.leader_id.term, entry.log_id.index)).collect())
    }

    /// Goal: what is kept is the end of the log as the store has it, after everything that happens to a log.
    #[test]
    fn what_is_kept_is_the_end_of_the_log() {
        let recent = Recent::default();
        assert_eq!(ids(recent.read(&(1..2), usize::MAX)), None, "nothing is kept yet");
        recent.appended(entries(5..9, 1, 10));
        assert_eq!(ids(recent.read(&(6..8), usize::MAX)), Some(vec![(1, 6), (1, 7)]));
        assert_eq!(ids(recent.read(&(4..8), usize::MAX)), None, "it begins before what is kept");
        assert_eq!(ids(recent.read(&(6..10), usize::MAX)), None, "it ends behind what is kept");
        recent.truncated(7);
        recent.appended(entries(7..8, 2, 10));
        assert_eq!(ids(recent.read(&(5..8), usize::MAX)), Some(vec![(1, 5), (1, 6), (2, 7)]));
        recent.purged(5);
        assert_eq!(ids(recent.read(&(5..6), usize::MAX)), None);
        assert_eq!(ids(recent.read(&(6..7), usize::MAX)), Some(vec![(1, 6)]));
        recent.appended(entries(20..21, 3, 10));
        assert_eq!(ids(recent.read(&(6..7), usize::MAX)), None, "a gap: what was before it is not the end");
        assert_eq!(ids(recent.read(&(20..21), usize::MAX)), Some(vec![(3, 20)]));
        recent.truncated(0);
        assert_eq!(recent.0.lock().bytes, 0);
    }

    /// Goal: what is kept and what is read have a bound, and at least one entry passes.
    #[test]
    fn bytes_are_bounded() {
        let recent = Recent::default();
        recent.appended(entries(1..41, 1, 1 << 20));
        let kept = recent.0.lock().entries.len();
        assert!((1..=8).contains(&kept), "{kept}");
        assert_eq!(ids(recent.read(&(39..41), 1)), Some(vec![(1, 39)]));
        assert_eq!(ids(recent.read(&(38..41), 5 << 19)), Some(vec![(1, 38), (1, 39)]));
        recent.appended(entries(41..42, 1, 2 * BYTES_MAX));
        assert_eq!(ids(recent.read(&(41..42), usize::MAX)), Some(vec![(1, 41)]));
        assert_eq!(recent.0.lock().entries.len(), 1);
    }
}
