//! AADP §23.3. 45 to 47 stop processes and have clusters of their own in `failover`; 42 to 44 are in `undo`.

use serde_json::json;

use super::fixture::{case, case_alone};
use crate::harness::{P1, POLICY, says, text, with};

#[test]
fn case_020_and_021_the_switch_denies_everything_that_acts() {
    case_alone("c020", async |case| {
        case.switch(true).await;
        for (action, params) in [
            ("lamp.toggle", json!({"state": "on"})),
            ("nope.x", json!({})),
            ("wire.send", json!({"amount_eur": "9000"})),
            ("pay.danger", json!({})),
        ] {
            assert_eq!(says(&case.ask(action, params).await), ("deny", "kill_switch"), "{action}");
        }
        assert!(case.approvals().await.is_empty());
    });
}

#[test]
fn case_022_no_tier_passes_the_switch() {
    case_alone("c022", async |case| {
        case.switch(true).await;
        for tier in [0, 1, 2, 3] {
            case.edit(|_| {
                let name = case.name("lamp.toggle");
                let command = if tier == 0 { String::new() } else { format!("compensating_command: {name}, ") };
                format!("  - {{ action_type: {name}, tier: {tier}, dry_run: false, {command}bounds: {{ strict_params: false }} }}\n")
            })
            .await;
            assert!(case.ask("lamp.toggle", json!({})).await.get("permit_id").is_none(), "tier {tier}");
        }
    });
}

#[test]
fn case_023_a_read_is_observed_under_the_switch() {
    case_alone("c023", async |case| {
        case.switch(true).await;
        let reply = case.ask("read.status", json!({})).await;
        assert_eq!(says(&reply), ("observe", "observe"));
        assert!(reply.get("permit_id").is_none());
    });
}

#[test]
fn case_024_029_031_032_033_034_036_037_and_039_one_answer_each() {
    case("c024", async |case| {
        for (number, action, params, expected, tiers) in [
            (24, "nope.x", json!({}), ("deny", "default_deny"), (3, 3)),
            (29, "wire.send", json!({"amount_eur": "9000"}), ("deny", "bounds"), (3, 3)),
            (31, "lamp.toggle", json!({"state": "on", "extra": 1}), ("deny", "bounds"), (1, 1)),
            (32, "lamp.toggle", json!({}), ("deny", "bounds"), (1, 1)),
            (33, "reh.b", json!({"amount_eur": "9"}), ("dry_run", "dry_run"), (2, 2)),
            (34, "reh.b", json!({"amount_eur": "9"}), ("dry_run", "dry_run"), (2, 2)),
            (36, "pay.danger", json!({}), ("propose", "effect_floor"), (2, 3)),
            (37, "eff.two", json!({}), ("permit", "effect_floor"), (1, 2)),
            (39, "lamp.toggle", json!({"state": "on"}), ("permit", "passed"), (1, 1)),
        ] {
            // A rehearsal meets no budget, however often.
            for _ in 0..if number == 34 { 5 } else { 1 } {
                let reply = case.ask(action, params.clone()).await;
                assert_eq!(says(&reply), expected, "case {number}");
                assert_eq!(
                    (&reply["nominal_tier"], &reply["effective_tier"]),
                    (&json!(tiers.0), &json!(tiers.1)),
                    "case {number}"
                );
            }
        }
        assert_eq!(case.consumed("reh.b.eur_day").await, "0");
        assert_eq!(case.consumed("reh.b.rate").await, "0");
        assert_eq!(case.approvals().await.len(), 1);
    });
}

#[test]
fn case_025_and_094_an_approval_cannot_resume_what_no_policy_names() {
    case("c025", async |case| {
        let id = text(&case.ask("pay.danger", json!({})).await, "approval_id").to_owned();
        case.client().grant(&id).await;
        let danger = format!("  - action_type: {}\n", case.name("pay.danger"));
        case.edit(|policies| policies.split(&danger).next().unwrap().to_owned()).await;
        let body = with(case.body("pay.danger", json!({})), json!({"approval_ref": id}));
        assert_eq!(says(&case.client().decide(&body).await), ("deny", "default_deny"));
    });
}

#[test]
fn case_028_a_document_with_mistakes_changes_nothing() {
    case("c028", async |case| {
        let client = case.client();
        let before = client.get("/v1/policies", POLICY).await["digest"].clone();
        let answer = client.publish("policies:\n  - action_type: card.freeze\n    tier: 1\n    colour: red\n").await;
        assert_eq!(answer.status, 422);
        let mistakes = answer.body["mistakes"].as_array().unwrap();
        let places: Vec<_> = mistakes.iter().map(|one| (one["line"].as_u64(), one["column"].as_u64())).collect();
        assert_eq!(places, [(Some(2), Some(5)), (Some(4), Some(5))]);
        assert!(text(&mistakes[0], "message").contains("compensating_command"));
        // Other cases may publish meanwhile; this document is not what is in force.
        let after = client.get("/v1/policies", POLICY).await;
        assert!(!after["document"].to_string().contains("card.freeze"), "{before}");
    });
}

#[test]
fn case_035_an_approval_does_not_end_a_rehearsal() {
    case("c035", async |case| {
        let proposal = case.ask("reh.c", json!({})).await;
        assert_eq!(says(&proposal), ("propose", "tier_confirm"));
        let id = text(&proposal, "approval_id");
        case.client().grant(id).await;
        let reply = case.client().decide(&with(case.body("reh.c", json!({})), json!({"approval_ref": id}))).await;
        assert_eq!(says(&reply), ("dry_run", "dry_run"));
        assert_eq!(case.approvals().await[0]["state"], "consumed");
    });
}

#[test]
fn case_040_every_node_gives_the_same_verdict() {
    case("c040", async |case| {
        for (action, params) in
            [("eff.two", json!({})), ("nope.x", json!({})), ("reh.a", json!({})), ("read.status", json!({}))]
        {
            let mut seen = Vec::new();
            for id in case.cluster().ids() {
                let body = case.body(action, params.clone());
                let answer = case.client().try_call_at(id, "POST", "/v1/decide", P1, Some(&body)).await.unwrap();
                seen.push((
                    answer.body["verdict"].clone(),
                    answer.body["reason"].clone(),
                    answer.body["effective_tier"].clone(),
                ));
            }
            assert!(seen.iter().all(|one| *one == seen[0]), "{action}: {seen:?}");
        }
    });
}
