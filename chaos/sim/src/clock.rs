//! Clocks of nodes: simulated time, seen through an offset and a rate of their own. They drift, step back and jump.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// 2026-08-17T09:00:00Z, where every run begins.
pub const EPOCH_MS: i64 = 1_786_957_200_000;

#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Added to the time, in milliseconds.
    offset_ms: i64,
    /// Added for each second since `since`, in milliseconds.
    drift_ms: i64,
    since: Instant,
}

/// The clock of one node.
#[derive(Clone, Debug)]
pub struct SimClock {
    began: Instant,
    setting: Arc<Mutex<Setting>>,
}

impl SimClock {
    /// A right clock of a run that began at `began`.
    pub fn new(began: Instant) -> Self {
        Self { began, setting: Arc::new(Mutex::new(Setting { offset_ms: 0, drift_ms: 0, since: began })) }
    }

    /// What a right clock shows.
    pub fn true_ms(&self) -> i64 {
        EPOCH_MS + i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX / 2)
    }

    /// What this one shows.
    pub fn now_ms(&self) -> i64 {
        self.true_ms() + self.offset_ms()
    }

    /// How far it is ahead.
    pub fn offset_ms(&self) -> i64 {
        let setting = *self.setting.lock();
        let elapsed = i64::try_from(setting.since.elapsed().as_millis()).unwrap_or_default();
        setting.offset_ms + elapsed * setting.drift_ms / 1000
    }

    /// Sets it `offset_ms` ahead of the truth, gaining `drift_ms` a second from there.
    pub fn set(&self, offset_ms: i64, drift_ms: i64) {
        *self.setting.lock() = Setting { offset_ms, drift_ms, since: Instant::now() };
    }
}
