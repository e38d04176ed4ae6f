//! Where work that blocks on a disk runs: on threads, or in simulated time beside everything else.
//! Absent on purpose: queues. Whoever has work waits for it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the next piece of work takes in simulated time.
type Latency = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Who does work that blocks.
#[derive(Clone, Default)]
pub struct Work(Option<Latency>);

impl Work {
    /// Threads of the runtime: for everything but simulation.
    pub fn threads() -> Self {
        Self(None)
    }

    /// The task that asks, after a pause of its clock that `latency` chooses: one thread can then play whole clusters,
    /// the same way each time.
    pub fn simulated(latency: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(latency)))
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    /// The pause before a piece of simulated work; none for threads.
    pub(crate) async fn pause(&self) {
        if let Some(latency) = &self.0 {
            tokio::time::sleep(latency()).await;
        }
    }

    /// Does `job` and returns what it returned; an error if it panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        if self.is_simulated() {
            self.pause().await;
            return Ok(job());
        }
        tokio::task::spawn_blocking(job).await.map_err(io::Error::other)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_simulated() { "Work(simulated)" } else { "Work(threads)" })
    }
}
