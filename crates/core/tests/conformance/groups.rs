//! Groups of approvers and their quorum, withdrawal, and time to live (AADP §11.2).

use placet_core::event::{ApprovalState, Body};
use placet_core::ids::ApprovalId;
use placet_core::op::{Answer, Reject};
use serde_json::json;

use super::features;
use super::fixture::{Pdp, request, says, t0, with};

/// P2 proposes a wire that the treasury decides: two of A1, A2, A3, P1.
fn proposed_by(pdp: &mut Pdp, principal: &str) -> ApprovalId {
    let reply = pdp.decide_as(principal, &request("wire.treasury", json!({"amount": "100"})));
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    reply.approval_id.unwrap()
}

fn resume(pdp: &mut Pdp, id: &ApprovalId) -> (&'static str, &'static str) {
    let body = with(request("wire.treasury", json!({"amount": "100"})), json!({"approval_ref": id.as_str()}));
    says(&pdp.decide_as("P2", &body))
}

/// Votes in order, the state after each, and what the last one is told.
fn votes(pdp: &mut Pdp, id: &ApprovalId, who: &[&str]) -> Vec<ApprovalState> {
    who.iter()
        .map(|who| {
            let _told = pdp.resolve(who, id, true);
            pdp.approval_state(id)
        })
        .collect()
}

use ApprovalState::{Approved, Consumed, Denied, Expired, Pending};

#[test]
fn two_of_three_distinct_members_grant() {
    for (who, expected) in [
        (vec!["A1", "A2"], vec![Pending, Approved]),
        (vec!["A3", "A1"], vec![Pending, Approved]),
        (vec!["A1", "A1", "A1"], vec![Pending, Pending, Pending]),
        (vec!["A9", "A1", "A9"], vec![Pending, Pending, Pending]),
        (vec!["P2", "A1", "P2"], vec![Pending, Pending, Pending]),
        (vec!["A1", "A9", "A1", "A2"], vec![Pending, Pending, Pending, Approved]),
    ] {
        let mut pdp = features::pdp();
        let id = proposed_by(&mut pdp, "P2");
        assert_eq!(votes(&mut pdp, &id, &who), expected, "{who:?}");
        assert_eq!(pdp.waiting("wire.treasury", "P2"), if expected.contains(&Approved) { "0" } else { "1" });
        let ready = expected.last() == Some(&Approved);
        assert_eq!(resume(&mut pdp, &id).0, if ready { "permit" } else { "propose" }, "{who:?}");
    }
}

#[test]
fn the_view_shows_group_quorum_and_votes() {
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    let Answer::Approval(view) = pdp.resolve("A2", &id, true).unwrap() else { panic!("not an approval") };
    assert_eq!((view.state, view.decided_by), (Pending, None));
    let view = pdp.approval_view(&id);
    let names: Vec<_> = view.votes.iter().map(|vote| vote.as_str()).collect();
    assert_eq!((view.group.as_deref(), view.quorum, names), (Some("treasury"), 2, vec!["A2"]));
}

#[test]
fn a_member_that_proposes_has_no_vote() {
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P1");
    assert!(matches!(pdp.resolve("P1", &id, true), Err(Reject::Forbidden { .. })));
    assert_eq!(votes(&mut pdp, &id, &["A1", "P1"]), [Pending, Pending]);
    assert_eq!(votes(&mut pdp, &id, &["A2"]), [Approved]);
    assert!(matches!(pdp.resume_as("P1", &id), Err(Reject::Forbidden { .. })));
}

#[test]
fn an_outsider_is_refused_and_recorded() {
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    for (grant, attempt) in [(true, "grant"), (false, "deny")] {
        assert!(matches!(pdp.resolve("A9", &id, grant), Err(Reject::Forbidden { .. })));
        let entry = pdp.entries().pop().unwrap();
        let Body::ApprovalRefused(refused) = entry.body else { panic!("another kind") };
        assert_eq!((entry.principal.as_str(), refused.attempt.as_str()), ("A9", attempt));
        assert_eq!((refused.approval_id, refused.proposal), (id.clone(), pdp.state.approvals[&id].proposal));
    }
    assert!(matches!(pdp.resume_as("A9", &id), Err(Reject::Forbidden { .. })));
    assert_eq!(pdp.approval_state(&id), Pending);
}

