//! AADP §20 and cases 42 to 44: an undo is a decide like every other, and links to one intent once.

use placet_core::event::ApprovalState;
use placet_core::ids::EvidenceIndex;
use placet_core::reply::{DecideReply, Tier};
use serde_json::{Value, json};

use super::fixture::{Pdp, request, says, t0, tiers, with};

/// `lamp.toggle`, permitted and reported with this outcome.
fn toggled(pdp: &mut Pdp, outcome: &str) -> DecideReply {
    let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
    assert_eq!(says(&reply), ("permit", "passed"));
    assert!(pdp.report(reply.permit_id.as_ref().unwrap(), outcome).accepted);
    reply
}

fn reversal(parent: &str) -> Value {
    with(request("lamp.restore", json!({"state": "on"})), json!({"source": "undo", "parent_id": parent}))
}

fn undo(pdp: &mut Pdp, of: &DecideReply) -> DecideReply {
    pdp.decide(&reversal(&of.evidence_id.to_string()))
}

fn undone_by(pdp: &Pdp, original: &DecideReply) -> Option<EvidenceIndex> {
    pdp.state.permits[original.permit_id.as_ref().unwrap()].undone_by
}

const REFUSED: (&str, &str) = ("deny", "x-placet.undo_refused");

#[test]
fn case_042_an_undo_is_permitted_and_linked() {
    for by_permit in [false, true] {
        let mut pdp = Pdp::new();
        let original = toggled(&mut pdp, "success");
        let parent = if by_permit {
            original.permit_id.as_ref().unwrap().as_str().to_owned()
        } else {
            original.evidence_id.to_string()
        };
        let reply = pdp.decide(&reversal(&parent));
        assert_eq!((says(&reply), tiers(&reply)), (("permit", "passed"), (1, 1)));
        let decided = pdp.decided(&reply);
        assert_eq!((decided.undo_of, decided.parent_id), (Some(original.evidence_id), Some(parent)));
        assert_eq!(undone_by(&pdp, &original), Some(reply.evidence_id));
        // The link is unique, also once the reversal is reported.
        assert_eq!(says(&undo(&mut pdp, &original)), REFUSED);
        assert!(pdp.report(&reply.permit_id.unwrap(), "success").accepted);
        assert_eq!(says(&undo(&mut pdp, &original)), REFUSED);
        assert_eq!(undone_by(&pdp, &original), Some(reply.evidence_id));
    }
}

#[test]
fn case_043_an_undo_has_no_privilege_under_the_switch() {
    let mut pdp = Pdp::new();
    let original = toggled(&mut pdp, "success");
    pdp.switch(true);
    let reply = undo(&mut pdp, &original);
    assert_eq!(says(&reply), ("deny", "kill_switch"));
    assert!(reply.permit_id.is_none());
    assert_eq!((pdp.decided(&reply).undo_of, undone_by(&pdp, &original)), (None, None));
    pdp.switch(false);
    assert_eq!(says(&undo(&mut pdp, &original)), ("permit", "passed"));
}

#[test]
fn case_044_an_undo_of_a_raised_command_is_proposed() {
    let mut pdp = Pdp::new();
    let original = toggled(&mut pdp, "success");
    pdp.edit(|document| document.actions.get_mut("lamp.restore").unwrap().tier = Tier::Confirm);
    let proposal = undo(&mut pdp, &original);
    assert_eq!((says(&proposal), tiers(&proposal)), (("propose", "tier_confirm"), (3, 3)));
    assert_eq!(undone_by(&pdp, &original), None, "a proposal reverses nothing yet");
    let id = proposal.approval_id.unwrap();
    pdp.grant(&id);
    let reference = json!({"approval_ref": id.as_str()});
    let resumed = pdp.decide(&with(reversal(&original.evidence_id.to_string()), reference));
    assert_eq!(says(&resumed), ("permit", "passed"));
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
    assert_eq!(undone_by(&pdp, &original), Some(resumed.evidence_id));
}

/// Goal: of two undos that race, whatever their order and whoever approved them, one reverses.
#[test]
fn of_two_undos_one_wins() {
    let mut pdp = Pdp::new();
    let original = toggled(&mut pdp, "success");
    pdp.edit(|document| document.actions.get_mut("lamp.restore").unwrap().tier = Tier::Confirm);
    let approvals: Vec<_> = (0..2).map(|_| undo(&mut pdp, &original).approval_id.unwrap()).collect();
    let verdicts: Vec<_> = approvals
        .iter()
        .map(|id| {
            pdp.grant(id);
            let reference = json!({"approval_ref": id.as_str()});
            says(&pdp.decide(&with(reversal(&original.evidence_id.to_string()), reference)))
        })
        .collect();
    assert_eq!(verdicts, [("permit", "passed"), REFUSED]);
    assert!(approvals.iter().all(|id| pdp.approval_state(id) == ApprovalState::Consumed));
}

