//! Judgement (AADP §6): one call against the state, as a function. What changes is returned as events; who calls
//! folds them.
//! Absent on purpose: writing, waiting and partial results. Either every event of an [`Outcome`] enters the log, in
//! one entry, or none does.
//!
//! INVARIANT (durable intent): the answer of an outcome leaves only after its events are committed.

mod bounds;
mod budget;
mod control;
mod decide;
mod expire;
mod replay;
mod report;

pub(crate) use budget::window_now;
pub use expire::{Due, due_changes, expire};

use crate::event::{Body, Entry, Event, MalformedRequest};
use crate::evidence::{self, ENTRY_VERSION};
use crate::ids::{Entropy, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal};
use crate::op::{Answer, Call, Op, Reject};
use crate::reply::{DecideReply, Protocol, Reason, ReportReply, Tier, Verdict};
use crate::request::Malformed;
use crate::stamp::Stamp;
use crate::state::{Meta, Read};

/// What judging one call came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The answer, to be released only when `events` are committed and applied.
    pub answer: Answer,
    /// New facts, in order; they belong into one log entry. Empty for a replay.
    pub events: Vec<Event>,
}

/// Judges one call that is not a query. Pure: reads `state`, writes nothing.
pub fn evaluate(state: &impl Read, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
    let meta = state.meta()?;
    let recorder = Recorder::new(&meta, &call.principal, at);
    match &call.op {
        Op::Decide(body) => decide::decide(state, &meta, recorder, body, entropy),
        Op::Report(body) => report::report(state, recorder, body),
        Op::Malformed { operation, request } => Ok(malformed(recorder, operation, request.clone())),
        Op::ResolveApproval { id, grant, note } => {
            control::resolve_approval(state, recorder, id, *grant, note.as_deref())
        }
        Op::SetKillSwitch { engaged, origin } => control::set_kill_switch(&meta, recorder, *engaged, origin),
        Op::PublishPolicy { document, expect } => {
            control::publish_policy(state, &meta, recorder, document, expect.as_deref())
        }
        Op::Query(_) => Err(Reject::Internal { detail: "a query is not judged".to_owned() }),
    }
}

/// Appends entries to the chain that the state ends with.
struct Recorder<'a> {
    at: Stamp,
    principal: &'a Principal,
    policy: Option<PolicyDigest>,
    next: EvidenceIndex,
    head: Hash,
    events: Vec<Event>,
}

impl<'a> Recorder<'a> {
    fn new(meta: &Meta, principal: &'a Principal, at: Stamp) -> Self {
        Self {
            at,
            principal,
            policy: meta.active_policy.clone(),
            next: meta.next_index,
            head: meta.chain_head,
            events: Vec::new(),
        }
    }

    /// Records one fact and returns its position.
    fn record(&mut self, protocol: Protocol, body: Body, permit_id: Option<PermitId>) -> EvidenceIndex {
        let index = self.next;
        let entry = Entry {
            at: self.at,
            body,
            index,
            policy: self.policy.clone(),
            prev: self.head,
            principal: self.principal.clone(),
            protocol,
            v: ENTRY_VERSION,
        };
        let event = Event::new(entry, permit_id);
        self.head = evidence::hash(&event.bytes);
        self.next = index.next();
        self.events.push(event);
        index
    }

    fn answer(self, answer: Answer) -> Outcome {
        Outcome { answer, events: self.events }
    }
}

/// Records a body that is not a request, and denies it (AADP §6.3, §10.2). Its request id stays free: nothing was
/// decided under it.
fn malformed(mut recorder: Recorder<'_>, operation: &str, request: Malformed) -> Outcome {
    let detail = request.detail.clone();
    let protocol = request.protocol.unwrap_or(Protocol::LATEST);
    let request_id = request.request_id.clone();
    let body = Body::MalformedRequest(MalformedRequest { operation: operation.to_owned(), request });
    let evidence_id = recorder.record(protocol, body, None);
    let answer = if operation == "report" {
        Answer::Report(ReportReply { protocol, accepted: false, evidence_id, reason: Some(Reason::Malformed), detail })
    } else {
        Answer::Decide(DecideReply {
            protocol,
            request_id,
            verdict: Verdict::Deny,
            reason: Reason::Malformed,
            detail,
            nominal_tier: Tier::Confirm,
            effective_tier: Tier::Confirm,
            permit_id: None,
            obligations: Vec::new(),
            approval_id: None,
            evidence_id,
            replayed: false,
            budget: None,
        })
    };
    recorder.answer(answer)
}
