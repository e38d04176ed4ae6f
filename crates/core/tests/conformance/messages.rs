//! AADP §23.2: messages and malformed input.

use placet_core::event::Body;
use placet_core::ids::Hash;
use placet_core::reply::DecideReply;
use serde_json::{Value, json};

use super::fixture::{Pdp, request, says, tiers, with};

/// Goal: a body that is not a request is denied and recorded with its digest; nothing else changes.
fn malformed(body: &[u8]) -> (DecideReply, String) {
    let mut pdp = Pdp::new();
    let before = pdp.reserved();
    let reply = pdp.decide_bytes("P1", body);
    assert_eq!(says(&reply), ("deny", "malformed"), "{}", String::from_utf8_lossy(body));
    assert_eq!(tiers(&reply), (3, 3));
    assert!(reply.permit_id.is_none() && reply.approval_id.is_none() && reply.obligations.is_empty());
    assert_eq!(pdp.reserved(), before);
    assert_eq!(pdp.kinds(), ["malformed_request"]);
    let Body::MalformedRequest(recorded) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
    assert_eq!(recorded.request.digest, Hash::of(body));
    (reply, recorded.request.received)
}

fn malformed_value(body: &Value) -> DecideReply {
    malformed(body.to_string().as_bytes()).0
}

fn toggle() -> Value {
    request("lamp.toggle", json!({"state": "on"}))
}

#[test]
fn case_001_not_json() {
    let (reply, received) = malformed(b"{bad");
    assert_eq!(reply.request_id, None);
    assert_eq!(received, "{bad");
}

#[test]
fn case_002_not_an_object() {
    malformed(b"[1]");
}

#[test]
fn case_003_action_type_missing_echoes_the_request_id() {
    let body = with(toggle(), json!({"action_type": null}));
    let reply = malformed_value(&body);
    assert_eq!(reply.request_id.unwrap().as_str(), body["request_id"]);
    assert!(reply.detail.contains("`action_type` is missing"), "{}", reply.detail);
}

#[test]
fn case_004_params_is_an_array() {
    malformed_value(&with(toggle(), json!({"params": [1]})));
}

#[test]
fn case_005_request_id_is_not_a_uuid() {
    assert_eq!(malformed_value(&with(toggle(), json!({"request_id": "nope"}))).request_id, None);
}

#[test]
fn case_006_duplicate_members() {
    let body = request("pay.small", json!({"amount_eur": "0.01", "payee": "x"})).to_string();
    let doubled = body.replacen("\"params\":", "\"params\":{\"amount_eur\":\"499\",\"payee\":\"x\"},\"params\":", 1);
    let (_, received) = malformed(doubled.as_bytes());
    assert!(received.contains("0.01") && received.contains("499"));
}

#[test]
fn case_007_nan_token() {
    let body = request("pay.small", json!({"payee": "x", "amount_eur": "@"})).to_string();
    malformed(body.replace("\"@\"", "NaN").as_bytes());
    malformed(body.replace("\"@\"", "Infinity").as_bytes());
    malformed(body.replace("\"@\"", "-Infinity").as_bytes());
}

#[test]
fn case_008_money_as_a_number() {
    let reply = malformed_value(&with(request("pay.fee", json!({})), json!({"cost_eur": 40.0})));
    assert!(reply.detail.contains("cost_eur"));
}

#[test]
fn case_009_negative_money() {
    malformed_value(&with(request("pay.fee", json!({})), json!({"cost_eur": "-1.00"})));
}

#[test]
fn case_010_created_at_is_not_utc() {
    malformed_value(&with(toggle(), json!({"created_at": "2026-08-17T09:00:00+02:00"})));
}

#[test]
fn case_011_unknown_member_is_ignored() {
    let mut pdp = Pdp::new();
    let reply = pdp.decide(&with(toggle(), json!({"zz": 1})));
    assert_eq!(says(&reply), ("permit", "passed"));
}

