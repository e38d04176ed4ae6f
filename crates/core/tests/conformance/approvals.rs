//! AADP §23.6: approvals; 98 has a room of its own. Concurrency (84, 90) runs on a cluster too.

use placet_core::event::{ApprovalRefStatus, ApprovalState, Body};
use placet_core::exact::Amount;
use placet_core::ids::ApprovalId;
use placet_core::op::{Answer, Reject};
use placet_core::reply::DecideReply;
use serde_json::{Value, json};

use super::fixture::{Pdp, request, says, t0, tiers, with};

/// P1 proposes a wire of this amount.
fn propose(pdp: &mut Pdp, amount: &str) -> ApprovalId {
    let reply = pdp.ask("wire.send", json!({"amount_eur": amount}));
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    reply.approval_id.unwrap()
}

fn resumption(id: &ApprovalId, params: Value) -> Value {
    with(request("wire.send", params), json!({"approval_ref": id.as_str()}))
}

fn resume(pdp: &mut Pdp, id: &ApprovalId) -> DecideReply {
    pdp.decide(&resumption(id, json!({"amount_eur": "400"})))
}

fn status(pdp: &Pdp, reply: &DecideReply) -> ApprovalRefStatus {
    pdp.decided(reply).approval_ref_status
}

fn granted(pdp: &mut Pdp) -> ApprovalId {
    let id = propose(pdp, "400");
    pdp.grant(&id);
    id
}

fn is_conflict(result: Result<Answer, Reject>) -> bool {
    matches!(result, Err(Reject::Conflict { .. }))
}

#[test]
fn case_082_a_proposal() {
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp, "400");
    let approval = &pdp.state.approvals[&id];
    assert_eq!((approval.state, approval.deadline), (ApprovalState::Pending, t0().plus_ms(3_600_000)));
    assert_eq!((pdp.state.meta.pending_approvals, pdp.waiting("wire.send", "P1").as_str()), (1, "1"));
    assert_eq!(pdp.reserved().0, 0);
}

#[test]
fn case_083_grant_twice() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    assert!(is_conflict(pdp.resolve("A2", &id, true)));
}

#[test]
fn case_084_one_of_many_grants() {
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp, "400");
    assert_eq!((0..20).filter(|_| pdp.resolve("A1", &id, true).is_ok()).count(), 1);
}

#[test]
fn case_085_grant_at_the_deadline() {
    for late_ms in [0, 1] {
        let mut pdp = Pdp::new();
        let id = propose(&mut pdp, "400");
        pdp.now = t0().plus_ms(3_600_000 + late_ms);
        assert!(is_conflict(pdp.resolve("A1", &id, true)));
        assert_eq!(pdp.approval_state(&id), ApprovalState::Expired);
        assert_eq!(pdp.entries().last().unwrap().body.kind(), "approval_transition");
    }
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp, "400");
    pdp.now = t0().plus_ms(3_599_999);
    pdp.grant(&id);
}

#[test]
fn case_086_a_grant_can_be_withdrawn_until_it_is_used() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.resolve("A2", &id, false).unwrap();
    assert_eq!(pdp.approval_state(&id), ApprovalState::Denied);
    assert_eq!(says(&resume(&mut pdp, &id)).0, "propose");
    let id = granted(&mut pdp);
    resume(&mut pdp, &id);
    assert!(is_conflict(pdp.resolve("A2", &id, false)));
}

#[test]
fn case_087_who_and_when() {
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp, "400");
    pdp.now = t0().plus_ms(1000);
    pdp.grant(&id);
    let approval = &pdp.state.approvals[&id];
    assert_eq!((approval.decided_by.as_ref().unwrap().as_str(), approval.decided_at), ("A1", Some(pdp.now)));
    let entry = pdp.entries().pop().unwrap();
    assert_eq!((entry.principal.as_str(), entry.at), ("A1", pdp.now));
}

#[test]
fn case_088_resumption() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    let reply = resume(&mut pdp, &id);
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(tiers(&reply), (3, 1));
    assert_eq!(pdp.counter("wire.send.eur_day", "2026-08-17"), "400");
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
    let decided = pdp.decided(&reply);
    assert_eq!(decided.approval_ref_status, ApprovalRefStatus::Honored);
    assert_eq!(decided.resumes, Some(pdp.state.approvals[&id].proposal));
    assert!(reply.obligations.iter().all(|o| o.kind != "undo_available_until"));
}

#[test]
fn case_089_an_approval_serves_once() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    resume(&mut pdp, &id);
    let again = resume(&mut pdp, &id);
    assert_eq!(says(&again), ("propose", "tier_confirm"));
    assert_eq!(status(&pdp, &again), ApprovalRefStatus::Consumed);
}

#[test]
fn case_090_one_of_many_resumptions() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    let verdicts: Vec<_> = (0..20).map(|_| says(&resume(&mut pdp, &id)).0).collect();
    assert_eq!(verdicts.iter().filter(|v| **v == "permit").count(), 1);
    assert_eq!(verdicts.iter().filter(|v| **v == "propose").count(), 19);
}

#[test]
fn case_091_the_switch_between_grant_and_resumption() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.switch(true);
    let reply = resume(&mut pdp, &id);
    assert_eq!(says(&reply), ("deny", "kill_switch"));
    assert_eq!(status(&pdp, &reply), ApprovalRefStatus::Honored);
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
}

