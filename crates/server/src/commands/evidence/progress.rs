//! A progress bar for work that takes longer than a second, on a terminal only.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work that is over sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(200);

/// Width of the bar.
const CELLS: u64 = 30;

pub(in crate::commands) struct Progress {
    shown: bool,
    next: Instant,
    terminal: bool,
    /// Bytes in all, where that is known.
    total: Option<u64>,
}

impl Progress {
    pub(in crate::commands) fn new(total: Option<u64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { shown: false, next: Instant::now() + PATIENCE, terminal, total }
    }

    /// Draws, if it is time.
    pub(in crate::commands) fn at(&mut self, bytes: u64, entries: u64) {
        if !self.terminal || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAUSE;
        self.shown = true;
        let bar = match self.total {
            Some(total) if total > 0 => {
                let done = bytes.min(total);
                let cells = usize::try_from(done.saturating_mul(CELLS) / total).unwrap_or_default();
                let rest = usize::try_from(CELLS).unwrap_or_default().saturating_sub(cells);
                format!("[{}{}] {:>3}%  ", "#".repeat(cells), ".".repeat(rest), done.saturating_mul(100) / total)
            }
            _ => String::new(),
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{bar}{entries} entries");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
