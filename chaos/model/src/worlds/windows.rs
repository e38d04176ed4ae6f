//! A rolling budget and one counter for each principal; the calls of an expired permit stay counted. The clock of the
//! second node is behind.

use placet_core::event::BudgetKind;
use placet_core::request::Outcome;
use serde_json::json;

use crate::world::{ActionFact, Bounds, BudgetFact, World, call, decide, no_effect, report};

const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 10m, expiry: keep_rate }
budgets:
  hour: { kind: value, unit: EUR, limit: "100", window: PT1H }
  each: { kind: rate, limit: 2, window: PT1H, per: principal }
policies:
  - action_type: pay
    tier: 2
    dry_run: false
    compensating_command: back
    cost: { param: amount }
    draws: [hour, each]
    bounds: { required: [amount] }
  - { action_type: back, tier: 1, dry_run: false, compensating_command: back, bounds: { strict_params: false } }
"#;

const BUDGETS: &[BudgetFact] = &[
    BudgetFact { name: "hour", kind: BudgetKind::Value, limit: 100, rolling_ms: Some(3_600_000), per_principal: false },
    BudgetFact { name: "each", kind: BudgetKind::Rate, limit: 2, rolling_ms: Some(3_600_000), per_principal: true },
];

const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "pay", draws: &["hour", "each"], effects: &[], granted_by: None },
    ActionFact { name: "back", draws: &[], effects: &[], granted_by: None },
];

pub(super) fn world() -> World {
    World {
        name: "windows",
        about: "a rolling budget and one per principal, expiry that keeps the calls, two clocks that differ",
        policy: POLICY,
        budgets: BUDGETS,
        actions: ACTIONS,
        expiry_keeps_rate: true,
        calls: vec![
            call("P1", decide(0, "pay", json!({ "amount": "60" }))),
            call("P1", decide(1, "pay", json!({ "amount": "40" }))),
            call("P2", decide(2, "pay", json!({ "amount": "30" }))),
            call("P1", decide(3, "pay", json!({ "amount": "10" }))),
            call("P1", report(0, Outcome::Success)),
            call("P1", no_effect(1)),
        ],
        moments: vec![0, 3_540_000, 3_700_000],
        second_clock_behind_ms: 300_000,
        bounds: Bounds { calls: 4, in_flight: 0, ..Bounds::default() },
        shows: &[
            "exec_intent",
            "deny",
            "exec_result",
            "reservation_released",
            "reservation_expired",
            "tick",
            "election",
            "expiry",
        ],
        short_depth: 6,
    }
}
