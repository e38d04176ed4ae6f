//! The Decider: one task that judges, in order, while this node leads.
//! Absent on purpose: waiting for one batch before the next, and answers that run ahead of their batch.
//!
//! ```text
//! not leading ──vote committed and ours, own state applied an entry of this term──► leading
//!      ▲                                                                              │ any refused or lost batch,
//!      │                                                                              │ another term, a fold failed
//!      └──────── every batch in flight has its outcome ◄── draining ◄─────────────────┘
//! ```
//!
//! With leader restore off the first entry of a term is its blank one, so "applied an entry of my term" means
//! "everything before my term is applied". Architecture §1; Raft §5.4, §8.

mod due;
mod leadership;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::raft::ClientWriteResult;
use openraft::{ChangeMembers, Instant as _, ServerState};
use placet_core::op::{Answer, Call, Reject};
use placet_core::planted::{self, Bug};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use self::leadership::{Fault, Leadership};
use crate::judged::Judged;
use crate::options::Options;
use crate::ports::Records;
use crate::state_machine::Progress;
use crate::types::{Applied, Raft, Types};
use crate::watch::PeerWatch;
use crate::watch::clocks::Verdict;

/// How long the Decider holds still after Raft refused a batch for a reason that passes by itself.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a call has no answer from this Decider.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It was not proposed and never will be: any node may try it again.
    NotProposed(String),
    /// It may have been committed, or may still be.
    Lost(String),
    /// It was judged, and this is the answer; or it must not be tried again.
    Reject(Reject),
}

type ServerChanges = openraft::alias::WatchReceiverOf<Types, openraft::metrics::RaftServerMetrics<Types>>;

/// A call on its way to the Decider.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) call: Call,
    pub(crate) reply: oneshot::Sender<Result<Answer, Refusal>>,
    /// Of the request, so that its judgement shows there.
    pub(crate) span: tracing::Span,
}

/// What the Decider works with.
#[derive(Debug)]
pub(crate) struct Decider {
    pub(crate) options: Arc<Options>,
    pub(crate) raft: Raft,
    pub(crate) records: Records,
    pub(crate) watch: Arc<PeerWatch>,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) judged: Arc<Judged>,
    pub(crate) queue: mpsc::Receiver<Proposal>,
}

/// What became of a batch.
#[derive(Debug)]
enum BatchOutcome {
    /// Committed and applied here.
    Applied,
    /// Provably without effect.
    NotProposed(String),
    /// Nobody knows yet.
    Lost(String),
}

impl BatchOutcome {
    /// The table of what a write's result proves.
    fn of(result: Result<ClientWriteResult<Types>, oneshot::error::RecvError>) -> Self {
        match result {
            Ok(Ok(response)) => match response.data {
                Applied::Folded => Self::Applied,
                Applied::Fenced => Self::NotProposed("the batch was fenced".to_owned()),
            },
            Ok(Err(ClientWriteError::ForwardToLeader(refused))) => {
                let reason = match refused.reason {
                    ForwardReason::NotLeader => "this node does not lead any more",
                    ForwardReason::LeadershipTransfer => "the leadership is being transferred",
                    ForwardReason::LeaseExpired => "the leader has no quorum",
                };
                Self::NotProposed(reason.to_owned())
            }
            Ok(Err(error)) => Self::Lost(error.to_string()),
            Err(_) => Self::Lost("this node stopped".to_owned()),
        }
    }
}

