//! Budgets: how much of something a scope may still spend (AADP §9). Check all, then draw on all.
//! Absent on purpose: writing. The draws that come back are recorded with the permit, and folding reserves them.
//!
//! INVARIANT (conservation): settled + reserved never exceeds the limit, for every counter.

use std::collections::BTreeMap;

use super::bounds::{number, present};
use crate::event::{BudgetKind, Draw};
use crate::exact::Amount;
use crate::fold::scopes_key;
use crate::json::Json;
use crate::limits::SCOPED_COUNTERS_MAX;
use crate::policy::{Action, Budget, PolicySet, Scope, Window};
use crate::reply::BudgetObject;
use crate::request::DecideRequest;
use crate::stamp::Stamp;
use crate::state::{Counter, CounterKey, Read, ReadError};

/// What a permit takes from its budgets.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) draws: Vec<Draw>,
    pub(super) cost: Option<Amount>,
}

/// Why nothing is taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A value budget applies and there is no amount: unknown is not zero.
    CostUnknown { budget: String },
    /// This budget has too little left.
    Exhausted { kind: BudgetKind, window: Window, object: BudgetObject, detail: Option<String> },
}

/// The window of a budget at one moment.
struct CurrentWindow {
    key: String,
    /// The bucket that a draw goes into.
    bucket: i64,
    /// The first bucket that still counts.
    counts_from: i64,
}

/// Checks every budget that the action and its effects draw on, in order, and returns the draws on all of them.
pub(super) fn draw(
    state: &impl Read,
    policy: &PolicySet,
    action: &Action,
    effects: &[String],
    request: &DecideRequest,
    principal: &str,
    at: Stamp,
) -> Result<Result<Drawn, Refusal>, ReadError> {
    let budgets = applicable(policy, action, effects);
    let cost = cost(action, &request.params, request.cost_eur);
    let unit = action.cost.as_ref().map_or("EUR", |cost| cost.unit.as_str());
    let priced = |budget: &Budget| cost.filter(|_| budget.unit == unit);
    if let Some((name, _)) = budgets.iter().find(|(_, b)| b.kind == BudgetKind::Value && priced(b).is_none()) {
        return Ok(Err(Refusal::CostUnknown { budget: (*name).to_owned() }));
    }
    let mut drawn = Drawn::default();
    for (name, budget) in budgets {
        let amount = match budget.kind {
            BudgetKind::Rate => Amount::ONE,
            BudgetKind::Value => priced(budget).unwrap_or_default(),
        };
        let window = current_window(policy, budget.window, at);
        let scope = scope(budget, request, principal);
        let key = CounterKey { budget: name.to_owned(), window: window.key.clone(), scope: scope.clone() };
        let counter = state.counter(&key)?;
        let draw = Draw {
            amount,
            bucket: window.bucket,
            budget: name.to_owned(),
            kind: budget.kind,
            scope,
            window: window.key.clone(),
        };
        let full_of_scopes = draw.scope.is_some() && {
            let (scopes, since) = scopes_key(&draw);
            let counted = |counter: &Counter| counter.buckets.range(since..).next().is_some();
            !counter.as_ref().is_some_and(counted)
                && state.counter(&scopes)?.is_some_and(|counter| counter.scopes >= SCOPED_COUNTERS_MAX)
        };
        let counter = counter.unwrap_or_default();
        // A sum that cannot be held exactly is above any limit that could have been written.
        let consumed = counter.consumed(window.counts_from);
        let fits = consumed.and_then(|sum| sum.checked_add(amount)).is_some_and(|sum| sum <= budget.limit);
        // INVARIANT (conservation) needs sums that are exact however reserved and settled parts are split.
        let too_fine = !amount.adds_up_to(budget.limit);
        if full_of_scopes || !fits || too_fine {
            let object = object(policy, name, budget, at, &counter);
            let detail = if full_of_scopes {
                Some(format!("budget `{name}` already has {SCOPED_COUNTERS_MAX} counters in this window"))
            } else {
                too_fine.then(|| format!("the amount has more decimals than budget `{name}` can add up exactly"))
            };
            return Ok(Err(Refusal::Exhausted { kind: budget.kind, window: budget.window, object, detail }));
        }
        drawn.cost = drawn.cost.or(cost.filter(|_| budget.kind == BudgetKind::Value));
        drawn.draws.push(draw);
    }
    Ok(Ok(drawn))
}

