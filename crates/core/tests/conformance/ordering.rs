//! AADP §23.3: ordering invariants. 45 to 47 are about the log here; processes and disks fail on a cluster.

use placet_core::op::{Op, Reject};
use placet_core::reply::Tier;
use placet_core::state::Overlay;
use serde_json::json;

use super::fixture::{POLICIES, Pdp, request, says, tiers, with};

#[test]
fn case_020_kill_switch_denies_an_acting_tier() {
    let mut pdp = Pdp::new();
    pdp.switch(true);
    let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
    assert_eq!((says(&reply), reply.approval_id), (("deny", "kill_switch"), None));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_021_kill_switch_comes_before_lookup() {
    let mut pdp = Pdp::new();
    pdp.switch(true);
    let reply = pdp.ask("nope.x", json!({}));
    assert_eq!((says(&reply), reply.approval_id), (("deny", "kill_switch"), None));
    assert_eq!(says(&pdp.ask("wire.send", json!({"amount_eur": "9000"}))), ("deny", "kill_switch"));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_022_no_tier_passes_the_switch() {
    let mut pdp = Pdp::new();
    pdp.switch(true);
    for tier in [Tier::Observe, Tier::Auto, Tier::AutoCapped, Tier::Confirm] {
        pdp.edit(|document| document.actions.get_mut("lamp.toggle").unwrap().tier = tier);
        let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
        assert_ne!(reply.verdict.as_str(), "permit", "{tier:?}");
        assert!(reply.permit_id.is_none());
    }
    // A floor takes an action off the read path, so the switch holds it too.
    pdp.edit(|document| {
        let toggle = document.actions.get_mut("lamp.toggle").unwrap();
        toggle.tier = Tier::Observe;
        toggle.effects = vec!["bulk".to_owned()];
    });
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": "on"}))), ("deny", "kill_switch"));
}

#[test]
fn case_023_a_read_is_observed_under_the_switch() {
    let mut pdp = Pdp::new();
    pdp.switch(true);
    let reply = pdp.ask("read.status", json!({}));
    assert_eq!(says(&reply), ("observe", "observe"));
    assert!(reply.permit_id.is_none());
    assert_eq!(tiers(&reply), (0, 0));
}

#[test]
fn case_024_unknown_action_is_denied() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("nope.x", json!({}));
    assert_eq!(says(&reply), ("deny", "default_deny"));
    assert_eq!(tiers(&reply), (3, 3));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_025_an_approval_cannot_resume_an_unknown_action() {
    let mut pdp = Pdp::new();
    // One that was put into the store by hand, for an action that no policy ever named.
    let id = pdp.ask("pay.danger", json!({})).approval_id.unwrap();
    pdp.grant(&id);
    let injected = placet_core::ids::ApprovalId::from_random([9; 16]);
    let mut approval = pdp.state.approvals[&id].clone();
    approval.approval_id = injected.clone();
    approval.action_type = placet_core::ids::ActionType::new("nope.x");
    pdp.state.approvals.insert(injected.clone(), approval);
    pdp.tampered = true;
    let reply = pdp.decide(&with(request("nope.x", json!({})), json!({"approval_ref": injected.as_str()})));
    assert_eq!(says(&reply), ("deny", "default_deny"));
    assert_eq!(pdp.decided(&reply).approval_ref_status, placet_core::event::ApprovalRefStatus::Honored);
    // One for an action that the policy no longer names.
    let mut pdp = Pdp::new();
    let proposal = pdp.ask("pay.danger", json!({}));
    let id = proposal.approval_id.unwrap();
    pdp.grant(&id);
    pdp.edit(|document| {
        document.actions.remove("pay.danger");
    });
    let reply = pdp.decide(&with(request("pay.danger", json!({})), json!({"approval_ref": id.as_str()})));
    assert_eq!(says(&reply), ("deny", "default_deny"));
}

#[test]
fn case_026_irreversible_auto_is_proposed() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("card.freeze", json!({}));
    assert_eq!(says(&reply), ("propose", "no_compensating_command"));
    assert_eq!(tiers(&reply), (1, 3));
    assert!(reply.approval_id.is_some());
}

#[test]
fn case_027_a_command_lost_at_run_time() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.actions.get_mut("pay.small").unwrap().compensating_command = None);
    let reply = pdp.pay("1");
    assert_eq!(says(&reply), ("propose", "no_compensating_command"));
    assert_eq!(tiers(&reply), (2, 3));
}