/// Goal: whose vote counts, and how many are needed, is what the policy says when the last one votes.
#[test]
fn the_group_changes_between_the_votes() {
    type Change = fn(&mut Vec<String>, &mut u32);
    let cases: [(&str, Change, &[&str], &[ApprovalState]); 4] = [
        ("the first voter leaves", |members, _| members.retain(|one| one != "A1"), &["A2", "A3"], &[Pending, Approved]),
        ("the quorum is raised", |_, quorum| *quorum = 3, &["A2", "A3"], &[Pending, Approved]),
        ("the quorum is lowered", |_, quorum| *quorum = 1, &["A2"], &[Approved]),
        ("the voter-to-be leaves", |members, _| members.retain(|one| one != "A2"), &["A2", "A3"], &[Pending, Approved]),
    ];
    for (name, change, who, expected) in cases {
        let mut pdp = features::pdp();
        let id = proposed_by(&mut pdp, "P2");
        assert_eq!(votes(&mut pdp, &id, &["A1"]), [Pending]);
        pdp.edit(|document| {
            let group = document.approvers.get_mut("treasury").unwrap();
            change(&mut group.members, &mut group.quorum);
        });
        assert_eq!(votes(&mut pdp, &id, who), expected, "{name}");
    }
    // A group that is gone grants nothing; anyone who may deny still can.
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    pdp.edit(|document| {
        document.approvers.clear();
        document.actions.get_mut("wire.treasury").unwrap().approval.group = None;
    });
    assert!(matches!(pdp.resolve("A1", &id, true), Err(Reject::Conflict { .. })));
    pdp.resolve("A1", &id, false).unwrap();
    assert_eq!(pdp.approval_state(&id), Denied);
}

#[test]
fn one_member_denies() {
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    votes(&mut pdp, &id, &["A1"]);
    pdp.resolve("A2", &id, false).unwrap();
    assert_eq!((pdp.approval_state(&id), pdp.waiting("wire.treasury", "P2").as_str()), (Denied, "0"));
    assert!(matches!(pdp.resolve("A3", &id, true), Err(Reject::Conflict { .. })));
    assert_eq!(resume(&mut pdp, &id).0, "propose");
}

#[test]
fn a_grant_is_withdrawn_before_its_use_and_not_after() {
    for by in ["A3", "P2"] {
        let mut pdp = features::pdp();
        let id = proposed_by(&mut pdp, "P2");
        votes(&mut pdp, &id, &["A1", "A2"]);
        assert!(matches!(pdp.resolve("A9", &id, false), Err(Reject::Forbidden { .. })));
        pdp.resolve(by, &id, false).unwrap();
        assert_eq!((pdp.approval_state(&id), resume(&mut pdp, &id).0), (Denied, "propose"));
    }
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    votes(&mut pdp, &id, &["A1", "A2"]);
    assert_eq!(resume(&mut pdp, &id), ("permit", "passed"));
    assert!(matches!(pdp.resolve("A3", &id, false), Err(Reject::Conflict { .. })));
    assert_eq!(pdp.approval_state(&id), Consumed);
}

#[test]
fn the_time_to_live_bounds_votes_and_use() {
    for granted in [false, true] {
        let mut pdp = features::pdp();
        let id = proposed_by(&mut pdp, "P2");
        assert_eq!(pdp.state.approvals[&id].deadline, t0().plus_ms(1_800_000), "the action's own");
        votes(&mut pdp, &id, if granted { &["A1", "A2"] } else { &["A1"] });
        pdp.now = t0().plus_ms(1_800_000);
        assert!(matches!(pdp.resolve("A3", &id, true), Err(Reject::Conflict { .. })));
        assert!(matches!(pdp.resolve("A3", &id, false), Err(Reject::Conflict { .. })));
        assert_eq!((pdp.approval_state(&id), pdp.waiting("wire.treasury", "P2").as_str()), (Expired, "0"));
        assert_eq!(resume(&mut pdp, &id).0, "propose");
    }
}

#[test]
fn an_approver_drives_the_last_vote() {
    let mut pdp = features::pdp();
    let id = proposed_by(&mut pdp, "P2");
    let Answer::Approval(view) = pdp.resume_as("A1", &id).unwrap() else { panic!("one vote decides nothing") };
    assert_eq!(view.state, Pending);
    assert!(matches!(pdp.resume_as("A1", &id), Err(Reject::Conflict { .. })));
    let Answer::Decide(reply) = pdp.resume_as("A2", &id).unwrap() else { panic!("not a decide reply") };
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(pdp.state.permits[&reply.permit_id.unwrap()].principal.as_str(), "P2");
}