/// What an act would draw from value budgets, and what each of its budgets has left now, for an approver's eyes.
pub(crate) fn preview(
    state: &impl Read,
    policy: &PolicySet,
    request: &DecideRequest,
    principal: &str,
    at: Stamp,
) -> Result<(Option<Amount>, Vec<BudgetObject>), ReadError> {
    let Some(action) = policy.document().actions.get(request.action_type.as_str()) else {
        return Ok((None, Vec::new()));
    };
    let labels = super::effects::resolve(policy, action, request).labels;
    let mut left = Vec::new();
    for (name, budget) in applicable(policy, action, &labels) {
        let window = current_window(policy, budget.window, at);
        let key = CounterKey {
            budget: name.to_owned(),
            window: window.key.clone(),
            scope: scope(budget, request, principal),
        };
        let counter = state.counter(&key)?.unwrap_or_default();
        left.push(object(policy, name, budget, at, &counter));
    }
    Ok((cost(action, &request.params, request.cost_eur), left))
}

fn scope(budget: &Budget, request: &DecideRequest, principal: &str) -> Option<String> {
    budget.per.map(|per| match per {
        Scope::Principal => principal.to_owned(),
        Scope::Session => request.session_id.clone().unwrap_or_default(),
    })
}

fn object(policy: &PolicySet, name: &str, budget: &Budget, at: Stamp, counter: &Counter) -> BudgetObject {
    let window = current_window(policy, budget.window, at);
    // A sum that cannot be held exactly is above any limit that could have been written.
    let consumed = counter.consumed(window.counts_from).unwrap_or(budget.limit);
    let oldest = counter.buckets.range(window.counts_from..).map(|(start, _)| *start).next();
    BudgetObject {
        consumed,
        dimension: budget.unit.clone(),
        limit: budget.limit,
        name: name.to_owned(),
        remaining: budget.limit.minus_clamped(consumed),
        window: budget.window.into(),
        window_resets_at: match budget.window {
            Window::Day => policy.calendar().day_ends(at),
            Window::Month => policy.calendar().month_ends(at),
            Window::Rolling(length_ms) => {
                let start = oldest.unwrap_or(window.bucket);
                Stamp(start.saturating_add(Window::bucket_ms(length_ms)).saturating_add(length_ms))
            }
        },
    }
}

/// The budgets of an action, then those of its effects; each once, in the order in which they are checked.
fn applicable<'a>(policy: &'a PolicySet, action: &'a Action, effects: &[String]) -> Vec<(&'a str, &'a Budget)> {
    let document = policy.document();
    let from_effects = effects.iter().filter_map(|label| document.effects.get(label)).flat_map(|effect| &effect.draws);
    let mut found: Vec<(&str, &Budget)> = Vec::new();
    for name in action.draws.iter().chain(from_effects) {
        if let Some((name, budget)) = document.budgets.get_key_value(name)
            && !found.iter().any(|(before, _)| before == name)
        {
            found.push((name, budget));
        }
    }
    found
}

/// The cost of a request (AADP §9.3); `None` when it is unknown.
fn cost(action: &Action, params: &BTreeMap<String, Json>, cost_eur: Option<Amount>) -> Option<Amount> {
    match &action.cost {
        Some(cost) => {
            let exact = number(present(params, &cost.param)?)?;
            if exact.is_negative() { None } else { exact.to_amount() }
        }
        None => cost_eur.filter(|cost| *cost > Amount::ZERO),
    }
}

fn current_window(policy: &PolicySet, window: Window, at: Stamp) -> CurrentWindow {
    let calendar = |key| CurrentWindow { key, bucket: 0, counts_from: 0 };
    match window {
        Window::Day => calendar(policy.calendar().day(at)),
        Window::Month => calendar(policy.calendar().month(at)),
        Window::Rolling(length_ms) => {
            let width = Window::bucket_ms(length_ms);
            let bucket = at.0.div_euclid(width).saturating_mul(width);
            // A bucket counts while any moment in it is inside the window.
            let counts_from = at.0.saturating_sub(length_ms).saturating_sub(width).saturating_add(1);
            CurrentWindow { key: String::from(window), bucket, counts_from }
        }
    }
}

/// The window keys that count at `at`, for a listing of what stands now.
pub(crate) fn window_now(policy: &PolicySet, window: Window, at: Stamp) -> (String, i64) {
    let current = current_window(policy, window, at);
    (current.key, current.counts_from)
}
