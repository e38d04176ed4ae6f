//! One run (AADP §16): ask, check every obligation, write down, act, report. In this order, once each.
//!
//! ```text
//! room in the outbox ─ decide ─ permit ─ claim ─ check all ─ begin (synced) ─ discharge ─ act ─ end (synced)
//!                         ├─ observe, listed as a read ─ act
//!                         ├─ unreachable ─ the mode ─ begin (synced) ─ act ─ end (synced)
//!                         └─ anything else ─ nothing is done
//! ```
//!
//! Absent on purpose: acting twice. Whatever is not known about an act, it is not begun again. A process that dies
//! between begin and end leaves `timeout`, also if it died while obligations were discharged: which of the two it was
//! doing is not on disk, and a `not_attempted` that is wrong would give the budget back.
//!
//! INVARIANT (one report): from the moment a permit is read, exactly one ending enters the outbox: the outcome; or
//! `not_attempted`; or, if the run is dropped or panics in the middle of the act, `timeout`.

mod owed;
mod payload;

use std::sync::Arc;
use std::time::Duration;

use placet_core::reply::Verdict;
use placet_core::request::Outcome;
use serde_json::json;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::action::{Asked, Origin};
use crate::answer::Decision;
use crate::ask::{AskError, FailClosed};
use crate::clock;
use crate::delivery;
use crate::limits::REPORT_MARGIN;
use crate::obligation::Terms;
use crate::outbox::{Ending, LocalAct, LocalMode, OutboxError, Slot, Subject};
use crate::pep::{Inner, Unreachable};
use crate::permit::{Basis, Live, Permit};
use crate::sink::{Sink, SinkError};
use owed::{Answered, Closing, Held, permit_of};
use payload::{clip_bytes, payload};

/// An act that succeeded.
#[derive(Debug)]
pub struct Done<T> {
    /// What the sink returned.
    pub value: T,
    /// On what it rested.
    pub basis: Basis,
    /// Under which request.
    pub request_id: String,
    /// The decision, if a decision point gave one.
    pub decision: Option<Decision>,
}

/// Why there is no success. [`RunError::outcome`] says whether the act happened.
#[derive(Debug, Error)]
pub enum RunError {
    /// Denied. Nothing was done.
    #[error("denied: {}", .0.reason)]
    Denied(Box<Decision>),
    /// A human decides; resume with [`crate::Action::approval_ref`]. Nothing was done.
    #[error("waits for approval: {}", .0.reason)]
    Proposed(Box<Decision>),
    /// The policy rehearses. Nothing was done.
    #[error("a rehearsal: it would have been permitted up to its budgets")]
    DryRun(Box<Decision>),
    /// Recorded as a read that this enforcement point does not list as one. Nothing was done.
    #[error("observed, and not listed as a read here")]
    Observed(Box<Decision>),
    /// Nothing may be done whatever the mode, and nothing was.
    #[error(transparent)]
    FailClosed(#[from] FailClosed),
    /// No decision point answers, and the mode does not allow the act. Nothing was done.
    #[error("no decision point answers ({last}); {why}")]
    Unreachable {
        /// The last failure of asking.
        last: String,
        /// Why the mode does not allow it.
        why: String,
    },
    /// Permitted, and not begun: an obligation, the deadline or the sink itself forbade it. Reported.
    #[error("not attempted: {why}")]
    NotAttempted {
        /// As reported; names the obligation type, if one was the cause.
        why: String,
        /// The permit, if a decision point gave one.
        decision: Option<Box<Decision>>,
    },
    /// Attempted without success. Reported.
    #[error("the act failed: {error}")]
    Failed {
        /// As reported.
        error: String,
        /// It positively had no effect.
        no_effect: bool,
        /// The permit, if a decision point gave one.
        decision: Option<Box<Decision>>,
    },
    /// It may or may not have happened. Reported. Do not do it again unless you can prove that it had no effect.
    #[error("the outcome is unknown: {error}")]
    TimedOut {
        /// As reported.
        error: String,
        /// The permit, if a decision point gave one.
        decision: Option<Box<Decision>>,
    },
    /// The intent could not be made durable. Nothing was done.
    #[error("nothing was done")]
    Outbox(#[from] OutboxError),
}

impl RunError {
    /// Whether the act happened, in the words of a report. `NotAttempted` for everything that stopped before it.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Failed { .. } => Outcome::Failure,
            Self::TimedOut { .. } => Outcome::Timeout,
            _ => Outcome::NotAttempted,
        }
    }
}

