//! Reads for doors, answered from the records of one node.
//! Absent on purpose: freshness. Who calls has made sure that these records are recent enough.

mod approvals;
mod evidence;
mod permits;

pub(crate) use approvals::view as approval_view;

use crate::evaluate::window_now;
use crate::event::{BudgetKind, SwitchScope};
use crate::exact::Amount;
use crate::ids::{EvidenceIndex, PolicyDigest, Principal};
use crate::limits::PAGE_BYTES_MAX;
use crate::op::{Answer, BudgetCursor, BudgetView, KillSwitchView, PolicyFacts, PolicyView, Query, Reject};
use crate::stamp::Stamp;
use crate::state::{Counter, CounterKey, KillSwitch, List, Meta, ReadError};

/// The most that one page holds, whatever was asked.
const PAGE_MAX: u32 = 1000;

/// Answers one query of `principal` at `now`.
pub fn answer(state: &impl List, query: &Query, principal: &Principal, now: Stamp) -> Result<Answer, Reject> {
    let page = |limit: &u32| usize::try_from((*limit).clamp(1, PAGE_MAX)).unwrap_or(1);
    match query {
        Query::Approvals { all, after, limit } => approvals::list(state, *all, after.as_ref(), page(limit), now),
        Query::Approval { id } => approvals::one(state, id, now),
        Query::KillSwitch => Ok(Answer::KillSwitch(kill_switch(&state.meta()?))),
        Query::Policy { digest } => policy(state, digest.as_ref()),
        Query::Policies { after, limit } => policies(state, after.as_ref(), page(limit)),
        Query::Evidence { index } => match state.entry(*index)? {
            Some(bytes) => Ok(Answer::Evidence(evidence::view(*index, bytes))),
            None => Err(Reject::NotFound { detail: format!("no evidence entry `{index}`") }),
        },
        Query::EvidenceTail { after, limit } => evidence::tail(state, *after, page(limit)),
        Query::EvidenceFind { after, limit, filter } => evidence::find(state, *after, page(limit), filter),
        Query::InclusionProof { index, size } => evidence::inclusion(state, *index, *size),
        Query::ConsistencyProof { from, to } => evidence::consistency(state, *from, *to),
        Query::Intents { after, limit } => permits::open(state, *after, page(limit)),
        Query::CheckPermit { permit_id } => permits::check(state, permit_id, principal, now),
        Query::StaticActions => permits::static_actions(state, principal, now),
        Query::Budgets { after, limit } => budgets(state, after.as_ref(), page(limit), now),
        Query::Notified => Ok(Answer::Notified(state.meta()?.notified)),
        Query::Position => Ok(Answer::Position(EvidenceIndex(state.meta()?.next_index.0.saturating_sub(1)))),
    }
}

fn kill_switch(meta: &Meta) -> KillSwitchView {
    let view = |switch: &KillSwitch, scope: Option<SwitchScope>| KillSwitchView {
        engaged: switch.engaged,
        since: switch.since,
        by: switch.by.clone(),
        origin: switch.origin.clone(),
        note: switch.note.clone(),
        scope,
        policy: None,
        warning: None,
        scoped: Vec::new(),
        evidence_id: None,
    };
    let scoped = meta.switches.iter().map(|(scope, switch)| view(switch, Some(scope.clone()))).collect();
    KillSwitchView { scoped, ..view(&meta.kill_switch, None) }
}

/// A page that ends at `limit` records or when it is large enough, read a few records at a time: each may be as large
/// as a request. `of` gives a record's cursor and its size.
fn bounded<C: Clone, V>(
    after: C,
    limit: usize,
    of: impl Fn(&V) -> (C, usize),
    read: impl Fn(C, usize) -> Result<Vec<V>, ReadError>,
) -> Result<Vec<V>, ReadError> {
    const FEW: usize = 16;
    let (mut views, mut bytes, mut after) = (Vec::new(), 0usize, after);
    while views.len() < limit && bytes < PAGE_BYTES_MAX {
        let few = FEW.min(limit - views.len());
        let found = read(after.clone(), few)?;
        let ended = found.len() < few;
        for view in found {
            let (cursor, size) = of(&view);
            after = cursor;
            bytes = bytes.saturating_add(size);
            views.push(view);
        }
        if ended {
            break;
        }
    }
    Ok(views)
}

