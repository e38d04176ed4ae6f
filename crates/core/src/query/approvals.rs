//! Approvals as approvers see them (AADP §11): the exact act, its cost, what its budgets have left, who asks and why.

use super::bounded;
use crate::evaluate::preview;
use crate::event::Body;
use crate::evidence;
use crate::ids::ApprovalId;
use crate::op::{Answer, ApprovalView, Reject};
use crate::policy::PolicySet;
use crate::request::DecideRequest;
use crate::stamp::Stamp;
use crate::state::{ApprovalRecord, List, Read, ReadError};

pub(super) fn list(
    state: &impl List,
    all: bool,
    after: Option<&ApprovalId>,
    limit: usize,
    now: Stamp,
) -> Result<Answer, Reject> {
    let policy = active(state)?;
    let size = |view: &ApprovalView| (Some(view.approval_id.clone()), view.params.len() + view.rationale.len());
    let views = bounded(after.cloned(), limit, size, |after, few| {
        let after = after.as_ref();
        let found = if all { state.approvals(after, few)? } else { state.open_approvals(after, few)? };
        found.into_iter().map(|approval| view(state, policy.as_deref(), approval, now)).collect()
    })?;
    Ok(Answer::Approvals(views))
}

pub(super) fn one(state: &impl List, id: &ApprovalId, now: Stamp) -> Result<Answer, Reject> {
    let Some(approval) = state.approval(id)? else {
        return Err(Reject::NotFound { detail: format!("no approval `{id}`") });
    };
    Ok(Answer::Approval(view(state, active(state)?.as_deref(), approval, now)?))
}

fn active(state: &impl Read) -> Result<Option<std::sync::Arc<PolicySet>>, ReadError> {
    match state.meta()?.active_policy {
        Some(digest) => state.policy(&digest),
        None => Ok(None),
    }
}

/// One approval with what its budgets have left now.
pub(crate) fn view(
    state: &impl Read,
    policy: Option<&PolicySet>,
    approval: ApprovalRecord,
    now: Stamp,
) -> Result<ApprovalView, ReadError> {
    let group = approval.terms.group.as_ref().and_then(|name| policy?.document().approvers.get(name));
    let quorum = group.map_or(1, |group| group.quorum);
    // The entry holds what the record does not need: a session, a parent.
    let decided = state.entry(approval.proposal)?.and_then(|bytes| evidence::decode(&bytes).ok());
    let request = decided.and_then(|entry| match &entry.body {
        Body::Decision(decided) => DecideRequest::of_record(entry.protocol, decided),
        _ => None,
    });
    let (cost, budgets) = match (policy, &request) {
        (Some(policy), Some(request)) => preview(state, policy, request, approval.proposer.as_str(), now)?,
        _ => (None, Vec::new()),
    };
    Ok(ApprovalView { cost, budgets, quorum, ..ApprovalView::from(approval) })
}

impl From<ApprovalRecord> for ApprovalView {
    fn from(approval: ApprovalRecord) -> Self {
        Self {
            approval_id: approval.approval_id,
            state: approval.state,
            action_type: approval.action_type,
            params: approval.params,
            rationale: approval.rationale,
            reason: approval.reason,
            nominal_tier: approval.nominal_tier,
            proposer: approval.proposer,
            request_id: approval.request_id,
            proposal: approval.proposal,
            created: approval.created,
            deadline: approval.deadline,
            decided_by: approval.decided_by,
            decided_at: approval.decided_at,
            note: approval.note,
            consumed_by: approval.consumed_by,
            cost: None,
            budgets: Vec::new(),
            group: approval.terms.group,
            quorum: 1,
            votes: approval.votes,
            needs_authority: approval.terms.authority,
            ratified: approval.ratified,
            resumed_request: approval.resumed_request,
            redacted: approval.redacted,
        }
    }
}
