//! Report: the end of an intent (AADP §9.4, §10.3 to §10.5).
//!
//! INVARIANT (one fate): an intent has at most one of result and expiry; every later report is refused, and recorded.

use super::expire::expiry;
use super::{Outcome, Recorder, malformed};
use crate::event::{Body, BudgetKind, Draw, ExecResult, ReportNoted, ReportRefused, ReservationEnded};
use crate::ids::{EvidenceIndex, PermitId, RequestId};
use crate::op::{Answer, Reject};
use crate::reply::{Protocol, Reason, ReportReply};
use crate::request::{Outcome as Reported, ReportRequest, ReportSubject};
use crate::state::{PermitRecord, PermitStatus, Read};

pub(super) fn report(state: &impl Read, recorder: Recorder<'_>, body: &[u8]) -> Result<Outcome, Reject> {
    let request = match ReportRequest::parse(body) {
        Ok(request) => request,
        Err(found) => return Ok(malformed(recorder, "report", *found)),
    };
    match &request.subject {
        ReportSubject::Permit(permit_id) => {
            let permit = state.permit(permit_id)?;
            Ok(report_permit(recorder, &request, permit_id, permit))
        }
        ReportSubject::Request(request_id) => report_request(state, recorder, &request, request_id),
    }
}

fn report_permit(
    mut recorder: Recorder<'_>,
    request: &ReportRequest,
    permit_id: &PermitId,
    permit: Option<PermitRecord>,
) -> Outcome {
    let owner = permit.as_ref().filter(|permit| permit.principal == *recorder.principal);
    let Some(owned) = owner else {
        // An invented identifier and a foreign one look the same from outside; evidence tells them apart.
        let reason = Reason::SenderMismatch;
        let intent = permit.map(|permit| permit.index);
        return refuse(recorder, request, permit_id, intent, reason, "no permit of this principal has this id");
    };
    let intent = Some(owned.index);
    match owned.status {
        PermitStatus::Held if owned.deadline <= recorder.at => {
            recorder.record(request.protocol, expiry(permit_id, owned), Some(permit_id.clone()));
            refuse(recorder, request, permit_id, intent, Reason::Expired, "the permit expired before this report")
        }
        PermitStatus::Held => accept(recorder, request, permit_id, owned),
        PermitStatus::Expired => {
            refuse(recorder, request, permit_id, intent, Reason::Expired, "the permit expired before this report")
        }
        PermitStatus::Settled | PermitStatus::Released => {
            refuse(recorder, request, permit_id, intent, Reason::AlreadyReported, "this permit has a result already")
        }
    }
}

fn accept(mut recorder: Recorder<'_>, request: &ReportRequest, permit_id: &PermitId, permit: &PermitRecord) -> Outcome {
    let release = match request.outcome {
        Reported::NotAttempted => Some("not_attempted"),
        Reported::Failure if request.no_effect => Some("no_effect"),
        _ => None,
    };
    let released: Vec<Draw> = permit.draws.iter().filter(|draw| draw.kind == BudgetKind::Value).cloned().collect();
    if let (Some(reason), false) = (release, released.is_empty()) {
        let ended = ReservationEnded {
            action_type: permit.action_type.clone(),
            detail: "the value part went back; the call stays counted".to_owned(),
            intent: permit.index,
            permit_digest: permit_id.digest(),
            reason: reason.to_owned(),
            released,
            request_id: permit.request_id.clone(),
        };
        recorder.record(request.protocol, Body::ReservationReleased(ended), Some(permit_id.clone()));
    }
    let no_effect_counts = request.outcome == Reported::Failure;
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
        request_id: permit.request_id.clone(),
        success: match request.outcome {
            Reported::Success => Some(true),
            Reported::Failure => Some(false),
            Reported::Timeout | Reported::NotAttempted => None,
        },
    };
    let evidence_id = recorder.record(request.protocol, Body::ExecResult(result), Some(permit_id.clone()));
    recorder.answer(Answer::Report(taken(request.protocol, evidence_id)))
}

fn refuse(
    mut recorder: Recorder<'_>,
    request: &ReportRequest,
    permit_id: &PermitId,
    intent: Option<EvidenceIndex>,
    reason: Reason,
    detail: &str,
) -> Outcome {
    let refused = ReportRefused {
        completed_at: request.completed_at,
        detail: detail.to_owned(),
        error: request.error.clone(),
        intent,
        outcome: request.outcome,
        payload: request.payload_raw.clone(),
        permit_digest: permit_id.digest(),
        reason,
    };
    let evidence_id = recorder.record(request.protocol, Body::ReportRefused(refused), None);
    // 0.1 has no word for a foreign report (AADP §5.2).
    let told = (reason != Reason::SenderMismatch || request.protocol >= Protocol::V02).then_some(reason);
    recorder.answer(Answer::Report(ReportReply {
        protocol: request.protocol,
        accepted: false,
        evidence_id,
        reason: told,
        detail: detail.to_owned(),
    }))
}

/// A report about a decision without a permit: kept as information, settles nothing (AADP §10.5).
fn report_request(
    state: &impl Read,
    mut recorder: Recorder<'_>,
    request: &ReportRequest,
    request_id: &RequestId,
) -> Result<Outcome, Reject> {
    let record = state.request(request_id)?.filter(|record| record.principal == *recorder.principal);
    if let Some((permit_id, index)) = record.as_ref().and_then(|record| Some((record.permit_id.clone()?, record.index)))
    {
        let detail = "this request has a permit; report it by `permit_id`";
        return Ok(refuse(recorder, request, &permit_id, Some(index), Reason::Malformed, detail));
    }
    let noted = ReportNoted {
        completed_at: request.completed_at,
        decision: record.map(|record| record.index),
        error: request.error.clone(),
        outcome: request.outcome,
        payload: request.payload_raw.clone(),
        request_id: request_id.clone(),
    };
    let evidence_id = recorder.record(request.protocol, Body::ReportNoted(noted), None);
    Ok(recorder.answer(Answer::Report(taken(request.protocol, evidence_id))))
}

fn taken(protocol: Protocol, evidence_id: EvidenceIndex) -> ReportReply {
    ReportReply { protocol, accepted: true, evidence_id, reason: None, detail: String::new() }
}
