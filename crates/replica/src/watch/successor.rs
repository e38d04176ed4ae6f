//! Who is best to lead next: the one way to choose, for a planned stop, a bad clock, a full disk and an operator who
//! leaves the choice open.
//! Absent on purpose: when to hand over; whoever calls knows why.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, RaftMetrics};
use placet_wire::peer::StatusResponse;
use tokio::time::Instant;

use super::clocks::Clocks;
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

/// What a leader knows of a voter beside Raft's own figures.
#[derive(Debug)]
struct Known<'a> {
    status: Option<&'a StatusResponse>,
    clocks: &'a Clocks,
    /// How far clocks may be apart.
    within_ms: i64,
    /// How old the last acknowledgement may be.
    beat_max: Duration,
    /// Entries that it may lack.
    lag_max: u64,
}

/// Whether `id` may lead next, as the leader sees it. `now` is what Raft knew a moment ago.
fn fit(now: &Metrics, id: u64, known: &Known<'_>) -> Result<(), Unfit> {
    if !now.membership_config.voter_ids().any(|voter| voter == id) {
        return Err(Unfit::NotVoter);
    }
    if silence(now, id).is_none_or(|long| long > known.beat_max) {
        return Err(Unfit::Silent);
    }
    match known.status {
        Some(status) if status.recovering => return Err(Unfit::Recovering),
        Some(status) if status.stopping => return Err(Unfit::Stopping),
        Some(status) if status.disk_low => return Err(Unfit::DiskLow),
        _ => {}
    }
    // A clock that nobody has asked about yet is no reason against its node.
    if known.clocks.readings.contains_key(&id) && !known.clocks.believes(id, known.within_ms) {
        return Err(Unfit::ClockOff);
    }
    let behind = now.last_log_index.unwrap_or_default().saturating_sub(matched(now, id));
    if behind > known.lag_max { Err(Unfit::Behind(behind)) } else { Ok(()) }
}

impl PeerWatch {
    /// Whether `id` may lead next, as this node, which leads, sees it.
    pub(crate) fn fit_to_lead(&self, now: &Metrics, id: u64) -> Result<(), Unfit> {
        let status = self.heard.lock().get(&id).map(|one| one.status.clone());
        let known = Known {
            status: status.as_ref(),
            clocks: &self.clocks(),
            // Well within the bound, or the two of them could pass the leadership to and fro.
            within_ms: self.within(true),
            beat_max: self.options.election.1,
            lag_max: u64::try_from(self.options.in_flight_batches_max).unwrap_or(u64::MAX),
        };
        fit(now, id, &known)
    }

    /// What Raft knows once voter `id`, or without one every other voter, has acknowledged this leader: one that has just
    /// taken over has yet to hear them. No longer than an election takes: who is silent by then is so.
    pub(crate) async fn heard_by_raft(&self, id: Option<u64>) -> Metrics {
        let heard = |now: &Metrics| now.replication.is_none() || has_heard(now, id);
        let waiting = self.raft.wait(Some(self.options.election.1));
        let waited = waiting.metrics(heard, "a first answer of the others").await;
        waited.unwrap_or_else(|_| self.raft.metrics().borrow_watched().clone())
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

/// Whether voter `id`, or without one every other voter, has acknowledged this leader once.
fn has_heard(now: &Metrics, id: Option<u64>) -> bool {
    let mut asked =
        now.membership_config.voter_ids().filter(|voter| *voter != now.id && id.is_none_or(|id| id == *voter));
    asked.all(|voter| silence(now, voter).is_some())
}

/// How long ago a voter acknowledged this leader last.
fn silence(now: &Metrics, id: u64) -> Option<Duration> {
    now.heartbeat.as_ref().and_then(|all| all.get(&id).copied().flatten()).map(|at| at.elapsed())
}

/// The last index that a voter is known to hold.
fn matched(now: &Metrics, id: u64) -> u64 {
    now.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map_or(0, |at| at.index)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::type_config::TypeConfigExt;
    use placet_core::cluster::MemberAddresses;

    use super::super::clocks::Reading;
    use super::*;
    use crate::types::{LogId, Membership, StoredMembership};

    fn position(index: u64) -> LogId {
        LogId::new_term_index(1, index)
    }

    /// Node 1 leads voters 1 to 3 and learner 4; each of them acknowledged index 100 a moment ago.
    fn metrics() -> Metrics {
        let nodes: BTreeMap<u64, MemberAddresses> = (1..=4).map(|id| (id, MemberAddresses::default())).collect();
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([1, 2, 3])], nodes.keys().copied());
        let mut metrics = Metrics::new_initial(1);
        metrics.membership_config = std::sync::Arc::new(StoredMembership::new(None, membership));
        metrics.last_log_index = Some(100);
        metrics.replication = Some((1..=4).map(|id| (id, Some(position(100)))).collect());
        metrics.heartbeat =
            Some((1..=4).map(|id| (id, Some(openraft::metrics::SerdeInstant::new(Types::now())))).collect());
        metrics
    }

