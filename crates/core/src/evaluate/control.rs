//! What operators and authorities set: kill switches (AADP §7), standing mandates (§11.5), signed heads (§14.7).

use super::approvals::{mandate_statement, signed_by_authority};
use super::decide::active_policy;
use super::restored::cluster_id;
use super::{Keys, Outcome, Recorder, label};
use crate::event::{Body, KillSwitchSet, LiftReport, MandateSet, Notified, SwitchScope};
use crate::evidence;
use crate::head::Head;
use crate::ids::{EvidenceIndex, Principal};
use crate::limits::{ACTION_TYPE_BYTES_MAX, MANDATES_MAX, REVERIFIED_ENTRIES_MAX, SCOPED_SWITCHES_MAX};
use crate::merkle;
use crate::op::{Answer, KillSwitchView, MandateView, Reject, SignedHeadView};
use crate::reply::Protocol;
use crate::request::is_action_type;
use crate::state::{KillSwitch, Meta, Read, Tree};

pub(super) fn set_kill_switch(
    meta: &Meta,
    mut recorder: Recorder<'_>,
    engaged: bool,
    origin: &str,
    note: Option<&str>,
    scope: Option<&SwitchScope>,
) -> Result<Outcome, Reject> {
    label("origin", origin)?;
    label("note", note.unwrap_or_default())?;
    let before = match scope {
        None => meta.kill_switch.clone(),
        Some(scope) => {
            named(scope)?;
            let found = meta.switches.iter().find(|(other, _)| other == scope);
            if engaged && found.is_none() && meta.switches.len() >= SCOPED_SWITCHES_MAX {
                let detail = format!("{SCOPED_SWITCHES_MAX} scoped switches are engaged; engage the global one");
                return Err(Reject::Conflict { detail });
            }
            found.map(|(_, switch)| switch.clone()).unwrap_or_default()
        }
    };
    let lift = (!engaged).then_some(lifted(&before));
    let note = note.map(str::to_owned);
    let set = KillSwitchSet { engaged, lift, note: note.clone(), origin: origin.to_owned(), scope: scope.cloned() };
    let index = recorder.record(Protocol::LATEST, Body::KillSwitch(set), None);
    let since = if engaged && before.engaged { before.since } else { Some(recorder.at) };
    let view = KillSwitchView {
        engaged,
        since,
        by: Some(recorder.principal.clone()),
        origin: Some(origin.to_owned()),
        note,
        scope: scope.cloned(),
        policy: lift,
        scoped: Vec::new(),
        warning: None,
        evidence_id: Some(index.to_string()),
    };
    Ok(recorder.answer(Answer::KillSwitch(view)))
}

fn lifted(before: &KillSwitch) -> LiftReport {
    match (before.engaged, before.policy_changed) {
        (false, _) => LiftReport::NoEpisode,
        (true, true) => LiftReport::Changed,
        (true, false) => LiftReport::Unchanged,
    }
}

/// A scope that can match something.
fn named(scope: &SwitchScope) -> Result<(), Reject> {
    let fits = match scope {
        SwitchScope::ActionType(name) => is_action_type(name.as_str()),
        SwitchScope::Effect(text) => !text.is_empty() && text.len() <= ACTION_TYPE_BYTES_MAX,
        SwitchScope::Principal(name) => !name.as_str().is_empty() && name.as_str().len() <= ACTION_TYPE_BYTES_MAX,
    };
    if fits { Ok(()) } else { Err(Reject::Invalid { detail: format!("`{scope}` names nothing that can be stopped") }) }
}

