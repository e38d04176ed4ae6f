//! One life of a node, from its start to its crash. What belongs to a life has no effect after it: writes fail,
//! messages are not sent, answers do not leave. So a crash takes place at any instant, in the midst of any task, and the
//! tasks that are left behind can be ended at leisure.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

type OnDeath = Box<dyn FnOnce() + Send>;

/// A handle to one life.
#[derive(Clone)]
pub struct Life(Arc<Inner>);

struct Inner {
    /// Whose life.
    node: u64,
    /// Which of its lives.
    number: u64,
    alive: watch::Sender<bool>,
    /// Disk and network operations until this life ends by itself; negative for never.
    countdown: AtomicI64,
    /// A fault of its disk was played: it may stop for that.
    may_stop: AtomicBool,
    /// Freezes the disks, at the very instant.
    on_death: Mutex<Option<OnDeath>>,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Life({}.{})", self.0.node, self.0.number)
    }
}

impl Life {
    /// A new life; `on_death` runs once, when it ends.
    pub fn new(node: u64, number: u64, on_death: impl FnOnce() + Send + 'static) -> Self {
        Self(Arc::new(Inner {
            node,
            number,
            alive: watch::Sender::new(true),
            countdown: AtomicI64::new(-1),
            may_stop: AtomicBool::new(false),
            on_death: Mutex::new(Some(Box::new(on_death))),
        }))
    }

    /// Whose life.
    pub fn node(&self) -> u64 {
        self.0.node
    }

    /// Whether it goes on.
    pub fn alive(&self) -> bool {
        *self.0.alive.borrow()
    }

    /// Ends it now.
    pub fn end(&self) {
        let last = self.0.on_death.lock().take();
        if let Some(last) = last {
            self.0.alive.send_replace(false);
            last();
        }
    }

    /// Resolves when it has ended.
    pub async fn ended(&self) {
        let mut alive = self.0.alive.subscribe();
        // The sender lives as long as this handle.
        let _ = alive.wait_for(|alive| !*alive).await;
    }

    /// Lets it end at its `operations`-th operation from now.
    pub fn end_after(&self, operations: i64) {
        self.0.countdown.store(operations, Ordering::SeqCst);
    }

    /// Notes that a fault of its disk was played.
    pub fn allow_stop(&self) {
        self.0.may_stop.store(true, Ordering::SeqCst);
    }

    /// Whether it may stop by itself.
    pub fn may_stop(&self) -> bool {
        self.0.may_stop.load(Ordering::SeqCst)
    }

    /// Counts one operation. `false` when there is no life any more to do it in.
    pub fn count(&self) -> bool {
        if !self.alive() {
            return false;
        }
        let counted = self.0.countdown.load(Ordering::SeqCst);
        if counted > 0 {
            self.0.countdown.store(counted - 1, Ordering::SeqCst);
            if counted == 1 {
                self.end();
                return false;
            }
        }
        true
    }

    /// As [`Life::count`], for an operation on a disk.
    pub fn operate(&self) -> io::Result<()> {
        if self.count() { Ok(()) } else { Err(io::Error::other("the power is gone")) }
    }
}
