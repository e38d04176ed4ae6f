//! Membership: one change at a time, by the leader, through joint configurations (Raft §6); and who leads (Raft thesis
//! §3.10).
//! Absent on purpose: founding a cluster (`bootstrap`).

use std::collections::{BTreeMap, BTreeSet};

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, RaftMetrics};
use placet_core::cluster::{ClusterView, MemberAddresses, MembershipChange};
use placet_core::op::Reject;
use tokio::time::Instant;

use super::submit::{Attempt, Route, encode};
use super::{Failure, Inner, Node};
use crate::types::Types;

type Metrics = RaftMetrics<Types>;

/// A learner this many entries behind may become a voter: the rest arrives while the change is committed.
const PROMOTE_LAG_MAX: u64 = 1000;

impl Node {
    /// Changes the membership, wherever the leader is.
    pub async fn change_membership(&self, change: MembershipChange) -> Result<ClusterView, Reject> {
        if self.inner.leads() {
            return self.inner.change_membership_here(change).await.map_err(|failure| match failure {
                Failure::NotLeader { detail } => Reject::Unavailable { detail },
                Failure::Final(reject) => reject,
            });
        }
        let deadline = Instant::now() + self.inner.options.deadline;
        self.forward(Route::Membership, encode(&change)?, deadline).await.map_err(|attempt| match attempt {
            Attempt::Safe(detail) => Reject::Unavailable { detail },
            Attempt::Unsure(detail) => Reject::Unknown { detail },
            Attempt::Final(reject) => reject,
        })
    }
}

impl Inner {
    /// Changes the membership, or hands the leadership over, on this node, which must lead.
    pub(crate) async fn change_membership_here(&self, change: MembershipChange) -> Result<ClusterView, Failure> {
        tracing::info!(?change, "changing the cluster");
        let (changes, retain) = match change {
            MembershipChange::AddLearner { id, addresses } => (self.add(id, addresses)?, true),
            MembershipChange::Promote { id } => (self.promote(id)?, true),
            MembershipChange::Remove { id } => (self.remove(id)?, false),
            MembershipChange::TransferLeader { to } => return self.transfer_leader(to).await,
        };
        let membership = || *self.raft.metrics().borrow_watched().membership_config.log_id();
        let before = membership();
        let changing = self.raft.change_membership(changes, retain);
        match tokio::time::timeout(self.options.deadline, changing).await {
            Ok(Ok(_)) => self.cluster().map_err(Failure::Final),
            // The change is two entries; when the first is there, "nothing happened" is no answer any more.
            Ok(Err(error)) if membership() != before => Err(Failure::Final(Reject::Unknown {
                detail: format!("the change has begun and did not end here: {error}"),
            })),
            Ok(Err(error)) => Err(failure(error)),
            Err(_) => {
                Err(Failure::Final(Reject::Unknown { detail: "the change was not committed in time".to_owned() }))
            }
        }
    }

    fn add(&self, id: u64, addresses: MemberAddresses) -> Result<ChangeMembers<u64, MemberAddresses>, Failure> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let invalid = |detail| Failure::Final(Reject::Invalid { detail });
        if id == 0 {
            return Err(invalid("`id` is 1 or more".to_owned()));
        }
        addresses.check().map_err(invalid)?;
        match metrics.membership_config.get_node(&id) {
            None => Ok(ChangeMembers::AddNodes(BTreeMap::from([(id, addresses)]))),
            // Moving a voter by a slip of the keyboard would cost the quorum a member.
            Some(known) => {
                let place = known.peer.clone();
                Err(conflict(format!("node {id} is a member already, at {place}; remove it first to move it")))
            }
        }
    }

    fn promote(&self, id: u64) -> Result<ChangeMembers<u64, MemberAddresses>, Failure> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.membership_config.get_node(&id).is_none() {
            return Err(Failure::Final(Reject::NotFound { detail: format!("node {id} is not a member") }));
        }
        if metrics.membership_config.voter_ids().any(|voter| voter == id) {
            return Err(conflict(format!("node {id} is a voter already")));
        }
        let replication = metrics.replication.as_ref();
        let matched = replication.and_then(|all| all.get(&id).copied().flatten()).map_or(0, |at| at.index);
        let behind = metrics.last_log_index.unwrap_or_default().saturating_sub(matched);
        if matched == 0 || behind > PROMOTE_LAG_MAX {
            return Err(conflict(format!("node {id} is {behind} entries behind; promote it when it has caught up")));
        }
        Ok(ChangeMembers::AddVoterIds(BTreeSet::from([id])))
    }

    fn remove(&self, id: u64) -> Result<ChangeMembers<u64, MemberAddresses>, Failure> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.membership_config.get_node(&id).is_none() {
            return Err(Failure::Final(Reject::NotFound { detail: format!("node {id} is not a member") }));
        }
        let voters = metrics.membership_config.voter_ids().collect::<BTreeSet<_>>();
        if voters.len() == 1 && voters.contains(&id) {
            return Err(conflict(format!("node {id} is the last voter")));
        }
        let ids = BTreeSet::from([id]);
        Ok(if voters.contains(&id) { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) })
    }
}

