//! Free space of the disk: watched, so that a node refuses what it can refuse before the disk refuses everything.
//! Absent on purpose: how space is measured (`server`, or a simulation), and making room.
//!
//! ```text
//! enough ──free < reserve──► low: the leader hands over to a voter that has space; without one it refuses decides
//!   ▲                         │   and goes on with reads, reports, releases, approvals and the kill switch
//!   └──free ≥ 9/8 reserve─────┘
//! ```
//!
//! The reserve is for what must still be written then: reports, expiries, a flush of what is in memory.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use placet_core::op::Op;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::node::Inner;

/// Between two looks: a gigabyte per second fills a quarter of the default reserve meanwhile.
const EVERY: Duration = Duration::from_millis(250);

/// Between two attempts to hand the leadership over, each of which asks every member.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(2);

type Probe = Arc<dyn Fn() -> io::Result<u64> + Send + Sync>;

/// The space of one node's data folder; cheap to clone, all clones are one.
#[derive(Clone)]
pub struct DiskSpace(Option<Arc<Watched>>);

struct Watched {
    free: Probe,
    reserve: u64,
    last: AtomicU64,
    low: AtomicBool,
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskSpace").field("reserve", &self.0.as_ref().map(|one| one.reserve)).finish_non_exhaustive()
    }
}

impl DiskSpace {
    /// Nobody looks.
    pub fn unwatched() -> Self {
        Self(None)
    }

    /// `free` measures what a write may still use, in bytes; below `reserve` the disk is low.
    pub fn watched(reserve: u64, free: impl Fn() -> io::Result<u64> + Send + Sync + 'static) -> Self {
        let (last, low) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self(Some(Arc::new(Watched { free: Arc::new(free), reserve, last, low })))
    }

    pub(crate) fn is_low(&self) -> bool {
        self.0.as_ref().is_some_and(|one| one.low.load(Ordering::Relaxed))
    }

    /// Whether an operation has to wait for space: what begins something new does; what ends, stops or reads does not.
    pub(crate) fn sheds(&self, op: &Op) -> bool {
        matches!(op, Op::Decide(_) | Op::Malformed { .. } | Op::SignHead) && self.is_low()
    }

    /// What to tell about a disk that is low.
    pub(crate) fn complaint(&self) -> Option<String> {
        let one = self.0.as_ref().filter(|_| self.is_low())?;
        let (free, reserve) = (one.last.load(Ordering::Relaxed), one.reserve);
        Some(format!(
            "the disk is low: {free} bytes are free and {reserve} are kept in reserve; decides are refused until \
             space returns"
        ))
    }

    /// Measures, and returns whether the answer is another one than before.
    fn look(&self) -> bool {
        let Some(one) = &self.0 else { return false };
        let free = match (one.free)() {
            Ok(free) => free,
            Err(error) => {
                tracing::warn!(%error, "the free space of the data folder cannot be measured");
                return false;
            }
        };
        one.last.store(free, Ordering::Relaxed);
        let before = one.low.load(Ordering::Relaxed);
        // More than the reserve has to be free before it is believed again, so that the answer does not flap.
        let low = if before { free < one.reserve.saturating_add(one.reserve / 8) } else { free < one.reserve };
        one.low.store(low, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        metrics::gauge!("placet_disk_free_bytes").set(free as f64);
        metrics::gauge!("placet_disk_low").set(f64::from(u8::from(low)));
        low != before
    }
}

/// Watches for the life of the node.
pub(crate) async fn watch(inner: Arc<Inner>) {
    let disk = inner.options.disk.clone();
    if disk.0.is_none() {
        return;
    }
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tried: Option<Instant> = None;
    loop {
        clock.tick().await;
        if disk.look() {
            match disk.complaint() {
                Some(complaint) => tracing::error!("{complaint}"),
                None => tracing::info!("there is space on the disk again"),
            }
        }
        let due = tried.is_none_or(|at| at.elapsed() >= HAND_OVER_PAUSE);
        if disk.is_low() && inner.leads() && due {
            // Somebody's disk may have filled since the last round of questions.
            inner.watch.look_again().await;
            inner.watch.hand_over().await;
            tried = Some(Instant::now());
        }
    }
}
