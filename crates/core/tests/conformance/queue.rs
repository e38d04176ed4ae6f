//! Case 134 and the count of waiting proposals (AADP §16).

use placet_core::ids::ApprovalId;
use placet_core::limits::PENDING_PER_PRINCIPAL_DEFAULT;
use serde_json::{Value, json};

use super::features::{self, ratify};
use super::fixture::{Pdp, request, says, t0, with};

const FULL: (&str, &str) = ("deny", "x-placet.proposals_exhausted");

fn ask(pdp: &mut Pdp, name: &str) -> Option<ApprovalId> {
    let reply = pdp.ask(name, json!({}));
    assert!(says(&reply) == FULL || says(&reply) == ("propose", "tier_confirm"), "{reply:?}");
    reply.approval_id
}

#[test]
fn case_134_a_flood_of_proposals_is_bounded() {
    let mut pdp = features::pdp();
    let mut opened: Vec<ApprovalId> = Vec::new();
    // A thousand in a minute: the queue of twenty holds.
    for step in 0..1000 {
        pdp.now = t0().plus_ms(step * 59);
        opened.extend(ask(&mut pdp, "flood"));
    }
    assert_eq!((opened.len(), pdp.state.approvals.len()), (20, 20));
    assert_eq!((pdp.state.meta.pending_approvals, pdp.waiting("flood", "P1").as_str()), (20, "20"));
    // Nobody else waits behind it: another principal, another action, another operation.
    assert_eq!(says(&pdp.decide_as("P2", &request("flood", json!({})))).0, "propose");
    assert_eq!(says(&pdp.ask("flood.plain", json!({}))).0, "propose");
    assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": "on"}))).0, "permit");
    for id in &opened[..10] {
        pdp.grant(id);
    }
    assert_eq!(pdp.waiting("flood", "P1"), "10");
    // The rate of thirty in a minute holds although there is room again: 20 came already.
    for _ in 0..50 {
        opened.extend(ask(&mut pdp, "flood"));
    }
    assert_eq!((opened.len(), pdp.waiting("flood", "P1").as_str()), (30, "20"));
    pdp.resolve("A1", &opened[15], false).unwrap();
    assert_eq!(ask(&mut pdp, "flood"), None, "the minute is full");
    pdp.now = pdp.now.plus_ms(62_000);
    assert!(ask(&mut pdp, "flood").is_some(), "the next minute is not");
    pdp.switch(true);
    assert_eq!(says(&pdp.ask("flood", json!({}))), ("deny", "kill_switch"));
    pdp.switch(false);
    // What nobody decides ends by itself.
    pdp.now = pdp.now.plus_ms(3_600_000);
    pdp.sweep();
    assert_eq!((pdp.state.meta.pending_approvals, pdp.waiting("flood", "P1").as_str()), (0, "0"));
}

#[test]
fn without_a_word_of_the_policy_there_is_still_a_bound() {
    let mut pdp = features::pdp();
    let opened = (0..PENDING_PER_PRINCIPAL_DEFAULT + 5).filter(|_| ask(&mut pdp, "flood.plain").is_some()).count();
    assert_eq!(opened as u64, PENDING_PER_PRINCIPAL_DEFAULT);
}

/// Goal: however an approval ends, it leaves the queue once.
#[test]
fn the_count_returns_to_zero() {
    type End = fn(&mut Pdp, &ApprovalId, &Value);
    let resumed: End = |pdp, id, body| {
        pdp.grant(id);
        let again = with(body.clone(), json!({"request_id": super::fixture::uuid(), "approval_ref": id.as_str()}));
        assert_eq!(says(&pdp.decide(&again)).0, "permit");
    };
    let ends: [(&str, &str, End); 8] = [
        ("granted", "flood.plain", |pdp, id, _| pdp.grant(id)),
        ("denied", "flood.plain", |pdp, id, _| drop(pdp.resolve("A1", id, false).unwrap())),
        ("taken back", "flood.plain", |pdp, id, _| drop(pdp.resolve("P1", id, false).unwrap())),
        ("withdrawn", "flood.plain", |pdp, id, _| {
            pdp.grant(id);
            pdp.resolve("A2", id, false).unwrap();
        }),
        ("expired", "flood.plain", |pdp, _, _| pdp.now = pdp.now.plus_ms(3_600_000)),
        ("resumed", "flood.plain", resumed),
        ("driven", "flood.plain", |pdp, id, _| drop(pdp.resume_as("A1", id).unwrap())),
        ("ratified", "mandated.auto", |pdp, id, _| drop(ratify(pdp, id, true).unwrap())),
    ];
    for (how, name, end) in ends {
        let mut pdp = features::pdp();
        let body = request(name, json!({}));
        let id = pdp.decide(&body).approval_id.unwrap();
        assert_eq!((pdp.waiting(name, "P1").as_str(), pdp.state.meta.pending_approvals), ("1", 1), "{how}");
        end(&mut pdp, &id, &body);
        pdp.sweep();
        assert_eq!((pdp.waiting(name, "P1").as_str(), pdp.state.meta.pending_approvals), ("0", 0), "{how}");
        pdp.now = pdp.now.plus_ms(7_200_000);
        pdp.sweep();
        assert_eq!((pdp.waiting(name, "P1").as_str(), pdp.state.meta.pending_approvals), ("0", 0), "{how}, later");
    }
}
