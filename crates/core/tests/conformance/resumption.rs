//! Case 98: an approver resumes a proposal in the proposer's name (AADP §11.3).

use placet_core::event::{ApprovalRefStatus, ApprovalState, Body};
use placet_core::ids::ApprovalId;
use placet_core::op::{Answer, Reject};
use placet_core::reply::DecideReply;
use serde_json::json;

use super::features;
use super::fixture::{Pdp, request, says, t0, tiers, with};

fn propose(pdp: &mut Pdp) -> ApprovalId {
    pdp.ask("wire.send", json!({"amount_eur": "400"})).approval_id.unwrap()
}

fn driven(pdp: &mut Pdp, id: &ApprovalId) -> DecideReply {
    match pdp.resume_as("A1", id).unwrap() {
        Answer::Decide(reply) => reply,
        other => panic!("not a decide reply: {other:?}"),
    }
}

#[test]
fn case_098_an_approver_drives_the_resumption() {
    for granted_before in [false, true] {
        let mut pdp = Pdp::new();
        let id = propose(&mut pdp);
        if granted_before {
            pdp.grant(&id);
        }
        let reply = driven(&mut pdp, &id);
        assert_eq!((says(&reply), tiers(&reply)), (("permit", "passed"), (3, 1)));
        let permit = reply.permit_id.clone().unwrap();
        assert_eq!(pdp.state.permits[&permit].principal.as_str(), "P1");
        assert_eq!(pdp.counter("wire.send.eur_day", "2026-08-17"), "400");
        let (entry, decided) = (pdp.entry(reply.evidence_id), pdp.decided(&reply));
        assert_eq!((entry.principal.as_str(), decided.resumed_by.unwrap().as_str()), ("P1", "A1"));
        assert_eq!(decided.resumes, Some(pdp.state.approvals[&id].proposal));
        assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
        // The request has an id of its own, which the proposer learns from the approval.
        let view = pdp.approval_view(&id);
        assert_ne!(view.request_id, decided.request_id);
        assert_eq!(view.resumed_request, reply.request_id);
        // The approver cannot report it, nor ask for it.
        assert!(!pdp.report_as("A1", &super::fixture::report_body(&permit, "success")).accepted);
        let body = with(
            request("wire.send", json!({"amount_eur": "400"})),
            json!({"request_id": decided.request_id.as_str(), "approval_ref": id.as_str()}),
        );
        let withheld = pdp.decide_as("A1", &body);
        assert_eq!((says(&withheld), withheld.permit_id), (("permit", "passed"), None));
        // The proposer can do both.
        assert_eq!(pdp.decide(&body), DecideReply { replayed: true, ..reply });
        assert!(pdp.report(&permit, "success").accepted);
    }
}

#[test]
fn driving_re_evaluates_everything_and_spends_the_approval() {
    type Change = fn(&mut Pdp);
    let cases: [(Change, (&str, &str)); 4] = [
        (|pdp| pdp.switch(true), ("deny", "kill_switch")),
        (|pdp| pdp.edit(|d| drop(d.actions.remove("wire.send"))), ("deny", "default_deny")),
        (|pdp| pdp.edit(|d| d.actions.get_mut("wire.send").unwrap().dry_run = true), ("dry_run", "dry_run")),
        (
            |pdp| {
                pdp.edit(|d| d.budgets.get_mut("wire.send.eur_day").unwrap().limit = placet_core::exact::Amount::ONE);
            },
            ("deny", "cap_eur_day"),
        ),
    ];
    for (change, expected) in cases {
        let mut pdp = Pdp::new();
        let id = propose(&mut pdp);
        change(&mut pdp);
        let reply = driven(&mut pdp, &id);
        assert_eq!((says(&reply), reply.permit_id.is_none()), (expected, true));
        assert_eq!(pdp.decided(&reply).approval_ref_status, ApprovalRefStatus::Honored);
        assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
        assert!(matches!(pdp.resume_as("A1", &id), Err(Reject::Conflict { .. })), "single use");
    }
}

#[test]
fn who_may_drive_and_until_when() {
    let mut pdp = Pdp::new();
    let id = propose(&mut pdp);
    assert!(matches!(pdp.resume_as("P1", &id), Err(Reject::Forbidden { .. })));
    assert!(matches!(pdp.entries().pop().unwrap().body, Body::ApprovalRefused(_)));
    pdp.grant(&id);
    assert!(matches!(pdp.resume_as("P1", &id), Err(Reject::Forbidden { .. })), "nor when it is granted");
    pdp.now = t0().plus_ms(3_600_000);
    assert!(matches!(pdp.resume_as("A1", &id), Err(Reject::Conflict { .. })));
    assert_eq!(pdp.approval_state(&id), ApprovalState::Expired);
    let unknown = ApprovalId::from_random([3; 16]);
    assert!(matches!(pdp.resume_as("A1", &unknown), Err(Reject::NotFound { .. })));
}

/// Goal: what is recorded with redactions cannot be run by who does not hold the values.
#[test]
fn a_redacted_proposal_is_resumed_by_its_proposer_only() {
    let mut pdp = features::pdp();
    let params = json!({"pin": 1234, "colour": "red"});
    let id = pdp.ask("pay.secret", params.clone()).approval_id.unwrap();
    assert!(matches!(pdp.resume_as("A1", &id), Err(Reject::Conflict { .. })));
    pdp.grant(&id);
    let wrong =
        with(request("pay.secret", json!({"pin": 1235, "colour": "red"})), json!({"approval_ref": id.as_str()}));
    assert_eq!(says(&pdp.decide(&wrong)).0, "propose");
    let right = with(request("pay.secret", params), json!({"approval_ref": id.as_str()}));
    assert_eq!(says(&pdp.decide(&right)), ("permit", "passed"));
}
