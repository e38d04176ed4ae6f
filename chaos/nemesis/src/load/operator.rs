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
            set_switch(&self.doors, &self.journal, &nodes, true).await;
            tokio::time::sleep(Duration::from_millis(200 + self.dice.below(400))).await;
            set_switch(&self.doors, &self.journal, &nodes, false).await;
        }
    }
}

/// Sets the switch, asking one node after the other until one says that it is set; gives up after a minute.
pub async fn set_switch(doors: &Doors, journal: &Journal, nodes: &[u64], engaged: bool) -> bool {
    let origin = format!("episode-{}", EPISODES.fetch_add(1, Ordering::Relaxed));
    let body = json!({"engaged": engaged, "origin": origin});
    let number = journal.switch_sent(&origin, engaged);
    let deadline = Instant::now() + Duration::from_secs(60);
    for node in nodes.iter().cycle() {
        let sent = journal.now();
        let said = doors.call(*node, "POST", "/v1/killswitch", OPERATE, Some(&body)).await;
        journal.attempt(sent, matches!(said, Said::Answer(..)));
        match said {
            Said::Answer(200, _) => {
                journal.switch_acknowledged(number);
                return true;
            }
            Said::Answer(status, body) => {
                journal.odd(format!("the kill switch was answered {status}: {body}"));
                return false;
            }
            _ if Instant::now() > deadline => return false,
            _ => tokio::time::sleep(BACKOFF).await,
        }
    }
    false
}