#[test]
fn case_028_the_loader_refuses_auto_without_a_command() {
    let mut pdp = Pdp::new();
    let before = pdp.state.meta.clone();
    let refused = pdp.publish("policies:\n  - action_type: card.freeze\n    tier: 1\n").unwrap_err();
    let Reject::PolicyMistakes { mistakes } = refused else { panic!("{refused:?}") };
    assert_eq!((mistakes.len(), mistakes[0].line, mistakes[0].column), (1, 2, 5));
    assert!(mistakes[0].message.contains("compensating_command"));
    assert_eq!(pdp.state.meta, before);
}

#[test]
fn case_029_bounds_before_proposal() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.ask("wire.send", json!({"amount_eur": "9000"}))), ("deny", "bounds"));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_030_bounds_before_the_reversibility_proposal() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        document.actions.get_mut("card.freeze").unwrap().bounds.required = vec!["card".to_owned()];
    });
    assert_eq!(says(&pdp.ask("card.freeze", json!({}))), ("deny", "bounds"));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_031_extra_parameter() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": "on", "extra": 1}))), ("deny", "bounds"));
}

#[test]
fn case_032_missing_parameter() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({}))), ("deny", "bounds"));
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": null}))), ("deny", "bounds"));
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": "dim"}))), ("deny", "bounds"));
}

#[test]
fn case_033_rehearsal_reserves_nothing() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("reh.b", json!({"amount_eur": "9"}));
    assert_eq!(says(&reply), ("dry_run", "dry_run"));
    assert!(reply.permit_id.is_none() && reply.obligations.is_empty());
    assert!(pdp.state.counters.is_empty() && pdp.state.permits.is_empty());
}

#[test]
fn case_034_rehearsal_never_meets_a_cap() {
    let mut pdp = Pdp::new();
    for _ in 0..5 {
        assert_eq!(says(&pdp.ask("reh.b", json!({"amount_eur": "9"}))), ("dry_run", "dry_run"));
    }
}

#[test]
fn case_035_an_approval_does_not_end_a_rehearsal() {
    let mut pdp = Pdp::new();
    let proposal = pdp.ask("reh.c", json!({}));
    assert_eq!(says(&proposal), ("propose", "tier_confirm"));
    let id = proposal.approval_id.unwrap();
    pdp.grant(&id);
    let reply = pdp.decide(&with(request("reh.c", json!({})), json!({"approval_ref": id.as_str()})));
    assert_eq!((says(&reply), reply.permit_id), (("dry_run", "dry_run"), None));
    assert_eq!(pdp.reserved(), (0, 0, 1));
    assert_eq!(pdp.approval_state(&id), placet_core::event::ApprovalState::Consumed);
}

#[test]
fn case_036_effect_floor_proposes() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("pay.danger", json!({}));
    assert_eq!(says(&reply), ("propose", "effect_floor"));
    assert_eq!(tiers(&reply), (2, 3));
}

#[test]
fn case_037_effect_floor_names_itself_on_a_permit() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("eff.two", json!({}));
    assert_eq!(says(&reply), ("permit", "effect_floor"));
    assert_eq!(tiers(&reply), (1, 2));
}

#[test]
fn case_039_a_permit() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(tiers(&reply), (1, 1));
    let kinds: Vec<&str> = reply.obligations.iter().map(|o| &*o.kind).collect();
    assert_eq!(kinds, ["report_result", "execute_within", "undo_available_until"]);
}

#[test]
fn case_045_a_restart_after_the_permit_left() {
    let mut pdp = Pdp::new();
    let permit = pdp.pay("60").permit_id.unwrap();
    // The process is gone; what is left is the log.
    pdp.state = pdp.restarted();
    assert_eq!(pdp.kinds(), ["exec_intent"], "one intent, no result");
    assert_eq!(pdp.state.permits[&permit].status, placet_core::state::PermitStatus::Held);
    assert_eq!((pdp.spent_day().as_str(), pdp.state.meta.open_permits), ("60", 1));
    assert!(pdp.report(&permit, "success").accepted);
    assert_eq!(pdp.spent_day(), "60");
}

#[test]
fn case_046_nothing_is_written_without_the_log() {
    // A decision that was evaluated and whose events never reached the log leaves no trace: evaluation cannot write.
    let pdp = Pdp::new();
    let before = format!("{:?}", pdp.state);
    let call = placet_core::op::Call {
        principal: placet_core::ids::Principal::new("P1"),
        op: Op::Decide(request("pay.small", json!({"payee": "x", "amount_eur": "60"})).to_string().into_bytes()),
    };
    let outcome =
        placet_core::evaluate::evaluate(&pdp.state, &call, pdp.now, Default::default(), &Default::default()).unwrap();
    assert_eq!(outcome.events.len(), 1);
    assert_eq!(format!("{:?}", pdp.state), before);
}

