//! Conservation (architecture §7.2): settled and reserved together never exceed the limit, for each budget and window.
//! Absent on purpose: trust in counters. Everything is added up again from the facts, by what the world says about its
//! policy; then the counters must say the same.

use placet_core::event::{Body, BudgetKind, Event};
use placet_core::exact::Amount;
use placet_core::ids::EvidenceIndex;
use placet_core::stamp::Stamp;

use super::{Property, View};
use crate::world::{BudgetFact, World};

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct Conservation;

/// Where a part of a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Reserved,
    Settled,
    Returned,
}

/// What one intent took from one budget.
#[derive(Debug)]
struct Charge<'w> {
    intent: EvidenceIndex,
    at: Stamp,
    budget: &'w BudgetFact,
    scope: Option<String>,
    amount: i64,
    place: Place,
}

impl Property for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.2"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        if view.world.budgets.is_empty() {
            return Ok(());
        }
        let mut charges = Vec::new();
        for event in &view.history.events {
            account(view.world, &mut charges, event)?;
        }
        view.world.budgets.iter().filter(|budget| budget.rolling_ms.is_none()).try_for_each(|budget| {
            let mut days: Vec<String> = charges.iter().map(|charge| day(charge.at)).collect();
            days.sort();
            days.dedup();
            days.iter().try_for_each(|day| counter_agrees(view, &charges, budget, day))
        })
    }
}

/// Takes one fact into the account. After each intent no window holds more than its limit.
fn account<'w>(world: &'w World, charges: &mut Vec<Charge<'w>>, event: &Event) -> Result<(), String> {
    let entry = &event.entry;
    match &entry.body {
        Body::ExecIntent(decided) => {
            let action = decided.action_type.as_str();
            let fact = world.action(action).ok_or_else(|| format!("`{}` permits `{action}`", entry.index))?;
            for budget in fact.draws.iter().filter_map(|name| world.budget(name)) {
                let amount = match budget.kind {
                    BudgetKind::Rate => 1,
                    BudgetKind::Value => amount(&decided.params)
                        .ok_or_else(|| format!("`{}` permits `{action}` without an amount", entry.index))?,
                };
                let scope = budget.per_principal.then(|| entry.principal.to_string());
                charges.push(Charge {
                    intent: entry.index,
                    at: entry.at,
                    budget,
                    scope: scope.clone(),
                    amount,
                    place: Place::Reserved,
                });
                let held = held(charges, budget, scope.as_deref(), entry.at);
                if held > budget.limit {
                    let name = budget.name;
                    return Err(format!("budget `{name}` holds {held} of {} after `{}`", budget.limit, entry.index));
                }
            }
        }
        Body::ReservationReleased(ended) => {
            let of = |charge: &&mut Charge<'_>| charge.intent == ended.intent;
            let values = charges.iter_mut().filter(of).filter(|charge| charge.budget.kind == BudgetKind::Value);
            values.filter(|charge| charge.place == Place::Reserved).for_each(|charge| charge.place = Place::Returned);
        }
        Body::ExecResult(result) => {
            let of = charges.iter_mut().filter(|charge| charge.intent == result.intent);
            of.filter(|charge| charge.place == Place::Reserved).for_each(|charge| charge.place = Place::Settled);
        }
        Body::ReservationExpired(ended) => {
            for charge in charges.iter_mut().filter(|charge| charge.intent == ended.intent) {
                let stays = world.expiry_keeps_rate && charge.budget.kind == BudgetKind::Rate;
                if charge.place == Place::Reserved {
                    charge.place = if stays { Place::Settled } else { Place::Returned };
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// What the window at a moment holds.
fn held(charges: &[Charge<'_>], budget: &BudgetFact, scope: Option<&str>, at: Stamp) -> i64 {
    let counts = |charge: &&Charge<'_>| {
        let inside = match budget.rolling_ms {
            Some(length) => charge.at.0 > at.0.saturating_sub(length),
            None => day(charge.at) == day(at),
        };
        charge.budget.name == budget.name
            && charge.scope.as_deref() == scope
            && charge.place != Place::Returned
            && inside
    };
    charges.iter().filter(counts).map(|charge| charge.amount).sum()
}

/// The core's counter of a calendar window holds what the facts add up to.
fn counter_agrees(view: &View<'_>, charges: &[Charge<'_>], budget: &BudgetFact, on: &str) -> Result<(), String> {
    let of = |place: Place| -> i64 {
        let in_window = |charge: &&Charge<'_>| charge.budget.name == budget.name && day(charge.at) == on;
        charges.iter().filter(in_window).filter(|charge| charge.place == place).map(|charge| charge.amount).sum()
    };
    let (mut reserved, mut settled) = (Amount::ZERO, Amount::ZERO);
    let counters = view.applied.records.counters.iter();
    for (_, counter) in counters.filter(|(key, _)| key.budget == budget.name && key.window == on) {
        for spent in counter.buckets.values() {
            reserved = reserved.add_at_least(spent.reserved);
            settled = settled.add_at_least(spent.settled);
        }
    }
    let says = (reserved.to_string(), settled.to_string());
    let should = (of(Place::Reserved).to_string(), of(Place::Settled).to_string());
    if says == should {
        return Ok(());
    }
    let ((reserved, settled), (held, spent)) = (says, should);
    let name = budget.name;
    Err(format!(
        "the counter of `{name}` on {on} says {reserved} reserved and {settled} settled; the facts add up to {held} and {spent}"
    ))
}

fn amount(params: &str) -> Option<i64> {
    let params: serde_json::Value = serde_json::from_str(params).ok()?;
    params.get("amount")?.as_str()?.parse().ok()
}

/// The worlds live in UTC.
fn day(at: Stamp) -> String {
    at.to_string().get(..10).unwrap_or_default().to_owned()
}
