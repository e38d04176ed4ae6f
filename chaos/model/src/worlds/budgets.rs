//! Two budgets that three requests draw on: one counts calls, one euros. Permits end in every way there is.

use placet_core::event::BudgetKind;
use placet_core::request::Outcome;
use serde_json::json;

use crate::world::{ActionFact, Bounds, BudgetFact, World, call, decide, no_effect, report, twice};

pub(super) const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 9m, report_grace: 1m }
budgets:
  eur: { kind: value, unit: EUR, limit: "100", window: day }
  calls: { kind: rate, limit: 2, window: day }
policies:
  - action_type: pay
    tier: 2
    dry_run: false
    compensating_command: back
    cost: { param: amount }
    draws: [eur, calls]
    bounds: { required: [amount] }
  - action_type: fee
    tier: 2
    dry_run: false
    compensating_command: back
    cost: { param: amount }
    draws: [eur]
    bounds: { required: [amount] }
  - { action_type: back, tier: 1, dry_run: false, compensating_command: back, bounds: { strict_params: false } }
"#;

pub(super) const BUDGETS: &[BudgetFact] = &[
    BudgetFact { name: "eur", kind: BudgetKind::Value, limit: 100, rolling_ms: None, per_principal: false },
    BudgetFact { name: "calls", kind: BudgetKind::Rate, limit: 2, rolling_ms: None, per_principal: false },
];

pub(super) const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "pay", draws: &["eur", "calls"], effects: &[], granted_by: None },
    ActionFact { name: "fee", draws: &["eur"], effects: &[], granted_by: None },
    ActionFact { name: "back", draws: &[], effects: &[], granted_by: None },
];

pub(super) fn world() -> World {
    World {
        name: "budgets",
        about: "two budgets, three requests, every end of a permit, expiry, a new day, a change of the leader",
        policy: POLICY,
        budgets: BUDGETS,
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            twice("P1", decide(0, "pay", json!({ "amount": "60" }))),
            call("P1", decide(1, "pay", json!({ "amount": "50" }))),
            call("P2", decide(2, "fee", json!({ "amount": "40" }))),
            call("P1", report(0, Outcome::Success)),
            call("P1", no_effect(0)),
            call("P1", report(1, Outcome::NotAttempted)),
            call("P1", report(2, Outcome::Success)),
            call("P2", report(2, Outcome::Timeout)),
        ],
        moments: vec![0, 600_000, 86_400_000],
        second_clock_behind_ms: 0,
        bounds: Bounds { calls: 6, ..Bounds::default() },
        shows: &[
            "exec_intent",
            "deny",
            "exec_result",
            "reservation_released",
            "reservation_expired",
            "report_refused",
            "tick",
            "election",
            "expiry",
        ],
        short_depth: 8,
    }
}
