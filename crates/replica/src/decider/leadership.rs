//! One term of leadership: state* (applied and in flight together), the agenda, and the batches in flight.
//! Absent on purpose: a way to go on after a failure. Whoever meets a [`Fault`] drops all of it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use openraft::impls::OneshotResponder;
use openraft::raft::ClientWriteResult;
use placet_core::evaluate::{evaluate, expire, restored};
use placet_core::event::Event;
use placet_core::fold::fold;
use placet_core::ids::{Entropy, EvidenceIndex, Hash};
use placet_core::op::{Answer, Reject};
use placet_core::planted::{self, Bug};
use placet_core::stamp::Stamp;
use placet_core::state::{Overlay, Read};
use placet_wire::log;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::due::Agenda;
use super::{BatchOutcome, Proposal, Refusal};
use crate::judged::Judged;
use crate::options::Options;
use crate::ports::Records;
use crate::types::{Blob, Raft, Types};

/// Why a leadership ends here; a phrase for callers.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

impl Fault {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// Somebody who waits, and what they will hear when all that they could have seen is applied.
#[derive(Debug)]
struct Waiter {
    reply: oneshot::Sender<Result<Answer, Refusal>>,
    answer: Result<Answer, Reject>,
    /// Whether the caller's own events are in the batch, or its answer shows somebody's.
    shows_facts: bool,
}

impl Waiter {
    fn release(self) {
        let _ = self.reply.send(self.answer.map_err(Refusal::Reject));
    }

    fn fail(self, lost: bool, why: &str) {
        // A reject reserved nothing and recorded nothing, so its caller may try again in any case.
        let refusal = if lost && self.shows_facts { Refusal::Lost } else { Refusal::NotProposed };
        let _ = self.reply.send(Err(refusal(why.to_owned())));
    }
}

/// A judged batch, ready to be proposed.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Bytes,
    judged: log::Batch,
    sealed: u64,
    waiters: Vec<Waiter>,
}

/// A batch on its way.
#[derive(Debug)]
struct InFlight {
    bytes: usize,
    sealed: u64,
    proposed: Instant,
    waiters: Vec<Waiter>,
}

/// Events that were judged and folded, before they are sealed into a batch.
#[derive(Debug, Default)]
struct Draft {
    base: Option<EvidenceIndex>,
    events: Vec<Event>,
    bytes: usize,
    waiters: Vec<Waiter>,
}

/// Batches in flight that may be small: with these the disks and the network are never idle.
const EAGER_BATCHES: usize = 4;

/// Calls that make a further batch worth one append, one sync and one apply on every node.
const WORTHWHILE_CALLS: usize = 64;

type Outcomes = FuturesOrdered<oneshot::Receiver<ClientWriteResult<Types>>>;

pub(super) struct Leadership {
    options: Arc<Options>,
    term: u64,
    state: Overlay<Records>,
    judged: Arc<Judged>,
    agenda: Agenda,
    draft: Draft,
    in_flight: VecDeque<InFlight>,
    outcomes: Outcomes,
    bytes_in_flight: usize,
    next_expiry: Instant,
    /// The clock is not to be believed: time stands still at the last stamp.
    held: bool,
    /// Of the records that are written.
    log_format: u32,
}

impl Leadership {
    /// Builds state* over what is applied. Reads everything that is open, off the runtime's threads.
    pub(super) async fn take(
        options: Arc<Options>,
        records: Records,
        judged: Arc<Judged>,
        term: u64,
    ) -> Result<Self, Fault> {
        let reading = records.clone();
        let agenda = options.work.run(move || Agenda::of(&reading)).await.map_err(Fault::new)?;
        Ok(Self {
            options,
            term,
            state: Overlay::new(records),
            judged,
            agenda: agenda.map_err(Fault::new)?,
            draft: Draft::default(),
            in_flight: VecDeque::new(),
            outcomes: Outcomes::new(),
            bytes_in_flight: 0,
            next_expiry: Instant::now(),
            held: false,
            log_format: log::OLDEST,
        })
    }