/// Goal: a reversal that did not happen leaves the act reversible; one that may have happened does not.
#[test]
fn the_link_is_free_again_only_when_nothing_was_reversed() {
    for (outcome, no_effect, free) in [
        (Some("success"), false, false),
        (Some("failure"), false, false),
        (Some("timeout"), false, false),
        (Some("timeout"), true, false),
        (Some("failure"), true, true),
        (Some("not_attempted"), false, true),
        // It expired, and nobody knows: reversing twice is worse than not at all.
        (None, false, false),
    ] {
        let mut pdp = Pdp::new();
        let original = toggled(&mut pdp, "success");
        let first = undo(&mut pdp, &original).permit_id.unwrap();
        match outcome {
            Some(outcome) => {
                let body = with(super::fixture::report_body(&first, outcome), json!({"no_effect": no_effect}));
                assert!(pdp.report_as("P1", &body).accepted);
            }
            None => {
                pdp.now = t0().plus_ms(600_000);
                pdp.sweep();
            }
        }
        assert_eq!(undone_by(&pdp, &original).is_none(), free, "{outcome:?} {no_effect}");
        let again = undo(&mut pdp, &original);
        assert_eq!(says(&again), if free { ("permit", "passed") } else { REFUSED }, "{outcome:?} {no_effect}");
    }
}

/// Goal: every precondition of AADP §20 refuses, gives no permit and leaves no link.
#[test]
fn what_cannot_be_undone() {
    type Setup = fn(&mut Pdp) -> (String, &'static str);
    let cases: [(&str, Setup, &str); 9] = [
        ("a failure", |pdp| (toggled(pdp, "failure").evidence_id.to_string(), "P1"), "success"),
        ("a timeout", |pdp| (toggled(pdp, "timeout").evidence_id.to_string(), "P1"), "success"),
        ("unreported", |pdp| (pdp.ask("lamp.toggle", json!({"state": "on"})).evidence_id.to_string(), "P1"), "success"),
        (
            "expired",
            |pdp| {
                let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
                pdp.now = t0().plus_ms(600_000);
                (reply.evidence_id.to_string(), "P1")
            },
            "success",
        ),
        ("foreign", |pdp| (toggled(pdp, "success").evidence_id.to_string(), "P2"), "principal"),
        ("nothing", |_| ("aud-99".to_owned(), "P1"), "principal"),
        ("an invention", |_| ("pmt-0".to_owned(), "P1"), "principal"),
        (
            "a late one",
            |pdp| {
                let reply = toggled(pdp, "success");
                pdp.now = t0().plus_ms(900_000);
                (reply.evidence_id.to_string(), "P1")
            },
            "window",
        ),
        (
            "another command",
            |pdp| {
                let reply = toggled(pdp, "success");
                pdp.edit(|document| {
                    let toggle = document.actions.get_mut("lamp.toggle").unwrap();
                    toggle.compensating_command = Some("pay.back".to_owned());
                });
                (reply.evidence_id.to_string(), "P1")
            },
            "compensating",
        ),
    ];
    for (name, setup, detail) in cases {
        let mut pdp = Pdp::new();
        let (parent, principal) = setup(&mut pdp);
        let reply = pdp.decide_as(principal, &reversal(&parent));
        assert_eq!(says(&reply), REFUSED, "{name}");
        assert!(reply.detail.contains(detail), "{name}: {}", reply.detail);
        assert!(pdp.state.permits.values().all(|permit| permit.undone_by.is_none()), "{name}");
    }
    // The window is open to its last millisecond, and a capped action has none.
    let mut pdp = Pdp::new();
    let original = toggled(&mut pdp, "success");
    pdp.now = t0().plus_ms(899_999);
    assert_eq!(says(&undo(&mut pdp, &original)).0, "permit");
    let mut pdp = Pdp::new();
    let paid = pdp.pay("1");
    pdp.report(paid.permit_id.as_ref().unwrap(), "success");
    let body =
        with(request("pay.back", json!({})), json!({"source": "undo", "parent_id": paid.evidence_id.to_string()}));
    assert_eq!(says(&pdp.decide(&body)), REFUSED);
}