#[test]
fn case_092_bounds_tightened_in_between() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.edit(|document| {
        let bounds = &mut document.actions.get_mut("wire.send").unwrap().bounds;
        bounds.numeric.get_mut("amount_eur").unwrap().max = placet_core::exact::Exact::parse_decimal("100");
    });
    assert_eq!(says(&resume(&mut pdp, &id)), ("deny", "bounds"));
    assert_eq!((pdp.approval_state(&id), pdp.reserved().0), (ApprovalState::Consumed, 0));
}

#[test]
fn case_093_the_budget_used_up_in_between() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.edit(|document| document.budgets.get_mut("wire.send.eur_day").unwrap().limit = Amount::parse("399").unwrap());
    assert_eq!(says(&resume(&mut pdp, &id)), ("deny", "cap_eur_day"));
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
}

#[test]
fn case_094_the_policy_deleted_in_between() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.edit(|document| {
        document.actions.remove("wire.send");
    });
    assert_eq!(says(&resume(&mut pdp, &id)), ("deny", "default_deny"));
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
}

#[test]
fn case_095_another_amount_does_not_spend_the_approval() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    for amount in [json!("401"), json!("400.00"), json!(400)] {
        let reply = pdp.decide(&resumption(&id, json!({"amount_eur": amount})));
        assert_eq!(says(&reply), ("propose", "tier_confirm"), "{amount}");
        assert_eq!(status(&pdp, &reply), ApprovalRefStatus::ActionMismatch);
    }
    assert_eq!(says(&resume(&mut pdp, &id)), ("permit", "passed"));
}

#[test]
fn case_096_spelling_does_not_matter() {
    let mut pdp = Pdp::new();
    let proposal = request("wire.send", json!({"amount_eur": 400})).to_string();
    let id = pdp.decide_bytes("P1", proposal.as_bytes()).approval_id.unwrap();
    pdp.grant(&id);
    let body = resumption(&id, json!({"amount_eur": "@"})).to_string();
    let respelled = body.replace("{\"amount_eur\":\"@\"}", "{ \"amount_eur\" : 400.00 }");
    assert_eq!(says(&pdp.decide_bytes("P1", respelled.as_bytes())), ("permit", "passed"));
}

#[test]
fn case_097_unusable_references_tell_nothing() {
    let mut pdp = Pdp::new();
    let pending = propose(&mut pdp, "400");
    let denied = propose(&mut pdp, "400");
    pdp.resolve("A1", &denied, false).unwrap();
    let expired = granted(&mut pdp);
    pdp.now = t0().plus_ms(3_600_000);
    let unknown = ApprovalId::from_random([1; 16]);
    let plain = pdp.ask("wire.send", json!({"amount_eur": "400"}));
    let still_pending = propose(&mut pdp, "400");
    for (id, expected) in [
        (unknown, ApprovalRefStatus::Unknown),
        (still_pending, ApprovalRefStatus::Unknown),
        (pending, ApprovalRefStatus::Expired),
        (expired, ApprovalRefStatus::Expired),
        (denied, ApprovalRefStatus::Consumed),
    ] {
        let reply = resume(&mut pdp, &id);
        assert_eq!(status(&pdp, &reply), expected);
        let shape = |reply: &DecideReply| {
            let mut value = serde_json::to_value(reply).unwrap();
            for member in ["request_id", "approval_id", "evidence_id"] {
                assert!(value[member].is_string());
                value[member] = json!("");
            }
            value
        };
        assert_eq!(shape(&reply), shape(&plain));
    }
}

#[test]
fn case_099_a_proposer_cannot_grant_its_own() {
    // The role is checked at the doors; whatever the role, the proposer is refused here.
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp, "400");
    assert!(matches!(pdp.resolve("P1", &id, true), Err(Reject::Forbidden { .. })));
    assert_eq!(pdp.approval_state(&id), ApprovalState::Pending);
}

#[test]
fn case_100_another_principal_cannot_use_it() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    let reply = pdp.decide_as("P2", &resumption(&id, json!({"amount_eur": "400"})));
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    assert_eq!(status(&pdp, &reply), ApprovalRefStatus::PrincipalMismatch);
    assert_eq!(says(&resume(&mut pdp, &id)), ("permit", "passed"));
}

#[test]
fn cost_eur_is_part_of_equivalence_where_no_parameter_is_the_cost() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.actions.get_mut("pay.fee").unwrap().effects = vec!["danger".to_owned()]);
    let fee = |cost: &str| with(request("pay.fee", json!({})), json!({"cost_eur": cost}));
    let id = pdp.decide(&fee("5")).approval_id.unwrap();
    pdp.grant(&id);
    let resumed = |cost: &str| with(fee(cost), json!({"approval_ref": id.as_str()}));
    let dear = pdp.decide(&resumed("50"));
    assert_eq!(status(&pdp, &dear), ApprovalRefStatus::ActionMismatch);
    assert_eq!(says(&pdp.decide(&resumed("5.00"))), ("permit", "passed"));
}

#[test]
fn a_lost_grant_is_an_entry() {
    let mut pdp = Pdp::new();
    let id = granted(&mut pdp);
    pdp.resolve("A2", &id, false).unwrap();
    let transitions: Vec<_> = pdp
        .entries()
        .into_iter()
        .filter_map(|entry| {
            if let Body::ApprovalTransition(change) = entry.body { Some((change.from, change.to)) } else { None }
        })
        .collect();
    assert_eq!(
        transitions,
        [(ApprovalState::Pending, ApprovalState::Approved), (ApprovalState::Approved, ApprovalState::Denied)]
    );
}