    pub(super) fn term(&self) -> u64 {
        self.term
    }

    pub(super) fn idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether another batch may be proposed while `waiting` calls wait. A few batches leave as soon as there is
    /// anything in them; beyond those, a batch waits until it is worth its cost on every node.
    pub(super) fn has_room(&self, waiting: usize) -> bool {
        let worth_it = self.in_flight.len() < EAGER_BATCHES || waiting >= WORTHWHILE_CALLS;
        worth_it
            && self.in_flight.len() < self.options.in_flight_batches_max
            && self.bytes_in_flight < self.options.in_flight_bytes_max
    }

    pub(super) fn next_expiry(&self) -> Instant {
        self.next_expiry
    }

    /// Sets when to look again: at once while more is due than one batch takes.
    pub(super) fn expiry_checked(&mut self) {
        if self.anything_due() {
            self.next_expiry = Instant::now();
        } else {
            self.look_later();
        }
    }

    /// Looks again in a while, whatever is due.
    pub(super) fn look_later(&mut self) {
        self.next_expiry = Instant::now() + self.options.expire_every;
    }

    pub(super) fn anything_due(&self) -> bool {
        self.restoring() || self.stamp().is_ok_and(|now| self.agenda.reached(now).is_some())
    }

    /// Whether the state was restored and the evidence does not say so yet.
    fn restoring(&self) -> bool {
        self.state.meta().is_ok_and(|meta| meta.restoring)
    }

    /// Stops time, or lets it go on. What is recorded while it stands carries the last stamp again: a clock that is
    /// wrong must not carry everybody's time away with it.
    pub(super) fn hold_time(&mut self, hold: bool) {
        self.held = hold;
    }

    /// Writes log records in this format from here on: what every member reads.
    pub(super) fn write_format(&mut self, format: u32) {
        if self.log_format != format {
            tracing::info!(format, "log records are written in this format from here on");
            metrics::gauge!("placet_log_format").set(f64::from(format));
            self.log_format = format;
        }
    }

    /// Judges what is due and then calls, in order, until the batch is full or the calls are done. `None` when nothing
    /// has to be recorded. After a fault everything that was judged and not proposed is refused.
    /// `fresh`: whether a quorum acknowledged this leader a moment ago.
    pub(super) fn judge(&mut self, calls: &mut IntoIter<Proposal>, fresh: bool) -> Result<Option<Batch>, Fault> {
        let judged = self.judge_restoration().and_then(|()| self.judge_due()).and_then(|()| {
            while !self.draft_is_full() {
                let Some(proposal) = calls.next() else { break };
                self.judge_call(proposal)?;
            }
            self.seal(fresh)
        });
        judged.inspect_err(|fault| self.abandon_waiting(fault))
    }

    /// Refuses those whose events were judged and never proposed.
    pub(super) fn abandon_waiting(&mut self, fault: &Fault) {
        std::mem::take(&mut self.draft).waiters.into_iter().for_each(|waiter| waiter.fail(false, &fault.0));
    }

    fn draft_is_full(&self) -> bool {
        self.draft.events.len() >= self.options.batch_events_max || self.draft.bytes >= self.options.batch_bytes_max
    }

    /// Now, never before the last entry.
    fn stamp(&self) -> Result<Stamp, Fault> {
        let last = self.state.meta().map_err(Fault::new)?.last_stamp;
        if planted::on(Bug::ClockNotClamped) {
            return Ok(Stamp(self.options.clock.now_ms()));
        }
        Ok(if self.held { last } else { Stamp(self.options.clock.now_ms()).max(last) })
    }

