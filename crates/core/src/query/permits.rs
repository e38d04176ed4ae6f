//! Permits as enforcement points and operators see them: what is open, whether to start, and what may be decided without
//! asking (AADP §9.4, §16).

use crate::evaluate::stops;
use crate::ids::{ActionType, EvidenceIndex, PermitId, Principal};
use crate::op::{Answer, IntentView, PermitCheck, Reject, StaticAction, StaticActions};
use crate::policy::{Action, Document};
use crate::reply::Tier;
use crate::stamp::Stamp;
use crate::state::{List, PermitStatus};

pub(super) fn open(state: &impl List, after: Option<EvidenceIndex>, limit: usize) -> Result<Answer, Reject> {
    let open = state.open_permits(after, limit)?;
    let views = open.into_iter().map(|(permit_id, permit)| IntentView {
        permit_id,
        request_id: permit.request_id,
        action_type: permit.action_type,
        principal: permit.principal,
        evidence_id: permit.index,
        at: permit.at,
        deadline: permit.deadline,
        draws: permit.draws,
        effects: permit.effects,
    });
    Ok(Answer::Intents(views.collect()))
}

/// Whether the act may start now. An engaged switch stops what has not started; the permit itself stays as it is, so that
/// its report is still taken.
pub(super) fn check(state: &impl List, id: &PermitId, principal: &Principal, now: Stamp) -> Result<Answer, Reject> {
    let unusable = |reason: &str| PermitCheck {
        usable: false,
        reason: Some(reason.to_owned()),
        deadline: None,
        evidence_id: None,
    };
    let Some(permit) = state.permit(id)?.filter(|permit| permit.principal == *principal) else {
        return Ok(Answer::Permit(unusable("unknown")));
    };
    let reason = match permit.status {
        PermitStatus::Settled | PermitStatus::Released => Some("reported"),
        PermitStatus::Expired => Some("expired"),
        PermitStatus::Held if permit.act_until <= now => Some("expired"),
        PermitStatus::Held => {
            stops(&state.meta()?, &permit.action_type, principal, &permit.effects).map(|_| "kill_switch")
        }
    };
    Ok(Answer::Permit(PermitCheck {
        usable: reason.is_none(),
        reason: reason.map(str::to_owned),
        deadline: Some(permit.act_until),
        evidence_id: Some(permit.index.to_string()),
    }))
}

/// Unbudgeted actions of tier 0 and 1 that nothing but their arguments decides, less what a switch stops for the caller.
pub(super) fn static_actions(state: &impl List, principal: &Principal, now: Stamp) -> Result<Answer, Reject> {
    let meta = state.meta()?;
    let policy = match &meta.active_policy {
        Some(digest) => state.policy(digest)?,
        None => None,
    };
    let mut actions = Vec::new();
    if let Some(policy) = &policy {
        let document = policy.document();
        for (name, action) in &document.actions {
            let action_type = ActionType::new(name.as_str());
            let stopped = stops(&meta, &action_type, principal, &action.effects).is_some();
            if is_static(document, action, now) && (action.tier == Tier::Observe || !stopped) {
                actions.push(StaticAction { action_type, tier: action.tier, params: action.bounds.clone() });
            }
        }
    }
    Ok(Answer::Static(StaticActions { policy: meta.active_policy, as_of: now, actions }))
}

fn is_static(document: &Document, action: &Action, now: Stamp) -> bool {
    let effects_are_plain = action.effects.iter().all(|label| {
        let effect = document.effects.get(label);
        effect.is_some_and(|effect| effect.draws.is_empty() && effect.min_tier.is_none_or(|tier| tier <= action.tier))
    });
    let live = !action.dry_run && action.dry_run_until.is_none_or(|until| until <= now);
    let acts = match action.tier {
        // A read is observed whether or not it rehearses.
        Tier::Observe => true,
        Tier::Auto => live && action.compensating_command.is_some(),
        Tier::AutoCapped | Tier::Confirm => false,
    };
    acts && effects_are_plain
        && action.draws.is_empty()
        && action.param_effects.is_empty()
        && action.obligations.is_empty()
        && action.present_bound.is_none()
        && action.redact.is_empty()
        && !action.requires_external_authorization
}
