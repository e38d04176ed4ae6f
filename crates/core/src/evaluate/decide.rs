//! Decide (AADP §6): parse, replay, approval, judgement, and the one entry that records them.

use std::borrow::Cow;
use std::sync::Arc;

use super::approval_ref;
use super::judge::{Case, Judged};
use super::redaction::{self, Recorded};
use super::{Keys, Outcome, Recorder, malformed, replay};
use crate::event::{ApprovalTerms, Body, Decided};
use crate::ids::{ApprovalId, Entropy, PermitId, Principal};
use crate::limits::APPROVAL_TTL_MS_DEFAULT;
use crate::op::{Answer, Reject};
use crate::planted::{self, Bug};
use crate::policy::PolicySet;
use crate::reply::{Obligation, Tier, Verdict};
use crate::request::DecideRequest;
use crate::stamp::Stamp;
use crate::state::{Meta, Read, ReadError, RequestRecord};
use crate::trace::Trace;

pub(super) fn decide(
    state: &impl Read,
    meta: &Meta,
    recorder: Recorder<'_>,
    body: &[u8],
    entropy: Entropy,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    match DecideRequest::parse(body) {
        Ok(request) => decide_request(state, meta, recorder, request, entropy, keys, None),
        Err(found) => malformed(state, meta, recorder, "decide", *found, keys),
    }
}

/// Decides a request that is well formed: a caller's, a proposal that an approver resumes, or one from the record
/// that is derived again.
pub(super) fn decide_request(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    request: DecideRequest,
    entropy: Entropy,
    keys: &Keys,
    resumed_by: Option<Principal>,
) -> Result<Outcome, Reject> {
    let known = state.request(&request.request_id)?;
    let forgotten = |record: &RequestRecord| {
        planted::on(Bug::DedupWithoutInFlight) && record.index.0.saturating_add(3) >= meta.next_index.0
    };
    if let Some(record) = known.filter(|record| !forgotten(record)) {
        return replay::replay(state, meta, recorder, &request, &record, keys);
    }
    let policy = active_policy(state, meta)?;
    let policy = policy.as_deref();
    let approval = approval_ref::resolve(state, &recorder, &request, policy, keys)?;
    let case = Case { state, meta, policy, request: &request, recorder: &recorder, approval: &approval, keys };
    let judged = case.judge()?;
    // An approved action runs at tier 1 whatever the policy says (AADP §3.2).
    let judged = if case.authorised() { judged } else { judged.named() };
    let permit_id = (judged.verdict == Verdict::Permit).then(|| PermitId::from_random(entropy.permit));
    let terms = permit_id.as_ref().map(|permit_id| permit_terms(&case, &judged, permit_id)).unwrap_or_default();
    let proposal = (judged.verdict == Verdict::Propose).then(|| proposal_terms(&case, &judged, entropy));
    let (request, redacted) = match redaction::recorded(&request, policy, keys)? {
        Some(Recorded { request, redacted }) => (request, redacted),
        None => (request, Vec::new()),
    };
    let protocol = request.protocol;
    let decided = Decided {
        action_type: request.action_type.clone(),
        approval_deadline: proposal.as_ref().map(|proposal| proposal.deadline),
        approval_id: proposal.as_ref().map(|proposal| proposal.id.clone()),
        approval_ref: request.approval_ref.clone(),
        approval_ref_status: approval.status,
        approval_terms: proposal.and_then(|proposal| proposal.terms),
        budget: judged.budget,
        cost: judged.cost,
        cost_eur: request.cost_eur,
        created_at: request.created_at,
        deadline: terms.deadline,
        detail: judged.detail,
        draws: judged.draws,
        effective_tier: judged.effective,
        effects: judged.effects,
        malformed_kind: judged.malformed_kind,
        nominal_tier: judged.nominal,
        obligations: terms.obligations,
        opaque_class: judged.opaque_class,
        parent_id: request.parent_id.clone(),
        permit_digest: permit_id.as_ref().map(PermitId::digest),
        presented_audience: request.presented_audience.clone(),
        reason: judged.reason,
        redacted,
        request_digest: request.digest(&request.params_canonical()),
        request_id: request.request_id,
        params: request.params_raw,
        rationale: request.rationale,
        resumed_by,
        resumes: approval.resumes,
        session_id: request.session_id,
        source: request.source,
        trace: Trace::of(judged.trace),
        undo_of: judged.undo_of,
        undo_until: terms.undo_until,
        url_canonicalizer: judged.url_canonicalizer,
        verdict: judged.verdict,
    };
    let reply = replay::reply(protocol, recorder.next, &decided, permit_id.clone());
    let body = match decided.verdict {
        Verdict::Permit => Body::ExecIntent(Box::new(decided)),
        _ => Body::Decision(Box::new(decided)),
    };
    recorder.record(protocol, body, permit_id);
    Ok(recorder.answer(Answer::Decide(reply)))
}

