//! Expiry by event (AADP §9.4, §11.2): the leader proposes it, the log decides it.

use super::Recorder;
use super::decide::active_policy;
use crate::event::{ApprovalState, ApprovalTransition, Body, BudgetKind, Draw, Event, ReservationEnded};
use crate::ids::{ApprovalId, PermitId, Principal};
use crate::planted::{self, Bug};
use crate::policy::PolicySet;
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
    let meta = state.meta()?;
    // Expiry frees amounts, so it goes on where the policy cannot be read; calls then stay counted, the strict side.
    let policy = active_policy(state, &meta).unwrap_or_default();
    let found = match due {
        Due::Permit(id) => state
            .permit(id)?
            .filter(|permit| is_held(permit) && permit.deadline <= at)
            .map(|permit| (expiry(id, &permit, policy.as_deref()), Some(id.clone()))),
        Due::Approval(id) => state
            .approval(id)?
            .filter(|approval| is_open(approval.state) && approval.deadline <= at)
            .map(|approval| (Body::ApprovalTransition(transition(&approval, ApprovalState::Expired, None)), None)),
    };
    let Some((body, permit_id)) = found else { return Ok(None) };
    let mut recorder = Recorder::new(&meta, &system, at);
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
        Body::ExecResult(_) if planted::on(Bug::DoubleExpiry) => (None, None),
        Body::ExecResult(_) | Body::ReservationExpired(_) => (None, permit),
        Body::ApprovalTransition(change) if !is_open(change.to) => {
            (None, Some(Due::Approval(change.approval_id.clone())))
        }
        _ => (None, None),
    }
}

fn is_held(permit: &PermitRecord) -> bool {
    let ended_twice = planted::on(Bug::DoubleExpiry) && permit.status != PermitStatus::Expired;
    permit.status == PermitStatus::Held || ended_twice
}

/// Whether an approval can still be granted, denied, used or expire.
pub(crate) fn is_open(state: ApprovalState) -> bool {
    matches!(state, ApprovalState::Pending | ApprovalState::Approved)
}

pub(super) fn expiry(permit_id: &PermitId, permit: &PermitRecord, policy: Option<&PolicySet>) -> Body {
    let keeps_rate = policy.is_none_or(|policy| policy.document().expiry_keeps_rate);
    let goes_back = |draw: &&Draw| !keeps_rate || draw.kind == BudgetKind::Value;
    let what =
        if keeps_rate { "the value part went back, the call stays counted" } else { "the whole reservation went back" };
    Body::ReservationExpired(ReservationEnded {
        action_type: permit.action_type.clone(),
        detail: format!("no report before {}; {what}", permit.deadline),
        intent: permit.index,
        owner: Some(permit.principal.clone()),
        permit_digest: permit_id.digest(),
        reason: "expired".to_owned(),
        released: permit.draws.iter().filter(goes_back).cloned().collect(),
        request_id: permit.request_id.clone(),
    })
}

pub(super) fn transition(approval: &ApprovalRecord, to: ApprovalState, note: Option<String>) -> ApprovalTransition {
    ApprovalTransition {
        approval_id: approval.approval_id.clone(),
        from: approval.state,
        note,
        proposal: approval.proposal,
        ratified: approval.ratified,
        signature: None,
        to,
        votes: approval.votes.clone(),
    }
}
