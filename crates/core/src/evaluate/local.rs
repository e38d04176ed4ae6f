//! What an enforcement point did by itself while no decision point could be reached (AADP §16): kept as such, never as
//! a verdict of this one. All records of a delivery are kept, or none is.

use super::decide::active_policy;
use super::{Keys, Outcome, Recorder, redaction};
use crate::event::{Body, LocalDecision};
use crate::ids::{Hash, RequestId};
use crate::op::{Answer, LocalRecorded, Reject};
use crate::redact;
use crate::request::LocalReport;
use crate::state::{Meta, Read};

pub(super) fn record(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    body: &[u8],
    keys: &Keys,
) -> Result<Outcome, Reject> {
    let report = LocalReport::parse(body).map_err(|detail| Reject::Invalid { detail })?;
    let policy = active_policy(state, meta)?;
    let mut evidence_ids = Vec::with_capacity(report.entries.len());
    for mut local in report.entries {
        if let Some(known) = state.request(&key(&local.request_id))? {
            // Delivered before: one act, one entry. Another principal's act under this id is another act.
            if known.principal != *recorder.principal {
                let detail = format!("local decision `{}` is another principal's", local.request_id);
                return Err(Reject::Conflict { detail });
            }
            evidence_ids.push(known.index.to_string());
            continue;
        }
        let action = policy.as_ref().and_then(|policy| policy.document().actions.get(local.action_type.as_str()));
        if let Some(action) = action.filter(|action| !action.redact.is_empty()) {
            redact::local(&mut local, &action.redact, redaction::key(keys)?);
        }
        let index = recorder.record(report.protocol, Body::LocalDecision(Box::new(local)), None);
        evidence_ids.push(index.to_string());
    }
    Ok(recorder.answer(Answer::Local(LocalRecorded { evidence_ids })))
}

/// Where a local decision is found again. No request of a caller has such an id: theirs are UUIDs.
pub(crate) fn key(request_id: &RequestId) -> RequestId {
    RequestId::new(format!("local:{request_id}"))
}

/// What a repeated delivery must repeat.
pub(crate) fn digest(local: &LocalDecision) -> Hash {
    Hash::of(local.params.as_bytes())
}
