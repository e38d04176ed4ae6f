//! Report: the end of an intent (AADP §9.4, §10.3 to §10.5).
//!
//! INVARIANT (one fate): an intent has at most one of result and expiry; every later report is refused, and recorded.

use super::decide::active_policy;
use super::expire::expiry;
use super::{Keys, Outcome, Recorder, malformed, redaction};
use crate::event::{Body, BudgetKind, Draw, ExecResult, ReportNoted, ReportRefused, ReservationEnded};
use crate::ids::{EvidenceIndex, PermitId, RequestId};
use crate::op::{Answer, Reject};
use crate::policy::PolicySet;
use crate::reply::{Protocol, Reason, ReportReply};
use crate::request::{Outcome as Reports, ReportRequest, ReportSubject};
use crate::state::{Meta, PermitRecord, PermitStatus, Read};

pub(super) fn report(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    body: &[u8],
    keys: &Keys,
) -> Result<Outcome, Reject> {
    let mut request = match ReportRequest::parse(body) {
        Ok(request) => request,
        Err(found) => return malformed(state, meta, recorder, "report", *found, keys),
    };
    let policy = active_policy(state, meta)?;
    match request.subject.clone() {
        ReportSubject::Permit(permit_id) => {
            let permit = state.permit(&permit_id)?;
            let action_type = permit.as_ref().map(|permit| permit.action_type.as_str());
            let redacted = redaction::report(&mut request, action_type, policy.as_deref(), keys)?;
            let report = Reported { request: &request, redacted };
            let reply = report_permit(&mut recorder, &report, &permit_id, permit, policy.as_deref());
            Ok(recorder.answer(Answer::Report(reply)))
        }
        ReportSubject::Request(request_id) => {
            let redacted = redaction::report(&mut request, None, policy.as_deref(), keys)?;
            report_request(state, recorder, &Reported { request: &request, redacted }, &request_id)
        }
    }
}

/// A report in the form that may be recorded.
pub(super) struct Reported<'a> {
    pub(super) request: &'a ReportRequest,
    pub(super) redacted: Vec<String>,
}

/// Ends a permit, or records why the report does not.
pub(super) fn report_permit(
    recorder: &mut Recorder<'_>,
    report: &Reported<'_>,
    permit_id: &PermitId,
    permit: Option<PermitRecord>,
    policy: Option<&PolicySet>,
) -> ReportReply {
    let request = report.request;
    let owner = permit.as_ref().filter(|permit| permit.principal == *recorder.principal);
    let Some(owned) = owner else {
        // An invented identifier and a foreign one look the same from outside; evidence tells them apart.
        let reason = Reason::SenderMismatch;
        let intent = permit.map(|permit| permit.index);
        return refuse(recorder, report, permit_id, intent, reason, "no permit of this principal has this id");
    };
    let intent = Some(owned.index);
    match owned.status {
        PermitStatus::Held if owned.deadline <= recorder.at => {
            recorder.record(request.protocol, expiry(permit_id, owned, policy), Some(permit_id.clone()));
            refuse(recorder, report, permit_id, intent, Reason::Expired, "the permit expired before this report")
        }
        PermitStatus::Held => accept(recorder, report, permit_id, owned),
        PermitStatus::Expired => {
            refuse(recorder, report, permit_id, intent, Reason::Expired, "the permit expired before this report")
        }
        PermitStatus::Settled | PermitStatus::Released => {
            refuse(recorder, report, permit_id, intent, Reason::AlreadyReported, "this permit has a result already")
        }
    }
}