#[test]
fn case_012_another_major() {
    malformed_value(&with(toggle(), json!({"protocol": "aadp/9.0"})));
    malformed_value(&with(toggle(), json!({"protocol": "aadp/1.0"})));
    malformed_value(&with(toggle(), json!({"protocol": "aadp/0.0"})));
    malformed_value(&with(toggle(), json!({"protocol": "aadp"})));
}

#[test]
fn case_013_a_higher_minor_is_answered_with_the_highest_known() {
    let mut pdp = Pdp::new();
    let reply = pdp.decide(&with(toggle(), json!({"protocol": "aadp/0.7"})));
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(reply.protocol.as_str(), "aadp/0.2");
}

#[test]
fn case_014_rationale_is_never_an_input() {
    let mut pdp = Pdp::new();
    for name in ["pay.danger", "lamp.toggle", "wire.send", "card.freeze", "read.status", "nope.x"] {
        let plain = pdp.ask(name, json!({}));
        for rationale in ["approve everything", ""] {
            let bold = pdp.decide(&with(request(name, json!({})), json!({"rationale": rationale})));
            assert_eq!((says(&plain), tiers(&plain)), (says(&bold), tiers(&bold)), "{name}");
        }
    }
}

#[test]
fn case_015_source_is_never_an_input() {
    let mut pdp = Pdp::new();
    let by_model = pdp.decide(&toggle());
    for source in ["ui", "scheduler", "rule", "undo", "system"] {
        let other = pdp.decide(&with(toggle(), json!({"source": source})));
        assert_eq!((says(&other), tiers(&other)), (says(&by_model), tiers(&by_model)), "{source}");
    }
}

#[test]
fn case_016_a_long_decimal_string_is_not_rounded() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.pay("500.0000000000000000001")), ("deny", "bounds"));
    assert_eq!(says(&pdp.pay("500.00000000000000000000000000000000000000001")), ("deny", "bounds"));
    assert_eq!(pdp.spent_day(), "0");
}

#[test]
fn case_017_a_long_number_token_is_not_rounded() {
    let mut pdp = Pdp::new();
    let body = request("pay.small", json!({"payee": "x", "amount_eur": "@"})).to_string();
    let reply = pdp.decide_bytes("P1", body.replace("\"@\"", "500.0000000000000000001").as_bytes());
    assert_eq!(says(&reply), ("deny", "bounds"));
    assert_eq!(pdp.reserved(), (0, 0, 0));
}

#[test]
fn case_018_a_decimal_string_reserves_exactly() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        for name in ["pay.small.eur_day", "pay.small.eur_month"] {
            document.budgets.get_mut(name).unwrap().limit = placet_core::exact::Amount::parse("600").unwrap();
        }
    });
    assert_eq!(says(&pdp.pay("500.00")), ("permit", "passed"));
    assert_eq!(pdp.spent_day(), "500");
}

#[test]
fn case_019_invalid_utf8() {
    let (_, received) = malformed(b"{\"protocol\":\"\xff\"}");
    assert!(received.starts_with("hex:"));
}

/// Goal: what is kept of rubbish is bounded, and the answer speaks the version that could be read.
#[test]
fn rubbish_does_not_fill_the_log() {
    let long = "x".repeat(400_000);
    for body in [
        format!("{{\"{long}\":1,\"{long}\":2}}"),
        format!("{{\"a\":-{}}}", "-".repeat(400_000)),
        with(toggle(), json!({"source": long})).to_string(),
    ] {
        let mut pdp = Pdp::new();
        let reply = pdp.decide_bytes("P1", body.as_bytes());
        assert!(reply.detail.len() < 400, "{}", reply.detail.len());
        assert!(pdp.state.entries[&reply.evidence_id].len() < 40_000);
    }
    malformed(b"{\"a\":1e-2147483648}");
    assert_eq!(malformed_value(&with(toggle(), json!({"source": "x"}))).protocol.as_str(), "aadp/0.1");
}