impl Inner {
    pub(crate) async fn run<T, F, Fut>(
        self: &Arc<Self>,
        asked: Result<Asked, String>,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let asked = asked.map_err(FailClosed::Malformed)?;
        if asked.claim().is_some_and(|id| self.outbox.is_claimed(id)) {
            return Err(FailClosed::Repeated(ACTED_BEFORE.to_owned()).into());
        }
        let slot = self.outbox.reserve()?;
        match self.ask(asked.clone()).await {
            Ok(decision) if decision.verdict == Verdict::Permit => self.permitted(slot, asked, decision, sink).await,
            Ok(decision) => self.not_permitted(asked, decision, sink).await,
            Err(AskError::FailClosed(closed)) => Err(closed.into()),
            Err(AskError::Unreachable(last)) => self.unreached(slot, asked, last, sink).await,
        }
    }

    /// Asks in a task of its own: a permit that arrives when nobody waits for it any more is still reported.
    pub(crate) async fn ask(self: &Arc<Self>, asked: Asked) -> Result<Decision, AskError> {
        let (answer, waiting) = oneshot::channel();
        let inner = self.clone();
        tokio::spawn(async move {
            let decided = inner.asker.decide(&asked).await;
            match &decided {
                Err(AskError::Unreachable(_)) => inner.gate.unanswered(),
                _ => inner.gate.answered(&inner.outbox),
            }
            // Not taken, it reports itself.
            drop(answer.send(Answered { outbox: inner.outbox.clone(), asked, decided: Some(decided) }));
        });
        let answered = waiting.await.ok().and_then(|mut answered| answered.decided.take());
        answered.unwrap_or_else(|| Err(AskError::Unreachable("the asking task ended".to_owned())))
    }

    /// Only asks. The permit of a resumption is given out once, like it is acted on once.
    pub(crate) async fn decide(self: &Arc<Self>, asked: Asked) -> Result<Decision, AskError> {
        let decision = self.ask(asked.clone()).await?;
        let (Origin::Resumed, Some(permit_id)) = (asked.origin, decision.permit_id.clone()) else {
            return Ok(decision);
        };
        let repeated = |why: String| Err(FailClosed::Repeated(why).into());
        let request_id = asked.request_id.as_str();
        if !self.outbox.claim_request(request_id) {
            return repeated(ACTED_BEFORE.to_owned());
        }
        if let Err(error) = self.outbox.write_claim(request_id).wait().await {
            return repeated(format!("the claim could not be made durable: {error}"));
        }
        if let Err(why) = self.asker.check(&permit_id).await {
            self.outbox.record(permit_of(&asked, permit_id), Ending::new(Outcome::NotAttempted, clip_bytes(&why)));
            return repeated(why);
        }
        Ok(decision)
    }

    async fn permitted<T, F, Fut>(
        &self,
        _slot: Slot,
        asked: Asked,
        decision: Decision,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let permit_id = decision.permit_id.clone().unwrap_or_default();
        if !self.outbox.claim(&permit_id) {
            return Err(FailClosed::Repeated("this permit was acted on before".to_owned()).into());
        }
        let held = Held::new(&self.outbox, permit_of(&asked, permit_id.clone()), asked.claim());
        if asked.claim().is_some_and(|id| !self.outbox.claim_request(id)) {
            held.end(Ending::new(Outcome::NotAttempted, ACTED_BEFORE)).await;
            return Err(FailClosed::Repeated(ACTED_BEFORE.to_owned()).into());
        }
        // INVARIANT (all or nothing): nothing is discharged before everything was checked.
        let mut terms = match self.registry.check(&decision.obligations, sink.sends_idempotency_key) {
            Ok(terms) => terms,
            Err(stopped) => return Err(not_attempted(held, stopped.to_string(), Some(decision.into())).await),
        };
        // INVARIANT (nothing unrecorded): no handler and no sink is called before the intent is on disk.
        let held = begun(held).await?;
        if asked.origin == Origin::Resumed
            && let Err(why) = self.asker.check(&permit_id).await
        {
            return Err(not_attempted(held, why, Some(decision.into())).await);
        }
        if let Err(stopped) = self.registry.discharge(&mut terms).await {
            return Err(not_attempted(held, stopped.to_string(), Some(decision.into())).await);
        }
        let request_id = asked.request_id.as_str().to_owned();
        let mut live = Live::new(Basis::Permitted, request_id, asked.action_type, asked.params);
        live.deadline = terms.deadline;
        live.idempotency_key.clone_from(&terms.idempotency_key);
        live.obligations.clone_from(&decision.obligations);
        self.act(held, live, terms, Some(decision), sink).await
    }

