//! The life of a policy (AADP §8.1): published, in force, in force again, dropped while nothing ever used it.
//! INVARIANT (retention): a policy that was ever in force is kept as long as the evidence, which is for ever.

use super::{Keys, Outcome, Recorder, redaction};
use crate::event::{Body, PolicyChange, PolicyStep};
use crate::ids::PolicyDigest;
use crate::op::{Answer, PolicyDropped, PolicyPublished, Reject};
use crate::policy::{self, Mistake, PolicySet};
use crate::reply::Protocol;
use crate::state::{Meta, Read};

pub(super) fn publish(
    state: &impl Read,
    meta: &Meta,
    recorder: Recorder<'_>,
    document: &str,
    expect: Option<&str>,
    activate: bool,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    expected(meta, expect)?;
    let loaded = policy::load(document).map_err(|mistakes| Reject::PolicyMistakes { mistakes })?;
    put(state, meta, recorder, &loaded.policy, activate, loaded.warnings, keys)
}

pub(super) fn activate(
    state: &impl Read,
    meta: &Meta,
    recorder: Recorder<'_>,
    digest: &PolicyDigest,
    expect: Option<&str>,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    expected(meta, expect)?;
    let Some(policy) = state.policy(digest)? else {
        return Err(Reject::NotFound { detail: format!("no policy `{digest}`") });
    };
    put(state, meta, recorder, &policy, true, Vec::new(), keys)
}

pub(super) fn drop_unused(
    state: &impl Read,
    mut recorder: Recorder<'_>,
    digest: &PolicyDigest,
) -> Result<Outcome, Reject> {
    let Some(record) = state.policy_record(digest)? else {
        return Err(Reject::NotFound { detail: format!("no policy `{digest}`") });
    };
    if record.used {
        let detail = format!("policy `{digest}` was in force: evidence names it, so it is kept");
        return Err(Reject::Conflict { detail });
    }
    let change = PolicyChange { digest: digest.clone(), document: None, previous: None, step: PolicyStep::Dropped };
    let evidence_id = recorder.record(Protocol::LATEST, Body::PolicyChange(change), None);
    Ok(recorder.answer(Answer::PolicyDropped(PolicyDropped { digest: digest.clone(), evidence_id })))
}

fn expected(meta: &Meta, expect: Option<&str>) -> Result<(), Reject> {
    let active = meta.active_policy.as_ref().map_or("none", |digest| digest.as_str());
    if expect.is_some_and(|expected| expected != active) {
        return Err(Reject::Conflict { detail: format!("the policy in force is `{active}`, not the expected one") });
    }
    Ok(())
}

/// The same content is the same version: what is kept or in force already changes nothing.
fn put(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    policy: &PolicySet,
    activate: bool,
    warnings: Vec<Mistake>,
    keys: &Keys,
) -> Result<Outcome, Reject> {
    let digest = policy.digest().clone();
    let known = state.policy_record(&digest)?;
    let previous = meta.active_policy.clone();
    let in_force = previous.as_ref() == Some(&digest);
    if let Some(record) = known.as_ref().filter(|_| in_force || !activate) {
        let evidence_id = record.index;
        let published = PolicyPublished { digest, previous, active: in_force, evidence_id, warnings };
        return Ok(recorder.answer(Answer::PolicyPublished(published)));
    }
    if policy.redacts() {
        redaction::key(keys)?;
    }
    if activate && let Some(name) = changed_unit(state, meta, policy)? {
        let detail =
            format!("budget `{name}` counts something else in the policy in force; a new unit needs a new name");
        return Err(Reject::Conflict { detail });
    }
    let change = PolicyChange {
        digest: digest.clone(),
        document: known.is_none().then(|| policy.canonical().to_owned()),
        previous: previous.clone().filter(|_| activate),
        step: if activate { PolicyStep::Activated } else { PolicyStep::Published },
    };
    if activate {
        // The entry names the policy that it puts in force: from this position on, it judges.
        recorder.policy = Some(digest.clone());
    }
    let evidence_id = recorder.record(Protocol::LATEST, Body::PolicyChange(change), None);
    let published = PolicyPublished { digest, previous, active: activate, evidence_id, warnings };
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