#[test]
fn case_047_intent_and_reservation_are_one_write() {
    // Between reserving and committing there is only memory: dropping it leaves neither intent nor reservation.
    let pdp = Pdp::new();
    let before = format!("{:?}", pdp.state);
    let call = placet_core::op::Call {
        principal: placet_core::ids::Principal::new("P1"),
        op: Op::Decide(request("pay.small", json!({"payee": "x", "amount_eur": "60"})).to_string().into_bytes()),
    };
    let outcome =
        placet_core::evaluate::evaluate(&pdp.state, &call, pdp.now, Default::default(), &Default::default()).unwrap();
    let mut overlay = Overlay::new(&pdp.state);
    for event in &outcome.events {
        placet_core::fold::fold(&mut overlay, event).unwrap();
    }
    let changes = overlay.into_changes();
    assert_eq!((changes.entries.len(), changes.permits.len(), changes.counters.len()), (1, 1, 3));
    drop(changes);
    assert_eq!(format!("{:?}", pdp.state), before);
}

#[test]
fn the_fixture_loads_in_the_loader() {
    let loaded = placet_core::policy::load(POLICIES).unwrap();
    assert_eq!(loaded.policy.document().actions.len(), 14);
}

/// Goal: no spelling of one value and no line break in it avoids a rule on parameters (found by review).
#[test]
fn parameter_rules_see_values_not_spellings() {
    let mut pdp = Pdp::new();
    let document = POLICIES.replace(
        "  - action_type: eff.two\n",
        "  - action_type: ruled\n    tier: 1\n    dry_run: false\n    compensating_command: pay.back\n    bounds: { strict_params: false }\n    param_effects:\n      - { param: n, pattern: \"[0-9]{4,}\", add_effects: [danger] }\n      - { param: u, pattern: \".*evil.*\", add_effects: [danger] }\n  - action_type: eff.two\n",
    );
    pdp.publish(&document).unwrap();
    for (params, expected) in [
        (r#"{"n":5000}"#, "propose"),
        (r#"{"n":5e3}"#, "propose"),
        (r#"{"n":5000.0}"#, "propose"),
        (r#"{"n":"5000"}"#, "propose"),
        (r#"{"n":500}"#, "permit"),
        (r#"{"u":"x\nevil"}"#, "propose"),
        (r#"{"u":"good"}"#, "permit"),
    ] {
        let body = request("ruled", json!("@")).to_string().replace("\"@\"", params);
        assert_eq!(says(&pdp.decide_bytes("P1", body.as_bytes())).0, expected, "{params}");
    }
    // Longer than a pattern is run over: treated as a match.
    assert_eq!(says(&pdp.ask("ruled", json!({"u": "g".repeat(5000)}))).0, "propose");
    let escaping = document.replace(".*evil.*", "a)|(?:b");
    assert!(matches!(pdp.publish(&escaping), Err(Reject::PolicyMistakes { .. })));
}

/// Goal: a read that a floor escalated runs at tier 1 once a human agreed (AADP §6.4).
#[test]
fn an_approved_read_runs_at_tier_one() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        let read = document.actions.get_mut("read.status").unwrap();
        read.effects = vec!["danger".to_owned()];
        read.dry_run = false;
    });
    let proposal = pdp.ask("read.status", json!({}));
    assert_eq!((says(&proposal), tiers(&proposal)), (("propose", "effect_floor"), (0, 3)));
    let id = proposal.approval_id.unwrap();
    pdp.grant(&id);
    let reply = pdp.decide(&with(request("read.status", json!({})), json!({"approval_ref": id.as_str()})));
    assert_eq!((says(&reply), tiers(&reply)), (("permit", "passed"), (0, 1)));
}

/// Goal: a name keeps its unit, so that what was spent keeps its meaning.
#[test]
fn a_budget_cannot_change_its_unit() {
    let mut pdp = Pdp::new();
    let document = |unit: &str| {
        format!(
            "apiVersion: placet/v1\nbudgets:\n  b: {{ kind: value, unit: {unit}, limit: 100, window: day }}\npolicies:\n  - {{ action_type: a, tier: 3, cost: {{ param: x, unit: {unit} }}, draws: [b], bounds: {{ required: [x] }} }}\n"
        )
    };
    pdp.publish(&document("EUR")).unwrap();
    assert!(matches!(pdp.publish(&document("USD")), Err(Reject::Conflict { .. })));
    pdp.publish(&document("EUR").replace("100", "200")).unwrap();
}
