//! What can happen next, and what it leads to: the Decider, the Appliers and Raft, as small as they can be while the
//! core between them is the real one.
//! Absent on purpose: time that passes by itself, and lost answers: a client may send again whatever it has heard.

mod ask;
mod judge;
mod raft;

use std::sync::Arc;

use placet_core::event::Event;
use placet_core::ids::{Entropy, Principal};
use placet_core::op::{Call, Op};
use placet_core::stamp::Stamp;
use placet_core::state::Overlay;

use crate::identity::Id;
use crate::log::{Applied, Batch, History};
use crate::memory::Memory;
use crate::snapshot::Snapshot;
use crate::subject::{Role, Subject};
use crate::system::{Clients, Draft, Faults, Follower, Lead, News, Step, System};
use crate::world::World;

/// A node stopped, or the world does not begin: why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped(pub String);

impl Stopped {
    fn by(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// A committed log, and the state that it adds up to.
pub type Committed = (Arc<History>, Arc<Snapshot>);

/// A world in motion.
#[derive(Debug)]
pub struct Machine<'w, S> {
    pub(crate) world: &'w World,
    subject: S,
    judged: Memory<Arc<judge::Judged>>,
    due: Memory<Arc<Vec<judge::Judged>>>,
    appended: Memory<(Arc<History>, Arc<Snapshot>, Applied)>,
    followed: Memory<Arc<Snapshot>>,
    /// Committed logs that were reached for the first time since somebody took them.
    fresh: Vec<Committed>,
    /// Whether steps tell what they did.
    pub(crate) talks: bool,
    /// How often the subject judged, and folded a batch.
    pub(crate) judgements: u64,
}

impl<'w, S: Subject> Machine<'w, S> {
    /// A machine for one world.
    pub fn new(world: &'w World, subject: S) -> Self {
        Self {
            world,
            subject,
            judged: Memory::default(),
            due: Memory::default(),
            appended: Memory::default(),
            followed: Memory::default(),
            fresh: Vec::new(),
            talks: false,
            judgements: 0,
        }
    }

    /// The first state: the policy is in force on both nodes.
    pub fn begin(&mut self) -> Result<System, Stopped> {
        let empty = Arc::new(Snapshot::empty());
        let history = Arc::new(History::empty());
        let op = Op::PublishPolicy { document: self.world.policy.to_owned(), expect: None, activate: true };
        let call = Call { principal: Principal::new("A0"), op };
        let published = self.subject.evaluate(&empty, &call, World::START, Entropy::default());
        let published = published.map_err(|reject| Stopped(format!("the policy is refused: {reject:?}")))?;
        let batch = Batch::of(1, published.events).ok_or_else(|| Stopped::by("the policy recorded nothing"))?;
        let (history, applied, _) = self.append(&history, &empty, 1, &batch)?;
        let calls = self.world.calls.len();
        let lead = Lead {
            node: 0,
            term: 1,
            takes: 0,
            star: self.subject.take(&applied),
            draft: Draft::default(),
            in_flight: Vec::new(),
            draining: false,
        };
        // Requests are numbered below 16.
        let clients = Clients { sent: vec![0; calls], heard: Vec::new(), accepted: vec![0; 16] };
        Ok(System {
            moment: 0,
            follower: Follower { at: history.clone(), applied: applied.clone() },
            history,
            applied,
            lead,
            deposed: None,
            lost: Vec::new(),
            clients: Arc::new(clients),
            faults: Faults::default(),
        })
    }