    /// INVARIANT (one identity): before anything else is recorded, a restored cluster gives itself a name.
    fn judge_restoration(&mut self) -> Result<(), Fault> {
        if !self.restoring() {
            return Ok(());
        }
        let mut name = Hash::GENESIS;
        getrandom::fill(&mut name.0).map_err(Fault::new)?;
        let event = restored(&self.state, self.stamp()?, name).map_err(Fault::new)?;
        tracing::info!(cluster = %name, "a restored cluster begins its own life");
        self.record(event.into_iter().collect())
    }

    fn judge_due(&mut self) -> Result<(), Fault> {
        let now = self.stamp()?;
        // Half of a batch at most: a thousand permits that end together must not hold back who asks now.
        for _ in 0..(self.options.batch_events_max / 2).max(1) {
            let Some(due) = self.agenda.reached(now) else { break };
            self.agenda.remove(&due);
            if let Some(event) = expire(&self.state, &due, now).map_err(Fault::new)? {
                metrics::counter!("placet_expired_total").increment(1);
                self.record(vec![event])?;
            }
        }
        metrics::gauge!("placet_agenda").set(self.agenda.len() as f64);
        Ok(())
    }

    fn judge_call(&mut self, proposal: Proposal) -> Result<(), Fault> {
        let Proposal { call, reply, span } = proposal;
        if reply.is_closed() {
            // The caller was told "unknown" while this waited; it must not happen any more.
            return Ok(());
        }
        let _entered = span.enter();
        let (at, entropy) = (self.stamp()?, entropy()?);
        // A panic in the judgement of one request fails that request alone; nothing was folded yet.
        let judged = catch_unwind(AssertUnwindSafe(|| evaluate(&self.state, &call, at, entropy, &self.options.keys)));
        let judged = judged.unwrap_or_else(|_| {
            metrics::counter!("placet_evaluate_panics_total").increment(1);
            tracing::error!("evaluating a request panicked; it fails alone");
            Err(Reject::Internal { detail: "the request could not be evaluated".to_owned() })
        });
        metrics::counter!("placet_judged_total", "op" => call.op.name()).increment(1);
        let (events, answer) = match judged {
            // What was decided before is answered all the same: that writes nothing.
            Ok(outcome) if !outcome.events.is_empty() && self.options.disk.sheds(&call.op) => {
                metrics::counter!("placet_disk_shed_total").increment(1);
                let detail = self.options.disk.complaint().unwrap_or_else(|| "the disk was low".to_owned());
                (Vec::new(), Err(Reject::Unavailable { detail }))
            }
            Ok(outcome) => (outcome.events, Ok(outcome.answer)),
            Err(reject) => (Vec::new(), Err(reject)),
        };
        let shows_facts = answer.is_ok();
        let recorded = self.record(events);
        self.draft.waiters.push(Waiter { reply, answer, shows_facts });
        recorded
    }

    /// Folds the events of one outcome into state* and the draft; they stay together.
    fn record(&mut self, events: Vec<Event>) -> Result<(), Fault> {
        for event in events {
            if self.draft.base.is_none() {
                self.draft.base = Some(event.entry.index);
            }
            fold(&mut self.state, &event).map_err(Fault::new)?;
            self.agenda.follow(&event);
            self.draft.bytes += event.bytes.len();
            self.draft.events.push(event);
        }
        Ok(())
    }

    fn seal(&mut self, fresh: bool) -> Result<Option<Batch>, Fault> {
        let Draft { base, events, waiters, .. } = std::mem::take(&mut self.draft);
        let Some(base) = base else {
            // Nothing new. What the answers show may still be in flight: they leave with the last batch.
            match self.in_flight.back_mut() {
                Some(last) => last.waiters.extend(waiters),
                None if fresh => waiters.into_iter().for_each(Waiter::release),
                // A rejection tells what the state does not hold: only a leader with a quorum knows that.
                None => waiters.into_iter().for_each(|waiter| {
                    if waiter.shows_facts { waiter.release() } else { waiter.fail(true, "the leader has no quorum") }
                }),
            }
            return Ok(None);
        };
        let head = match self.state.meta() {
            Ok(meta) => meta.chain_head,
            Err(error) => {
                waiters.into_iter().for_each(|waiter| waiter.fail(false, "the state cannot be read"));
                return Err(Fault::new(error));
            }
        };
        let judged = log::Batch { term: self.term, base, chain_head: head, events };
        let bytes = log::encode(self.log_format, &judged);
        Ok(Some(Batch { bytes, judged, sealed: self.state.seal(), waiters }))
    }