pub(super) fn set_mandate(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    set: &MandateSet,
) -> Result<Outcome, Reject> {
    let policy = active_policy(state, meta)?;
    let nothing = || Reject::Conflict { detail: "nothing is recorded yet".to_owned() };
    let cluster = cluster_id(state, meta)?.ok_or_else(nothing)?;
    let statement = mandate_statement(cluster, &set.action_type, set.denied, set.serial);
    if !signed_by_authority(policy.as_deref(), &statement, &set.signature) {
        let detail = "the signature is not the mandate authority's over this statement".to_owned();
        return Err(Reject::Forbidden { detail });
    }
    let authority = policy.and_then(|policy| policy.document().mandate_authority.clone());
    let before = meta.mandates.get(&set.action_type);
    // Another key begins its own count: a key that leaked cannot outlive itself.
    if before.is_some_and(|mandate| mandate.authority == authority && mandate.serial >= set.serial) {
        return Err(Reject::Conflict { detail: "`serial` is not above the last one for this action type".to_owned() });
    }
    if before.is_none() && meta.mandates.len() >= MANDATES_MAX {
        return Err(Reject::Conflict { detail: format!("there are statements about {MANDATES_MAX} action types") });
    }
    let evidence_id =
        recorder.record(Protocol::LATEST, Body::MandateSet(MandateSet { authority, ..set.clone() }), None);
    let view =
        MandateView { action_type: set.action_type.clone(), denied: set.denied, serial: set.serial, evidence_id };
    Ok(recorder.answer(Answer::Mandate(view)))
}

/// What the policy in force does not know, so that a switch for it may stop nothing.
pub(super) fn unknown_scope(
    state: &impl Read,
    meta: &Meta,
    scope: Option<&SwitchScope>,
) -> Result<Option<String>, Reject> {
    let Some(scope) = scope else { return Ok(None) };
    let policy = active_policy(state, meta)?;
    let document = policy.as_ref().map(|policy| policy.document());
    let known = match scope {
        SwitchScope::ActionType(name) => document.is_some_and(|document| document.actions.contains_key(name.as_str())),
        SwitchScope::Effect(label) => document.is_some_and(|document| document.effects.contains_key(label)),
        // Who may call is not the policy's business.
        SwitchScope::Principal(_) => true,
    };
    Ok((!known).then(|| format!("the policy in force does not name `{scope}`; check the spelling")))
}

/// Signs everything before the entry that records the signature.
pub(super) fn sign_head(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    let Some(signer) = &keys.head else {
        return Err(Reject::Unavailable { detail: "this node has no key to sign heads with".to_owned() });
    };
    let size = meta.next_index.0.saturating_sub(1);
    undamaged(state, meta)?;
    let root = merkle::root(&Tree(state), size)?;
    let signed = signer.sign(Head { at: recorder.at, chain_head: meta.chain_head, root, size });
    let evidence_id = recorder.record(Protocol::LATEST, Body::HeadSigned(signed.clone()), None);
    Ok(recorder.answer(Answer::Head(SignedHeadView { signed, evidence_id })))
}

/// A damaged range is never signed (AADP §14.7): the chain is walked again from its head back to the last signed one.
fn undamaged(state: &impl Read, meta: &Meta) -> Result<(), Reject> {
    let damaged = |index| Reject::Internal { detail: format!("evidence `{index}` is damaged; no head is signed") };
    let (mut index, mut hash) = (EvidenceIndex(meta.next_index.0.saturating_sub(1)), meta.chain_head);
    for _ in 0..REVERIFIED_ENTRIES_MAX {
        if index.0 == 0 {
            break;
        }
        let bytes = state.entry(index)?.ok_or_else(|| damaged(index))?;
        let entry = evidence::decode(&bytes).map_err(|_| damaged(index))?;
        if evidence::hash(&bytes) != hash {
            return Err(damaged(index));
        }
        if matches!(entry.body, Body::HeadSigned(_)) {
            break;
        }
        (index, hash) = (EvidenceIndex(index.0.saturating_sub(1)), entry.prev);
    }
    Ok(())
}

/// Only the cluster itself says what it delivered.
pub(super) fn notified(meta: &Meta, mut recorder: Recorder<'_>, up_to: EvidenceIndex) -> Result<Outcome, Reject> {
    if *recorder.principal != Principal::system() {
        return Err(Reject::Forbidden { detail: "only the cluster records deliveries".to_owned() });
    }
    if up_to <= meta.notified || up_to >= meta.next_index {
        return Err(Reject::Conflict { detail: format!("deliveries are recorded up to `{}`", meta.notified) });
    }
    recorder.record(Protocol::LATEST, Body::Notified(Notified { up_to }), None);
    Ok(recorder.answer(Answer::Notified(up_to)))
}