    /// Everything that may happen in a state; some of it leads nowhere.
    pub fn steps(&self, system: &System) -> Vec<Step> {
        let mut steps = Vec::new();
        let calls = || 0..u8::try_from(self.world.calls.len()).unwrap_or(u8::MAX);
        if !system.lead.draining {
            steps.extend(calls().map(Step::Call));
            let open = system.lead.star.records.permits.len() + system.lead.star.records.approvals.len();
            steps.extend((0..u8::try_from(open).unwrap_or(u8::MAX)).map(Step::Expire));
            steps.extend([Step::Propose, Step::Overtake, Step::Refuse]);
        }
        if system.deposed.is_some() {
            steps.extend(calls().map(Step::CallDeposed));
        }
        steps.extend([Step::Commit, Step::Follow, Step::Tick]);
        let in_flight = u8::try_from(system.lead.in_flight.len()).unwrap_or(u8::MAX);
        steps.extend((0..=in_flight).map(Step::Elect));
        steps.extend((0..u8::try_from(system.lost.len()).unwrap_or(u8::MAX)).map(Step::Stray));
        steps
    }

    /// Takes a step. `None` when it cannot happen here, or would change nothing.
    pub fn take(&mut self, system: &System, step: Step) -> Result<Option<(System, News)>, Stopped> {
        let (mut next, mut news) = (system.clone(), News::default());
        let happened = match step {
            Step::Call(call) => self.call(&mut next, &mut news, call)?,
            Step::CallDeposed(call) => self.call_deposed(&mut next, &mut news, call)?,
            Step::Expire(which) => self.expire(&mut next, &mut news, which)?,
            Step::Propose => self.propose(&mut next, &mut news)?,
            Step::Commit => self.commit(&mut next, &mut news)?,
            Step::Overtake => self.overtake(&mut next, &mut news)?,
            Step::Refuse => self.refuse(&mut next, &mut news),
            Step::Elect(kept) => self.elect(&mut next, &mut news, usize::from(kept))?,
            Step::Stray(which) => self.stray(&mut next, &mut news, usize::from(which)),
            Step::Follow => next.follower.at.id != next.history.id && self.follow(&mut next, &mut news)?,
            Step::Tick => self.tick(&mut next, &mut news),
        };
        Ok(happened.then_some((next, news)))
    }

    /// Committed logs that were not reached before this was last asked.
    pub fn fresh(&mut self) -> Vec<Committed> {
        std::mem::take(&mut self.fresh)
    }

    /// The clock of a node.
    fn clock(&self, system: &System, node: u8) -> Stamp {
        let moment = self.world.moments.get(system.moment).copied().unwrap_or_default();
        let behind = if node == 1 { self.world.second_clock_behind_ms } else { 0 };
        World::START.plus_ms(moment.saturating_sub(behind))
    }

    fn tick(&mut self, system: &mut System, news: &mut News) -> bool {
        let there_is = system.moment + 1 < self.world.moments.len();
        system.moment += usize::from(there_is);
        self.say(news, || {
            let seconds = self.world.moments.get(system.moment).copied().unwrap_or_default() / 1000;
            format!("the clock passes to {seconds} s after the start")
        });
        there_is
    }

    fn folded(&self, base: &Snapshot, events: &[&Event], role: Role) -> Result<Snapshot, Stopped> {
        let mut overlay = Overlay::new(base);
        for event in events {
            self.subject.fold(&mut overlay, event, role).map_err(Stopped::by)?;
        }
        self.closed(base, overlay, events, role)
    }

    fn closed(
        &self,
        base: &Snapshot,
        overlay: Overlay<&Snapshot>,
        events: &[&Event],
        role: Role,
    ) -> Result<Snapshot, Stopped> {
        let mut changes = overlay.into_changes();
        self.subject.written(base, events, role, &mut changes);
        Ok(base.after(base.id_after(events.iter().copied()), changes))
    }

    fn say(&self, news: &mut News, line: impl FnOnce() -> String) {
        if self.talks {
            news.lines.push(line());
        }
    }
}

/// The name that nothing else has: what is judged again after a loss gets other capabilities, as from a random source.
fn entropy(of: Id) -> Entropy {
    Entropy {
        permit: Id::of(&(of, "permit")).bytes(),
        approval: Id::of(&(of, "approval")).bytes(),
        request: Id::of(&(of, "request")).bytes(),
    }
}