/// The policy in force. One that state names and cannot produce is a fault, not an empty policy.
pub(super) fn active_policy(state: &impl Read, meta: &Meta) -> Result<Option<Arc<PolicySet>>, ReadError> {
    match &meta.active_policy {
        None => Ok(None),
        Some(digest) => match state.policy(digest)? {
            Some(policy) => Ok(Some(policy)),
            None => Err(ReadError(format!("policy `{digest}` is in force and cannot be read"))),
        },
    }
}

struct Proposal {
    id: ApprovalId,
    deadline: Stamp,
    /// Absent when they are the plain ones.
    terms: Option<ApprovalTerms>,
}

fn proposal_terms<R: Read>(case: &Case<'_, R>, judged: &Judged, entropy: Entropy) -> Proposal {
    let rules = case.action().map(|action| &action.approval);
    let default_ms = case.policy.map_or(APPROVAL_TTL_MS_DEFAULT, |policy| policy.document().approval_ttl_ms);
    let ttl_ms = rules.and_then(|rules| rules.ttl_ms).unwrap_or(default_ms);
    let terms = ApprovalTerms { group: rules.and_then(|rules| rules.group.clone()), ..judged.terms.clone() };
    Proposal {
        id: ApprovalId::from_random(entropy.approval),
        deadline: case.recorder.at.plus_ms(ttl_ms),
        terms: (terms != ApprovalTerms::default()).then_some(terms),
    }
}

#[derive(Default)]
struct PermitTerms {
    /// When the permit and its reservation end.
    deadline: Option<Stamp>,
    undo_until: Option<Stamp>,
    obligations: Vec<Obligation>,
}

/// Deadline, end of the undo window, and obligations of a permit (AADP §13).
fn permit_terms<R: Read>(case: &Case<'_, R>, judged: &Judged, permit_id: &PermitId) -> PermitTerms {
    let (Some(policy), Some(action)) = (case.policy, case.action()) else { return PermitTerms::default() };
    let document = policy.document();
    let at = case.recorder.at;
    // The act must begin before this; its report may follow a little later.
    let act_until = at.plus_ms(action.execute_within_ms.unwrap_or(document.execute_within_ms));
    let undoable = judged.effective == Tier::Auto && !case.approved() && action.compensating_command.is_some();
    let undo_until = undoable.then(|| at.plus_ms(action.undo_window_ms));
    fn obligation(kind: impl Into<Cow<'static, str>>, value: Option<String>) -> Obligation {
        Obligation { required: true, kind: kind.into(), value }
    }
    let mut obligations =
        vec![obligation("report_result", None), obligation("execute_within", Some(act_until.to_string()))];
    if let Some(until) = undo_until {
        obligations.push(obligation("undo_available_until", Some(until.to_string())));
    }
    if let Some(audience) = &action.present_bound {
        obligations.push(obligation("present_bound", Some(audience.clone())));
    }
    for rule in &action.obligations {
        let value = match rule.kind.as_str() {
            // A function of the permit alone (AADP §12), and not the capability itself: evidence shows it.
            "idempotency_key" => Some(permit_id.digest().to_string()),
            _ => rule.value.clone(),
        };
        obligations.push(obligation(rule.kind.clone(), value));
    }
    PermitTerms { deadline: Some(act_until.plus_ms(document.report_grace_ms)), undo_until, obligations }
}
