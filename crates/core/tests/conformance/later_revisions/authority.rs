//! Cases L11 to L16: the mandate authority, bound audiences, idempotency keys.

use placet_core::evaluate::{mandate_statement, ratification_statement};
use placet_core::event::{ApprovalState, Body, MandateSet};
use placet_core::ids::{ActionType, ApprovalId, Hash};
use placet_core::op::{Op, Reject};
use placet_core::reply::{DecideReply, Tier};
use serde_json::json;

use crate::features::{self, mandate, ratify};
use crate::fixture::{Pdp, report_body, request, says, tiers, with};

#[test]
fn case_l11_the_mandate_authority_denies_or_defers() {
    let mut pdp = features::pdp();
    let pending = pdp.ask("mandated.auto", json!({"n": 1}));
    assert_eq!((says(&pending), tiers(&pending)), (("propose", "external_authorization"), (1, 3)));
    let view = pdp.approval_view(pending.approval_id.as_ref().unwrap());
    assert_eq!((view.needs_authority, view.ratified), (true, false));
    // A later denial wins: bounds are judged although the mandate is pending.
    let bounds = pdp.ask("mandated.auto", json!({"n": 11}));
    assert_eq!((says(&bounds), bounds.approval_id), (("deny", "bounds"), None));
    // Already with a human: both must agree, and the reason stays.
    assert_eq!(says(&pdp.ask("mandated.confirm", json!({}))), ("propose", "tier_confirm"));
    assert_eq!(says(&pdp.ask("mandated.floor", json!({}))), ("propose", "effect_floor"));
    mandate(&mut pdp, "mandated.auto", true, 1).unwrap();
    let before = pdp.state.approvals.len();
    for n in [1, 11] {
        let denied = pdp.ask("mandated.auto", json!({"n": n}));
        assert_eq!((says(&denied), denied.approval_id), (("deny", "external_authorization"), None));
    }
    assert_eq!(pdp.state.approvals.len(), before);
    // The word can be taken back, by a newer statement only.
    assert!(matches!(mandate(&mut pdp, "mandated.auto", false, 1), Err(Reject::Conflict { .. })));
    mandate(&mut pdp, "mandated.auto", false, 2).unwrap();
    assert_eq!(says(&pdp.ask("mandated.auto", json!({"n": 1}))).0, "propose");
}

#[test]
fn case_l12_an_approver_cannot_ratify() {
    let mut pdp = features::pdp();
    let id = pdp.ask("mandated.auto", json!({})).approval_id.unwrap();
    for attempt in 0..3 {
        let refused = match attempt {
            0 => pdp.resolve("A1", &id, true),
            1 => pdp.resume_as("A1", &id),
            _ => pdp.call("A1", Op::RatifyApproval { id: id.clone(), approved: true, signature: "00".repeat(64) }),
        };
        assert!(matches!(refused, Err(Reject::Forbidden { .. })), "{refused:?}");
        let entry = pdp.entries().pop().unwrap();
        let Body::ApprovalRefused(recorded) = entry.body else { panic!("another kind") };
        assert_eq!((entry.principal.as_str(), &recorded.approval_id), ("A1", &id));
        assert_eq!(recorded.attempt, if attempt < 2 { "grant" } else { "ratify" });
    }
    // Where a human is needed as well, the authority comes first.
    let both = pdp.ask("mandated.confirm", json!({})).approval_id.unwrap();
    assert!(matches!(pdp.resolve("A1", &both, true), Err(Reject::Forbidden { .. })));
    ratify(&mut pdp, &both, true).unwrap();
    assert_eq!(pdp.approval_state(&both), ApprovalState::Pending);
    pdp.resolve("A1", &both, true).unwrap();
    assert_eq!(pdp.approval_state(&both), ApprovalState::Approved);
    // A signature speaks about one approval and one answer.
    let other = pdp.ask("mandated.auto", json!({})).approval_id.unwrap();
    let statement = ratification_statement(None, &pdp.state.approvals[&other], false);
    for (id, approved) in [(&id, true), (&id, false), (&other, true)] {
        let op = Op::RatifyApproval { id: id.clone(), approved, signature: features::sign(&statement) };
        assert!(matches!(pdp.call("A1", op), Err(Reject::Forbidden { .. })));
    }
    ratify(&mut pdp, &other, false).unwrap();
    assert_eq!(pdp.approval_state(&other), ApprovalState::Denied);
}