impl Decider {
    /// Runs until the queue is closed.
    pub(crate) async fn run(mut self) {
        while let Some(term) = self.wait_until_leading().await {
            metrics::counter!("placet_leaderships_total").increment(1);
            tracing::info!(term, "this node decides");
            let (options, records, judged) = (self.options.clone(), self.records.clone(), self.judged.clone());
            let lead = match Leadership::take(options, records, judged, term).await {
                Ok(lead) => lead,
                Err(error) => {
                    tracing::error!(error = %error.0, "the state could not be read on taking leadership");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            self.end_joint_membership();
            let fault = self.lead(lead).instrument(tracing::info_span!("lead", term)).await;
            self.judged.clear();
            tracing::info!(term, reason = %fault.0, "this node does not decide any more");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A change of members is two entries, and a leader that died between them left the first: the next one writes the
    /// second, because nobody else does, and until then there is no other change and no transfer of the leadership.
    fn end_joint_membership(&self) {
        let members = self.raft.metrics().borrow_watched().membership_config.clone();
        if members.membership().get_joint_config().len() < 2 {
            return;
        }
        let raft = self.raft.clone();
        tokio::spawn(async move {
            match raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::new()), false).await {
                Ok(_) => tracing::info!("a change of members that another leader had begun is done"),
                Err(error) => tracing::warn!(%error, "a change of members that another leader had begun is not done"),
            }
        });
    }

    /// The term in which this node is the leader now.
    fn elected(&self) -> Option<u64> {
        // From what the Decider is woken by: Raft's whole metrics follow a moment later, and that would be missed.
        let server = self.raft.server_metrics();
        let server = server.borrow_watched();
        let mine = server.vote.leader_id.voted_for == self.options.node_id && server.vote.committed;
        let leads = mine && server.state == ServerState::Leader;
        let runs = || self.raft.metrics().borrow_watched().running_state.is_ok();
        (leads && runs()).then_some(server.vote.leader_id.term)
    }

    /// The same, if it may judge in it.
    fn leading(&self) -> Option<u64> {
        self.elected().filter(|term| self.progress.borrow().term == *term)
    }

    /// Whether a quorum acknowledged this leader within an election timeout: a leader that is cut off stays one by
    /// name for as long as it is cut off.
    fn has_quorum(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let alone = metrics.membership_config.voter_ids().all(|id| id == metrics.id);
        alone || metrics.last_quorum_acked.as_ref().is_some_and(|at| at.elapsed() < self.options.election.1)
    }

    /// `None` when the queue is closed. Whoever asks meanwhile is told that this node does not lead.
    async fn wait_until_leading(&mut self) -> Option<u64> {
        let mut changes = self.raft.server_metrics();
        loop {
            let elected = self.elected().is_some();
            if let Some(term) = self.leading() {
                return Some(term);
            }
            tokio::select! {
                proposal = self.queue.recv() => refuse(proposal?, "this node does not lead"),
                changed = changes.changed() => if changed.is_err() { self.refuse_for_ever().await; return None },
                // A follower applies with every batch, and is not to be woken for that.
                _ = self.progress.changed(), if elected => {}
            }
        }
    }

    async fn refuse_for_ever(&mut self) {
        while let Some(proposal) = self.queue.recv().await {
            refuse(proposal, "this node has stopped");
        }
    }

    /// Leads until something goes wrong, then waits for the outcome of every batch in flight.
    async fn lead(&mut self, mut lead: Leadership) -> Fault {
        let mut changes = self.raft.server_metrics();
        let fault = loop {
            if let Err(fault) = self.step(&mut lead, &mut changes).await {
                break fault;
            }
        };
        lead.abandon_waiting(&fault);
        while !lead.idle() {
            tokio::select! {
                () = lead.next_outcome().map(drop) => {}
                proposal = self.queue.recv() => match proposal {
                    Some(proposal) => refuse(proposal, &fault.0),
                    None => return fault,
                },
            }
        }
        fault
    }

    async fn step(&mut self, lead: &mut Leadership, changes: &mut ServerChanges) -> Result<(), Fault> {
        if self.leading() != Some(lead.term()) && !planted::on(Bug::NoFencing) {
            return Err(Fault::new("the leadership changed"));
        }
        let mut proposals = Vec::new();
        let batch_max = self.options.batch_events_max;
        let (busy, room, expiry) = (!lead.idle(), lead.has_room(self.queue.len()), lead.next_expiry());
        tokio::select! {
            biased;
            outcome = lead.next_outcome(), if busy => return outcome,
            changed = changes.changed() => return changed.map_err(|_| Fault::new("this node has stopped")),
            received = self.queue.recv_many(&mut proposals, batch_max), if room => {
                if received == 0 {
                    return Err(Fault::new("this node is stopping"));
                }
            }
            () = tokio::time::sleep_until(expiry), if room => {}
        }
        lead.hold_time(false);
        if proposals.is_empty() && !lead.anything_due() {
            lead.expiry_checked();
            return Ok(());
        }
        // What is told to stop must be able to stop everything, whatever the clocks say; its stamp is the last one again.
        let (verdict, certain) = self.watch.clock_for_certain().await;
        lead.hold_time(verdict != Verdict::Trusted);
        if verdict != Verdict::Trusted {
            let (stops, shed): (Vec<_>, Vec<_>) = proposals.into_iter().partition(|one| one.call.op.is_switch());
            self.shed(shed, verdict, certain).await;
            proposals = stops;
            if proposals.is_empty() {
                // Whatever is due stays due until the clock is believed: to look again at once would be to spin.
                lead.look_later();
                return Ok(());
            }
        }
        lead.write_format(self.watch.log_format());
        // One round of the queue may need several batches: events have a bound in bytes, too.
        let mut proposals = proposals.into_iter();
        loop {
            let batch = match lead.judge(&mut proposals, self.has_quorum()) {
                Ok(batch) => batch,
                Err(fault) => {
                    proposals.for_each(|proposal| refuse(proposal, &fault.0));
                    return Err(fault);
                }
            };
            if let Some(batch) = batch {
                lead.propose(&self.raft, batch).await?;
            }
            if proposals.len() == 0 {
                lead.expiry_checked();
                return Ok(());
            }
        }
    }

    /// Answers those whose calls need a time that can be believed, and sees to it that another node leads if there is
    /// one that can.
    async fn shed(&self, proposals: Vec<Proposal>, verdict: Verdict, certain: bool) {
        metrics::counter!("placet_clock_shed_total").increment(u64::try_from(proposals.len()).unwrap_or(u64::MAX));
        let why = self.watch.complaint(verdict);
        // Whoever can be helped by another node, or in a moment, is tried again by the node that asked.
        let soon = match verdict {
            _ if !certain => true,
            Verdict::Off => self.watch.hand_over().await,
            Verdict::Trusted | Verdict::Unknown => true,
            Verdict::Split => false,
        };
        for proposal in proposals {
            if soon {
                refuse(proposal, &why);
            } else {
                // Whoever has stopped waiting is not told.
                let _ = proposal.reply.send(Err(Refusal::Reject(Reject::Unavailable { detail: why.clone() })));
            }
        }
    }
}

fn refuse(proposal: Proposal, why: &str) {
    // Whoever has stopped waiting is not told.
    let _ = proposal.reply.send(Err(Refusal::NotProposed(why.to_owned())));
}
