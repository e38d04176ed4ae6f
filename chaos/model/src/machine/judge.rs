//! The Decider: judges, folds into state*, proposes, and lets answers leave when what they show is committed.
//! Absent on purpose: batches of more than the world's bound; an outcome is whole in one batch.

use std::sync::Arc;

use placet_core::evaluate::Due;
use placet_core::event::{Body, Event};
use placet_core::op::{Answer, Reject};
use placet_core::stamp::Stamp;

use super::ask::{self, Known};
use super::{Machine, Stopped, entropy};
use crate::identity::Id;
use crate::log::Batch;
use crate::snapshot::Snapshot;
use crate::subject::{Role, Subject};
use crate::system::{InFlight, News, Spoken, System, Waiter};
use crate::world::{CallSpec, World};

/// What judging came to, and state* behind it.
#[derive(Debug)]
pub(super) struct Judged {
    spoken: Option<Arc<Spoken>>,
    events: Vec<Event>,
    next: Arc<Snapshot>,
}

/// On what a call is judged.
struct Bench<'a> {
    star: &'a Arc<Snapshot>,
    applied: &'a Arc<Snapshot>,
    clock: Stamp,
    term: u64,
    takes: u8,
}

impl<'w, S: Subject> Machine<'w, S> {
    pub(super) fn call(&mut self, system: &mut System, news: &mut News, number: u8) -> Result<bool, Stopped> {
        let world = self.world;
        let Some((spec, known)) = self.may_send(system, number) else { return Ok(false) };
        let lead = &system.lead;
        if lead.draining {
            return Ok(false);
        }
        let clock = self.clock(system, lead.node);
        let bench = Bench { star: &lead.star, applied: &system.applied, clock, term: lead.term, takes: lead.takes };
        let judged = self.judge(&bench, number, spec, &known)?;
        let Some(spoken) = judged.spoken.clone() else { return Ok(false) };
        self.say(news, || format!("{}: {}", ask::text(spec), recorded(&judged.events, &spoken)));
        let waiter = (number, spoken);
        if judged.events.is_empty() {
            // A reject recorded nothing, and shows nothing.
            if waiter.1.answer.is_err() {
                return Ok(false);
            }
            sent(system, number);
            // What the answer shows may still be in flight: it leaves with the last batch.
            let last = system.lead.in_flight.last_mut();
            if !self.subject.waits_for_commit(false) {
                self.tell(system, news, waiter);
            } else if system.lead.draft.outcomes > 0 {
                system.lead.draft.waiters.push(waiter);
            } else if let Some(last) = last {
                last.waiters.push(waiter);
            } else {
                self.tell(system, news, waiter);
            }
            return Ok(true);
        }
        sent(system, number);
        if !self.subject.waits_for_commit(true) {
            self.tell(system, news, waiter.clone());
        }
        if system.lead.draft.outcomes >= world.bounds.batch {
            return Ok(false);
        }
        self.record(system, news, &judged, Some(waiter))
    }

    /// A leader that was replaced answers what needs no new fact; everything else it can only lose.
    pub(super) fn call_deposed(&mut self, system: &mut System, news: &mut News, number: u8) -> Result<bool, Stopped> {
        let Some((spec, known)) = self.may_send(system, number) else { return Ok(false) };
        let Some(deposed) = system.deposed.clone() else { return Ok(false) };
        let clock = self.clock(system, 1 - system.lead.node);
        let bench =
            Bench { star: &deposed.applied, applied: &deposed.applied, clock, term: deposed.term, takes: u8::MAX };
        let judged = self.judge(&bench, number, spec, &known)?;
        let Some(spoken) = judged.spoken.clone() else { return Ok(false) };
        self.say(news, || format!("{}, of the former leader: {}", ask::text(spec), recorded(&judged.events, &spoken)));
        match Batch::of(deposed.term, judged.events.clone()) {
            None if spoken.answer.is_err() => return Ok(false),
            None => self.tell(system, news, (number, spoken)),
            // It has no quorum. From now on it waits for this batch and answers nothing.
            Some(_) if !self.keeps_lost(system) => return Ok(false),
            Some(batch) => {
                if !self.subject.waits_for_commit(true) {
                    self.tell(system, news, (number, spoken));
                }
                system.lost.push(batch);
                system.deposed = None;
            }
        }
        sent(system, number);
        Ok(true)
    }

    pub(super) fn expire(&mut self, system: &mut System, news: &mut News, which: u8) -> Result<bool, Stopped> {
        if system.lead.draining || system.lead.draft.outcomes >= self.world.bounds.batch {
            return Ok(false);
        }
        let star = system.lead.star.clone();
        let at = self.subject.stamp(self.clock(system, system.lead.node), star.records.meta.last_stamp);
        let key = Id::of(&(star.id, at));
        let due = match self.due.get(key) {
            Some(known) => known,
            None => {
                let found = Arc::new(self.due(&star, at)?);
                self.due.put(key, found.clone());
                found
            }
        };
        let Some(judged) = due.get(usize::from(which)) else { return Ok(false) };
        self.say(news, || format!("the leader's timer: {}", facts(&judged.events)));
        self.record(system, news, judged, None)
    }

    /// Everything that ends now. Also what is closed is offered: the core must know better.
    fn due(&mut self, star: &Snapshot, at: Stamp) -> Result<Vec<Judged>, Stopped> {
        let permits = star.records.permits.keys().cloned().map(Due::Permit);
        let approvals = star.records.approvals.keys().cloned().map(Due::Approval);
        let mut found = Vec::new();
        for due in permits.chain(approvals) {
            self.judgements += 1;
            if let Some(event) = self.subject.expire(star, &due, at).map_err(Stopped::by)? {
                let next = Arc::new(self.folded(star, &[&event], Role::Decider)?);
                found.push(Judged { spoken: None, events: vec![event], next });
            }
        }
        Ok(found)
    }

