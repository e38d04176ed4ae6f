//! What an enforcement point did by itself while no decision point could be reached (AADP §16): kept as such, never as
//! a verdict of this one. All records of a delivery are kept, or none is.

use super::decide::active_policy;
use super::report::{Reported, report_permit};
use super::{Keys, Outcome, Recorder, redaction};
use crate::event::{Body, LocalDecision};
use crate::ids::{PermitId, Principal, RequestId};
use crate::op::{Answer, LocalRecorded, Reject};
use crate::redact;
use crate::reply::Protocol;
use crate::request::{LocalReport, ReportRequest, ReportSubject, digest_parts};
use crate::state::{Meta, PermitRecord, PermitStatus, Read, ReadError};

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
        let paths = policy.as_ref().map(|policy| redact::paths_of(policy, local.action_type.as_str()));
        if let Some(paths) = paths.filter(|paths| !paths.is_empty()) {
            redact::local(&mut local, &paths, redaction::key(keys)?);
        }
        if let Some(known) = state.request(&key(&local, recorder.principal))? {
            // Delivered before: one act, one entry.
            evidence_ids.push(known.index.to_string());
            continue;
        }
        let ended = ended_permit(state, &local, &recorder)?;
        let (request, redacted) = as_report(report.protocol, &local);
        let index = recorder.record(report.protocol, Body::LocalDecision(Box::new(local)), None);
        evidence_ids.push(index.to_string());
        if let Some((permit_id, permit)) = ended {
            let reported = Reported { request: &request, redacted };
            report_permit(&mut recorder, &reported, &permit_id, Some(permit), policy.as_deref());
        }
    }
    Ok(recorder.answer(Answer::Local(LocalRecorded { evidence_ids })))
}

/// A permit that was given under the same request id and whose answer was lost: the act that it was for has happened, or
/// not, so this is its report. The enforcement point never had the identifier to report it by.
fn ended_permit(
    state: &impl Read,
    local: &LocalDecision,
    recorder: &Recorder<'_>,
) -> Result<Option<(PermitId, PermitRecord)>, ReadError> {
    let record = state.request(&local.request_id)?.filter(|record| record.principal == *recorder.principal);
    let Some(permit_id) = record.and_then(|record| record.permit_id) else { return Ok(None) };
    let unreported = |permit: &PermitRecord| matches!(permit.status, PermitStatus::Held | PermitStatus::Expired);
    Ok(state.permit(&permit_id)?.filter(unreported).map(|permit| (permit_id, permit)))
}

fn as_report(protocol: Protocol, local: &LocalDecision) -> (ReportRequest, Vec<String>) {
    let request = ReportRequest {
        protocol,
        subject: ReportSubject::Request(local.request_id.clone()),
        outcome: local.outcome,
        payload_raw: None,
        error: local.error.clone(),
        completed_at: local.completed_at,
        no_effect: false,
    };
    (request, local.redacted.iter().filter(|path| *path == "error").cloned().collect())
}

/// Where a local decision is found again when it is delivered again. Another act under the same request id, or of
/// another principal, is another act. No request of a caller has such an id: theirs are UUIDs.
pub(crate) fn key(local: &LocalDecision, principal: &Principal) -> RequestId {
    let (decided, completed) = (local.decided_at.to_string(), local.completed_at.to_string());
    let outcome = format!("{:?}", local.outcome);
    let parts = [
        Some(principal.as_str()),
        Some(local.action_type.as_str()),
        Some(local.params.as_str()),
        Some(decided.as_str()),
        Some(completed.as_str()),
        Some(outcome.as_str()),
    ];
    RequestId::new(format!("local:{}:{}", local.request_id, digest_parts("placet/local/1", &parts)))
}