    /// Every verdict but `permit`.
    async fn not_permitted<T, F, Fut>(
        &self,
        asked: Asked,
        decision: Decision,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let boxed = Box::new(decision);
        if boxed.verdict == Verdict::Observe && self.reads.contains(&asked.action_type) {
            return self.observed(asked, boxed, sink).await;
        }
        if self.note_refusals && matches!(boxed.verdict, Verdict::Propose | Verdict::DryRun) {
            let subject = Subject::Request { request_id: asked.request_id.as_str().to_owned() };
            let ending = Ending::new(Outcome::NotAttempted, format!("the verdict was {}", boxed.verdict.as_str()));
            self.outbox.record(subject, ending).wait().await?;
        }
        Err(match boxed.verdict {
            Verdict::Propose => RunError::Proposed(boxed),
            Verdict::DryRun => RunError::DryRun(boxed),
            Verdict::Observe => RunError::Observed(boxed),
            Verdict::Deny | Verdict::Permit => RunError::Denied(boxed),
        })
    }

    /// A read that passes: recorded by the decision point already, so no report is owed (AADP §4).
    async fn observed<T, F, Fut>(
        &self,
        asked: Asked,
        decision: Box<Decision>,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let request_id = asked.request_id.as_str().to_owned();
        let live = Arc::new(Live::new(Basis::Observed, request_id.clone(), asked.action_type, asked.params));
        let closing = Closing(&live);
        let limit = sink.within.unwrap_or(self.sink_within);
        let acted = timeout(limit, (sink.act)(live.permit())).await;
        drop(closing);
        match acted {
            Ok(Ok(value)) => Ok(Done { value, basis: Basis::Observed, request_id, decision: Some(*decision) }),
            Ok(Err(error)) => Err(refused(&error, Some(decision))),
            Err(_) => Err(RunError::TimedOut { error: took_too_long(limit), decision: Some(decision) }),
        }
    }

    /// The mode (AADP §16), and nothing else, says what happens now.
    async fn unreached<T, F, Fut>(
        &self,
        _slot: Slot,
        asked: Asked,
        last: String,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let (basis, mode, policy) = match self.decide_here(&asked) {
            Ok(decided) => decided,
            Err(why) => return Err(RunError::Unreachable { last, why }),
        };
        let request_id = asked.request_id.as_str().to_owned();
        let claim = asked.claim().map(str::to_owned);
        let act = LocalAct {
            request_id: request_id.clone(),
            action_type: asked.action_type.clone(),
            params: asked.params.clone(),
            source: asked.source,
            rationale: asked.rationale,
            decided_at: clock::now(),
            mode,
            policy,
        };
        if let Err(why) = delivery::fits(&act) {
            return Err(RunError::Unreachable { last, why: format!("it could not be delivered afterwards: {why}") });
        }
        if claim.as_deref().is_some_and(|id| !self.outbox.claim_request(id)) {
            return Err(FailClosed::Repeated(ACTED_BEFORE.to_owned()).into());
        }
        tracing::warn!(action_type = asked.action_type, ?mode, last, "acting without a decision point");
        let held = begun(Held::new(&self.outbox, Subject::Local(Box::new(act)), claim.as_deref())).await?;
        let live = Live::new(basis, request_id, asked.action_type, asked.params);
        self.act(held, live, Terms::default(), None, sink).await
    }

