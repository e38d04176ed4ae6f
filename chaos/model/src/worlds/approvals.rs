//! A proposal for a group with a quorum of two, and one that anyone may grant: granted, denied, withdrawn, expired,
//! presented twice, for another act and by somebody else, and resumed by the approver.

use placet_core::event::BudgetKind;
use placet_core::request::Outcome;
use serde_json::json;

use crate::world::{ActionFact, Bounds, BudgetFact, Granters, What, World, call, decide, report, resumption, twice};

pub(super) const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 10m, approval_ttl: 10m }
budgets:
  eur: { kind: value, unit: EUR, limit: "100", window: day }
approvers:
  treasury: { members: [A1, A2, P1], quorum: 2 }
policies:
  - action_type: wire
    tier: 3
    dry_run: false
    cost: { param: amount }
    draws: [eur]
    bounds: { required: [amount] }
    approval: { group: treasury }
  - { action_type: note, tier: 3, dry_run: false, bounds: { required: [text] } }
"#;

pub(super) const BUDGETS: &[BudgetFact] =
    &[BudgetFact { name: "eur", kind: BudgetKind::Value, limit: 100, rolling_ms: None, per_principal: false }];

const TREASURY: Granters = Granters { members: Some(&["A1", "A2", "P1"]), quorum: 2 };
const ANYONE: Granters = Granters { members: None, quorum: 1 };

pub(super) const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "wire", draws: &["eur"], effects: &[], granted_by: Some(TREASURY) },
    ActionFact { name: "note", draws: &[], effects: &[], granted_by: Some(ANYONE) },
];

pub(super) fn world() -> World {
    let wire = || json!({ "amount": "60" });
    World {
        name: "approvals",
        about: "a quorum of two: own grants, double votes, denial, withdrawal, expiry, an approval presented again",
        policy: POLICY,
        budgets: BUDGETS,
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            call("P1", decide(0, "wire", wire())),
            call("P1", What::Resolve { request: 0, grant: true }),
            twice("A1", What::Resolve { request: 0, grant: true }),
            call("A2", What::Resolve { request: 0, grant: true }),
            call("A2", What::Resolve { request: 0, grant: false }),
            twice("P1", resumption(2, "wire", wire(), 0)),
            call("P1", resumption(3, "wire", wire(), 0)),
            call("P1", report(2, Outcome::Success)),
        ],
        moments: vec![0, 600_000],
        second_clock_behind_ms: 0,
        bounds: Bounds { calls: 8, in_flight: 0, ..Bounds::default() },
        shows: &["propose", "vote", "approved", "denied", "expired approval", "approval_refused", "exec_intent"],
        short_depth: 7,
    }
}

/// One proposal that anyone may grant, with everything in flight that can be.
pub(super) fn in_flight() -> World {
    let note = || json!({ "text": "a" });
    World {
        name: "approvals-in-flight",
        about: "one proposal, granted, denied, and resumed by proposer and approver while all of it is in flight",
        calls: vec![
            call("P1", decide(1, "note", note())),
            call("A1", What::Resume { request: 1, into: 6 }),
            call("A2", What::Resolve { request: 1, grant: true }),
            call("A2", What::Resolve { request: 1, grant: false }),
            twice("P1", resumption(4, "note", note(), 1)),
            call("P1", resumption(5, "note", json!({ "text": "b" }), 1)),
            call("P2", resumption(7, "note", note(), 1)),
        ],
        bounds: Bounds { calls: 6, in_flight: 3, ..Bounds::default() },
        shows: &["propose", "approved", "denied", "expired approval", "exec_intent", "election"],
        short_depth: 8,
        ..world()
    }
}
