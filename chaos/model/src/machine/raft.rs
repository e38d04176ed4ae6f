//! Raft and the Appliers: what is committed, in which order, on which node, and under which leader.
//! Absent on purpose: a vote. Who wins and which suffix survives is the search's choice, within what Raft allows.

use std::sync::Arc;

use placet_core::event::Event;
use placet_core::state::Overlay;

use super::{Machine, Stopped};
use crate::identity::Id;
use crate::log::{Applied, Batch, History, LogEntry};
use crate::snapshot::Snapshot;
use crate::subject::{Role, Subject};
use crate::system::{Deposed, Draft, Follower, InFlight, Lead, News, System};

impl<S: Subject> Machine<'_, S> {
    /// The oldest batch has a quorum.
    pub(super) fn commit(&mut self, system: &mut System, news: &mut News) -> Result<bool, Stopped> {
        if system.lead.in_flight.is_empty() {
            return Ok(false);
        }
        let one = system.lead.in_flight.remove(0);
        let applied = self.arrive(system, news, &one, one.batch.term)?;
        self.outcome(system, news, one, applied);
        self.settle(system, news)
    }

    /// The second batch comes before the oldest. The Decider hears of them in the order in which it proposed them.
    pub(super) fn overtake(&mut self, system: &mut System, news: &mut News) -> Result<bool, Stopped> {
        let allowed = system.faults.overtakes < self.world.bounds.overtakes && !system.lead.draining;
        if !allowed || system.lead.in_flight.len() < 2 {
            return Ok(false);
        }
        system.faults.overtakes += 1;
        let second = system.lead.in_flight.remove(1);
        let first = system.lead.in_flight.remove(0);
        self.say(news, || format!("the batch from `{}` overtakes the one before it", second.batch.base));
        let of_second = self.arrive(system, news, &second, second.batch.term)?;
        let of_first = self.arrive(system, news, &first, first.batch.term)?;
        self.outcome(system, news, first, of_first);
        self.outcome(system, news, second, of_second);
        self.settle(system, news)
    }

    /// Raft refuses the oldest batch for a reason that passes; what was proposed behind it arrives all the same.
    pub(super) fn refuse(&mut self, system: &mut System, news: &mut News) -> bool {
        let allowed = system.faults.refusals < self.world.bounds.refusals && !system.lead.draining;
        if !allowed || system.lead.in_flight.is_empty() {
            return false;
        }
        system.faults.refusals += 1;
        let refused = system.lead.in_flight.remove(0);
        self.say(news, || format!("Raft refuses the batch from `{}`", refused.batch.base));
        self.begin_again(system, news);
        true
    }

    /// The other node is elected with the first `kept` batches in its log.
    pub(super) fn elect(&mut self, system: &mut System, news: &mut News, kept: usize) -> Result<bool, Stopped> {
        if system.faults.elections >= self.world.bounds.elections {
            return Ok(false);
        }
        system.faults.elections += 1;
        let (node, term) = (1 - system.lead.node, system.lead.term + 1);
        let mut batches = std::mem::take(&mut system.lead.in_flight);
        self.say(news, || {
            let lost = batches.len().saturating_sub(kept);
            format!("node {node} is elected in term {term}: {kept} batches in flight survive, {lost} are lost")
        });
        let idle = batches.is_empty() && system.lead.draft.outcomes == 0 && !system.lead.draining;
        let deposed = Deposed { term: system.lead.term, applied: system.applied.clone() };
        let former = Follower { at: system.history.clone(), applied: system.applied.clone() };
        let lost = batches.split_off(kept.min(batches.len()));
        for one in &batches {
            self.arrive(system, news, one, one.batch.term)?;
        }
        // It applies everything before it leads.
        if system.follower.at.id != system.history.id {
            self.follow(system, news)?;
        }
        system.applied = system.follower.applied.clone();
        system.follower = former;
        system.lead = Lead {
            node,
            term,
            takes: 0,
            star: self.subject.take(&system.applied),
            draft: Draft::default(),
            in_flight: Vec::new(),
            draining: false,
        };
        system.deposed = (idle && self.world.bounds.deposed_answers).then_some(deposed);
        if self.keeps_lost(system) {
            system.lost.extend(lost.into_iter().map(|one| one.batch));
        }
        self.keep_up(system, news)?;
        Ok(true)
    }

    /// A lost batch comes back in a term that is not its own. A node may stop at it; then nothing follows.
    pub(super) fn stray(&mut self, system: &mut System, news: &mut News, which: usize) -> bool {
        if !self.keeps_lost(system) || which >= system.lost.len() {
            return false;
        }
        system.faults.strays += 1;
        let batch = system.lost.remove(which);
        if !self.keeps_lost(system) {
            system.lost.clear();
        }
        self.say(news, || format!("the lost batch from `{}` of term {} comes back", batch.base, batch.term));
        let stray = InFlight { batch, waiters: Vec::new() };
        self.arrive(system, news, &stray, system.lead.term).is_ok() && self.keep_up(system, news).is_ok()
    }

    /// The follower applies all that is committed, as one write.
    pub(super) fn follow(&mut self, system: &mut System, news: &mut News) -> Result<bool, Stopped> {
        let (from, to) = (&system.follower, &system.history);
        self.say(news, || format!("the follower applies log entries {} to {}", from.at.length + 1, to.length));
        let key = Id::of(&(from.applied.id, from.at.id, to.id, system.applied.id));
        let applied = match self.followed.get(key) {
            Some(known) => known,
            None => {
                let folded = Arc::new(self.folded_by_follower(from, to)?).shared(&system.applied);
                self.followed.put(key, folded.clone());
                folded
            }
        };
        system.follower = Follower { at: system.history.clone(), applied };
        // The former leader hears of the term.
        system.deposed = None;
        news.followed = true;
        Ok(true)
    }

    /// Lost batches matter while one may still come back.
    pub(super) fn keeps_lost(&self, system: &System) -> bool {
        system.faults.strays < self.world.bounds.strays
    }

    /// An entry of the log, as the leader applies it.
    pub(super) fn append(
        &mut self,
        history: &Arc<History>,
        state: &Arc<Snapshot>,
        term: u64,
        batch: &Arc<Batch>,
    ) -> Result<(Arc<History>, Arc<Snapshot>, Applied), Stopped> {
        let key = Id::of(&(history.id_after(term, batch), state.id));
        if let Some(known) = self.appended.get(key) {
            return Ok(known);
        }
        let applied = self.subject.admit(&**state, term, batch).map_err(Stopped)?;
        let entry = LogEntry { term, batch: batch.clone(), applied };
        let longer = Arc::new(history.after(entry).map_err(Stopped)?);
        let new: Vec<&Event> = longer.events.iter().skip(history.events.len()).map(AsRef::as_ref).collect();
        let state = match applied {
            Applied::Folded => Arc::new(self.folded(state, &new, Role::Leader)?),
            Applied::Fenced => state.clone(),
        };
        let appended = (longer, state, applied);
        self.fresh.push((appended.0.clone(), appended.1.clone()));
        self.appended.put(key, appended.clone());
        Ok(appended)
    }

    /// A batch is committed in an entry of this term.
    fn arrive(&mut self, system: &mut System, news: &mut News, one: &InFlight, term: u64) -> Result<Applied, Stopped> {
        let (history, applied, how) = self.append(&system.history, &system.applied, term, &one.batch)?;
        self.say(news, || {
            let what = if how == Applied::Folded { "committed" } else { "fenced" };
            format!("the batch from `{}` is {what}", one.batch.base)
        });
        (system.history, system.applied) = (history, applied);
        news.committed = true;
        Ok(how)
    }

    /// What the Decider does with the outcome of a batch.
    fn outcome(&mut self, system: &mut System, news: &mut News, one: InFlight, applied: Applied) {
        match applied {
            // An answer that left before is not given again.
            Applied::Folded if self.subject.waits_for_commit(true) => {
                one.waiters.into_iter().for_each(|waiter| self.tell(system, news, waiter));
            }
            Applied::Folded => {}
            Applied::Fenced => system.lead.draining = true,
        }
    }

    fn settle(&mut self, system: &mut System, news: &mut News) -> Result<bool, Stopped> {
        if system.lead.draining {
            self.begin_again(system, news);
        } else if system.lead.in_flight.is_empty() && system.lead.draft.outcomes == 0 {
            system.lead.star = system.lead.star.clone().shared(&system.applied);
        }
        self.keep_up(system, news)?;
        Ok(true)
    }

    /// After a refused or a fenced batch: nothing is judged until all in flight have their outcome, then state* is
    /// built anew.
    fn begin_again(&mut self, system: &mut System, news: &mut News) {
        system.lead.draft = Draft::default();
        system.lead.draining = !system.lead.in_flight.is_empty();
        if !system.lead.draining {
            self.say(news, || "the leader builds its state anew".to_owned());
            system.lead.star = self.subject.take(&system.applied);
            system.lead.takes = system.lead.takes.saturating_add(1);
        }
    }

    /// The follower is never further behind than the world allows.
    fn keep_up(&mut self, system: &mut System, news: &mut News) -> Result<(), Stopped> {
        if system.history.length.saturating_sub(system.follower.at.length) > self.world.bounds.lag {
            self.follow(system, news)?;
        }
        Ok(())
    }

    fn folded_by_follower(&self, from: &Follower, to: &History) -> Result<Snapshot, Stopped> {
        let entries = to.behind(from.at.id).ok_or_else(|| Stopped::by("the follower's log is another one"))?;
        let base = &*from.applied;
        let mut overlay = Overlay::new(base);
        let mut events = Vec::new();
        for entry in entries {
            let applied = self.subject.admit(&overlay, entry.term, &entry.batch).map_err(Stopped)?;
            if applied != entry.applied {
                return Err(Stopped(format!("`{}` is {:?} here, {applied:?} there", entry.batch.base, entry.applied)));
            }
            for event in entry.batch.events.iter().filter(|_| applied == Applied::Folded) {
                let read = Event::decode(event.bytes.clone(), event.permit_id.clone()).map_err(Stopped::by)?;
                self.subject.fold(&mut overlay, &read, Role::Follower).map_err(Stopped::by)?;
                events.push(read);
            }
        }
        let events: Vec<&Event> = events.iter().collect();
        self.closed(base, overlay, &events, Role::Follower)
    }
}
