//! The kill switch in parts (AADP §7): scoped ones, their release, and what they leave alone.

use placet_core::event::SwitchScope;
use placet_core::ids::{ActionType, Principal};
use placet_core::limits::SCOPED_SWITCHES_MAX;
use placet_core::op::{Answer, Query, Reject};
use serde_json::{Value, json};

use super::features;
use super::fixture::{Pdp, request, says, t0};

fn action(name: &str) -> SwitchScope {
    SwitchScope::ActionType(ActionType::new(name))
}

fn effect(label: &str) -> SwitchScope {
    SwitchScope::Effect(label.to_owned())
}

fn principal(name: &str) -> SwitchScope {
    SwitchScope::Principal(Principal::new(name))
}

/// What each scope stops, and what it does not.
#[test]
fn a_scope_stops_what_it_names() {
    let bank = || json!({"url": "https://bank.example/"});
    let other = || json!({"url": "https://other.example/"});
    let on = || json!({"state": "on"});
    let cases: Vec<(SwitchScope, &str, &str, Value, bool)> = vec![
        (action("lamp.toggle"), "P1", "lamp.toggle", on(), true),
        (action("lamp.toggle"), "P1", "lamp.restore", on(), false),
        (action("lamp.toggle"), "P1", "lamp.toggle", json!({"state": "dim"}), true),
        (action("lamp.toggl"), "P1", "lamp.toggle", on(), false),
        (action("nope.x"), "P1", "nope.x", json!({}), true),
        (effect("spend"), "P1", "pay.card", json!({"amount": "5", "currency": "EUR"}), true),
        (effect("spend"), "P1", "lamp.toggle", on(), false),
        // An effect that an argument adds counts like one that the policy declares.
        (effect("egress"), "P1", "web.get", bank(), true),
        (effect("egress"), "P1", "web.get", json!({"url": "https://BANK.example./x"}), true),
        (effect("egress"), "P1", "web.get", json!({"url": "https://bit.ly/x"}), true),
        (effect("egress"), "P1", "web.get", other(), false),
        (effect("web"), "P1", "web.get", bank(), false),
        (principal("P1"), "P1", "lamp.toggle", on(), true),
        (principal("P1"), "P2", "lamp.toggle", on(), false),
        (principal("P1"), "P1", "read.status", json!({}), false),
        (action("read.status"), "P1", "read.status", json!({}), false),
    ];
    for (scope, who, name, params, stopped) in cases {
        let mut pdp = features::pdp();
        pdp.scoped(&scope, true).unwrap();
        let reply = pdp.decide_as(who, &request(name, params.clone()));
        assert_eq!(says(&reply) == ("deny", "kill_switch"), stopped, "{scope} {who} {name} {params}: {reply:?}");
        if stopped {
            assert!(reply.permit_id.is_none() && reply.approval_id.is_none());
            assert!(reply.detail.contains(&scope.to_string()), "{}", reply.detail);
            let last = pdp.trace(&reply).pop().unwrap();
            assert_eq!((&*last.check, &*last.rule), ("kill_switch", &*format!("kill_switch:{scope}")));
            assert_eq!(pdp.reserved(), (0, 0, 0));
        } else {
            assert_ne!(says(&reply).1, "kill_switch");
        }
        pdp.scoped(&scope, false).unwrap();
        let after = pdp.decide_as(who, &request(name, params));
        assert_ne!(says(&after).1, "kill_switch", "{scope} is released");
        assert!(pdp.state.meta.switches.is_empty());
    }
}

#[test]
fn a_release_of_one_leaves_the_others() {
    let mut pdp = features::pdp();
    let on = json!({"state": "on"});
    for scope in [action("lamp.toggle"), principal("P1")] {
        pdp.scoped(&scope, true).unwrap();
    }
    pdp.switch(true);
    assert_eq!(pdp.ask("lamp.toggle", on.clone()).detail, "the kill switch is engaged", "the widest one is named");
    pdp.switch(false);
    pdp.scoped(&action("lamp.toggle"), false).unwrap();
    assert_eq!(says(&pdp.ask("lamp.toggle", on.clone())), ("deny", "kill_switch"));
    pdp.scoped(&principal("P1"), false).unwrap();
    assert_eq!(says(&pdp.ask("lamp.toggle", on)), ("permit", "passed"));
}

#[test]
fn an_approval_does_not_pass_a_scoped_switch() {
    let mut pdp = features::pdp();
    let params = json!({"url": "https://bank.example/"});
    let id = pdp.ask("web.get", params.clone()).approval_id.unwrap();
    pdp.grant(&id);
    pdp.scoped(&effect("egress"), true).unwrap();
    let body = super::fixture::with(request("web.get", params), json!({"approval_ref": id.as_str()}));
    assert_eq!(says(&pdp.decide(&body)), ("deny", "kill_switch"));
    assert_eq!(pdp.approval_state(&id), placet_core::event::ApprovalState::Consumed);
}

/// Goal: a read that needs an authority is no plain read, so no switch lets it through to a proposal (found here).
#[test]
fn a_read_that_needs_a_mandate_is_stopped() {
    let mut pdp = features::pdp();
    pdp.switch(true);
    assert_eq!(says(&pdp.ask("mandated.read", json!({}))), ("deny", "kill_switch"));
    assert_eq!(pdp.reserved(), (0, 0, 0));
    pdp.switch(false);
    assert_eq!(says(&pdp.ask("mandated.read", json!({}))), ("propose", "external_authorization"));
}

