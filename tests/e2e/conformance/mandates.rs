//! The mandate authority (AADP §11.5), as someone writes one who has only the documentation: it signs
//! `placet/mandate/1`, a zero byte, and canonical JSON.

use ed25519_dalek::{Signer, SigningKey};
use placet_core::ids::{Hash, hex};
use serde_json::{Value, json};

use super::fixture::{Case, case};
use crate::harness::{A1, A2, AUDIT, Answer, says, text, with};

fn authority() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

/// The key that every policy of these tests names.
pub fn public_key() -> String {
    hex(authority().verifying_key().as_bytes())
}

fn signed(statement: &Value) -> String {
    // Members in alphabetical order, no spaces: `serde_json` writes a `Value` that way.
    let message = [b"placet/mandate/1\0", statement.to_string().as_bytes()].concat();
    hex(&authority().sign(&message).to_bytes())
}

/// The authority's word about an action type; anyone who approves may carry it.
async fn set(case: &Case, denied: bool, serial: u64) -> Answer {
    let action = case.name("mandated");
    let cluster = case.client().get("/v1/evidence/aud-1", AUDIT).await["hash"].clone();
    let statement = json!({"action_type": action, "cluster": cluster, "denied": denied, "serial": serial});
    let body = json!({"action_type": action, "denied": denied, "serial": serial, "signature": signed(&statement)});
    case.client().call("POST", "/v1/mandates", A1, Some(&body)).await
}

/// The authority's answer to one proposal.
async fn ratify(case: &Case, proposal: &Value, approved: bool, signed_approved: bool) -> Answer {
    let id = text(proposal, "approval_id");
    let statement = json!({
        "action_type": case.name("mandated"), "approval_id": id, "approved": signed_approved,
        "params_digest": Hash::of(b"{}").to_string(), "request_id": proposal["request_id"],
    });
    let body = json!({"approved": approved, "signature": signed(&statement)});
    case.client().call("POST", &format!("/v1/approvals/{id}/ratify"), A2, Some(&body)).await
}

#[test]
fn case_l11_the_mandate_authority_denies_or_defers() {
    case("l11", async |case| {
        let pending = case.ask("mandated", json!({"n": 1})).await;
        assert_eq!(says(&pending), ("propose", "external_authorization"));
        // A later denial wins: bounds are judged although the mandate is pending.
        assert_eq!(says(&case.ask("mandated", json!({"n": 11})).await), ("deny", "bounds"));
        let word = set(&case, true, 1).await;
        assert_eq!((word.status, &word.body["denied"]), (200, &json!(true)), "{}", word.body);
        let denied = case.ask("mandated", json!({"n": 1})).await;
        assert_eq!((says(&denied), denied.get("approval_id")), (("deny", "external_authorization"), None));
        assert_eq!(set(&case, false, 1).await.status, 409, "an old word");
        assert_eq!(set(&case, false, 2).await.status, 200);
        assert_eq!(says(&case.ask("mandated", json!({"n": 1})).await).0, "propose");
        let wrong =
            json!({"action_type": case.name("mandated"), "denied": true, "serial": 3, "signature": "00".repeat(64)});
        assert_eq!(case.client().call("POST", "/v1/mandates", A1, Some(&wrong)).await.status, 403);
    });
}

#[test]
fn case_l12_and_l13_an_approver_is_no_authority_and_one_ratification_is_one_execution() {
    case("l12", async |case| {
        let proposal = case.ask("mandated", json!({})).await;
        let id = text(&proposal, "approval_id");
        for verb in ["grant", "approve"] {
            assert_eq!(case.client().resolve(A1, id, verb).await.status, 403, "{verb}");
        }
        assert_eq!(ratify(&case, &proposal, true, false).await.status, 403, "another answer was signed");
        let refused = case.client().every(AUDIT, "/v1/evidence?kind=approval_refused", "evidence").await;
        let own =
            refused.iter().map(|one| &one["entry"]["body"]["approval_refused"]).filter(|one| one["approval_id"] == id);
        let attempts: Vec<_> = own.map(|one| text(one, "attempt")).collect();
        assert_eq!(attempts, ["grant", "grant", "ratify"]);
        let body = || with(case.body("mandated", json!({})), json!({"approval_ref": id}));
        assert_eq!(says(&case.client().decide(&body()).await).0, "propose");
        let ratified = ratify(&case, &proposal, true, true).await;
        assert_eq!((ratified.status, text(&ratified.body, "state")), (200, "approved"), "{}", ratified.body);
        assert_eq!((&ratified.body["needs_authority"], &ratified.body["ratified"]), (&json!(true), &json!(true)));
        assert_eq!(ratify(&case, &proposal, true, true).await.status, 409);
        assert_eq!(says(&case.client().decide(&body()).await), ("permit", "passed"));
        assert_eq!(says(&case.client().decide(&body()).await), ("propose", "external_authorization"));
    });
}
