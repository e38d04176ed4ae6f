//! Keeps the log within a size: counts what is appended, and once that is too much takes a snapshot and purges what it
//! covers. Evidence is in the state and is never part of this.
//! Absent on purpose: a look at the disk after the start. The count is by segments of the log, a bounded number of them.
//!
//! ```text
//! append ─► LogUse: bytes by segment ──over the bound──► snapshot ─► purge until half of the bound is left
//! ```
//!
//! Half stays, so that a follower that was away for a moment, or that was just sent a snapshot, goes on with the log.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::log_store::{decode_log_id, last_log_id};
use crate::node::Inner;
use crate::ports::{Log, LogKey};

/// Parts that the log is counted in. Twice as many at most: then two neighbours become one.
const SEGMENTS: usize = 32;

/// How long to wait for a snapshot, or for Raft to purge, before looking again.
const ROUND: Duration = Duration::from_secs(1);

/// Entries up to an index, from the segment before on.
#[derive(Clone, Copy, Debug)]
struct Segment {
    last: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Segments {
    /// Oldest first; the last one is still growing.
    all: VecDeque<Segment>,
    bytes: u64,
}

/// How many bytes of entries the log holds, and where.
#[derive(Debug)]
pub(crate) struct LogUse {
    segments: Mutex<Segments>,
    /// A segment ends at this size.
    segment_bytes: u64,
    max: u64,
    exceeded: Notify,
    purged_to: AtomicU64,
}

impl LogUse {
    /// Counts from what the log says of itself. `max` of `None` is no bound.
    pub(crate) fn open(log: &dyn Log, max: Option<u64>) -> io::Result<Self> {
        let mut segments = Segments::default();
        if let Some(last) = last_log_id(log)? {
            segments.bytes = log.size()?;
            segments.all.push_back(Segment { last: last.index, bytes: segments.bytes });
        }
        let max = max.unwrap_or(u64::MAX);
        let segment_bytes = max / u64::try_from(SEGMENTS).unwrap_or(u64::MAX);
        let purged = log.get(LogKey::LastPurged)?.map(|bytes| decode_log_id(&bytes)).transpose()?;
        let purged_to = AtomicU64::new(purged.map_or(0, |at| at.index));
        Ok(Self { segments: Mutex::new(segments), segment_bytes, max, exceeded: Notify::new(), purged_to })
    }

    /// Of no log.
    #[cfg(test)]
    pub(crate) fn none() -> Arc<Self> {
        let (segments, purged_to) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { segments, segment_bytes: 1, max: u64::MAX, exceeded: Notify::new(), purged_to })
    }

    /// Entries up to `last`, of `bytes` together, were written.
    pub(crate) fn appended(&self, last: u64, bytes: u64) {
        let mut segments = self.segments.lock();
        segments.bytes = segments.bytes.saturating_add(bytes);
        match segments.all.back_mut() {
            Some(open) if open.bytes < self.segment_bytes => {
                // A truncated tail is written again under lower indexes.
                open.last = open.last.max(last);
                open.bytes = open.bytes.saturating_add(bytes);
            }
            _ => segments.all.push_back(Segment { last, bytes }),
        }
        if segments.all.len() > 2 * SEGMENTS {
            segments.merge();
        }
        metrics::gauge!("placet_log_bytes").set(segments.bytes as f64);
        if segments.bytes > self.max {
            self.exceeded.notify_one();
        }
    }

    /// Entries up to `index` are gone.
    pub(crate) fn purged(&self, index: u64) {
        self.purged_to.fetch_max(index, Ordering::AcqRel);
        let mut segments = self.segments.lock();
        while let Some(first) = segments.all.pop_front_if(|first| first.last <= index) {
            segments.bytes = segments.bytes.saturating_sub(first.bytes);
        }
        metrics::gauge!("placet_log_bytes").set(segments.bytes as f64);
    }

    /// The last index that is gone; 0 when nothing is.
    pub(crate) fn purged_to(&self) -> u64 {
        self.purged_to.load(Ordering::Acquire)
    }

