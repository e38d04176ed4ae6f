//! Approvals (AADP §11): grant, deny, withdraw, ratify, and resumption in the proposer's name.
//! INVARIANT (two people): who proposes never grants, and nobody counts twice.

use serde::Serialize;

use super::decide::{active_policy, decide_request};
use super::expire::{is_open, transition};
use super::{Keys, Outcome, Recorder, label};
use crate::event::{ApprovalRefused, ApprovalState, ApprovalTransition, Body};
use crate::evidence;
use crate::fold::fold;
use crate::head::verify_signature;
use crate::ids::{ActionType, ApprovalId, Entropy, Hash, RequestId};
use crate::op::{Answer, Reject};
use crate::policy::PolicySet;
use crate::query::approval_view;
use crate::reply::Protocol;
use crate::request::DecideRequest;
use crate::state::{ApprovalRecord, Meta, Overlay, Read};

/// Precedes every statement of the mandate authority, so that its signatures mean nothing elsewhere.
const MANDATE_TAG: &[u8] = b"placet/mandate/1\0";

/// An attempt that fails: told to the caller, and on record where a person overstepped.
struct Refused {
    reject: Reject,
    recorded: bool,
}

impl Refused {
    fn conflict(detail: impl Into<String>) -> Self {
        Self { reject: Reject::Conflict { detail: detail.into() }, recorded: false }
    }

    fn forbidden(detail: impl Into<String>) -> Self {
        Self { reject: Reject::Forbidden { detail: detail.into() }, recorded: true }
    }
}

/// Grants or denies.
pub(super) fn resolve(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    id: &ApprovalId,
    grant: bool,
    note: Option<&str>,
) -> Result<Outcome, Reject> {
    label("note", note.unwrap_or_default())?;
    let policy = active_policy(state, meta)?;
    let mut approval = find(state, id)?;
    let before = approval.state;
    let stepped = if grant {
        granted(&mut approval, policy.as_deref(), &recorder)
    } else {
        denied(&mut approval, policy.as_deref(), &recorder)
    };
    if let Err(refused) = stepped {
        return refuse(recorder, &approval, if grant { "grant" } else { "deny" }, refused);
    }
    record(&mut recorder, &mut approval, before, note, None);
    answer(state, policy.as_deref(), recorder, approval)
}

/// Grants, and decides the proposal again in the proposer's name when nothing else is missing (AADP §11.3).
pub(super) fn resume(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    id: &ApprovalId,
    note: Option<&str>,
    entropy: Entropy,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    label("note", note.unwrap_or_default())?;
    let policy = active_policy(state, meta)?;
    let mut approval = find(state, id)?;
    let before = approval.state;
    if !approval.redacted.is_empty() {
        let detail = "the proposal is recorded with redactions; its proposer resumes it with `approval_ref`";
        return Err(Reject::Conflict { detail: detail.to_owned() });
    }
    let late = approval.deadline <= recorder.at;
    let stepped = if before == ApprovalState::Approved && !late {
        may_decide(&approval, policy.as_deref(), &recorder)
    } else {
        granted(&mut approval, policy.as_deref(), &recorder)
    };
    if let Err(refused) = stepped {
        return refuse(recorder, &approval, "grant", refused);
    }
    let mut overlay = Overlay::new(state);
    if before == ApprovalState::Pending {
        record(&mut recorder, &mut approval, before, note, None);
        if approval.state != ApprovalState::Approved {
            return answer(state, policy.as_deref(), recorder, approval);
        }
        for event in &recorder.events {
            fold(&mut overlay, event)?;
        }
    }
    let request = proposed(state, &approval, RequestId::from_random(entropy.request))?;
    let (approver, at, mut events) = (recorder.principal.clone(), recorder.at, recorder.events);
    let meta = overlay.meta()?;
    let proposer = Recorder::new(&meta, &approval.proposer, at);
    let resumed = decide_request(&overlay, &meta, proposer, request, entropy, keys, Some(approver))?;
    events.extend(resumed.events);
    Ok(Outcome { answer: resumed.answer, events })
}

