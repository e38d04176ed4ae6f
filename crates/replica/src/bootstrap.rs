//! How a cluster is founded, and how a member that lost its data comes back without harm.
//! Absent on purpose: membership changes of a running cluster (`node`).
//!
//! A voter with an empty disk has forgotten whom it voted for and what it acknowledged. If it took part at once, two
//! leaders could be elected in one term, and a committed entry could lose its quorum. So an empty founding member
//! stands outside until it knows better:
//!
//! ```text
//! Collecting ──every founder is empty, the smallest id says "begin"──────────────────────────► Open
//!     │
//!     └─some member is not empty: ask the leader and every other voter;
//!       note the highest term and the last log position that they know
//!                                        ▼
//!       CatchingUp: takes appends from that term on, gives no votes ──applied that far──────► Open
//! ```
//!
//! A founder that was restored from a backup stands outside in the same way: "empty" is then "restored, and not started
//! since", on every founder, from one backup.
//!
//! INVARIANT (amnesia): a node gives no vote, and acknowledges nothing, below what it may have promised before it lost
//! its disk. The list of founders must stay in the configuration for that. A founder alone in its list, and an empty
//! node without a list, are taken at their word, unless `placet repair` noted that the node had data once. Raft §5.2; Viewstamped Replication Revisited §4.3.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use placet_core::cluster::MemberAddresses;
use placet_core::state::Read;
use placet_wire::peer;
use prost::Message;
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::log_store::{invalid, last_log_id, read_vote};
use crate::network::client::Peers;
use crate::network::convert;
use crate::node::Inner;
use crate::ports::{Log, LogKey, State};
use crate::restore;
use crate::snapshot::position_of;
use crate::types::{LogId, StoredMembership};

/// Between two rounds of questions: short beside a human's patience, long beside a round trip.
const ROUND: Duration = Duration::from_millis(150);

/// How long one peer may take to answer a question.
const ANSWER: Duration = Duration::from_millis(1000);

const REPAIR: &str = "`placet repair --config FILE --from-peers` moves the data aside, and the node catches up";

/// How far a node may take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// It knows nothing yet: neither votes nor appends.
    Collecting,
    /// It takes appends of `term` or later, and gives no votes before it has applied `target`.
    CatchingUp {
        /// The highest term that it may have voted in.
        term: u64,
        /// Term and index of the last entry that it may have acknowledged.
        target: Option<(u64, u64)>,
    },
    /// It had data, which was moved away (`placet repair`): the same as `Collecting`, and it never founds a cluster.
    Rejoining {
        /// Whom it may ask, beside the founders.
        members: BTreeMap<u64, MemberAddresses>,
    },
    /// It takes part.
    Open,
}

/// Notes in a new log that this node had another one: it gives no votes before it has asked the other members what it
/// may have promised, and has caught up. `members`: whom it can ask, as far as that is known.
pub fn forget(log: &dyn Log, members: BTreeMap<u64, MemberAddresses>) -> io::Result<()> {
    log.put(LogKey::Recovery, &serde_json::to_vec(&Standing::Rejoining { members }).map_err(invalid)?, true)
}

/// The members that a position names.
pub fn members_in(position: &[u8]) -> io::Result<BTreeMap<u64, MemberAddresses>> {
    let position = convert::decode_position(position).map_err(invalid)?;
    Ok(position.membership.nodes().map(|(id, at)| (*id, at.clone())).collect())
}

/// Whether a state can be brought up to date from a log: it must reach to where the log begins.
pub fn check_state_reaches_log(last_purged: Option<&[u8]>, position: Option<Vec<u8>>) -> io::Result<()> {
    let Some(bytes) = last_purged else { return Ok(()) };
    let purged = peer::LogId::decode(bytes).map_err(invalid)?;
    let applied = position_of(position)?.applied;
    if applied.is_none_or(|applied| applied.index < purged.index) {
        let (at, after) = (applied.map_or(0, |applied| applied.index), purged.index);
        return Err(invalid(format!("the state ends at log index {at}, and the log begins behind {after}")));
    }
    Ok(())
}

/// The guard of the peer door; remembers its standing on disk.
#[derive(Debug)]
pub(crate) struct Gate {
    log: Arc<dyn Log>,
    state: Arc<dyn State>,
    standing: Mutex<Standing>,
}

