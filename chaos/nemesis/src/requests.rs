//! The bodies that clients send, and the policy that they are judged by.
//! Absent on purpose: sending them.

use serde_json::{Value, json};

use crate::dice::uuid;

/// Budgets that a run reaches, calendar and rolling, so that conservation is put to the test, and one that it does not.
pub const POLICY_DOCUMENT: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 24h }
budgets:
  small: { kind: value, unit: EUR, limit: "300", window: month }
  large: { kind: value, unit: EUR, limit: "100000000", window: month }
  rolling: { kind: value, unit: EUR, limit: "60", window: 10s }
  calls: { kind: rate, limit: 25, window: 5s }
approvers: { treasury: { members: [A1, A2], quorum: 2 } }
policies:
  - { action_type: pay.small, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [small], bounds: { required: [amount_eur] } }
  - { action_type: pay.large, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [large], bounds: { required: [amount_eur] } }
  - { action_type: pay.rolling, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [rolling, large], bounds: { required: [amount_eur] } }
  - { action_type: act.rate, tier: 2, dry_run: false, compensating_command: pay.back, draws: [calls],
      bounds: { strict_params: false } }
  - { action_type: pay.brief, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [large], bounds: { required: [amount_eur] }, obligations: [ { type: execute_within, value: PT2S } ] }
  - { action_type: pay.payout, tier: 3, dry_run: false, cost_param: amount_eur, draws: [large],
      approval: { group: treasury }, bounds: { required: [amount_eur] } }
  - { action_type: pay.back, tier: 1, dry_run: false, compensating_command: pay.back, bounds: { strict_params: false } }
"#;

/// What each budget of the document may hold, and the length of its window in seconds if it rolls.
pub const LIMITS: [(&str, i64, Option<i64>); 4] =
    [("small", 300, None), ("large", 100_000_000, None), ("rolling", 60, Some(10)), ("calls", 25, Some(5))];

/// How many approvers must have granted what `pay.payout` proposes.
pub const QUORUM: usize = 2;

/// A decide with a request id of its own.
pub fn decide(action: &str, params: &Value, approval: Option<&str>) -> Value {
    let mut body = json!({
        "protocol": "aadp/0.2", "request_id": uuid(), "action_type": action, "params": params,
        "source": "llm", "rationale": "a run under faults", "created_at": "2026-08-17T09:00:00Z",
    });
    if let (Some(approval), Some(members)) = (approval, body.as_object_mut()) {
        members.insert("approval_ref".to_owned(), Value::String(approval.to_owned()));
    }
    body
}

/// A report.
pub fn report(permit: &str, outcome: &str, no_effect: bool) -> Value {
    let mut body = json!({
        "protocol": "aadp/0.2", "permit_id": permit, "outcome": outcome, "completed_at": "2026-08-17T09:00:01Z",
    });
    if let (true, Some(members)) = (no_effect, body.as_object_mut()) {
        members.insert("no_effect".to_owned(), Value::Bool(true));
    }
    body
}