    fn decide_here(&self, asked: &Asked) -> Result<(Basis, LocalMode, Option<String>), String> {
        let max_age = match self.unreachable {
            Unreachable::FailClosed => return Err("the mode is fail_closed".to_owned()),
            Unreachable::FailOpen => None,
            Unreachable::FailStatic { max_age } => Some(max_age),
        };
        let Some(max_age) = max_age else { return Ok((Basis::FailOpen, LocalMode::FailOpen, None)) };
        if !self.gate.is_open(&self.outbox) {
            return Err("acts of the last outage are not delivered yet".to_owned());
        }
        let cached = self.static_list();
        let cached = cached.as_ref().as_ref().ok_or("there is no list for fail_static")?;
        if !cached.is_usable(max_age) {
            return Err(format!("the list for fail_static is older than {max_age:?}"));
        }
        let tier = cached.list.permits(&asked.action_type, &asked.exact_params)?;
        if tier == 0 && !self.reads.contains(&asked.action_type) {
            return Err(format!("`{}` is not listed as a read here", asked.action_type));
        }
        Ok((Basis::FailStatic, LocalMode::FailStatic, Some(cached.list.policy().to_owned())))
    }

    /// What is begun: acts, and writes the outcome down.
    async fn act<T, F, Fut>(
        &self,
        mut held: Held<'_>,
        live: Live,
        mut terms: Terms,
        decision: Option<Decision>,
        sink: Sink<F>,
    ) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        let decision = decision.map(Box::new);
        if self.check_before_act
            && let Some(permit_id) = decision.as_ref().and_then(|decision| decision.permit_id.as_deref())
            && let Err(why) = self.asker.check(permit_id).await
        {
            return Err(not_attempted(held, why, decision).await);
        }
        let limit = sink.within.unwrap_or(self.sink_within);
        let limit = match live.deadline.map(clock::until) {
            None => limit,
            Some(Some(left)) => limit.min(left.saturating_sub(REPORT_MARGIN.min(left / 4))),
            Some(None) => {
                let why = "obligation `execute_within`: its deadline passed before the act".to_owned();
                return Err(not_attempted(held, why, decision).await);
            }
        };
        if live.deadline.is_some() {
            terms.evidence.push(("execute_within".to_owned(), json!({ "started_at": clock::now() })));
        }
        let live = Arc::new(live);
        let closing = Closing(&live);
        held.acting = true;
        let acted = timeout(limit, (sink.act)(live.permit())).await;
        let acted = acted.map(|acted| acted.map_err(|error| error.after_entry(live.was_entered())));
        let payload = payload(closing.close(), terms.evidence);
        let (ending, result) = match acted {
            Ok(Ok(value)) => {
                let request_id = live.request_id.clone();
                let decision = decision.map(|boxed| *boxed);
                (Ending::new(Outcome::Success, ""), Ok(Done { value, basis: live.basis, request_id, decision }))
            }
            Ok(Err(error)) => {
                let ending = Ending {
                    no_effect: error.is_without_effect(),
                    ..Ending::new(error.outcome(), clip_bytes(error.error()))
                };
                (ending, Err(refused(&error, decision)))
            }
            Err(_) => {
                let error = took_too_long(limit);
                (Ending::new(Outcome::Timeout, error.clone()), Err(RunError::TimedOut { error, decision }))
            }
        };
        held.end(Ending { payload, ..ending }).await;
        result
    }
}

/// Said of a request id that a caller uses again.
const ACTED_BEFORE: &str = "this request id was acted on before";

/// Writes the intent down. An act may only begin when the disk has acknowledged it.
async fn begun(mut held: Held<'_>) -> Result<Held<'_>, RunError> {
    match held.begin().await {
        Ok(()) => Ok(held),
        Err(error) => {
            held.end(Ending::new(Outcome::NotAttempted, "the intent could not be made durable")).await;
            Err(error.into())
        }
    }
}

/// Ends what did not begin.
async fn not_attempted(held: Held<'_>, why: String, decision: Option<Box<Decision>>) -> RunError {
    held.end(Ending::new(Outcome::NotAttempted, clip_bytes(&why))).await;
    RunError::NotAttempted { why, decision }
}

fn took_too_long(limit: Duration) -> String {
    format!("the act did not end within {limit:?}")
}

fn refused(error: &SinkError, decision: Option<Box<Decision>>) -> RunError {
    let text = error.error().to_owned();
    match error.outcome() {
        Outcome::NotAttempted => RunError::NotAttempted { why: text, decision },
        Outcome::Timeout => RunError::TimedOut { error: text, decision },
        Outcome::Failure | Outcome::Success => {
            RunError::Failed { error: text, no_effect: error.is_without_effect(), decision }
        }
    }
}