impl Gate {
    /// `founder`: whether this node is one of several founding members.
    pub(crate) fn open(log: Arc<dyn Log>, state: Arc<dyn State>, founder: bool) -> io::Result<Self> {
        // A state without a vote is a node that lost its log: it no longer knows what it promised.
        if read_vote(log.as_ref())?.is_none() && state.position()?.is_some() {
            let detail = format!("the state is there and the log is gone; {REPAIR}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        check_state_reaches_log(log.get(LogKey::LastPurged)?.as_deref(), state.position()?)
            .map_err(|error| invalid(format!("{error}; {REPAIR}")))?;
        let standing = match log.get(LogKey::Recovery)? {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(invalid)?,
            None if founder && pristine(log.as_ref(), state.as_ref())? => Standing::Collecting,
            None => Standing::Open,
        };
        Ok(Self { log, state, standing: Mutex::new(standing) })
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.standing.lock() == Standing::Open
    }

    pub(crate) fn pristine(&self) -> io::Result<bool> {
        let rejoins = matches!(*self.standing.lock(), Standing::Rejoining { .. });
        Ok(!rejoins && pristine(self.log.as_ref(), self.state.as_ref())?)
    }

    fn fresh(&self) -> io::Result<bool> {
        let rejoins = matches!(*self.standing.lock(), Standing::Rejoining { .. });
        Ok(!rejoins && fresh(self.log.as_ref(), self.state.as_ref())?)
    }

    fn enter(&self, standing: &mut Standing, next: Standing) -> io::Result<()> {
        // On disk before it counts: after the first append this node no longer looks empty.
        self.log.put(LogKey::Recovery, &serde_json::to_vec(&next).map_err(invalid)?, true)?;
        tracing::info!(from = ?standing, to = ?next, "this node's standing changed");
        *standing = next;
        Ok(())
    }

    /// The founder saw every founding member empty; whether this one agrees.
    pub(crate) fn begin(&self) -> io::Result<bool> {
        let mut standing = self.standing.lock();
        let asks = matches!(*standing, Standing::CatchingUp { .. } | Standing::Rejoining { .. });
        let agreed = !asks && fresh(self.log.as_ref(), self.state.as_ref())?;
        if agreed {
            self.enter(&mut standing, Standing::Open)?;
        }
        Ok(agreed)
    }

    fn leave_collecting(&self, next: Standing) -> io::Result<()> {
        let mut standing = self.standing.lock();
        let asks = matches!(*standing, Standing::Collecting | Standing::Rejoining { .. });
        if asks { self.enter(&mut standing, next) } else { Ok(()) }
    }

    fn finish(&self) -> io::Result<()> {
        let mut standing = self.standing.lock();
        self.enter(&mut standing, Standing::Open)
    }

    /// Whether a candidate may be answered.
    pub(crate) fn admit_vote(&self) -> Result<(), Status> {
        match *self.standing.lock() {
            Standing::Open => Ok(()),
            _ => Err(Status::unavailable("this node lost its data and gives no votes yet")),
        }
    }

    /// Whether a leader of `term` may be answered.
    pub(crate) fn admit_leader(&self, term: u64) -> Result<(), Status> {
        match *self.standing.lock() {
            Standing::Open => Ok(()),
            Standing::CatchingUp { term: least, .. } if term >= least => Ok(()),
            _ => Err(Status::unavailable("this node lost its data and does not know this leader")),
        }
    }
}

fn pristine(log: &dyn Log, state: &dyn State) -> io::Result<bool> {
    Ok(read_vote(log)?.is_none() && last_log_id(log)?.is_none() && state.position()?.is_none())
}

/// Whether a node has promised nothing yet: it is empty, or it was restored and has not started since.
fn fresh(log: &dyn Log, state: &dyn State) -> io::Result<bool> {
    Ok(pristine(log, state)? || restore::untouched(log, state)?)
}

/// Asks one peer where it stands.
pub(crate) async fn ask(
    peers: &Peers,
    from: u64,
    id: u64,
    addresses: &MemberAddresses,
) -> Option<peer::StatusResponse> {
    let mut client = peers.channels(id, &addresses.peer).ok()?.client();
    let answer = tokio::time::timeout(ANSWER, client.status(peer::StatusRequest { from })).await;
    let status = answer.ok()?.ok()?.into_inner();
    // An address that leads to another node says nothing about this one.
    (status.node_id == id).then_some(status)
}

async fn ask_all(inner: &Inner, members: &BTreeMap<u64, MemberAddresses>) -> BTreeMap<u64, peer::StatusResponse> {
    let me = inner.options.node_id;
    let others = members.iter().filter(|(id, _)| **id != me);
    let asked = others.map(|(id, at)| async { (*id, ask(&inner.peers, me, *id, at).await) });
    let answers = futures::future::join_all(asked).await;
    answers.into_iter().filter_map(|(id, status)| Some((id, status?))).collect()
}

/// Brings a node to `Open`, and founds the cluster if that is its part. Ends when there is nothing left to do.
pub(crate) async fn run(inner: Arc<Inner>) {
    let founders = inner.options.initial_cluster.clone();
    let mut told = String::new();
    loop {
        let step = match inner.gate.standing() {
            Standing::Collecting => collect(&inner, &founders, true).await,
            Standing::Rejoining { members } => {
                let mut known = members;
                known.extend(founders.clone());
                collect(&inner, &known, false).await
            }
            Standing::CatchingUp { target, .. } => catch_up(&inner, target),
            Standing::Open => {
                inner.raft.runtime_config().elect(true);
                match found_alone(&inner, &founders).await {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
        };
        let error = step.err().map(|error| error.to_string()).unwrap_or_default();
        // What lasts until an operator acts is said once.
        if !error.is_empty() && error != told {
            tracing::warn!(%error, "this node could not take its place yet");
        }
        told = error;
        tokio::time::sleep(ROUND).await;
    }
}

/// Finds out from `founders`, or whoever else is known, what this node may have promised; founds the cluster if nobody
/// can have promised anything and it `may_found`.
async fn collect(inner: &Inner, founders: &BTreeMap<u64, MemberAddresses>, may_found: bool) -> io::Result<()> {
    let me = inner.options.node_id;
    let mut answers = ask_all(inner, founders).await;
    if answers.values().all(|status| status.pristine) {
        alike(inner, &answers)?;
        let everyone = answers.len() + 1 == founders.len();
        let smallest = founders.first_key_value().is_some_and(|(id, _)| *id == me);
        return if everyone && smallest && may_found { found(inner, founders).await } else { Ok(()) };
    }
    let Some(membership) = newest_membership(&answers) else { return Ok(()) };
    let members = membership.nodes().map(|(id, at)| (*id, at.clone())).collect::<BTreeMap<_, _>>();
    answers.extend(ask_all(inner, &members).await);
    answers.retain(|_, status| !status.recovering);
    let member = membership.voter_ids().any(|id| id == me);
    let enough = membership.membership().get_joint_config().iter().all(|voters| covers(voters, me, &answers));
    if !enough {
        return Ok(());
    }
    // The leader holds everything that was acknowledged to it; without its answer an entry that this node alone
    // acknowledged could be missed.
    let term = answers.values().map(|status| status.term).max().unwrap_or_default();
    if !answers.values().any(|status| status.leads && status.term == term) {
        return Ok(());
    }
    if !member {
        return inner.gate.leave_collecting(Standing::Open);
    }
    let target = answers.values().filter_map(|status| status.last.as_ref().map(|id| (id.term, id.index))).max();
    inner.gate.leave_collecting(Standing::CatchingUp { term, target })
}

/// Founders begin from one state: all of them empty, or all of them restored from one backup.
fn alike(inner: &Inner, answers: &BTreeMap<u64, peer::StatusResponse>) -> io::Result<()> {
    let mine = status(inner)?;
    let word = |status: &peer::StatusResponse| if status.last.is_some() { "restored" } else { "empty" };
    for (id, other) in answers {
        if word(other) != word(&mine) {
            let (other, mine) = (word(other), word(&mine));
            let detail =
                format!("founding member {id} is {other} and this one is {mine}; restore all of them, or none");
            return Err(io::Error::other(detail));
        }
        if mine.last.is_some() && other.chain_head != mine.chain_head {
            return Err(io::Error::other(format!("founding member {id} was restored from another backup")));
        }
    }
    Ok(())
}

fn newest_membership(answers: &BTreeMap<u64, peer::StatusResponse>) -> Option<StoredMembership> {
    let known = answers.values().filter_map(|status| convert::stored_membership_back(status.membership.clone()).ok());
    known.max_by_key(|stored| *stored.log_id()).filter(|stored| stored.log_id().is_some())
}

/// Whether every other voter answered. Fewer would do for entries, which a quorum holds; a vote may have gone to any
/// single one of them, whose term nobody else knows yet.
fn covers(voters: &BTreeSet<u64>, me: u64, answers: &BTreeMap<u64, peer::StatusResponse>) -> bool {
    !voters.contains(&me) || voters.iter().all(|id| *id == me || answers.contains_key(id))
}

fn catch_up(inner: &Inner, target: Option<(u64, u64)>) -> io::Result<()> {
    let progress = *inner.progress.borrow();
    if target.is_none_or(|target| (progress.term, progress.index) >= target) { inner.gate.finish() } else { Ok(()) }
}

async fn found(inner: &Inner, founders: &BTreeMap<u64, MemberAddresses>) -> io::Result<()> {
    let me = inner.options.node_id;
    for (id, at) in founders.iter().filter(|(id, _)| **id != me) {
        let mut client = inner.peers.channels(*id, &at.peer).map_err(io::Error::other)?.client();
        let answer = tokio::time::timeout(ANSWER, client.begin(peer::BeginRequest { from: me })).await;
        let accepted = answer.map_err(io::Error::other)?.map_err(io::Error::other)?.into_inner().accepted;
        if !accepted {
            return Err(io::Error::other(format!("founding member {id} is not empty any more")));
        }
    }
    if !inner.gate.begin()? {
        return Err(io::Error::other("this node is not empty any more"));
    }
    initialize(inner, founders).await
}

/// An open, empty founder: alone in its list, or stopped between "begin" and the first entry.
async fn found_alone(inner: &Inner, founders: &BTreeMap<u64, MemberAddresses>) -> io::Result<()> {
    let me = inner.options.node_id;
    if !inner.gate.pristine()? || founders.first_key_value().is_none_or(|(id, _)| *id != me) {
        return Ok(());
    }
    if founders.len() > 1 {
        let answers = ask_all(inner, founders).await;
        let empty = answers.values().all(|status| status.pristine) && answers.len() + 1 == founders.len();
        return if empty { found(inner, founders).await } else { Err(io::Error::other("not every founder is there")) };
    }
    initialize(inner, founders).await
}

async fn initialize(inner: &Inner, founders: &BTreeMap<u64, MemberAddresses>) -> io::Result<()> {
    tracing::info!(members = ?founders.keys().collect::<Vec<_>>(), "founding the cluster");
    inner.raft.runtime_config().elect(true);
    if !inner.gate.pristine()? {
        // A restored state has its membership; an election is all that is missing.
        return Ok(());
    }
    inner.raft.initialize(founders.clone()).await.map_err(|error| io::Error::other(error.to_string()))
}

/// What this node answers when it is asked where it stands.
pub(crate) fn status(inner: &Inner) -> io::Result<peer::StatusResponse> {
    use openraft::async_runtime::watch::WatchReceiver;

    let vote = read_vote(inner.log.as_ref())?;
    let last: Option<LogId> = last_log_id(inner.log.as_ref())?;
    let metrics = inner.raft.metrics().borrow_watched().clone();
    let applied = metrics.last_applied;
    Ok(peer::StatusResponse {
        node_id: inner.options.node_id,
        pristine: inner.gate.fresh()?,
        term: vote.map_or(0, |vote| vote.leader_id.term),
        last: last.max(applied).as_ref().map(convert::log_id),
        membership: Some(convert::stored_membership(&metrics.membership_config)),
        now_ms: inner.options.clock.now_ms(),
        recovering: !inner.gate.is_open(),
        leads: metrics.state == openraft::ServerState::Leader,
        version: crate::VERSION.to_owned(),
        log_format: inner.options.log_format_max,
        applied_index: applied.map_or(0, |at| at.index),
        disk_low: inner.options.disk.is_low(),
        stopping: inner.watch.stopping(),
        chain_head: inner.records.meta().map_err(invalid)?.chain_head.0.to_vec().into(),
    })
}
