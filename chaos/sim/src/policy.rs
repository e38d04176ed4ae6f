//! The policy of every run: small budgets that run out, short deadlines that pass, and an action that two humans decide.

use placet_core::exact::Amount;

/// In Placet's dialect.
pub const POLICY: &str = r#"apiVersion: placet/v1
timezone: UTC
defaults: { execute_within: 4s, approval_ttl: 20s }
budgets:
  money: { kind: value, unit: EUR, limit: "40", window: day }
  wires: { kind: value, unit: EUR, limit: "30", window: day }
  calls: { kind: rate, limit: 120, window: day }
approvers:
  board: { members: ["user:ann", "user:bob", "user:cleo"], quorum: 2 }
policies:
  - { action_type: act, tier: 1, dry_run: false, compensating_command: back, draws: [calls], bounds: { strict_params: false } }
  - action_type: spend
    tier: 2
    dry_run: false
    compensating_command: back
    cost: { param: amount, unit: EUR }
    draws: [money, calls]
    bounds: { required: [amount] }
  - action_type: pay
    tier: 3
    dry_run: false
    cost: { param: amount, unit: EUR }
    draws: [wires]
    bounds: { required: [amount] }
    approval: { group: board }
  - { action_type: back, tier: 3 }
"#;

/// Who may approve.
pub const BOARD: [&str; 3] = ["user:ann", "user:bob", "user:cleo"];

/// The most that one window of a budget holds.
pub fn limit_of(budget: &str) -> Option<Amount> {
    let limit = match budget {
        "money" => "40",
        "wires" => "30",
        "calls" => "120",
        // Counters of the product's own, such as the proposals of a minute.
        _ => return None,
    };
    Amount::parse(limit)
}