/// The mandate authority's answer to one approval (AADP §11.5). Its signature is what counts, not who carries it.
pub(super) fn ratify(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    id: &ApprovalId,
    approved: bool,
    signature: &str,
) -> Result<Outcome, Reject> {
    let policy = active_policy(state, meta)?;
    let mut approval = find(state, id)?;
    let before = approval.state;
    if let Err(refused) = pending(&approval, &recorder) {
        return refuse(recorder, &approval, "ratify", refused);
    }
    if !approval.terms.authority || approval.ratified {
        let what = if approval.ratified { "is ratified already" } else { "needs no ratification" };
        return Err(Reject::Conflict { detail: format!("approval `{id}` {what}") });
    }
    let statement = ratification_statement(meta.cluster, &approval, approved);
    if !signed_by_authority(policy.as_deref(), &statement, signature) {
        let detail = "the signature is not the mandate authority's over this approval";
        return refuse(recorder, &approval, "ratify", Refused::forbidden(detail));
    }
    approval.ratified = approved;
    approval.state = match (approved, approval.terms.human) {
        (false, _) => ApprovalState::Denied,
        (true, true) => ApprovalState::Pending,
        (true, false) => ApprovalState::Approved,
    };
    record(&mut recorder, &mut approval, before, None, Some(signature));
    answer(state, policy.as_deref(), recorder, approval)
}

fn answer(
    state: &impl Read,
    policy: Option<&PolicySet>,
    recorder: Recorder<'_>,
    approval: ApprovalRecord,
) -> Result<Outcome, Reject> {
    let view = approval_view(state, policy, approval, recorder.at)?;
    Ok(recorder.answer(Answer::Approval(view)))
}

/// What the mandate authority signs to ratify an approval, or to refuse it: a tag and canonical JSON.
pub fn ratification_statement(cluster: Option<Hash>, approval: &ApprovalRecord, approved: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Statement<'a> {
        action_type: &'a ActionType,
        approval_id: &'a ApprovalId,
        approved: bool,
        /// Of a restored cluster only: an approval that is in the backup waits in two clusters, and one yes is for one.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<Hash>,
        params_digest: Hash,
        request_id: &'a RequestId,
    }
    statement(&Statement {
        action_type: &approval.action_type,
        approval_id: &approval.approval_id,
        approved,
        cluster,
        params_digest: approval.params_digest,
        request_id: &approval.request_id,
    })
}

/// What the mandate authority signs to speak about a whole action type.
pub fn mandate_statement(cluster: Hash, action_type: &ActionType, denied: bool, serial: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Statement<'a> {
        action_type: &'a ActionType,
        /// What names the cluster.
        cluster: Hash,
        denied: bool,
        serial: u64,
    }
    statement(&Statement { action_type, cluster, denied, serial })
}

fn statement(of: &impl Serialize) -> Vec<u8> {
    let mut bytes = MANDATE_TAG.to_vec();
    // Text, flags and numbers; serialising them to memory has no way to fail.
    bytes.extend(serde_json::to_vec(of).unwrap_or_default());
    bytes
}

pub(super) fn signed_by_authority(policy: Option<&PolicySet>, statement: &[u8], signature: &str) -> bool {
    let authority = policy.and_then(|policy| policy.document().mandate_authority.as_deref());
    authority.is_some_and(|key| verify_signature(key, statement, signature))
}

fn find(state: &impl Read, id: &ApprovalId) -> Result<ApprovalRecord, Reject> {
    state.approval(id)?.ok_or_else(|| Reject::NotFound { detail: format!("no approval `{id}`") })
}

fn pending(approval: &ApprovalRecord, recorder: &Recorder<'_>) -> Result<(), Refused> {
    let late = is_open(approval.state) && approval.deadline <= recorder.at;
    if approval.state == ApprovalState::Pending && !late {
        return Ok(());
    }
    Err(Refused::conflict(closed(approval, late)))
}

fn closed(approval: &ApprovalRecord, late: bool) -> String {
    let state = if late { ApprovalState::Expired } else { approval.state };
    format!("approval `{}` is {}", approval.approval_id, format!("{state:?}").to_lowercase())
}

/// Whether this principal is one of those who decide.
fn may_decide(approval: &ApprovalRecord, policy: Option<&PolicySet>, recorder: &Recorder<'_>) -> Result<(), Refused> {
    if approval.proposer == *recorder.principal {
        return Err(Refused::forbidden("the proposer cannot grant its own approval"));
    }
    member(approval, policy, recorder)
}