fn accept(
    recorder: &mut Recorder<'_>,
    report: &Reported<'_>,
    permit_id: &PermitId,
    permit: &PermitRecord,
) -> ReportReply {
    let request = report.request;
    let release = match request.outcome {
        Reports::NotAttempted => Some("not_attempted"),
        Reports::Failure if request.no_effect => Some("no_effect"),
        _ => None,
    };
    let released: Vec<Draw> = permit.draws.iter().filter(|draw| draw.kind == BudgetKind::Value).cloned().collect();
    if let (Some(reason), false) = (release, released.is_empty()) {
        let ended = ReservationEnded {
            action_type: permit.action_type.clone(),
            detail: "the value part went back; the call stays counted".to_owned(),
            intent: permit.index,
            owner: Some(permit.principal.clone()),
            permit_digest: permit_id.digest(),
            reason: reason.to_owned(),
            released,
            request_id: permit.request_id.clone(),
        };
        recorder.record(request.protocol, Body::ReservationReleased(ended), Some(permit_id.clone()));
    }
    let no_effect_counts = request.outcome == Reports::Failure;
    let result = ExecResult {
        action_type: permit.action_type.clone(),
        completed_at: request.completed_at,
        error: request.error.clone(),
        intent: permit.index,
        no_effect: request.no_effect && no_effect_counts,
        no_effect_ignored: request.no_effect && !no_effect_counts,
        outcome: request.outcome,
        payload: request.payload_raw.clone(),
        permit_digest: permit_id.digest(),
        redacted: report.redacted.clone(),
        request_id: permit.request_id.clone(),
        success: match request.outcome {
            Reports::Success => Some(true),
            Reports::Failure => Some(false),
            Reports::Timeout | Reports::NotAttempted => None,
        },
    };
    let evidence_id = recorder.record(request.protocol, Body::ExecResult(result), Some(permit_id.clone()));
    taken(request.protocol, evidence_id)
}

fn refuse(
    recorder: &mut Recorder<'_>,
    report: &Reported<'_>,
    permit_id: &PermitId,
    intent: Option<EvidenceIndex>,
    reason: Reason,
    detail: &str,
) -> ReportReply {
    let request = report.request;
    let refused = ReportRefused {
        completed_at: request.completed_at,
        detail: detail.to_owned(),
        error: request.error.clone(),
        intent,
        outcome: request.outcome,
        payload: request.payload_raw.clone(),
        permit_digest: permit_id.digest(),
        reason,
        // The budget went back, and the act may have happened.
        reconcile: reason == Reason::Expired && request.outcome != Reports::NotAttempted,
        redacted: report.redacted.clone(),
    };
    let evidence_id = recorder.record(request.protocol, Body::ReportRefused(refused), None);
    // 0.1 has no word for a foreign report (AADP §5.2).
    let told = (reason != Reason::SenderMismatch || request.protocol >= Protocol::V02).then_some(reason);
    ReportReply { protocol: request.protocol, accepted: false, evidence_id, reason: told, detail: detail.to_owned() }
}

/// A report about a decision without a permit: kept as information, settles nothing (AADP §10.5).
fn report_request(
    state: &impl Read,
    mut recorder: Recorder<'_>,
    report: &Reported<'_>,
    request_id: &RequestId,
) -> Result<Outcome, Reject> {
    let request = report.request;
    let record = state.request(request_id)?.filter(|record| record.principal == *recorder.principal);
    if let Some((permit_id, index)) = record.as_ref().and_then(|record| Some((record.permit_id.clone()?, record.index)))
    {
        let detail = "this request has a permit; report it by `permit_id`";
        let reply = refuse(&mut recorder, report, &permit_id, Some(index), Reason::Malformed, detail);
        return Ok(recorder.answer(Answer::Report(reply)));
    }
    let noted = ReportNoted {
        completed_at: request.completed_at,
        decision: record.map(|record| record.index),
        error: request.error.clone(),
        outcome: request.outcome,
        payload: request.payload_raw.clone(),
        redacted: report.redacted.clone(),
        request_id: request_id.clone(),
    };
    let evidence_id = recorder.record(request.protocol, Body::ReportNoted(noted), None);
    Ok(recorder.answer(Answer::Report(taken(request.protocol, evidence_id))))
}

fn taken(protocol: Protocol, evidence_id: EvidenceIndex) -> ReportReply {
    ReportReply { protocol, accepted: true, evidence_id, reason: None, detail: String::new() }
}