    /// Goal: each reason against a voter is found, and named for people.
    #[test]
    fn who_may_not_lead_is_told_why() {
        let reading = |ahead_ms| Reading { ahead_ms, error_ms: 1 };
        let clocks =
            |third| Clocks { voters: 3, readings: [(1, Reading::SELF), (2, reading(0)), (3, reading(third))].into() };
        let judge = |now: &Metrics, id: u64, status: StatusResponse, clocks: &Clocks| {
            let lag_max = 64;
            let known =
                Known { status: Some(&status), clocks, within_ms: 800, beat_max: Duration::from_millis(600), lag_max };
            fit(now, id, &known).map_err(|unfit| unfit.of(id))
        };
        let good = StatusResponse::default;
        let (now, agree) = (metrics(), clocks(10));
        assert_eq!(judge(&now, 3, good(), &agree), Ok(()));
        assert_eq!(judge(&now, 4, good(), &agree), Err("node 4 is not a voter".to_owned()));
        let recovering = StatusResponse { recovering: true, ..good() };
        assert_eq!(judge(&now, 3, recovering, &agree), Err("node 3 lost its data and is catching up".to_owned()));
        let low = StatusResponse { disk_low: true, ..good() };
        assert_eq!(judge(&now, 3, low, &agree), Err("node 3 has a disk that is low".to_owned()));
        let stopping = StatusResponse { stopping: true, ..good() };
        assert_eq!(judge(&now, 3, stopping, &agree), Err("node 3 is stopping".to_owned()));
        let mut unheard = metrics();
        unheard.heartbeat.as_mut().unwrap().insert(3, None);
        assert_eq!(judge(&unheard, 3, good(), &agree), Err("node 3 does not answer the leader".to_owned()));
        assert!(has_heard(&unheard, Some(2)) && !has_heard(&unheard, Some(3)) && !has_heard(&unheard, None));
        assert!(has_heard(&now, None) && has_heard(&unheard, Some(4)), "who does not vote is not waited for");
        let off = judge(&now, 3, good(), &clocks(900));
        assert_eq!(off, Err("node 3 has a clock that disagrees with the majority's".to_owned()));
        let mut late = metrics();
        late.replication.as_mut().unwrap().insert(3, Some(position(36)));
        assert_eq!(judge(&late, 3, good(), &agree), Ok(()), "what is on its way to everybody is no lag");
        late.replication.as_mut().unwrap().insert(3, Some(position(35)));
        let behind = judge(&late, 3, good(), &agree);
        assert_eq!(behind, Err("node 3 is 65 entries behind; try again when it has caught up".to_owned()));
        late.replication.as_mut().unwrap().insert(3, None);
        assert!(judge(&late, 3, good(), &agree).unwrap_err().contains("100 entries behind"));
        let mut silent = metrics();
        silent.heartbeat.as_mut().unwrap().insert(3, None);
        assert_eq!(judge(&silent, 3, good(), &agree), Err("node 3 does not answer the leader".to_owned()));
    }
}
