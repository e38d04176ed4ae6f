//! What operators and approvers change: approvals (AADP §11.2), the kill switch (§7), the policy (§8).

use super::expire::{is_open, transition};
use super::{Outcome, Recorder};
use crate::event::{ApprovalState, Body, KillSwitchSet, LiftReport, PolicyChange};
use crate::ids::ApprovalId;
use crate::limits::LABEL_BYTES_MAX;
use crate::op::{Answer, ApprovalView, KillSwitchView, PolicyPublished, Reject};
use crate::policy::{self, PolicySet};
use crate::reply::Protocol;
use crate::state::{Meta, Read};

pub(super) fn resolve_approval(
    state: &impl Read,
    mut recorder: Recorder<'_>,
    id: &ApprovalId,
    grant: bool,
    note: Option<&str>,
) -> Result<Outcome, Reject> {
    label("note", note.unwrap_or_default())?;
    let Some(mut approval) = state.approval(id)? else {
        return Err(Reject::NotFound { detail: format!("no approval `{id}`") });
    };
    let word = |state: ApprovalState| format!("{state:?}").to_lowercase();
    let late = is_open(approval.state) && approval.deadline <= recorder.at;
    let allowed = match (approval.state, grant) {
        (ApprovalState::Pending, _) => true,
        // Withdrawing what was granted and is not used yet.
        (ApprovalState::Approved, false) => true,
        _ => false,
    };
    if late || !allowed {
        let state = if late { ApprovalState::Expired } else { approval.state };
        return Err(Reject::Conflict { detail: format!("approval `{id}` is {}", word(state)) });
    }
    // INVARIANT (two people): who proposes never grants.
    if grant && approval.proposer == *recorder.principal {
        return Err(Reject::Forbidden { detail: "the proposer cannot grant its own approval".to_owned() });
    }
    let to = if grant { ApprovalState::Approved } else { ApprovalState::Denied };
    let note = note.map(str::to_owned);
    recorder.record(Protocol::LATEST, transition(&approval, to, note.clone()), None);
    approval.state = to;
    approval.decided_by = Some(recorder.principal.clone());
    approval.decided_at = Some(recorder.at);
    approval.note = note;
    Ok(recorder.answer(Answer::Approval(ApprovalView::from(approval))))
}

pub(super) fn set_kill_switch(
    meta: &Meta,
    mut recorder: Recorder<'_>,
    engaged: bool,
    origin: &str,
) -> Result<Outcome, Reject> {
    label("origin", origin)?;
    let before = &meta.kill_switch;
    let lift = (!engaged).then_some(match (before.engaged, before.policy_changed) {
        (false, _) => LiftReport::NoEpisode,
        (true, true) => LiftReport::Changed,
        (true, false) => LiftReport::Unchanged,
    });
    let set = KillSwitchSet { engaged, lift, origin: origin.to_owned() };
    let index = recorder.record(Protocol::LATEST, Body::KillSwitch(set), None);
    let since = if engaged && before.engaged { before.since } else { Some(recorder.at) };
    let view = KillSwitchView {
        engaged,
        since,
        by: Some(recorder.principal.clone()),
        origin: Some(origin.to_owned()),
        policy: lift,
        evidence_id: Some(index.to_string()),
    };
    Ok(recorder.answer(Answer::KillSwitch(view)))
}

pub(super) fn publish_policy(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    document: &str,
    expect: Option<&str>,
) -> Result<Outcome, Reject> {
    let active = meta.active_policy.as_ref().map_or("none", |digest| digest.as_str());
    if expect.is_some_and(|expected| expected != active) {
        return Err(Reject::Conflict { detail: format!("the policy in force is `{active}`, not the expected one") });
    }
    let loaded = policy::load(document).map_err(|mistakes| Reject::PolicyMistakes { mistakes })?;
    let digest = loaded.policy.digest().clone();
    if let Some(name) = changed_unit(state, meta, &loaded.policy)? {
        let detail =
            format!("budget `{name}` counts something else in the policy in force; a new unit needs a new name");
        return Err(Reject::Conflict { detail });
    }
    let previous = meta.active_policy.clone();
    let change = PolicyChange {
        digest: digest.clone(),
        document: loaded.policy.canonical().to_owned(),
        previous: previous.clone(),
    };
    // The entry names the policy that it puts in force: from this position on, it judges.
    recorder.policy = Some(digest.clone());
    let evidence_id = recorder.record(Protocol::LATEST, Body::PolicyChange(change), None);
    let published = PolicyPublished { digest, previous, evidence_id, warnings: loaded.warnings };
    Ok(recorder.answer(Answer::PolicyPublished(published)))
}

/// A budget whose counter would go on in another unit: what was spent would change its meaning.
fn changed_unit(state: &impl Read, meta: &Meta, next: &PolicySet) -> Result<Option<String>, Reject> {
    let Some(digest) = &meta.active_policy else { return Ok(None) };
    let Some(active) = state.policy(digest)? else { return Ok(None) };
    let before = &active.document().budgets;
    let changed = next.document().budgets.iter().find(|(name, budget)| {
        before.get(*name).is_some_and(|old| (old.kind, &old.unit) != (budget.kind, &budget.unit))
    });
    Ok(changed.map(|(name, _)| name.clone()))
}

fn label(name: &str, text: &str) -> Result<(), Reject> {
    if text.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(Reject::Invalid { detail: format!("`{name}` is longer than {LABEL_BYTES_MAX} bytes") })
}