fn member(approval: &ApprovalRecord, policy: Option<&PolicySet>, recorder: &Recorder<'_>) -> Result<(), Refused> {
    let Some(name) = &approval.terms.group else { return Ok(()) };
    let Some(group) = policy.and_then(|policy| policy.document().approvers.get(name)) else {
        return Err(Refused::conflict(format!("the policy in force has no group `{name}`")));
    };
    if group.members.iter().any(|member| member == recorder.principal.as_str()) {
        return Ok(());
    }
    Err(Refused::forbidden(format!("only members of group `{name}` decide this")))
}

fn granted(approval: &mut ApprovalRecord, policy: Option<&PolicySet>, recorder: &Recorder<'_>) -> Result<(), Refused> {
    pending(approval, recorder)?;
    may_decide(approval, policy, recorder)?;
    if !approval.terms.human {
        return Err(Refused::forbidden("only the mandate authority can ratify this"));
    }
    if approval.terms.authority && !approval.ratified {
        return Err(Refused::forbidden("the mandate authority must ratify this before an approver grants it"));
    }
    let group = approval.terms.group.as_ref().and_then(|name| policy?.document().approvers.get(name));
    if let Some(group) = group {
        if approval.votes.contains(recorder.principal) {
            return Err(Refused::conflict("this principal has granted already"));
        }
        approval.votes.push(recorder.principal.clone());
        // Who left the group has no vote any more.
        let counted = approval.votes.iter().filter(|vote| group.members.iter().any(|one| one == vote.as_str()));
        if u32::try_from(counted.count()).unwrap_or(u32::MAX) < group.quorum {
            return Ok(());
        }
    }
    approval.state = ApprovalState::Approved;
    Ok(())
}

/// Denies, or withdraws what was granted and is not used yet.
fn denied(approval: &mut ApprovalRecord, policy: Option<&PolicySet>, recorder: &Recorder<'_>) -> Result<(), Refused> {
    let late = is_open(approval.state) && approval.deadline <= recorder.at;
    if late || !is_open(approval.state) {
        return Err(Refused::conflict(closed(approval, late)));
    }
    // Saying no is safe in any hands that may decide; a group that is gone holds nothing back.
    if approval.proposer != *recorder.principal
        && let Err(refused) = member(approval, policy, recorder)
        && refused.recorded
    {
        return Err(refused);
    }
    approval.state = ApprovalState::Denied;
    Ok(())
}

fn record(
    recorder: &mut Recorder<'_>,
    approval: &mut ApprovalRecord,
    before: ApprovalState,
    note: Option<&str>,
    signature: Option<&str>,
) {
    let to = approval.state;
    let note = note.map(str::to_owned);
    let from = ApprovalRecord { state: before, ..approval.clone() };
    let signature = signature.map(str::to_owned);
    let change = ApprovalTransition { signature, ..transition(&from, to, note.clone()) };
    recorder.record(Protocol::LATEST, Body::ApprovalTransition(change), None);
    if to != ApprovalState::Pending {
        approval.decided_by = Some(recorder.principal.clone());
        approval.decided_at = Some(recorder.at);
        approval.note = note;
    }
}

fn refuse(
    mut recorder: Recorder<'_>,
    approval: &ApprovalRecord,
    attempt: &str,
    refused: Refused,
) -> Result<Outcome, Reject> {
    if !refused.recorded {
        return Err(refused.reject);
    }
    let body = ApprovalRefused {
        approval_id: approval.approval_id.clone(),
        attempt: attempt.to_owned(),
        detail: refused.reject.detail(),
        proposal: approval.proposal,
    };
    recorder.record(Protocol::LATEST, Body::ApprovalRefused(body), None);
    Ok(recorder.answer(Answer::Refused(refused.reject)))
}

/// The recorded request of a proposal, under a fresh id and with the approval presented.
fn proposed(state: &impl Read, approval: &ApprovalRecord, request_id: RequestId) -> Result<DecideRequest, Reject> {
    let lost = || Reject::Internal { detail: format!("proposal `{}` cannot be read", approval.proposal) };
    let bytes = state.entry(approval.proposal)?.ok_or_else(lost)?;
    let entry = evidence::decode(&bytes).map_err(|_| lost())?;
    let Body::Decision(decided) = &entry.body else { return Err(lost()) };
    let request = DecideRequest::of_record(entry.protocol, decided).ok_or_else(lost)?;
    Ok(DecideRequest { request_id, approval_ref: Some(approval.approval_id.clone()), ..request })
}
