//! Reads for doors, answered from the records of one node.
//! Absent on purpose: freshness. Who calls has made sure that these records are recent enough.

use crate::evaluate::window_now;
use crate::event::BudgetKind;
use crate::evidence;
use crate::exact::Amount;
use crate::ids::{EvidenceIndex, PolicyDigest};
use crate::limits::PAGE_BYTES_MAX;
use crate::op::{
    Answer, ApprovalView, BudgetCursor, BudgetView, EvidenceView, IntentView, KillSwitchView, PolicyView, Query, Reject,
};
use crate::stamp::Stamp;
use crate::state::{ApprovalRecord, Counter, CounterKey, List, ReadError};

/// The most that one page holds, whatever was asked.
const PAGE_MAX: u32 = 1000;

/// Answers one query at `now`.
pub fn answer(state: &impl List, query: &Query, now: Stamp) -> Result<Answer, Reject> {
    let page = |limit: &u32| usize::try_from((*limit).clamp(1, PAGE_MAX)).unwrap_or(1);
    match query {
        Query::Approvals { all, after, limit } => approvals(state, *all, after.as_ref(), page(limit)),
        Query::Approval { id } => match state.approval(id)? {
            Some(approval) => Ok(Answer::Approval(ApprovalView::from(approval))),
            None => Err(Reject::NotFound { detail: format!("no approval `{id}`") }),
        },
        Query::KillSwitch => {
            let switch = state.meta()?.kill_switch;
            Ok(Answer::KillSwitch(KillSwitchView {
                engaged: switch.engaged,
                since: switch.since,
                by: switch.by,
                origin: switch.origin,
                policy: None,
                evidence_id: None,
            }))
        }
        Query::Policy { digest } => policy(state, digest.as_ref()),
        Query::Evidence { index } => match state.entry(*index)? {
            Some(bytes) => Ok(Answer::Evidence(evidence_view(*index, bytes))),
            None => Err(Reject::NotFound { detail: format!("no evidence entry `{index}`") }),
        },
        Query::EvidenceTail { after, limit } => {
            let views = bounded(
                *after,
                page(limit),
                |view: &EvidenceView| (view.evidence_id, view.entry.len()),
                |after, few| {
                    let entries = state.entries(after, few)?;
                    Ok(entries.into_iter().map(|(index, bytes)| evidence_view(index, bytes)).collect())
                },
            )?;
            Ok(Answer::EvidenceTail(views))
        }
        Query::Intents { after, limit } => {
            let open = state.open_permits(*after, page(limit))?;
            let views = open.into_iter().map(|(permit_id, permit)| IntentView {
                permit_id,
                request_id: permit.request_id,
                action_type: permit.action_type,
                principal: permit.principal,
                evidence_id: permit.index,
                at: permit.at,
                deadline: permit.deadline,
                draws: permit.draws,
            });
            Ok(Answer::Intents(views.collect()))
        }
        Query::Budgets { after, limit } => budgets(state, after.as_ref(), page(limit), now),
    }
}

fn approvals(
    state: &impl List,
    all: bool,
    after: Option<&crate::ids::ApprovalId>,
    limit: usize,
) -> Result<Answer, Reject> {
    let size = |view: &ApprovalView| (Some(view.approval_id.clone()), view.params.len() + view.rationale.len());
    let views = bounded(after.cloned(), limit, size, |after, few| {
        let after = after.as_ref();
        let found = if all { state.approvals(after, few)? } else { state.open_approvals(after, few)? };
        Ok(found.into_iter().map(ApprovalView::from).collect())
    })?;
    Ok(Answer::Approvals(views))
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

fn evidence_view(index: EvidenceIndex, bytes: Vec<u8>) -> EvidenceView {
    let hash = evidence::hash(&bytes);
    let entry = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    EvidenceView { evidence_id: index, entry, hash }
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
        }
    }
}
