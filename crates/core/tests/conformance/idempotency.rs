//! AADP §23.5: idempotency and capability identifiers. Concurrency (73, 78) runs on a cluster too; here the order is
//! whatever the one task of the leader makes it.

use std::collections::HashSet;

use placet_core::event::Body;
use placet_core::ids::{ApprovalId, PermitId};
use placet_core::reply::DecideReply;
use serde_json::{Value, json};

use super::fixture::{Pdp, report_body, request, says, uuid, with};

fn replayed(reply: DecideReply) -> DecideReply {
    DecideReply { replayed: true, ..reply }
}

fn payment() -> Value {
    request("pay.small", json!({"payee": "x", "amount_eur": "60"}))
}

#[test]
fn case_069_replay_of_a_permit() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    let counters = pdp.state.counters.clone();
    assert_eq!(pdp.decide(&body), replayed(first));
    assert_eq!(pdp.state.counters, counters);
    assert_eq!(pdp.kinds(), ["exec_intent"]);
}

#[test]
fn case_070_replay_of_every_other_verdict() {
    let mut pdp = Pdp::new();
    for (action, params) in
        [("nope.x", json!({})), ("pay.danger", json!({})), ("reh.a", json!({})), ("read.status", json!({}))]
    {
        let body = request(action, params);
        let first = pdp.decide(&body);
        let approvals = pdp.state.approvals.len();
        assert_eq!(pdp.decide(&body), replayed(first), "{action}");
        assert_eq!(pdp.state.approvals.len(), approvals);
    }
}

#[test]
fn case_071_replay_after_the_policy_became_stricter() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    pdp.edit(|document| {
        document.actions.remove("pay.small");
    });
    assert_eq!(pdp.decide(&body), replayed(first));
}

#[test]
fn case_072_replay_after_the_switch() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    pdp.switch(true);
    assert_eq!(pdp.decide(&body), replayed(first.clone()));
    // The permit is unchanged: its report is taken, under the switch too.
    let permit = first.permit_id.unwrap();
    assert_eq!(pdp.state.permits[&permit].status, placet_core::state::PermitStatus::Held);
    assert!(pdp.report(&permit, "success").accepted);
}

#[test]
fn case_073_twenty_decides_of_one_request() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    for _ in 1..20 {
        assert_eq!(DecideReply { replayed: false, ..pdp.decide(&body) }, first);
    }
    assert_eq!((pdp.state.permits.len(), pdp.spent_day().as_str(), pdp.kinds()), (1, "60", vec!["exec_intent"]));
}

#[test]
fn case_074_replay_with_other_arguments() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    let counters = pdp.state.counters.clone();
    for changed in [
        json!({"params": {"payee": "x", "amount_eur": "61"}}),
        json!({"action_type": "pay.fee"}),
        json!({"cost_eur": "1"}),
        json!({"parent_id": "aud-1"}),
        json!({"approval_ref": "apr-1"}),
    ] {
        let reply = pdp.decide(&with(body.clone(), changed));
        assert_eq!(says(&reply), says(&first));
        assert!(reply.permit_id.is_none() && reply.approval_id.is_none() && reply.obligations.is_empty());
        let Body::ReplayMismatch(mismatch) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
        assert_eq!((mismatch.original, mismatch.differs.as_str()), (first.evidence_id, "request"));
    }
    assert_eq!(pdp.state.counters, counters);
    // Spelling is not a difference.
    let respelled = with(body, json!({"params": {"amount_eur": "60", "payee": "x"}, "rationale": "again"}));
    assert_eq!(pdp.decide(&respelled), replayed(first));
}

#[test]
fn case_075_replay_by_another_principal() {
    let mut pdp = Pdp::new();
    let body = payment();
    let first = pdp.decide(&body);
    let reply = pdp.decide_as("P2", &body);
    assert_eq!(says(&reply), says(&first));
    assert!(reply.permit_id.is_none() && reply.obligations.is_empty());
    // A malformed request decides nothing, so its id is still free.
    let mut corrected = request("lamp.toggle", json!({"state": "on"}));
    let broken = with(corrected.clone(), json!({"source": "nobody"}));
    assert_eq!(says(&pdp.decide(&broken)).1, "malformed");
    corrected["request_id"] = broken["request_id"].clone();
    assert_eq!(says(&pdp.decide(&corrected)), ("permit", "passed"));
}

#[test]
fn case_076_identifiers_carry_128_random_bits() {
    // Goal: the identifier is the random bits and nothing else, so it repeats or can be derived only if they can.
    let mut seen = HashSet::new();
    for n in 0..10_000u32 {
        let bits: [u8; 16] = blake3::hash(&n.to_be_bytes()).as_bytes()[..16].try_into().unwrap();
        let (permit, approval) = (PermitId::from_random(bits), ApprovalId::from_random(bits));
        assert_eq!(permit.as_str().len(), "pmt-".len() + 32);
        assert_eq!(permit.as_str()[4..], approval.as_str()[4..]);
        assert!(seen.insert(permit));
    }
}

