//! Expiry by event (AADP §9.4, §11.2): the leader proposes it, the log decides it.

use super::Recorder;
use crate::event::{ApprovalState, ApprovalTransition, Body, Event, ReservationEnded};
use crate::ids::{ApprovalId, PermitId, Principal};
use crate::reply::Protocol;
use crate::stamp::Stamp;
use crate::state::{ApprovalRecord, PermitRecord, PermitStatus, Read, ReadError};

/// Something with a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// A permit without a report.
    Permit(PermitId),
    /// An approval that is pending or granted.
    Approval(ApprovalId),
}

/// The event that ends `due`, if its deadline is reached at `at` and nothing ended it before.
pub fn expire(state: &impl Read, due: &Due, at: Stamp) -> Result<Option<Event>, ReadError> {
    let system = Principal::system();
    let found = match due {
        Due::Permit(id) => state
            .permit(id)?
            .filter(|permit| permit.status == PermitStatus::Held && permit.deadline <= at)
            .map(|permit| (expiry(id, &permit), Some(id.clone()))),
        Due::Approval(id) => state
            .approval(id)?
            .filter(|approval| is_open(approval.state) && approval.deadline <= at)
            .map(|approval| (transition(&approval, ApprovalState::Expired, None), None)),
    };
    let Some((body, permit_id)) = found else { return Ok(None) };
    let mut recorder = Recorder::new(&state.meta()?, &system, at);
    recorder.record(Protocol::LATEST, body, permit_id);
    Ok(recorder.events.pop())
}

/// What `event` adds to the things with a deadline, and what it removes.
pub fn due_changes(event: &Event) -> (Option<(Stamp, Due)>, Option<Due>) {
    let permit = event.permit_id.clone().map(Due::Permit);
    match &event.entry.body {
        Body::ExecIntent(decided) => {
            let consumed = decided.resumes.and(decided.approval_ref.clone()).map(Due::Approval);
            (decided.deadline.zip(permit), consumed)
        }
        Body::Decision(decided) => {
            let opened = decided.approval_deadline.zip(decided.approval_id.clone().map(Due::Approval));
            (opened, decided.resumes.and(decided.approval_ref.clone()).map(Due::Approval))
        }
        Body::ExecResult(_) | Body::ReservationExpired(_) => (None, permit),
        Body::ApprovalTransition(change) if !is_open(change.to) => {
            (None, Some(Due::Approval(change.approval_id.clone())))
        }
        _ => (None, None),
    }
}

/// Whether an approval can still be granted, denied, used or expire.
pub(crate) fn is_open(state: ApprovalState) -> bool {
    matches!(state, ApprovalState::Pending | ApprovalState::Approved)
}

pub(super) fn expiry(permit_id: &PermitId, permit: &PermitRecord) -> Body {
    Body::ReservationExpired(ReservationEnded {
        action_type: permit.action_type.clone(),
        detail: format!("no report before {}; the whole reservation went back", permit.deadline),
        intent: permit.index,
        permit_digest: permit_id.digest(),
        reason: "expired".to_owned(),
        released: permit.draws.clone(),
        request_id: permit.request_id.clone(),
    })
}

pub(super) fn transition(approval: &ApprovalRecord, to: ApprovalState, note: Option<String>) -> Body {
    Body::ApprovalTransition(ApprovalTransition {
        approval_id: approval.approval_id.clone(),
        from: approval.state,
        note,
        proposal: approval.proposal,
        to,
    })
}