#[test]
fn the_number_of_scoped_switches_is_bounded() {
    let mut pdp = features::pdp();
    for n in 0..SCOPED_SWITCHES_MAX {
        pdp.scoped(&principal(&format!("S{n}")), true).unwrap();
    }
    assert!(matches!(pdp.scoped(&principal("P1"), true), Err(Reject::Conflict { .. })));
    // One that is engaged can be engaged again, the global one works, and a release makes room.
    pdp.scoped(&principal("S0"), true).unwrap();
    pdp.switch(true);
    pdp.switch(false);
    pdp.scoped(&principal("S0"), false).unwrap();
    pdp.scoped(&principal("P1"), true).unwrap();
    for nothing in [effect(""), principal(""), action("über"), effect(&"x".repeat(300))] {
        assert!(matches!(pdp.scoped(&nothing, true), Err(Reject::Invalid { .. })), "{nothing}");
    }
}

#[test]
fn each_scope_has_its_own_lift_report() {
    let lift = |answer: Answer| match answer {
        Answer::KillSwitch(view) => serde_json::to_value(view.policy).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut pdp = features::pdp();
    let (first, second) = (action("lamp.toggle"), effect("spend"));
    assert_eq!(lift(pdp.scoped(&first, false).unwrap()), "no_episode");
    pdp.scoped(&first, true).unwrap();
    pdp.now = t0().plus_ms(1000);
    pdp.publish(&features::document().replace("limit: 400", "limit: 401")).unwrap();
    pdp.scoped(&first, true).unwrap();
    pdp.scoped(&second, true).unwrap();
    let Answer::KillSwitch(view) = pdp.query_as("A1", &Query::KillSwitch) else { panic!("not a switch") };
    let since: Vec<_> = view.scoped.iter().map(|one| (one.scope.clone().unwrap(), one.since.unwrap())).collect();
    assert!(!view.engaged);
    assert!(since.contains(&(first.clone(), t0())), "engaging again keeps the first moment: {since:?}");
    assert!(since.contains(&(second.clone(), pdp.now)));
    assert_eq!(lift(pdp.scoped(&first, false).unwrap()), "changed");
    assert_eq!(lift(pdp.scoped(&second, false).unwrap()), "unchanged");
}

/// Goal: a permit that has not started is stopped by whichever switch covers it, for as long as it is engaged, and can
/// be reported all the same.
#[test]
fn a_permit_is_checked_before_its_act() {
    let mut pdp = features::pdp();
    let reply = pdp.ask("pay.card", json!({"amount": "5", "currency": "EUR"}));
    let permit = reply.permit_id.unwrap();
    let check = pdp.check_permit("P1", &permit);
    assert_eq!((check.usable, check.evidence_id), (true, Some(reply.evidence_id.to_string())));
    assert_eq!(check.deadline, Some(t0().plus_ms(600_000)));
    assert_eq!(pdp.check_permit("P2", &permit).reason.as_deref(), Some("unknown"));
    for (scope, stops) in [
        (action("pay.card"), true),
        (effect("spend"), true),
        (principal("P1"), true),
        (action("lamp.toggle"), false),
        (effect("web"), false),
        (principal("P2"), false),
    ] {
        pdp.scoped(&scope, true).unwrap();
        let check = pdp.check_permit("P1", &permit);
        assert_eq!((check.usable, check.reason.is_some()), (!stops, stops), "{scope}");
        pdp.scoped(&scope, false).unwrap();
        assert!(pdp.check_permit("P1", &permit).usable, "{scope}");
    }
    pdp.switch(true);
    assert_eq!(pdp.check_permit("P1", &permit).reason.as_deref(), Some("kill_switch"));
    assert!(pdp.report(&permit, "not_attempted").accepted);
    assert_eq!(pdp.check_permit("P1", &permit).reason.as_deref(), Some("reported"));
    pdp.switch(false);
    let second = pdp.ask("lamp.toggle", json!({"state": "on"})).permit_id.unwrap();
    pdp.now = t0().plus_ms(600_000);
    assert_eq!(pdp.check_permit("P1", &second).reason.as_deref(), Some("expired"));
    pdp.sweep();
    assert_eq!(pdp.check_permit("P1", &second).reason.as_deref(), Some("expired"));
}

#[test]
fn the_static_list_leaves_out_what_is_stopped() {
    let names = |pdp: &Pdp, who: &str| -> Vec<String> {
        pdp.static_actions(who).actions.iter().map(|one| one.action_type.as_str().to_owned()).collect()
    };
    let mut pdp = features::pdp();
    let all = ["lamp.restore", "lamp.toggle", "pay.back", "read.status"];
    assert_eq!(names(&pdp, "P1"), all);
    assert_eq!(pdp.static_actions("P1").policy, pdp.state.meta.active_policy);
    pdp.scoped(&action("lamp.toggle"), true).unwrap();
    assert_eq!(names(&pdp, "P1"), ["lamp.restore", "pay.back", "read.status"]);
    pdp.scoped(&principal("P1"), true).unwrap();
    assert_eq!((names(&pdp, "P1"), names(&pdp, "P2").len()), (vec!["read.status".to_owned()], 3));
    pdp.switch(true);
    assert_eq!(names(&pdp, "P2"), ["read.status"]);
}
