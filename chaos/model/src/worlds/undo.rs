//! An act and three attempts to reverse it, one by somebody else; reversals end in every way, the permit and the undo
//! window run out.

use placet_core::request::Outcome;
use serde_json::json;

use crate::world::{ActionFact, Bounds, World, call, decide, report, reversal, twice};

const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 10m }
policies:
  - { action_type: lamp, tier: 1, dry_run: false, compensating_command: dark, undo_window: 15m, bounds: { strict_params: false } }
  - { action_type: dark, tier: 1, dry_run: false, compensating_command: lamp, bounds: { strict_params: false } }
"#;

const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "lamp", draws: &[], effects: &[], granted_by: None },
    ActionFact { name: "dark", draws: &[], effects: &[], granted_by: None },
];

pub(super) fn world() -> World {
    let on = || json!({ "room": "1" });
    World {
        name: "undo",
        about: "one act, reversed twice and by somebody else, with every end of a reversal, expiry and a closed window",
        policy: POLICY,
        budgets: &[],
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            call("P1", decide(0, "lamp", on())),
            call("P1", report(0, Outcome::Success)),
            call("P1", report(0, Outcome::Timeout)),
            twice("P1", reversal(1, "dark", on(), 0)),
            call("P1", reversal(2, "dark", on(), 0)),
            call("P2", reversal(3, "dark", on(), 0)),
            call("P1", report(1, Outcome::NotAttempted)),
            call("P1", report(1, Outcome::Success)),
            call("P1", report(2, Outcome::Success)),
        ],
        moments: vec![0, 600_000, 900_000],
        second_clock_behind_ms: 0,
        bounds: Bounds { calls: 7, in_flight: 0, ..Bounds::default() },
        shows: &["exec_intent", "exec_result", "deny", "reservation_expired", "report_refused", "election"],
        short_depth: 6,
    }
}
