//! AADP §23.7: what every node records, and that it is the same everywhere.

use serde_json::json;

use super::fixture::{case, case_alone};
use crate::harness::{AUDIT, Door, P1, POLICY, text};

#[test]
fn case_102_every_verdict_is_recorded_with_what_re_derivation_needs() {
    case("c102", async |case| {
        for (action, params, verdict) in [
            ("lamp.toggle", json!({"state": "on"}), "permit"),
            ("nope.x", json!({}), "deny"),
            ("pay.danger", json!({}), "propose"),
            ("reh.a", json!({}), "dry_run"),
            ("read.status", json!({}), "observe"),
        ] {
            let reply = case.ask(action, params.clone()).await;
            assert_eq!(text(&reply, "verdict"), verdict);
            let (kind, body, entry) = case.entry(text(&reply, "evidence_id")).await;
            assert_eq!(kind, if verdict == "permit" { "exec_intent" } else { "decision" });
            assert_eq!((&body["verdict"], &body["reason"]), (&reply["verdict"], &reply["reason"]));
            assert_eq!(text(&body, "params"), params.to_string());
            assert_eq!((text(&entry, "policy").len(), text(&entry, "principal")), (64, "P1"));
            assert!(text(&entry, "at").ends_with('Z') && body["trace"].is_array());
            assert!(!entry.to_string().contains("pmt-"), "evidence holds no capability");
            if verdict == "permit" {
                let report = case.report(text(&reply, "permit_id"), "success").await;
                let (kind, result, _) = case.entry(text(&report, "evidence_id")).await;
                assert_eq!(
                    (kind.as_str(), format!("aud-{}", result["intent"])),
                    ("exec_result", text(&reply, "evidence_id").to_owned())
                );
            }
        }
    });
}

#[test]
fn case_103_a_policy_that_comes_back_has_its_identity_again() {
    // Alone, because every case's policies are one document.
    case_alone("c103", async |case| {
        let first = case.edit(|policies| policies).await;
        let second = case.edit(|policies| policies.replace("daily_rate: 3", "daily_rate: 4")).await;
        let third = case.edit(|policies| policies.replace("daily_rate: 4", "daily_rate: 3")).await;
        assert_eq!(first, third);
        assert_ne!(first, second);
        for digest in [&first, &second] {
            let view = case.client().get(&format!("/v1/policies/{digest}"), POLICY).await;
            assert_eq!((text(&view, "digest"), view["active"].as_bool()), (digest.as_str(), Some(*digest == first)));
        }
    });
}

#[test]
fn case_107_a_decide_credential_reads_no_evidence() {
    case("c107", async |case| {
        assert_eq!(case.client().call("GET", "/v1/evidence/aud-1", P1, None).await.status, 403);
        // On a socket nobody sends a token: who has no name there is known, and refused.
        let nobody = if case.client().door() == Door::Unix { 403 } else { 401 };
        assert_eq!(case.client().call("GET", "/v1/evidence/aud-1", "", None).await.status, nobody);
        assert_eq!(case.client().call("GET", "/v1/evidence/aud-1", AUDIT, None).await.status, 200);
        assert_eq!(case.client().call("GET", "/v1/evidence/aud-0", AUDIT, None).await.status, 400);
        assert_eq!(case.client().call("GET", "/v1/evidence/aud-999999999", AUDIT, None).await.status, 404);
    });
}

#[test]
fn every_node_has_the_same_chain() {
    case("chead", async |case| {
        case.ask("eff.two", json!({})).await;
        // Other cases keep writing: compare entries, which never change, on each node in turn.
        for index in [1, 2, 3] {
            let mut seen = Vec::new();
            for id in case.cluster().ids() {
                let path = format!("/v1/evidence/aud-{index}");
                seen.push(case.client().try_call_at(id, "GET", &path, AUDIT, None).await.unwrap().body);
            }
            assert!(seen.iter().all(|one| *one == seen[0]));
        }
    });
}