#[test]
fn case_l13_one_ratification_one_execution() {
    let resumed = |pdp: &mut Pdp, name: &str, id: &ApprovalId| {
        let reply = pdp.decide(&with(request(name, json!({})), json!({"approval_ref": id.as_str()})));
        says(&reply)
    };
    let mut pdp = features::pdp();
    let id = pdp.ask("mandated.auto", json!({})).approval_id.unwrap();
    ratify(&mut pdp, &id, true).unwrap();
    assert!(matches!(ratify(&mut pdp, &id, true), Err(Reject::Conflict { .. })));
    assert!(matches!(ratify(&mut pdp, &id, false), Err(Reject::Conflict { .. })));
    assert_eq!(resumed(&mut pdp, "mandated.auto", &id), ("permit", "passed"));
    assert_eq!(resumed(&mut pdp, "mandated.auto", &id), ("propose", "external_authorization"));
    assert!(matches!(pdp.resume_as("A1", &id), Err(Reject::Conflict { .. })));
    assert_eq!(pdp.state.permits.len(), 1);
    // The switch, a standing denial and time end what was ratified (found here: a denial did not).
    type Change = fn(&mut Pdp);
    let cases: [(Change, (&str, &str)); 3] = [
        (|pdp| pdp.switch(true), ("deny", "kill_switch")),
        (|pdp| drop(mandate(pdp, "mandated.auto", true, 1).unwrap()), ("deny", "external_authorization")),
        (|pdp| pdp.now = pdp.now.plus_ms(3_600_000), ("propose", "external_authorization")),
    ];
    for (change, expected) in cases {
        let mut pdp = features::pdp();
        let id = pdp.ask("mandated.auto", json!({})).approval_id.unwrap();
        ratify(&mut pdp, &id, true).unwrap();
        change(&mut pdp);
        assert_eq!(resumed(&mut pdp, "mandated.auto", &id), expected);
    }
    // A human's approval is not the authority's, also when the policy asks for it only later (found here).
    let mut pdp = features::pdp();
    let id = pdp.ask("flood.plain", json!({})).approval_id.unwrap();
    pdp.grant(&id);
    pdp.edit(|document| document.actions.get_mut("flood.plain").unwrap().requires_external_authorization = true);
    assert_eq!(resumed(&mut pdp, "flood.plain", &id), ("propose", "tier_confirm"));
    assert!(pdp.state.approvals.values().any(|approval| approval.terms.authority));
}

#[test]
fn case_l14_another_audience_is_denied_before_anything_else() {
    for presented in [None, Some("https://bank.example/other"), Some("https://bank.example/act/"), Some("")] {
        let mut pdp = features::pdp();
        for (name, params) in [("bound.act", json!({"amount": "1"})), ("bound.confirm", json!({}))] {
            let body = match presented {
                Some(audience) => with(request(name, params), json!({"presented_audience": audience})),
                None => request(name, params),
            };
            let reply = pdp.decide(&body);
            assert_eq!(says(&reply), ("deny", "present_bound"), "{presented:?}");
            assert_eq!(pdp.reserved(), (0, 0, 0));
            assert_eq!(pdp.waiting("bound.confirm", "P1"), "0");
        }
    }
}

#[test]
fn case_l15_the_audience_is_an_obligation() {
    let mut pdp = features::pdp();
    let audience = json!({"presented_audience": "https://bank.example/act"});
    let reply = pdp.decide(&with(request("bound.act", json!({"amount": "1"})), audience));
    assert_eq!(says(&reply), ("permit", "passed"));
    let bound = reply.obligations.iter().find(|one| one.kind == "present_bound").unwrap();
    assert_eq!((bound.value.as_deref(), bound.required), (Some("https://bank.example/act"), true));
    // What an ordinary enforcement point then reports: nothing was attempted, and the value goes back.
    let body = with(
        report_body(reply.permit_id.as_ref().unwrap(), "not_attempted"),
        json!({"error": "obligation `present_bound` is not supported"}),
    );
    let reported = pdp.report_as("P1", &body);
    let Body::ExecResult(result) = pdp.entry(reported.evidence_id).body else { panic!("another kind") };
    assert!(result.error.unwrap().contains("present_bound"));
    assert_eq!(pdp.counter("eur-day", "2026-08-17"), "0");
}