impl Inner {
    /// Hands the leadership over, and answers once the new leader is known here.
    async fn transfer_leader(&self, to: Option<u64>) -> Result<ClusterView, Failure> {
        let now = self.raft.metrics().borrow_watched().clone();
        let unknown = |detail: String| Failure::Final(Reject::Unknown { detail });
        if to == Some(now.id) && self.leads() {
            return self.cluster().map_err(Failure::Final);
        }
        // What a member said a second ago may be what the operator has just mended.
        self.watch.look_again().await;
        let now = self.watch.heard_by_raft(to).await;
        let to = self.successor(&now, to)?;
        let triggered = self.raft.trigger().transfer_leader(to).await;
        triggered.map_err(|fatal| unknown(fatal.to_string()))?;
        // A transfer that fails ends in an election: whoever wins it, the term is another.
        let waiting = self.raft.wait(Some(self.options.deadline));
        let taken_over = |after: &Metrics| after.current_term > now.current_term && after.current_leader.is_some();
        let after = waiting.metrics(taken_over, "transfer of the leadership").await;
        let after = after.map_err(|_| unknown("no new leader was known in time".to_owned()))?;
        match after.current_leader {
            Some(leader) if leader == to => self.cluster().map_err(Failure::Final),
            leader => {
                let leader = leader.unwrap_or_default();
                Err(unknown(format!("node {leader} won the election that was to make node {to} the leader")))
            }
        }
    }

    /// The voter that is to lead next: the one named, if it may, or the best one.
    fn successor(&self, now: &Metrics, to: Option<u64>) -> Result<u64, Failure> {
        if now.replication.is_none() {
            return Err(Failure::NotLeader { detail: "this node does not lead any more".to_owned() });
        }
        if now.membership_config.membership().get_joint_config().len() > 1 {
            return Err(conflict("the members are being changed; try again when that is done".to_owned()));
        }
        match to {
            Some(to) => self.watch.fit_to_lead(now, to).map(|()| to).map_err(|unfit| conflict(unfit.of(to))),
            None => self.watch.best_to_lead(now).ok_or_else(|| {
                let others = now.membership_config.voter_ids().filter(|id| *id != now.id);
                let why = others.filter_map(|id| Some(self.watch.fit_to_lead(now, id).err()?.of(id)));
                let why = why.collect::<Vec<_>>().join("; ");
                conflict(if why.is_empty() { "there is no other voter".to_owned() } else { why })
            }),
        }
    }
}

fn conflict(detail: String) -> Failure {
    Failure::Final(Reject::Conflict { detail })
}

fn failure(error: RaftError<Types, ClientWriteError<Types>>) -> Failure {
    let detail = error.to_string();
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Failure::NotLeader { detail },
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))) => {
            conflict(detail)
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_)) => {
            Failure::Final(Reject::Invalid { detail })
        }
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => {
            Failure::Final(Reject::Unknown { detail })
        }
    }
}
