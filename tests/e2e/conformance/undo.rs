//! AADP §20: an undo is a decide like every other, and links to one act once.

use serde_json::{Value, json};

use super::fixture::{Case, case, case_alone};
use crate::harness::{says, text, with};

/// A lamp that was switched on, and reported so.
async fn toggled(case: &Case) -> Value {
    let reply = case.ask("lamp.toggle", json!({"state": "on"})).await;
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(case.report(text(&reply, "permit_id"), "success").await["accepted"], true);
    reply
}

fn reversal(case: &Case, original: &Value) -> Value {
    let members = json!({"source": "undo", "parent_id": original["evidence_id"]});
    with(case.body("lamp.restore", json!({"state": "on"})), members)
}

async fn undo(case: &Case, original: &Value) -> Value {
    case.client().decide(&reversal(case, original)).await
}

#[test]
fn case_042_an_undo_is_permitted_and_linked_once() {
    case("c042", async |case| {
        let original = toggled(&case).await;
        let reply = undo(&case, &original).await;
        assert_eq!(says(&reply), ("permit", "passed"));
        let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
        assert_eq!(format!("aud-{}", entry["undo_of"]), text(&original, "evidence_id"));
        assert_eq!(entry["parent_id"], original["evidence_id"]);
        let again = undo(&case, &original).await;
        assert_eq!(says(&again), ("deny", "x-placet.undo_refused"));
        assert!(again.get("permit_id").is_none());
    });
}

#[test]
fn case_043_an_undo_has_no_privilege_under_the_switch() {
    case_alone("c043", async |case| {
        let original = toggled(&case).await;
        case.switch(true).await;
        assert_eq!(says(&undo(&case, &original).await), ("deny", "kill_switch"));
        case.switch(false).await;
        assert_eq!(says(&undo(&case, &original).await), ("permit", "passed"));
    });
}

#[test]
fn case_044_an_undo_of_a_raised_command_is_proposed() {
    case("c044", async |case| {
        let original = toggled(&case).await;
        let command = case.name("lamp.restore");
        let (from, to) =
            (format!("action_type: {command}\n    tier: 1"), format!("action_type: {command}\n    tier: 3"));
        case.edit(|policies| policies.replace(&from, &to)).await;
        let proposal = undo(&case, &original).await;
        assert_eq!(says(&proposal), ("propose", "tier_confirm"));
        let id = text(&proposal, "approval_id");
        case.client().grant(id).await;
        let body = with(reversal(&case, &original), json!({"approval_ref": id}));
        assert_eq!(says(&case.client().decide(&body).await), ("permit", "passed"));
    });
}
