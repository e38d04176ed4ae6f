//! One state of the whole: the committed log, two nodes, what is in flight, and what clients know.
//! Absent on purpose: how it changes ([`crate::machine`] does that).

use std::sync::Arc;

use placet_core::event::Event;
use placet_core::ids::{ApprovalId, EvidenceIndex, PermitId};
use placet_core::op::{Answer, Reject};
use placet_core::reply::{Reason, Verdict};

use crate::identity::Id;
use crate::log::{Batch, History};
use crate::snapshot::Snapshot;

/// An answer, and its name.
#[derive(Debug)]
pub struct Spoken {
    /// Its name.
    pub id: Id,
    /// What it says.
    pub answer: Result<Answer, Reject>,
}

/// Who waits for a batch: which call, and what it will hear.
pub type Waiter = (u8, Arc<Spoken>);

/// Outcomes that are judged and not yet proposed.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The facts.
    pub events: Vec<Event>,
    /// Who waits.
    pub waiters: Vec<Waiter>,
    /// How many outcomes.
    pub outcomes: usize,
}

/// A batch that is proposed and not committed.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The batch.
    pub batch: Arc<Batch>,
    /// Who waits.
    pub waiters: Vec<Waiter>,
}

/// The node that leads.
#[derive(Clone, Debug)]
pub struct Lead {
    /// 0 or 1.
    pub node: u8,
    /// Its term.
    pub term: u64,
    /// How often it has built state* in this term.
    pub takes: u8,
    /// Applied, in flight and drafted together.
    pub star: Arc<Snapshot>,
    /// Judged, not proposed.
    pub draft: Draft,
    /// Proposed, not committed; oldest first.
    pub in_flight: Vec<InFlight>,
    /// A batch was refused or fenced: nothing is judged until every batch in flight has its outcome.
    pub draining: bool,
}

/// The node that follows.
#[derive(Clone, Debug)]
pub struct Follower {
    /// How much of the log it has applied.
    pub at: Arc<History>,
    /// What that adds up to there.
    pub applied: Arc<Snapshot>,
}

/// A leader that was replaced and has not heard of it. It had nothing in flight: else it would answer nothing.
#[derive(Clone, Debug)]
pub struct Deposed {
    /// Its term.
    pub term: u64,
    /// What it has applied.
    pub applied: Arc<Snapshot>,
}

/// One answer that a client has about a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heard {
    /// Which request.
    pub request: u8,
    /// By which call.
    pub call: u8,
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The permit, if it came with one.
    pub permit: Option<PermitId>,
    /// The approval that was opened.
    pub approval: Option<ApprovalId>,
    /// The entry that it names.
    pub evidence: EvidenceIndex,
}

/// What all clients did and know.
#[derive(Clone, Debug, Default, Hash)]
pub struct Clients {
    /// How often each call was sent.
    pub sent: Vec<u8>,
    /// Answers about requests, each once.
    pub heard: Vec<Heard>,
    /// Reports that were accepted, by request.
    pub accepted: Vec<u8>,
}

impl Clients {
    /// How often a call was sent.
    pub fn times(&self, call: u8) -> u8 {
        self.sent.get(usize::from(call)).copied().unwrap_or(0)
    }

    /// Calls in all.
    pub fn calls(&self) -> u8 {
        self.sent.iter().fold(0, |sum, times| sum.saturating_add(*times))
    }

    /// What was heard of a request.
    pub fn about(&self, request: u8) -> impl Iterator<Item = &Heard> {
        self.heard.iter().filter(move |heard| heard.request == request)
    }
}

/// What went wrong so far, against the bounds of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Changes of the leader.
    pub elections: u8,
    /// Batches that overtook another.
    pub overtakes: u8,
    /// Refused batches.
    pub refusals: u8,
    /// Batches that came back.
    pub strays: u8,
}

/// The whole.
#[derive(Clone, Debug)]
pub struct System {
    /// Which moment of the clock.
    pub moment: usize,
    /// The committed log.
    pub history: Arc<History>,
    /// What it adds up to on the leader.
    pub applied: Arc<Snapshot>,
    /// Who leads.
    pub lead: Lead,
    /// Who follows.
    pub follower: Follower,
    /// Who led, and does not know better.
    pub deposed: Option<Deposed>,
    /// Batches that were lost, and may come back.
    pub lost: Vec<Arc<Batch>>,
    /// What clients know.
    pub clients: Arc<Clients>,
    /// What went wrong.
    pub faults: Faults,
}

impl System {
    /// The name of this state: all that what follows depends on.
    pub fn id(&self) -> Id {
        fn waiting(waiters: &[Waiter]) -> Vec<(u8, Id)> {
            waiters.iter().map(|(call, spoken)| (*call, spoken.id)).collect()
        }
        let lead = &self.lead;
        let in_flight: Vec<_> = lead.in_flight.iter().map(|one| (one.batch.id, waiting(&one.waiters))).collect();
        let draft: Vec<_> = lead.draft.events.iter().map(|event| event.hash).collect();
        let draft = (draft, lead.draft.outcomes, waiting(&lead.draft.waiters));
        let led = (lead.node, lead.term, lead.takes, lead.star.id, lead.draining, draft, in_flight);
        let deposed = self.deposed.as_ref().map(|deposed| (deposed.term, deposed.applied.id));
        let lost: Vec<_> = self.lost.iter().map(|batch| batch.id).collect();
        let rest = (deposed, lost, &*self.clients, self.faults);
        Id::of(&(self.moment, self.history.id, self.follower.at.id, led, rest))
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call reaches the leader and is judged.
    Call(u8),
    /// A call reaches the leader that was replaced.
    CallDeposed(u8),
    /// The leader's timer ends the n-th thing whose deadline has passed.
    Expire(u8),
    /// The leader proposes what it has judged.
    Propose,
    /// The oldest batch in flight is committed; the leader applies it and its answers leave.
    Commit,
    /// The second batch in flight comes before the oldest.
    Overtake,
    /// Raft refuses the oldest batch in flight.
    Refuse,
    /// The other node is elected; the first n batches in flight survive.
    Elect(u8),
    /// The n-th lost batch comes back, in an entry of this term.
    Stray(u8),
    /// The follower applies all that is committed.
    Follow,
    /// The clock passes to the next moment.
    Tick,
}

impl Step {
    /// A name for the kind of step.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call(_) => "call",
            Self::CallDeposed(_) => "call to a former leader",
            Self::Expire(_) => "expiry",
            Self::Propose => "proposal",
            Self::Commit => "commit",
            Self::Overtake => "overtaking",
            Self::Refuse => "refusal",
            Self::Elect(_) => "election",
            Self::Stray(_) => "stray batch",
            Self::Follow => "following",
            Self::Tick => "tick",
        }
    }
}

/// What a step made known, beside the state that it led to.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Answers that left, and to which call.
    pub told: Vec<Waiter>,
    /// The follower moved.
    pub followed: bool,
    /// A batch was committed.
    pub committed: bool,
    /// For a reader, when one listens.
    pub lines: Vec<String>,
}
