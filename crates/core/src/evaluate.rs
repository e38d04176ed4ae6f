//! Judgement (AADP §6): one call against the state, as a function. What changes is returned as events; who calls
//! folds them.
//! Absent on purpose: writing, waiting and partial results. Either every event of an [`Outcome`] enters the log, in
//! one entry, or none does.
//!
//! INVARIANT (durable intent): the answer of an outcome leaves only after its events are committed.

mod approval_ref;
mod approvals;
mod bounds;
mod budget;
mod control;
mod decide;
mod effects;
mod expire;
mod judge;
mod local;
mod policies;
mod queue;
mod redaction;
mod rederive;
mod replay;
mod report;
mod restored;
mod switch;
mod undo;

pub use approvals::{mandate_statement, ratification_statement};
pub use bounds::within_bounds;
pub(crate) use budget::{preview, window_now};
pub use expire::{Due, due_changes, expire};
pub(crate) use local::key as local_key;
pub(crate) use queue::{minute_draw, open_key};
pub use rederive::{Difference, Rederivation, Rederived, rederive};
pub use restored::{cluster_id, restored};
pub(crate) use switch::stops;
pub(crate) use undo::permit_of;

use crate::event::{Body, Entry, Event, MalformedRequest};
use crate::evidence::ENTRY_VERSION;
use crate::head::HeadSigner;
use crate::ids::{Entropy, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal};
use crate::limits::LABEL_BYTES_MAX;
use crate::op::{Answer, Call, Op, Reject};
use crate::redact::{self, RedactionKey};
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

/// The secrets of a node that judging needs: arguments, so that evaluation stays a function.
#[derive(Debug, Default)]
pub struct Keys {
    /// Hides what the policy wants hidden; the same on every node of a cluster.
    pub redaction: Option<RedactionKey>,
    /// Signs heads of the evidence; each node has its own.
    pub head: Option<HeadSigner>,
    /// Requests come from the record: what was hidden is hidden already.
    from_record: bool,
}

impl Keys {
    /// The secrets that a node has.
    pub fn new(redaction: Option<RedactionKey>, head: Option<HeadSigner>) -> Self {
        Self { redaction, head, from_record: false }
    }
}

/// Judges one call that is not a query. Pure: reads `state`, writes nothing.
pub fn evaluate(state: &impl Read, call: &Call, at: Stamp, entropy: Entropy, keys: &Keys) -> Result<Outcome, Reject> {
    let meta = state.meta()?;
    let recorder = Recorder::new(&meta, &call.principal, at);
    match &call.op {
        Op::Decide(body) => decide::decide(state, &meta, recorder, body, entropy, keys),
        Op::Report(body) => report::report(state, &meta, recorder, body, keys),
        Op::Malformed { operation, request } => malformed(state, &meta, recorder, operation, request.clone(), keys),
        Op::ResolveApproval { id, grant, note } => {
            approvals::resolve(state, &meta, recorder, id, *grant, note.as_deref())
        }
        Op::ResumeApproval { id, note } => {
            approvals::resume(state, &meta, recorder, id, note.as_deref(), entropy, keys)
        }
        Op::RatifyApproval { id, approved, signature } => {
            approvals::ratify(state, &meta, recorder, id, *approved, signature)
        }
        Op::SetMandate(set) => control::set_mandate(state, &meta, recorder, set),
        Op::SetKillSwitch { engaged, origin, note, scope } => {
            let mut outcome =
                control::set_kill_switch(&meta, recorder, *engaged, origin, note.as_deref(), scope.as_ref())?;
            if let Answer::KillSwitch(view) = &mut outcome.answer {
                // An operator in a hurry must not take a misspelt switch for an engaged one. An unreadable policy is no
                // reason to refuse a switch.
                view.warning = control::unknown_scope(state, &meta, scope.as_ref()).unwrap_or_default();
            }
            Ok(outcome)
        }
        Op::PublishPolicy { document, expect, activate } => {
            policies::publish(state, &meta, recorder, document, expect.as_deref(), *activate, keys)
        }
        Op::ActivatePolicy { digest, expect } => {
            policies::activate(state, &meta, recorder, digest, expect.as_deref(), keys)
        }
        Op::DropPolicy { digest } => policies::drop_unused(state, recorder, digest),
        Op::RecordLocal(body) => local::record(state, &meta, recorder, body, keys),
        Op::SignHead => control::sign_head(state, &meta, recorder, keys),
        Op::Notified { up_to } => control::notified(&meta, recorder, *up_to),
        Op::Query(_) => Err(Reject::Internal { detail: "a query is not judged".to_owned() }),
    }
}

fn label(name: &str, text: &str) -> Result<(), Reject> {
    if text.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(Reject::Invalid { detail: format!("`{name}` is longer than {LABEL_BYTES_MAX} bytes") })
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
        self.head = event.hash;
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
fn malformed(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    operation: &str,
    mut request: Malformed,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    if let Some(policy) = decide::active_policy(state, meta)? {
        redact::malformed(&mut request, &policy, keys.redaction.as_ref());
    }
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
    Ok(recorder.answer(answer))
}
