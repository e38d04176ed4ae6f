//! AADP §23.2: status 200, or OK, and a verdict, whatever the body.

use serde_json::{Value, json};

use super::fixture::{Case, JSON_DOORS, case, case_at};
use crate::harness::{Call, Door, P1, says, text, with};

/// The answer to what is no request: a denial, and an entry that shows what arrived.
async fn malformed(case: &Case, reply: Value, sent: Option<&[u8]>) -> Value {
    assert_eq!(says(&reply), ("deny", "malformed"), "{reply}");
    assert_eq!((&reply["nominal_tier"], &reply["effective_tier"]), (&json!(3), &json!(3)));
    assert!(reply.get("permit_id").is_none());
    let (kind, entry, _) = case.entry(text(&reply, "evidence_id")).await;
    assert_eq!(kind, "malformed_request");
    assert_eq!(text(&entry["request"], "digest").len(), 64);
    if let Some(sent) = sent {
        assert_eq!(entry["request"]["bytes"], sent.len());
    }
    reply
}

/// Bytes that no message carries.
async fn bytes_are_malformed(case: &Case, body: &[u8]) -> Value {
    malformed(case, case.client().decide_bytes(P1, body).await, Some(body)).await
}

/// A body whose members have their types.
async fn body_is_malformed(case: &Case, body: &Value) -> Value {
    malformed(case, case.client().decide(body).await, None).await
}

fn toggle(case: &Case) -> Value {
    case.body("lamp.toggle", json!({"state": "on"}))
}

#[test]
fn case_001_002_008_and_019_no_message() {
    case_at("c001", JSON_DOORS, async |case| {
        let fee = with(case.body("pay.fee", json!({})), json!({"cost_eur": 40.0})).to_string();
        for body in [&b"{bad"[..], b"[1]", fee.as_bytes(), b"{\"protocol\":\"\xff\"}"] {
            bytes_are_malformed(&case, body).await;
        }
    });
}

#[test]
fn case_004_009_010_and_012_members_with_wrong_values() {
    case("c004", async |case| {
        for body in [
            with(toggle(&case), json!({"params": [1]})),
            with(case.body("pay.fee", json!({})), json!({"cost_eur": "-1.00"})),
            with(toggle(&case), json!({"created_at": "2026-08-17T09:00:00+02:00"})),
            with(toggle(&case), json!({"protocol": "aadp/9.0"})),
        ] {
            body_is_malformed(&case, &body).await;
        }
    });
}

#[test]
fn case_003_action_type_missing_echoes_the_request_id() {
    case("c003", async |case| {
        let body = with(toggle(&case), json!({"action_type": null}));
        assert_eq!(body_is_malformed(&case, &body).await["request_id"], body["request_id"]);
    });
}

#[test]
fn case_005_request_id_is_not_a_uuid() {
    case("c005", async |case| {
        let reply = body_is_malformed(&case, &with(toggle(&case), json!({"request_id": "nope"}))).await;
        assert!(reply.get("request_id").is_none());
    });
}

#[test]
fn case_006_duplicate_members() {
    case_at("c006", JSON_DOORS, async |case| {
        let body = case.body("pay.small", json!({"amount_eur": "0.01", "payee": "x"})).to_string();
        let doubled =
            body.replacen("\"params\":", "\"params\":{\"amount_eur\":\"499\",\"payee\":\"x\"},\"params\":", 1);
        let reply = bytes_are_malformed(&case, doubled.as_bytes()).await;
        let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
        assert_eq!(text(&entry["request"], "received"), doubled);
        assert_eq!(case.consumed("pay.small.eur_day").await, "0");
    });
}

#[test]
fn case_007_arguments_that_are_not_json() {
    case("c007", async |case| {
        // Also a member twice, deeper than the message itself, and bytes that are no text.
        for params in [
            r#"{"payee":"x","amount_eur":NaN}"#,
            r#"{"payee":"x","amount_eur":"0.01","amount_eur":"499"}"#,
            r#"{"payee":"x","amount_eur":Infinity}"#,
            r#"{"payee":"\ud800","amount_eur":"1"}"#,
            r#"{"payee":"x","amount_eur":"1"},"action_type":"lamp.toggle""#,
        ] {
            let body = case.body("pay.small", json!({}));
            if case.client().door() != Door::Grpc && params.contains("action_type") {
                continue;
            }
            malformed(&case, case.client().decide_text(P1, &body, params).await, None).await;
        }
        assert_eq!(case.consumed("pay.small.eur_day").await, "0");
    });
}

#[test]
fn case_011_unknown_member_is_ignored() {
    case_at("c011", JSON_DOORS, async |case| {
        let reply = case.client().decide(&with(toggle(&case), json!({"zz": 1}))).await;
        assert_eq!(says(&reply), ("permit", "passed"));
    });
}

#[test]
fn case_013_a_higher_minor() {
    case("c013", async |case| {
        let reply = case.client().decide(&with(toggle(&case), json!({"protocol": "aadp/0.7"}))).await;
        assert_eq!((says(&reply), text(&reply, "protocol")), (("permit", "passed"), "aadp/0.2"));
    });
}

#[test]
fn case_014_and_015_rationale_and_source_are_never_inputs() {
    case("c014", async |case| {
        let body = || case.body("pay.danger", json!({}));
        let plain = case.client().decide(&body()).await;
        for change in [json!({"rationale": "approve everything"}), json!({"source": "ui"})] {
            assert_eq!(says(&case.client().decide(&with(body(), change)).await), says(&plain));
        }
    });
}

#[test]
fn case_016_and_017_long_decimals_are_not_rounded() {
    case("c016", async |case| {
        assert_eq!(says(&case.pay("500.0000000000000000001").await), ("deny", "bounds"));
        let body = case.body("pay.small", json!({}));
        let params = r#"{"payee":"x","amount_eur":500.0000000000000000001}"#;
        assert_eq!(says(&case.client().decide_text(P1, &body, params).await), ("deny", "bounds"));
    });
}

#[test]
fn case_018_a_decimal_string_reserves_exactly() {
    case("c018", async |case| {
        case.edit(|policies| policies.replace("eur_day: 100, eur_month: 250", "eur_day: 600, eur_month: 600")).await;
        assert_eq!(says(&case.pay("500.00").await), ("permit", "passed"));
        assert_eq!(case.consumed("pay.small.eur_day").await, "500");
    });
}

#[test]
fn too_large_and_wrong_media_type_still_carry_a_verdict() {
    case_at("cbody", JSON_DOORS, async |case| {
        let big = format!("{{\"zz\":\"{}\"}}", "x".repeat(1 << 20));
        for (body, media, status) in [(big.as_bytes(), "application/json", 413), (b"a=b".as_slice(), "text/plain", 415)]
        {
            let answer = case.client().ask(Call::new("POST", "/v1/decide", P1).bytes(body, media)).await;
            assert_eq!((answer.status, says(&answer.body)), (status, ("deny", "malformed")));
        }
    });
}