fn policy(state: &impl List, digest: Option<&PolicyDigest>) -> Result<Answer, Reject> {
    let active = state.meta()?.active_policy;
    let Some(digest) = digest.or(active.as_ref()).cloned() else {
        return Err(Reject::NotFound { detail: "no policy was published yet".to_owned() });
    };
    match state.policy(&digest)? {
        Some(policy) => {
            let document = policy.canonical().to_owned();
            Ok(Answer::Policy(PolicyView { active: active.as_ref() == Some(&digest), digest, document }))
        }
        None => Err(Reject::NotFound { detail: format!("no policy `{digest}`") }),
    }
}

fn policies(state: &impl List, after: Option<&PolicyDigest>, limit: usize) -> Result<Answer, Reject> {
    let active = state.meta()?.active_policy;
    let facts = state.policies(after, limit)?.into_iter().map(|(digest, record)| PolicyFacts {
        active: active.as_ref() == Some(&digest),
        digest,
        used: record.used,
        published_at: record.at,
        published_by: record.by,
        evidence_id: record.index,
    });
    Ok(Answer::Policies(facts.collect()))
}

/// The current counter of every budget of the policy in force, and of every scope that has one. A page walks the
/// budgets by name, so its work is bounded by its length, not by past windows.
fn budgets(state: &impl List, after: Option<&BudgetCursor>, limit: usize, now: Stamp) -> Result<Answer, Reject> {
    let active = match state.meta()?.active_policy {
        Some(digest) => state.policy(&digest)?,
        None => None,
    };
    let Some(policy) = active else { return Ok(Answer::Budgets(Vec::new())) };
    let mut views = Vec::new();
    for (name, budget) in &policy.document().budgets {
        let (window_key, counts_from) = window_now(&policy, budget.window, now);
        let here = |scope: Option<String>| CounterKey { budget: name.clone(), window: window_key.clone(), scope };
        let view = |scope: Option<String>, counter: &Counter| {
            let sum = |of: fn(&crate::state::Spent) -> Amount| {
                let amounts = counter.buckets.range(counts_from..).map(|(_, spent)| of(spent));
                amounts.fold(Amount::ZERO, |sum, amount| sum.checked_add(amount).unwrap_or(sum))
            };
            let (reserved, settled) = (sum(|spent| spent.reserved), sum(|spent| spent.settled));
            let consumed = reserved.checked_add(settled).unwrap_or(budget.limit);
            BudgetView {
                name: name.clone(),
                kind: budget.kind,
                dimension: if budget.kind == BudgetKind::Rate { "calls".to_owned() } else { budget.unit.clone() },
                window: budget.window.into(),
                window_key: window_key.clone(),
                scope,
                limit: Some(budget.limit),
                reserved,
                settled,
                consumed,
                remaining: Some(budget.limit.minus_clamped(consumed)),
            }
        };
        let start = match after {
            Some(cursor) if cursor.budget.as_str() > name.as_str() => continue,
            Some(cursor) if cursor.budget == *name => Some(cursor.scope.clone()),
            _ => None,
        };
        if budget.per.is_none() {
            if start.is_none() {
                views.push(view(None, &state.counter(&here(None))?.unwrap_or_default()));
            }
        } else {
            scoped(state, here(start.flatten()), limit.saturating_sub(views.len()), |scope, counter| {
                views.push(view(Some(scope), counter));
            })?;
        }
        if views.len() >= limit {
            break;
        }
    }
    Ok(Answer::Budgets(views))
}

/// Walks the scoped counters of one window behind `from`.
fn scoped(
    state: &impl List,
    from: CounterKey,
    limit: usize,
    mut each: impl FnMut(String, &Counter),
) -> Result<(), ReadError> {
    for (key, counter) in state.counters(Some(&from), limit)? {
        if key.budget != from.budget || key.window != from.window {
            break;
        }
        if let Some(scope) = key.scope {
            each(scope, &counter);
        }
    }
    Ok(())
}
