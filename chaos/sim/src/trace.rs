//! What happened in a run, for the reader of a failure; and one number over all of it, which is the same each time.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Lines that are kept.
const KEPT: usize = 400;

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<String>,
    digest: DefaultHasher,
    count: u64,
    aloud: bool,
}

/// The trace of one run; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Inner>>);

impl Trace {
    /// A trace that is printed as it grows, or only kept.
    pub fn new(aloud: bool) -> Self {
        let trace = Self::default();
        trace.0.lock().aloud = aloud;
        trace
    }

    /// Adds a line.
    pub fn note(&self, at: Duration, what: impl FnOnce() -> String) {
        let line = format!("{:>7} {}", at.as_millis(), what());
        let mut inner = self.0.lock();
        line.hash(&mut inner.digest);
        inner.count += 1;
        if inner.aloud {
            println!("{line}");
        }
        if inner.lines.len() == KEPT {
            inner.lines.pop_front();
        }
        inner.lines.push_back(line);
    }

    /// One number over every line.
    pub fn digest(&self) -> u64 {
        self.0.lock().digest.finish()
    }

    /// Lines so far.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// The last lines.
    pub fn tail(&self) -> Vec<String> {
        self.0.lock().lines.iter().cloned().collect()
    }
}
