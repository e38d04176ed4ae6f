//! AADP §23.2 over HTTP: status 200 and a verdict, whatever the body.

use serde_json::{Value, json};

use super::fixture::{Case, case};
use crate::harness::{P1, says, text, with};

async fn malformed(case: &Case, body: &[u8]) -> Value {
    let reply = case.http().decide_bytes(P1, body).await;
    assert_eq!(says(&reply), ("deny", "malformed"), "{}", String::from_utf8_lossy(body));
    assert_eq!((&reply["nominal_tier"], &reply["effective_tier"]), (&json!(3), &json!(3)));
    assert!(reply.get("permit_id").is_none());
    let (kind, entry, _) = case.entry(text(&reply, "evidence_id")).await;
    assert_eq!(kind, "malformed_request");
    assert_eq!(entry["request"]["bytes"], body.len());
    assert_eq!(text(&entry["request"], "digest").len(), 64);
    reply
}

macro_rules! malformed_case {
    ($name:ident, $prefix:literal, |$case:ident| $body:expr) => {
        #[test]
        fn $name() {
            case($prefix, async |$case| {
                let body: Vec<u8> = $body;
                malformed(&$case, &body).await;
            });
        }
    };
}

fn toggle(case: &Case) -> Value {
    case.body("lamp.toggle", json!({"state": "on"}))
}

fn bytes(body: Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

malformed_case!(case_001_not_json, "c001", |_case| b"{bad".to_vec());
malformed_case!(case_002_not_an_object, "c002", |_case| b"[1]".to_vec());
malformed_case!(case_004_params_is_an_array, "c004", |case| bytes(with(toggle(&case), json!({"params": [1]}))));
malformed_case!(case_008_money_as_a_number, "c008", |case| bytes(with(
    case.body("pay.fee", json!({})),
    json!({"cost_eur": 40.0})
)));
malformed_case!(case_009_negative_money, "c009", |case| bytes(with(
    case.body("pay.fee", json!({})),
    json!({"cost_eur": "-1.00"})
)));
malformed_case!(case_010_created_at_is_not_utc, "c010", |case| bytes(with(
    toggle(&case),
    json!({"created_at": "2026-08-17T09:00:00+02:00"})
)));
malformed_case!(case_012_another_major, "c012", |case| bytes(with(toggle(&case), json!({"protocol": "aadp/9.0"}))));
malformed_case!(case_019_invalid_utf8, "c019", |_case| b"{\"protocol\":\"\xff\"}".to_vec());

#[test]
fn case_003_action_type_missing_echoes_the_request_id() {
    case("c003", async |case| {
        let body = with(toggle(&case), json!({"action_type": null}));
        assert_eq!(malformed(&case, &bytes(body.clone())).await["request_id"], body["request_id"]);
    });
}

#[test]
fn case_005_request_id_is_not_a_uuid() {
    case("c005", async |case| {
        let reply = malformed(&case, &bytes(with(toggle(&case), json!({"request_id": "nope"})))).await;
        assert!(reply.get("request_id").is_none());
    });
}

#[test]
fn case_006_duplicate_members() {
    case("c006", async |case| {
        let body = case.body("pay.small", json!({"amount_eur": "0.01", "payee": "x"})).to_string();
        let doubled =
            body.replacen("\"params\":", "\"params\":{\"amount_eur\":\"499\",\"payee\":\"x\"},\"params\":", 1);
        let reply = malformed(&case, doubled.as_bytes()).await;
        let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
        assert_eq!(text(&entry["request"], "received"), doubled);
        assert_eq!(case.consumed("pay.small.eur_day").await, "0");
    });
}

#[test]
fn case_007_nan_token() {
    case("c007", async |case| {
        let body = case.body("pay.small", json!({"payee": "x", "amount_eur": "@"})).to_string();
        malformed(&case, body.replace("\"@\"", "NaN").as_bytes()).await;
    });
}

#[test]
fn case_011_unknown_member_is_ignored() {
    case("c011", async |case| {
        let reply = case.http().decide(&with(toggle(&case), json!({"zz": 1}))).await;
        assert_eq!(says(&reply), ("permit", "passed"));
    });
}

#[test]
fn case_013_a_higher_minor() {
    case("c013", async |case| {
        let reply = case.http().decide(&with(toggle(&case), json!({"protocol": "aadp/0.7"}))).await;
        assert_eq!((says(&reply), text(&reply, "protocol")), (("permit", "passed"), "aadp/0.2"));
    });
}

#[test]
fn case_014_and_015_rationale_and_source_are_never_inputs() {
    case("c014", async |case| {
        let body = || case.body("pay.danger", json!({}));
        let plain = case.http().decide(&body()).await;
        for change in [json!({"rationale": "approve everything"}), json!({"source": "ui"})] {
            assert_eq!(says(&case.http().decide(&with(body(), change)).await), says(&plain));
        }
    });
}

#[test]
fn case_016_and_017_long_decimals_are_not_rounded() {
    case("c016", async |case| {
        assert_eq!(says(&case.pay("500.0000000000000000001").await), ("deny", "bounds"));
        let body = case.body("pay.small", json!({"payee": "x", "amount_eur": "@"})).to_string();
        let body = body.replace("\"@\"", "500.0000000000000000001");
        assert_eq!(says(&case.http().decide_bytes(P1, body.as_bytes()).await), ("deny", "bounds"));
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
    case("cbody", async |case| {
        let big = format!("{{\"zz\":\"{}\"}}", "x".repeat(1 << 20));
        for (body, media, status) in [(big.as_bytes(), "application/json", 413), (b"a=b".as_slice(), "text/plain", 415)]
        {
            let id = case.http().turn();
            let answer =
                case.http().try_bytes_at(id, "POST", "/v1/decide", P1, Some(body.to_vec()), media).await.unwrap();
            assert_eq!((answer.status, says(&answer.body)), (status, ("deny", "malformed")));
        }
    });
}
