//! Replay (AADP §12): one request id, one verdict and reason, for ever; its capabilities only for who received them.

use super::decide::active_policy;
use super::redaction::canonical_under;
use super::{Keys, Outcome, Recorder};
use crate::event::{Body, Decided, ReplayMismatch};
use crate::evidence;
use crate::ids::{EvidenceIndex, Hash, PermitId};
use crate::op::{Answer, Reject};
use crate::redact;
use crate::reply::{DecideReply, Protocol};
use crate::request::DecideRequest;
use crate::state::{Meta, Read, RequestRecord};

/// The answer that a decision gives; a replay gives the same one.
pub(super) fn reply(
    protocol: Protocol,
    index: EvidenceIndex,
    decided: &Decided,
    permit_id: Option<PermitId>,
) -> DecideReply {
    DecideReply {
        protocol,
        request_id: Some(decided.request_id.clone()),
        verdict: decided.verdict,
        reason: decided.reason,
        detail: decided.detail.clone(),
        nominal_tier: decided.nominal_tier,
        effective_tier: decided.effective_tier,
        permit_id,
        obligations: decided.obligations.clone(),
        approval_id: decided.approval_id.clone(),
        evidence_id: index,
        replayed: false,
        budget: decided.budget.clone(),
    }
}

/// Answers a request id that was decided before.
pub(super) fn replay(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    request: &DecideRequest,
    record: &RequestRecord,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    let lost = || Reject::Internal { detail: format!("evidence `{}` of this request cannot be read", record.index) };
    let bytes = state.entry(record.index)?.ok_or_else(lost)?;
    let entry = evidence::decode(&bytes).map_err(|_| lost())?;
    let (Body::Decision(decided) | Body::ExecIntent(decided)) = &entry.body else { return Err(lost()) };
    // Compared in the form that was recorded: what was hidden then is hidden now, whatever the policy says by now.
    let digest = request.digest(&canonical_under(request, &decided.redacted, keys)?);
    let original =
        DecideReply { replayed: true, ..reply(entry.protocol, record.index, decided, record.permit_id.clone()) };
    let differs = if record.principal != *recorder.principal {
        "principal"
    } else if record.digest != digest {
        "request"
    } else {
        return Ok(recorder.answer(Answer::Decide(original)));
    };
    let mismatch = ReplayMismatch {
        differs: differs.to_owned(),
        original: record.index,
        request_digest: recordable_digest(state, meta, request, &decided.redacted, keys)?,
        request_id: request.request_id.clone(),
    };
    let evidence_id = recorder.record(request.protocol, Body::ReplayMismatch(mismatch), None);
    // A permit for one action must never serve another, nor another principal. A budget object belongs to whom it
    // was told.
    let withheld = DecideReply {
        permit_id: None,
        approval_id: None,
        obligations: Vec::new(),
        budget: None,
        detail: format!("this request id was used before by another {differs}; identifiers are withheld"),
        evidence_id,
        ..original
    };
    Ok(recorder.answer(Answer::Decide(withheld)))
}

/// The digest of a request that is not the recorded one. What came now may hold more than the original did, so what the
/// policy hides now is hidden, too: a digest without a key tells a short value to whoever tries them all.
fn recordable_digest(
    state: &impl Read,
    meta: &Meta,
    request: &DecideRequest,
    redacted: &[String],
    keys: &Keys,
) -> Result<Hash, Reject> {
    let policy = active_policy(state, meta)?;
    let now = policy.as_ref().map(|policy| redact::paths_of(policy, request.action_type.as_str())).unwrap_or_default();
    let mut paths = redacted.to_vec();
    paths.extend(now.iter().filter(|path| !redacted.contains(path)).cloned());
    Ok(request.digest(&canonical_under(request, &paths, keys)?))
}