    /// Hands a batch to Raft. Returns once it is queued there.
    pub(super) async fn propose(&mut self, raft: &Raft, batch: Batch) -> Result<(), Fault> {
        let (responder, outcome) = OneshotResponder::new_pair();
        let Batch { bytes, judged, sealed, waiters } = batch;
        let size = bytes.len();
        metrics::counter!("placet_batches_total").increment(1);
        metrics::histogram!("placet_batch_events").record(judged.events.len() as f64);
        metrics::histogram!("placet_batch_bytes").record(size as f64);
        let (early, waiters) = if planted::on(Bug::ReplyBeforeCommit) { (waiters, vec![]) } else { (vec![], waiters) };
        early.into_iter().for_each(Waiter::release);
        self.judged.add(bytes.clone(), judged);
        let write = raft.write(Blob(bytes));
        let write = if planted::on(Bug::NoFencing) { write } else { write.with_leader(self.term) };
        let written = write.responder(responder).await;
        if let Err(fatal) = written {
            // It never reached Raft.
            waiters.into_iter().for_each(|waiter| waiter.fail(false, "this node has stopped"));
            return Err(Fault::new(fatal));
        }
        crate::crash::point("after_propose");
        self.in_flight.push_back(InFlight { bytes: size, sealed, proposed: Instant::now(), waiters });
        self.outcomes.push_back(outcome);
        self.bytes_in_flight += size;
        metrics::gauge!("placet_in_flight_batches").set(self.in_flight.len() as f64);
        Ok(())
    }

    /// Waits for the oldest batch and answers its callers. Call only when not idle.
    pub(super) async fn next_outcome(&mut self) -> Result<(), Fault> {
        let Some(result) = self.outcomes.next().await else { return Ok(()) };
        let Some(batch) = self.in_flight.pop_front() else { return Ok(()) };
        self.bytes_in_flight -= batch.bytes;
        metrics::gauge!("placet_in_flight_batches").set(self.in_flight.len() as f64);
        match BatchOutcome::of(result) {
            BatchOutcome::Applied => {
                metrics::histogram!("placet_commit_seconds").record(batch.proposed.elapsed());
                self.state.forget(batch.sealed);
                crate::crash::point("after_commit_before_reply");
                crate::crash::point_if("after_report_commit_before_answer", || {
                    batch.waiters.iter().any(|waiter| matches!(waiter.answer, Ok(Answer::Report(_))))
                });
                batch.waiters.into_iter().for_each(Waiter::release);
                Ok(())
            }
            BatchOutcome::NotProposed(why) if planted::on(Bug::NoFencing) => {
                batch.waiters.into_iter().for_each(|waiter| waiter.fail(false, &why));
                Ok(())
            }
            BatchOutcome::NotProposed(why) => {
                batch.waiters.into_iter().for_each(|waiter| waiter.fail(false, &why));
                Err(Fault(why))
            }
            BatchOutcome::Lost(why) => {
                batch.waiters.into_iter().for_each(|waiter| waiter.fail(true, &why));
                Err(Fault(why))
            }
        }
    }
}

/// Random bytes from the operating system. Without them no capability can be made, so nothing is judged.
fn entropy() -> Result<Entropy, Fault> {
    // Asked once for all three: each is a call into the kernel.
    let mut bits = [[0u8; 16]; 3];
    getrandom::fill(bits.as_flattened_mut()).map_err(Fault::new)?;
    let [permit, approval, request] = bits;
    Ok(Entropy { permit, approval, request })
}
