//! How many proposals may wait (AADP §16, case 134): per principal and action type, open ones and those of a minute.
//! Kept as counters like budgets, under names that no budget can have.

use crate::event::{BudgetKind, Draw};
use crate::exact::Amount;
use crate::ids::{ActionType, Principal};
use crate::limits::PENDING_PER_PRINCIPAL_DEFAULT;
use crate::policy::{ApprovalRules, Window};
use crate::stamp::Stamp;
use crate::state::{CounterKey, Read, ReadError};

const MINUTE_MS: i64 = 60_000;

/// Why one more proposal is refused; `None` when it is not.
pub(super) fn full(
    state: &impl Read,
    rules: &ApprovalRules,
    action_type: &ActionType,
    principal: &Principal,
    at: Stamp,
) -> Result<Option<String>, ReadError> {
    let below = |count: Option<Amount>, most: u64| {
        let most = Amount::parse(&most.to_string());
        count.zip(most).is_some_and(|(count, most)| count < most)
    };
    let open = state.counter(&open_key(action_type, principal))?.unwrap_or_default();
    let most = rules.per_principal.unwrap_or(PENDING_PER_PRINCIPAL_DEFAULT);
    if !below(open.consumed(i64::MIN), most) {
        return Ok(Some(format!("{most} proposals of this principal for this action type wait already")));
    }
    let Some(most) = rules.per_minute else { return Ok(None) };
    let minute = minute_draw(action_type, principal, at);
    let width = Window::bucket_ms(MINUTE_MS);
    let since = at.0.saturating_sub(MINUTE_MS).saturating_sub(width).saturating_add(1);
    let recent = state.counter(&key_of(&minute))?.unwrap_or_default();
    Ok((!below(recent.consumed(since), most))
        .then(|| format!("{most} proposals of this principal came within a minute")))
}

/// Proposals that wait for a human.
pub(crate) fn open_key(action_type: &ActionType, principal: &Principal) -> CounterKey {
    CounterKey {
        // An action type holds no space, so no two pairs share a name.
        budget: format!("#open:{action_type} {principal}"),
        window: "open".to_owned(),
        scope: None,
    }
}

/// One proposal in the count of the last minute.
pub(crate) fn minute_draw(action_type: &ActionType, principal: &Principal, at: Stamp) -> Draw {
    let width = Window::bucket_ms(MINUTE_MS);
    Draw {
        amount: Amount::ONE,
        bucket: at.0.div_euclid(width).saturating_mul(width),
        budget: format!("#proposals:{action_type} {principal}"),
        kind: BudgetKind::Rate,
        scope: None,
        window: String::from(Window::Rolling(MINUTE_MS)),
    }
}

fn key_of(draw: &Draw) -> CounterKey {
    CounterKey { budget: draw.budget.clone(), window: draw.window.clone(), scope: draw.scope.clone() }
}
