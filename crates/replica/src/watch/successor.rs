//! Who is best to lead next: the one way to choose, for a planned stop, a bad clock, a full disk and an operator who
//! leaves the choice open.
//! Absent on purpose: when to hand over; whoever calls knows why.

use std::cmp::Reverse;
use std::fmt;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, RaftMetrics};
use tokio::time::Instant;

use super::{HAND_OVER_PAUSE, PeerWatch};
use crate::types::Types;

type Metrics = RaftMetrics<Types>;

/// Why a node is not to lead next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It does not vote.
    NotVoter,
    /// It does not acknowledge the leader's heartbeats.
    Silent,
    /// It lost its data and gives no votes.
    Recovering,
    /// Its disk is low: it would have to hand over at once.
    DiskLow,
    /// It was told to stop.
    Stopping,
    /// A majority's clocks do not agree with its.
    ClockOff,
    /// It lacks more than what is on its way to every member.
    Behind(u64),
}

impl Unfit {
    /// For people, about node `id`.
    pub(crate) fn of(&self, id: u64) -> String {
        format!("node {id} {self}")
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotVoter => f.write_str("is not a voter"),
            Self::Silent => f.write_str("does not answer the leader"),
            Self::Recovering => f.write_str("lost its data and is catching up"),
            Self::DiskLow => f.write_str("has a disk that is low"),
            Self::Stopping => f.write_str("is stopping"),
            Self::ClockOff => f.write_str("has a clock that disagrees with the majority's"),
            Self::Behind(entries) => write!(f, "is {entries} entries behind; try again when it has caught up"),
        }
    }
}

impl PeerWatch {
    /// Whether `id` may lead next, as this node, which leads, sees it. `now` is what Raft knew a moment ago.
    pub(crate) fn fit_to_lead(&self, now: &Metrics, id: u64) -> Result<(), Unfit> {
        if !now.membership_config.voter_ids().any(|voter| voter == id) {
            return Err(Unfit::NotVoter);
        }
        let beat = now.heartbeat.as_ref().and_then(|all| all.get(&id).copied().flatten());
        if beat.is_none_or(|at| at.elapsed() > self.options.election.1) {
            return Err(Unfit::Silent);
        }
        match self.heard.lock().get(&id) {
            Some(one) if one.status.recovering => return Err(Unfit::Recovering),
            Some(one) if one.status.stopping => return Err(Unfit::Stopping),
            _ => {}
        }
        if self.heard.lock().get(&id).is_some_and(|one| one.status.disk_low) {
            return Err(Unfit::DiskLow);
        }
        // Well within the bound, or the two of them could pass the leadership to and fro. A clock that nobody has asked
        // about yet is no reason against its node.
        let clocks = self.clocks();
        if clocks.readings.contains_key(&id) && !clocks.believes(id, self.within(true)) {
            return Err(Unfit::ClockOff);
        }
        let behind = now.last_log_index.unwrap_or_default().saturating_sub(matched(now, id));
        if behind > u64::try_from(self.options.in_flight_batches_max).unwrap_or(u64::MAX) {
            return Err(Unfit::Behind(behind));
        }
        Ok(())
    }

    /// The voter that is best to lead next: of those that may, the one that holds most of the log.
    pub(crate) fn best_to_lead(&self, now: &Metrics) -> Option<u64> {
        let others = now.membership_config.voter_ids().filter(|id| *id != now.id);
        let fit = others.filter(|id| self.fit_to_lead(now, *id).is_ok());
        fit.max_by_key(|id| (matched(now, *id), Reverse(*id)))
    }

    /// Hands the leadership to the voter that is best to lead, now and then; whether there is one. For a leader that
    /// must not lead: it asks again and again.
    pub(crate) async fn hand_over(&self) -> bool {
        let now = self.raft.metrics().borrow_watched().clone();
        let Some(next) = self.best_to_lead(&now) else { return false };
        {
            let mut notes = self.notes.lock();
            if notes.handed_over.is_some_and(|at| at.elapsed() < HAND_OVER_PAUSE) {
                return true;
            }
            notes.handed_over = Some(Instant::now());
        }
        tracing::warn!(next, "this node hands the leadership over");
        if let Err(error) = self.raft.trigger().transfer_leader(next).await {
            tracing::warn!(%error, "the leadership could not be handed over");
        }
        true
    }
}

/// The last index that a voter is known to hold.
fn matched(now: &Metrics, id: u64) -> u64 {
    now.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map_or(0, |at| at.index)
}