    /// Hands the draft to Raft.
    pub(super) fn propose(&mut self, system: &mut System, news: &mut News) -> Result<bool, Stopped> {
        let room = system.lead.in_flight.len() < self.world.bounds.in_flight.max(1);
        if system.lead.draining || system.lead.draft.outcomes == 0 || !room {
            return Ok(false);
        }
        let draft = std::mem::take(&mut system.lead.draft);
        let Some(batch) = Batch::of(system.lead.term, draft.events) else { return Ok(false) };
        if self.world.bounds.batch > 1 {
            self.say(news, || format!("the leader proposes the batch from `{}`", batch.base));
        }
        system.lead.in_flight.push(InFlight { batch, waiters: draft.waiters });
        if self.world.bounds.in_flight == 0 {
            return self.commit(system, news);
        }
        Ok(true)
    }

    /// An answer arrives.
    pub(super) fn tell(&self, system: &mut System, news: &mut News, waiter: Waiter) {
        self.say(news, || {
            let who = self.world.call(waiter.0).map_or("somebody", |spec| spec.principal);
            format!("  {who} hears: {}", answer(&waiter.1))
        });
        ask::hear(self.world, Arc::make_mut(&mut system.clients), &waiter);
        news.told.push(waiter);
    }

    /// A call that its sender can make now, within the bounds.
    fn may_send(&self, system: &System, number: u8) -> Option<(&'w CallSpec, Known)> {
        let world: &'w World = self.world;
        let spec = world.call(number)?;
        let clients = &system.clients;
        let left = clients.times(number) < spec.times && clients.calls() < world.bounds.calls;
        if left { Some((spec, ask::known(system, spec)?)) } else { None }
    }

    /// Folds an outcome into state* and the draft.
    fn record(
        &mut self,
        system: &mut System,
        news: &mut News,
        judged: &Judged,
        waiter: Option<Waiter>,
    ) -> Result<bool, Stopped> {
        let lead = &mut system.lead;
        lead.star = judged.next.clone();
        lead.draft.events.extend(judged.events.iter().cloned());
        lead.draft.waiters.extend(waiter);
        lead.draft.outcomes += 1;
        if self.world.bounds.batch > 1 { Ok(true) } else { self.propose(system, news) }
    }

    fn judge(&mut self, bench: &Bench<'_>, number: u8, spec: &CallSpec, known: &Known) -> Result<Arc<Judged>, Stopped> {
        let seen = self.subject.sees(bench.star, bench.applied);
        let at = self.subject.stamp(bench.clock, bench.star.records.meta.last_stamp);
        let key = Id::of(&(seen.id, bench.star.id, number, known, at, bench.term, bench.takes));
        if let Some(judged) = self.judged.get(key) {
            return Ok(judged);
        }
        self.judgements += 1;
        let outcome = self.subject.evaluate(&seen, &ask::call(spec, known), at, entropy(key));
        let (answer, events) = match outcome {
            Ok(outcome) => (Ok(outcome.answer), outcome.events),
            Err(reject) => (Err(reject), Vec::new()),
        };
        let next = if events.is_empty() {
            bench.star.clone()
        } else {
            let facts: Vec<&Event> = events.iter().collect();
            Arc::new(self.folded(bench.star, &facts, Role::Decider)?)
        };
        let spoken = Some(Arc::new(Spoken { id: Id::of(&format!("{answer:?}")), answer }));
        let judged = Arc::new(Judged { spoken, events, next });
        self.judged.put(key, judged.clone());
        Ok(judged)
    }
}

fn sent(system: &mut System, number: u8) {
    if let Some(times) = Arc::make_mut(&mut system.clients).sent.get_mut(usize::from(number)) {
        *times = times.saturating_add(1);
    }
}

fn facts(events: &[Event]) -> String {
    let named = |event: &Event| {
        let what = match &event.entry.body {
            Body::Decision(decided) => format!(" {}", decided.verdict.as_str()),
            Body::ApprovalTransition(change) => format!(" {:?}", change.to),
            _ => String::new(),
        };
        format!("{} {}{what}", event.entry.index, event.entry.body.kind())
    };
    events.iter().map(named).collect::<Vec<_>>().join(", ")
}

fn recorded(events: &[Event], spoken: &Spoken) -> String {
    if events.is_empty() { answer(spoken) } else { facts(events) }
}

fn answer(spoken: &Spoken) -> String {
    match &spoken.answer {
        Ok(Answer::Decide(reply)) => {
            let with = match (&reply.permit_id, &reply.approval_id) {
                (Some(permit), _) => format!(" with {}", short(permit.as_str())),
                (_, Some(approval)) => format!(" with {}", short(approval.as_str())),
                _ => String::new(),
            };
            let again = if reply.replayed { ", as before" } else { "" };
            format!("{} ({}), {}{with}{again}", reply.verdict.as_str(), reply.reason.as_str(), reply.evidence_id)
        }
        Ok(Answer::Report(reply)) if reply.accepted => format!("accepted, {}", reply.evidence_id),
        Ok(Answer::Report(reply)) => format!("refused, {}: {}", reply.evidence_id, reply.detail),
        Ok(Answer::Approval(view)) => format!("the approval is {:?}", view.state),
        Ok(Answer::KillSwitch(view)) => format!("the switch is {}", if view.engaged { "engaged" } else { "released" }),
        Ok(Answer::Refused(reject)) | Err(reject) => refused(reject),
        Ok(other) => format!("{other:?}"),
    }
}

fn refused(reject: &Reject) -> String {
    format!("{}: {}", reject.code(), reject.detail())
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
