//! The global switch and one for an effect, engaged and released while permits are in flight, and an approved act that
//! meets them.

use placet_core::event::SwitchScope;
use serde_json::json;

use crate::world::{ActionFact, Bounds, Granters, What, World, call, decide, resumption};

const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 10m, approval_ttl: 10m }
effects:
  money: {}
policies:
  - { action_type: pay, tier: 1, dry_run: false, compensating_command: pay, effects: [money], bounds: { strict_params: false } }
  - { action_type: lamp, tier: 1, dry_run: false, compensating_command: lamp, bounds: { strict_params: false } }
  - { action_type: wire, tier: 3, dry_run: false, effects: [money], bounds: { strict_params: false } }
"#;

const ACTIONS: &[ActionFact] = &[
    ActionFact { name: "pay", draws: &[], effects: &["money"], granted_by: None },
    ActionFact { name: "lamp", draws: &[], effects: &[], granted_by: None },
    ActionFact {
        name: "wire",
        draws: &[],
        effects: &["money"],
        granted_by: Some(Granters { members: None, quorum: 1 }),
    },
];

pub(super) fn world() -> World {
    let money = || Some(SwitchScope::Effect("money".to_owned()));
    World {
        name: "switches",
        about: "the global switch and a scoped one against permits in flight, an approved act, and a change of the leader",
        policy: POLICY,
        budgets: &[],
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            call("P1", decide(0, "pay", json!({}))),
            call("P2", decide(1, "lamp", json!({}))),
            call("P1", decide(2, "wire", json!({}))),
            call("A1", What::Resolve { request: 2, grant: true }),
            call("P1", resumption(3, "wire", json!({}), 2)),
            call("O1", What::Switch { engaged: true, scope: None }),
            call("O1", What::Switch { engaged: false, scope: None }),
            call("O1", What::Switch { engaged: true, scope: money() }),
            call("O1", What::Switch { engaged: false, scope: money() }),
        ],
        moments: vec![0],
        second_clock_behind_ms: 0,
        bounds: Bounds { calls: 6, in_flight: 2, ..Bounds::default() },
        shows: &["kill_switch", "exec_intent", "deny", "propose", "approved", "election"],
        short_depth: 7,
    }
}
