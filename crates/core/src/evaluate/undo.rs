//! Undo (AADP §20): a decide like every other, linked to the one intent that it reverses.
//! Absent on purpose: privilege. INVARIANT (one reversal): an intent is reversed by at most one permit at a time.

use super::Keys;
use super::redaction::canonical_under;
use crate::event::Body;
use crate::evidence;
use crate::ids::{EvidenceIndex, PermitId, Principal};
use crate::json;
use crate::op::Reject;
use crate::policy::PolicySet;
use crate::request::{DecideRequest, Outcome, Source};
use crate::stamp::Stamp;
use crate::state::{PermitRecord, Read, ReadError};

/// The intent that `request` reverses; `Err` says why it cannot.
pub(super) fn target(
    state: &impl Read,
    policy: &PolicySet,
    request: &DecideRequest,
    principal: &Principal,
    at: Stamp,
    keys: &Keys,
) -> Result<Result<Option<EvidenceIndex>, &'static str>, Reject> {
    let (Source::Undo, Some(parent)) = (request.source, request.parent_id.as_deref()) else { return Ok(Ok(None)) };
    let found = match EvidenceIndex::parse(parent) {
        Some(index) => permit_of(state, index)?.map(|(_, permit)| permit),
        // Nothing else names a permit: re-derivation knows permits by other names.
        None if parent.starts_with("pmt-") => state.permit(&PermitId::new(parent))?,
        None => None,
    };
    let Some(original) = found.filter(|permit| permit.principal == *principal) else {
        return Ok(Err("`parent_id` names no permitted action of this principal"));
    };
    let reverses = policy
        .document()
        .actions
        .get(original.action_type.as_str())
        .and_then(|action| action.compensating_command.as_deref());
    Ok(if reverses != Some(request.action_type.as_str()) {
        Err("the policy names another compensating command for the action to be reversed")
    } else if original.undone_by.is_some() {
        Err("the action was reversed before, or its reversal is open")
    } else if original.outcome != Some(Outcome::Success) {
        Err("the action was not reported as a success")
    } else if original.undo_until.is_none_or(|until| until <= at) {
        Err("the undo window of the action is closed")
    } else if !same_arguments(state, request, original.index, keys)? {
        Err("the arguments are not those of the action to be reversed")
    } else {
        Ok(Some(original.index))
    })
}

/// An undo has the arguments of what it reverses (AADP §20): with others it would be another act under that name.
fn same_arguments(
    state: &impl Read,
    request: &DecideRequest,
    original: EvidenceIndex,
    keys: &Keys,
) -> Result<bool, Reject> {
    let Some(bytes) = state.entry(original)? else { return Ok(false) };
    let Ok(Body::ExecIntent(decided)) = evidence::decode(&bytes).map(|entry| entry.body) else { return Ok(false) };
    let Ok(recorded) = json::parse_record(decided.params.as_bytes()) else { return Ok(false) };
    Ok(json::canonical(&recorded) == canonical_under(request, &decided.redacted, keys)?)
}

/// The permit of an intent.
pub(crate) fn permit_of(
    state: &impl Read,
    index: EvidenceIndex,
) -> Result<Option<(PermitId, PermitRecord)>, ReadError> {
    let Some(bytes) = state.entry(index)? else { return Ok(None) };
    let Ok(entry) = evidence::decode(&bytes) else { return Ok(None) };
    let Body::ExecIntent(decided) = entry.body else { return Ok(None) };
    let Some(id) = state.request(&decided.request_id)?.and_then(|record| record.permit_id) else { return Ok(None) };
    Ok(state.permit(&id)?.map(|permit| (id, permit)))
}