    /// Where to purge to, so that about half of the bound is left; `None` while the log is within it.
    fn surplus(&self) -> Option<u64> {
        let segments = self.segments.lock();
        if segments.bytes <= self.max {
            return None;
        }
        let (mut left, mut upto) = (segments.bytes, None);
        for segment in &segments.all {
            if left <= self.max / 2 {
                break;
            }
            left = left.saturating_sub(segment.bytes);
            upto = Some(segment.last);
        }
        upto
    }

    /// Whether the log is so large that even a running transfer does not hold back the purge.
    fn overflows(&self) -> bool {
        self.segments.lock().bytes > self.max.saturating_mul(2)
    }
}

impl Segments {
    fn merge(&mut self) {
        let mut halved = VecDeque::with_capacity(self.all.len());
        while let Some(first) = self.all.pop_front() {
            let second = self.all.pop_front().unwrap_or(Segment { last: first.last, bytes: 0 });
            let bytes = first.bytes.saturating_add(second.bytes);
            halved.push_back(Segment { last: first.last.max(second.last), bytes });
        }
        self.all = halved;
    }
}

/// Watches the size of the log for as long as the node runs.
pub(crate) async fn run(inner: Arc<Inner>) {
    loop {
        let Some(upto) = inner.log_use.surplus() else {
            inner.log_use.exceeded.notified().await;
            continue;
        };
        if !relieve(&inner, upto).await {
            return;
        }
    }
}

/// Takes a snapshot that covers the log up to `upto`, if there is none, and purges. `false` once the node has stopped.
async fn relieve(inner: &Inner, upto: u64) -> bool {
    let covered = || inner.raft.metrics().borrow_watched().snapshot.map_or(0, |at| at.index);
    if covered() < upto {
        tracing::info!(upto, "the log is over its bound; taking a snapshot");
        if inner.raft.trigger().snapshot().await.is_err() {
            return false;
        }
        let until = Instant::now() + ROUND;
        let mut metrics = inner.raft.metrics();
        while covered() < upto {
            match tokio::time::timeout_at(until, metrics.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return false,
                // It takes longer, or covered less than was appended meanwhile.
                Err(_) => return true,
            }
        }
    }
    // Who is being sent an older snapshot goes on with the log behind it.
    let held = inner.snapshots.oldest_in_use().filter(|_| !inner.log_use.overflows());
    let upto = held.map_or(upto, |held| held.min(upto));
    if inner.raft.trigger().purge_log(upto).await.is_err() {
        return false;
    }
    // Raft purges when no replication reads there; nothing else is to be done until then.
    let until = Instant::now() + ROUND;
    while inner.log_use.surplus().is_some() && Instant::now() < until {
        tokio::time::sleep(ROUND / 20).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_use(max: u64) -> LogUse {
        let segments = Mutex::new(Segments::default());
        let segment_bytes = max / u64::try_from(SEGMENTS).unwrap();
        LogUse { segments, segment_bytes, max, exceeded: Notify::new(), purged_to: AtomicU64::new(0) }
    }

    /// Goal: about half stays, and what is purged is counted off, whatever the sizes of entries.
    #[test]
    fn half_of_the_bound_stays() {
        for size in [1, 100, 3_000, 50_000] {
            let log = log_use(100_000);
            let mut index = 0;
            while log.surplus().is_none() {
                index += 1;
                log.appended(index, size);
            }
            let upto = log.surplus().unwrap();
            log.purged(upto);
            let left = (index - upto) * size;
            let counted = log.segments.lock().bytes;
            assert_eq!(counted, left, "entries of {size} bytes");
            assert!(left <= 50_000 && (left > 46_000 || size > 3_000), "{left} bytes of entries of {size} are left");
            assert_eq!(log.surplus(), None);
        }
    }

    /// Goal: while nothing can be purged, the count stays bounded in memory and right in sum.
    #[test]
    fn a_log_that_cannot_be_purged_is_counted_in_a_bounded_number_of_parts() {
        let log = log_use(3_200);
        for index in 1..=100_000 {
            log.appended(index, 100);
            assert!(log.segments.lock().all.len() <= 2 * SEGMENTS);
        }
        assert!(log.overflows());
        assert_eq!(log.segments.lock().bytes, 10_000_000);
        log.purged(100_000);
        assert_eq!(log.segments.lock().bytes, 0);
        assert!(log.segments.lock().all.is_empty());
    }
}