#[test]
fn case_077_report_twice() {
    let mut pdp = Pdp::new();
    let permit = pdp.decide(&payment()).permit_id.unwrap();
    let first = pdp.report(&permit, "success");
    let result = pdp.entry(first.evidence_id);
    let counters = pdp.state.counters.clone();
    let second = pdp.report(&permit, "failure");
    assert!(first.accepted && !second.accepted);
    assert_eq!(pdp.entry(first.evidence_id), result);
    assert_eq!(pdp.state.counters, counters);
}

#[test]
fn case_078_one_of_many_reports_is_accepted() {
    let mut pdp = Pdp::new();
    let permit = pdp.decide(&payment()).permit_id.unwrap();
    let accepted = (0..10).filter(|_| pdp.report(&permit, "success").accepted).count();
    assert_eq!((accepted, pdp.kinds().iter().filter(|kind| **kind == "exec_result").count()), (1, 1));
}

#[test]
fn case_079_an_invented_permit_looks_like_a_foreign_one() {
    let mut pdp = Pdp::new();
    let permit = pdp.decide(&payment()).permit_id.unwrap();
    for protocol in ["aadp/0.1", "aadp/0.2"] {
        let body = |permit: &PermitId| with(report_body(permit, "success"), json!({"protocol": protocol}));
        let invented = pdp.report_as("P2", &body(&PermitId::from_random([7; 16])));
        let foreign = pdp.report_as("P2", &body(&permit));
        assert!(!invented.accepted);
        assert!(!foreign.accepted);
        assert_eq!((invented.reason, &invented.detail), (foreign.reason, &foreign.detail));
    }
    assert_eq!(pdp.spent_day(), "60");
}

#[test]
fn case_080_a_foreign_report_is_refused_and_recorded() {
    let mut pdp = Pdp::new();
    let permit = pdp.decide(&payment()).permit_id.unwrap();
    let body = report_body(&permit, "success");
    assert_eq!(pdp.report_as("P2", &body).reason, None);
    let refused = pdp.report_as("P2", &with(body, json!({"protocol": "aadp/0.2"})));
    assert_eq!(refused.reason.unwrap().as_str(), "sender_mismatch");
    let Body::ReportRefused(recorded) = pdp.entry(refused.evidence_id).body else { panic!("another kind") };
    assert!(recorded.intent.is_some());
    assert_eq!(pdp.spent_day(), "60");
    assert!(pdp.report(&permit, "success").accepted);
}

#[test]
fn case_081_resumption_with_the_proposals_request_id() {
    let mut pdp = Pdp::new();
    let body = request("wire.send", json!({"amount_eur": "400"}));
    let proposal = pdp.decide(&body);
    let id = proposal.approval_id.clone().unwrap();
    pdp.grant(&id);
    let reply = pdp.decide(&with(body, json!({"approval_ref": id.as_str()})));
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    assert!(reply.permit_id.is_none() && reply.replayed);
    assert_eq!(pdp.approval_state(&id), placet_core::event::ApprovalState::Approved);
}

#[test]
fn a_report_about_a_decision_without_a_permit_is_information() {
    let mut pdp = Pdp::new();
    let body = request("reh.a", json!({}));
    let decision = pdp.decide(&body);
    let report = |id: &Value| json!({"protocol": "aadp/0.1", "request_id": id, "outcome": "not_attempted", "completed_at": "2026-08-17T09:00:01Z"});
    let reply = pdp.report_as("P1", &report(&body["request_id"]));
    assert!(reply.accepted);
    let Body::ReportNoted(noted) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
    assert_eq!(noted.decision, Some(decision.evidence_id));
    // A permit is reported by its permit id, or not at all.
    let permitted = payment();
    pdp.decide(&permitted);
    assert!(!pdp.report_as("P1", &report(&permitted["request_id"])).accepted);
    assert!(pdp.report_as("P1", &report(&json!(uuid()))).accepted);
}

#[test]
fn a_malformed_report_is_refused_by_name() {
    let mut pdp = Pdp::new();
    let permit = pdp.decide(&payment()).permit_id.unwrap();
    for (change, field) in [
        (json!({"outcome": "done"}), "outcome"),
        (json!({"completed_at": null}), "completed_at"),
        (json!({"permit_id": null}), "permit_id"),
        (json!({"payload": [1]}), "payload"),
        (json!({"no_effect": "yes"}), "no_effect"),
        (json!({"protocol": "aadp/2.0"}), "protocol"),
    ] {
        let reply = pdp.report_as("P1", &with(report_body(&permit, "success"), change));
        assert_eq!((reply.accepted, reply.reason.unwrap().as_str()), (false, "malformed"));
        assert!(reply.detail.contains(field), "{}", reply.detail);
    }
    assert!(pdp.report(&permit, "success").accepted);
}