#[test]
fn case_l16_one_permit_one_idempotency_key() {
    let mut pdp = features::pdp();
    let key = |reply: &DecideReply| reply.obligations.iter().find(|one| one.kind == "idempotency_key").unwrap().clone();
    let body = request("obliged", json!({"n": 1}));
    let first = pdp.decide(&body);
    assert!(key(&first).required);
    assert_eq!(key(&pdp.decide(&body)), key(&first), "the same permit, the same key");
    let second = pdp.ask("obliged", json!({"n": 1}));
    assert_ne!(key(&second).value, key(&first).value, "equal arguments are another act");
    let permit = first.permit_id.unwrap();
    assert_eq!(key(&pdp.decide(&body)).value, Some(permit.digest().to_string()), "a function of the permit only");
    assert!(!key(&second).value.unwrap().contains("pmt-"));
}

/// Goal: an authority stands in for no human, whatever the policy came to ask meanwhile.
#[test]
fn a_ratification_is_no_grant() {
    type Edit = fn(&mut placet_core::policy::Document);
    let edits: [Edit; 3] = [
        |document| document.actions.get_mut("mandated.auto").unwrap().tier = Tier::Confirm,
        |document| document.actions.get_mut("mandated.auto").unwrap().effects = vec!["egress".to_owned()],
        |document| {
            let action = document.actions.get_mut("mandated.auto").unwrap();
            action.tier = Tier::Confirm;
            action.requires_external_authorization = false;
        },
    ];
    for (at, edit) in edits.into_iter().enumerate() {
        let mut pdp = features::pdp();
        let id = pdp.ask("mandated.auto", json!({"n": 1})).approval_id.unwrap();
        ratify(&mut pdp, &id, true).unwrap();
        assert_eq!(pdp.approval_state(&id), ApprovalState::Approved);
        pdp.edit(edit);
        let reference = json!({"approval_ref": id.as_str()});
        let reply = pdp.decide(&with(request("mandated.auto", json!({"n": 1})), reference));
        assert_eq!((says(&reply).0, reply.permit_id), ("propose", None), "edit {at}");
    }
}

/// Goal: a group that came after the grant has not spoken yet.
#[test]
fn a_grant_of_one_is_no_quorum() {
    let mut pdp = features::pdp();
    let id = pdp.ask("mandated.confirm", json!({})).approval_id.unwrap();
    ratify(&mut pdp, &id, true).unwrap();
    pdp.grant(&id);
    pdp.edit(|document| {
        document.actions.get_mut("mandated.confirm").unwrap().approval.group = Some("treasury".to_owned());
    });
    let reply = pdp.decide(&with(request("mandated.confirm", json!({})), json!({"approval_ref": id.as_str()})));
    assert_eq!((says(&reply).0, reply.permit_id), ("propose", None));
}

/// Goal: a statement signed for one cluster is none for another, and the word of a key ends with it.
#[test]
fn a_standing_word_is_for_one_cluster_and_of_one_key() {
    let action_type = ActionType::new("mandated.auto");
    let signature = features::sign(&mandate_statement(Hash::of(b"staging"), &action_type, false, 9));
    let word = MandateSet { action_type, authority: None, denied: false, serial: 9, signature };
    let mut production = features::pdp();
    mandate(&mut production, "mandated.auto", true, 1).unwrap();
    let replayed = production.call("A4", Op::SetMandate(word));
    assert!(matches!(replayed, Err(Reject::Forbidden { .. })), "{replayed:?}");
    assert_eq!(says(&production.ask("mandated.auto", json!({"n": 1}))).0, "deny");
    production.edit(|document| document.mandate_authority = Some("11".repeat(32)));
    assert_eq!(says(&production.ask("mandated.auto", json!({"n": 1}))).0, "propose");
}
