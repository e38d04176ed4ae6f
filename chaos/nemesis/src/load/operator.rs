//! The operator, who engages the kill switch and releases it again.
//! Absent on purpose: scopes. Everything is stopped, so that any permit in between is one too many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{BACKOFF, Client};
use crate::doors::{Doors, Said};
use crate::journal::Journal;
use crate::secrets::OPERATE;

static EPISODES: AtomicU64 = AtomicU64::new(1);

impl Client {
    pub(super) async fn operate(mut self, every: Duration) {
        while !self.stopped() {
            let wait = Instant::now() + every + Duration::from_millis(self.dice.below(1000));
            while Instant::now() < wait && !self.stopped() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            if self.stopped() {
                return;
            }
            let nodes = self.nodes.read().clone();
            let hand = self.switch.lock().await;
            set_switch(&self.doors, &self.journal, &nodes, true).await;
            tokio::time::sleep(Duration::from_millis(200 + self.dice.below(400))).await;
            set_switch(&self.doors, &self.journal, &nodes, false).await;
            drop(hand);
        }
    }
}

/// How long an attempt without an answer may still take effect: longer than a node waits for a commit.
const LATE: Duration = Duration::from_secs(6);

/// Sets the switch, asking one node after the other until one says that it is set; gives up after a minute. When it
/// returns, no attempt of it is still under way, so that the next setting is the last word.
pub async fn set_switch(doors: &Doors, journal: &Journal, nodes: &[u64], engaged: bool) -> bool {
    let origin = format!("episode-{}", EPISODES.fetch_add(1, Ordering::Relaxed));
    let body = json!({"engaged": engaged, "origin": origin});
    let number = journal.switch_sent(&origin, engaged);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut silent: Option<Instant> = None;
    let mut set = false;
    for node in nodes.iter().cycle() {
        let sent = journal.now();
        let said = doors.call(*node, "POST", "/v1/killswitch", OPERATE, Some(&body)).await;
        journal.attempt(sent, matches!(said, Said::Answer(..)));
        match said {
            Said::Answer(200, _) => {
                journal.switch_acknowledged(number);
                set = true;
                break;
            }
            Said::Answer(status, body) => {
                journal.odd(format!("the kill switch was answered {status}: {body}"));
                break;
            }
            Said::Unknown => silent = Some(Instant::now()),
            Said::Nothing => {}
        }
        if Instant::now() > deadline {
            break;
        }
        tokio::time::sleep(BACKOFF).await;
    }
    if let Some(silent) = silent {
        tokio::time::sleep_until(silent + LATE).await;
    }
    set
}
