//! A little of everything: two budgets, three requests, two approvers, the kill switch, expiry, duplicates, and a change
//! of the leader.

use placet_core::event::BudgetKind;
use placet_core::request::Outcome;
use serde_json::json;

use crate::world::{
    ActionFact, Bounds, BudgetFact, Granters, What, World, call, decide, no_effect, report, resumption, twice,
};

const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 10m, approval_ttl: 10m }
budgets:
  eur: { kind: value, unit: EUR, limit: "100", window: day }
  calls: { kind: rate, limit: 2, window: day }
approvers:
  treasury: { members: [A1, A2], quorum: 2 }
policies:
  - action_type: pay
    tier: 2
    dry_run: false
    compensating_command: pay
    cost: { param: amount }
    draws: [eur, calls]
    bounds: { required: [amount] }
  - action_type: wire
    tier: 3
    dry_run: false
    cost: { param: amount }
    draws: [eur]
    bounds: { required: [amount] }
    approval: { group: treasury }
"#;

const BUDGETS: &[BudgetFact] = &[
    BudgetFact { name: "eur", kind: BudgetKind::Value, limit: 100, rolling_ms: None, per_principal: false },
    BudgetFact { name: "calls", kind: BudgetKind::Rate, limit: 2, rolling_ms: None, per_principal: false },
];

const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "pay", draws: &["eur", "calls"], effects: &[], granted_by: None },
    ActionFact {
        name: "wire",
        draws: &["eur"],
        effects: &[],
        granted_by: Some(Granters { members: Some(&["A1", "A2"]), quorum: 2 }),
    },
];

pub(super) fn world() -> World {
    let wire = || json!({ "amount": "70" });
    World {
        name: "everything",
        about: "two budgets, three requests, two approvals, the kill switch, expiry, duplicates, a change of the leader",
        policy: POLICY,
        budgets: BUDGETS,
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            twice("P1", decide(0, "pay", json!({ "amount": "40" }))),
            call("P2", decide(1, "pay", json!({ "amount": "50" }))),
            call("P1", decide(2, "wire", wire())),
            call("A1", What::Resolve { request: 2, grant: true }),
            call("A2", What::Resolve { request: 2, grant: true }),
            twice("P1", resumption(3, "wire", wire(), 2)),
            call("P1", report(0, Outcome::Success)),
            call("P1", no_effect(0)),
            call("O1", What::Switch { engaged: true, scope: None }),
            call("O1", What::Switch { engaged: false, scope: None }),
        ],
        moments: vec![0, 600_000],
        second_clock_behind_ms: 0,
        bounds: Bounds { calls: 8, ..Bounds::default() },
        shows: &[
            "exec_intent",
            "deny",
            "propose",
            "vote",
            "kill_switch",
            "exec_result",
            "reservation_expired",
            "expiry",
            "election",
        ],
        short_depth: 7,
    }
}
