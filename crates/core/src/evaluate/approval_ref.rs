//! What a presented `approval_ref` is worth (AADP §11.4). An unusable reference is worth nothing and tells nothing:
//! only evidence knows which kind of useless it was.

use super::redaction::canonical_under;
use super::{Keys, Recorder};
use crate::event::{ApprovalRefStatus, ApprovalState};
use crate::ids::{EvidenceIndex, Hash};
use crate::op::Reject;
use crate::policy::PolicySet;
use crate::request::DecideRequest;
use crate::state::{ApprovalRecord, Read};

/// A presented approval.
pub(super) struct PresentedApproval {
    pub(super) status: ApprovalRefStatus,
    /// The proposal, when the approval is honoured.
    pub(super) resumes: Option<EvidenceIndex>,
    /// The mandate authority ratified it.
    pub(super) ratified: bool,
    /// As many people granted it as the policy in force asks for, and those that it asks for.
    pub(super) granted: bool,
}

/// Checks in the order of AADP §11.4.
pub(super) fn resolve(
    state: &impl Read,
    recorder: &Recorder<'_>,
    request: &DecideRequest,
    policy: Option<&PolicySet>,
    keys: &Keys,
) -> Result<PresentedApproval, Reject> {
    let unusable = |status| PresentedApproval { status, resumes: None, ratified: false, granted: false };
    let Some(id) = &request.approval_ref else { return Ok(unusable(ApprovalRefStatus::Absent)) };
    let Some(approval) = state.approval(id)? else { return Ok(unusable(ApprovalRefStatus::Unknown)) };
    let status = match approval.state {
        ApprovalState::Consumed | ApprovalState::Denied => ApprovalRefStatus::Consumed,
        ApprovalState::Expired => ApprovalRefStatus::Expired,
        _ if approval.deadline <= recorder.at => ApprovalRefStatus::Expired,
        ApprovalState::Pending => ApprovalRefStatus::Unknown,
        ApprovalState::Approved if !equivalent(&approval, request, policy, keys)? => ApprovalRefStatus::ActionMismatch,
        ApprovalState::Approved if approval.proposer != *recorder.principal => ApprovalRefStatus::PrincipalMismatch,
        ApprovalState::Approved => {
            return Ok(PresentedApproval {
                status: ApprovalRefStatus::Honored,
                resumes: Some(approval.proposal),
                ratified: approval.ratified,
                granted: approval.terms.human && granted(&approval, policy),
            });
        }
    };
    Ok(unusable(status))
}

/// Whether the people who granted it are those whom the policy in force asks: a group that came later, or a larger
/// quorum, has not spoken yet.
fn granted(approval: &ApprovalRecord, policy: Option<&PolicySet>) -> bool {
    let Some(document) = policy.map(PolicySet::document) else { return true };
    let action = document.actions.get(approval.action_type.as_str());
    let Some(name) = action.and_then(|action| action.approval.group.as_ref()) else { return true };
    let Some(group) = document.approvers.get(name) else { return false };
    let votes = approval.votes.iter().filter(|vote| group.members.iter().any(|member| member == vote.as_str()));
    u32::try_from(votes.count()).unwrap_or(u32::MAX) >= group.quorum
}

/// Same action, same arguments whatever their spelling, and the same declared cost where nothing else fixes it.
fn equivalent(
    approval: &ApprovalRecord,
    request: &DecideRequest,
    policy: Option<&PolicySet>,
    keys: &Keys,
) -> Result<bool, Reject> {
    let priced_by_param = policy
        .and_then(|policy| policy.document().actions.get(request.action_type.as_str()))
        .is_some_and(|action| action.cost.is_some());
    let canonical = canonical_under(request, &approval.redacted, keys)?;
    Ok(approval.action_type == request.action_type
        && approval.params_digest == Hash::of(canonical.as_bytes())
        && (priced_by_param || approval.cost_eur == request.cost_eur))
}
