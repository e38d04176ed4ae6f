//! Case 106 and AADP §14.1: what the policy hides is in no record, and equality survives.

use placet_core::event::Body;
use placet_core::ids::PermitId;
use placet_core::op::{Op, Reject};
use serde_json::{Value, json};

use super::features;
use super::fixture::{Pdp, report_body, request, says, uuid, with};

const RAW: &str = "NL00SECRET0123456789";

/// Nothing that is kept shows `raw`: no entry, no record, no event of the log.
fn nowhere(pdp: &Pdp, raw: &str) {
    for (index, bytes) in &pdp.state.entries {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(raw), "{index}: {text}");
    }
    assert!(!format!("{:?}", pdp.state).contains(raw));
    assert!(!format!("{:?}", pdp.log).contains(raw));
}

fn payment(members: Value) -> Value {
    let body =
        request("pay.card", json!({"amount": "5", "iban": RAW, "to": [{"iban": RAW, "bic": "X"}], "currency": "EUR"}));
    with(body, members)
}

#[test]
fn case_106_the_value_is_replaced_before_anything_is_written() {
    let mut pdp = features::pdp();
    let body = payment(json!({"rationale": format!("pay {RAW}")}));
    let reply = pdp.decide(&body);
    assert_eq!(says(&reply), ("permit", "passed"));
    let decided = pdp.decided(&reply);
    assert_eq!(decided.redacted, ["params.iban", "params.to.iban", "rationale"]);
    let params: Value = serde_json::from_str(&decided.params).unwrap();
    let digest = params["iban"]["$redacted"].as_str().unwrap();
    assert_eq!(digest.len(), 64, "a digest of the original is kept");
    assert_eq!(params["to"][0], json!({"iban": {"$redacted": digest}, "bic": "X"}), "equal values, equal digests");
    assert_eq!((&params["amount"], &params["currency"]), (&json!("5"), &json!("EUR")));
    // The digest is keyed: who knows the value cannot recognise it.
    let unkeyed = [blake3::hash(RAW.as_bytes()), blake3::hash(format!("\"{RAW}\"").as_bytes())];
    assert!(unkeyed.iter().all(|hash| hash.to_hex().as_str() != digest));
    let report = with(
        report_body(reply.permit_id.as_ref().unwrap(), "failure"),
        json!({"payload": {"iban": RAW, "note": "kept"}, "error": format!("{RAW} is closed")}),
    );
    let reported = pdp.report_as("P1", &report);
    let Body::ExecResult(result) = pdp.entry(reported.evidence_id).body else { panic!("another kind") };
    assert_eq!(result.redacted, ["payload.iban", "error"]);
    let payload: Value = serde_json::from_str(&result.payload.unwrap()).unwrap();
    assert_eq!(payload, json!({"iban": {"$redacted": digest}, "note": "kept"}));
    nowhere(&pdp, RAW);
    // No later mutation: what is written stays, whatever is written after it.
    let before = pdp.state.entries[&reply.evidence_id].clone();
    pdp.publish(&features::document().replace("redact: [params.iban, ", "redact: [")).unwrap();
    pdp.decide(&payment(json!({"params": {"amount": "5"}})));
    assert_eq!(pdp.state.entries[&reply.evidence_id], before);
}

#[test]
fn replay_and_approval_still_compare_values() {
    let mut pdp = features::pdp();
    let body = payment(json!({}));
    let first = pdp.decide(&body);
    assert!(pdp.decide(&body).replayed);
    let other = with(body.clone(), json!({"params": {"amount": "5", "iban": "NL99OTHER", "currency": "EUR"}}));
    let mismatch = pdp.decide(&other);
    assert_eq!((says(&mismatch), mismatch.permit_id), (says(&first), None));
    // A mark that is sent as a value is another value.
    let recorded: Value = serde_json::from_str(&pdp.decided(&first).params).unwrap();
    assert_eq!(pdp.decide(&with(body, json!({"params": recorded}))).permit_id, None);
    nowhere(&pdp, RAW);
}

/// Goal: each way to fail, in each field that a human reads, keeps the value out of records; replies to the caller too.
#[test]
fn no_failure_tells_the_value() {
    let secret = |params: Value| request("pay.secret", params).to_string();
    let cases: Vec<(&str, String)> = vec![
        ("87654321", secret(json!({"pin": 87654321, "colour": "red"}))),
        ("87654321", secret(json!({"pin": "87654321", "colour": "red"}))),
        ("chartreuse", secret(json!({"pin": 1234, "colour": "chartreuse"}))),
        ("hidden.example", secret(json!({"pin": 1234, "colour": "red", "site": "https://hidden.example:99999/"}))),
        ("hiddenpath", secret(json!({"pin": 1234, "colour": "red", "site": "hiddenpath"}))),
        (RAW, payment(json!({"params": {"iban": RAW, "amount": "900"}})).to_string()),
        (RAW, payment(json!({"source": "nobody"})).to_string()),
        (RAW, payment(json!({"source": RAW})).to_string()),
        (RAW, payment(json!({"cost_eur": RAW})).to_string()),
        (RAW, payment(json!({"created_at": RAW})).to_string()),
        (RAW, payment(json!({"request_id": RAW})).to_string()),
        (RAW, format!("{{\"iban\":\"{RAW}\"")),
        (RAW, format!("{{\"{RAW}\":1,\"{RAW}\":2}}")),
        (RAW, payment(json!({"action_type": "pay.crad"})).to_string()),
        (RAW, payment(json!({"action_type": "pay.crad", "rationale": RAW})).to_string()),
    ];
    for (raw, body) in cases {
        for switch in [false, true] {
            let mut pdp = features::pdp();
            pdp.switch(switch);
            let reply = pdp.decide_bytes("P1", body.as_bytes());
            assert_eq!(says(&reply).0, "deny", "{body}");
            nowhere(&pdp, raw);
            let told = serde_json::to_string(&reply).unwrap();
            assert!(!told.contains(raw), "{told}");
        }
    }
}

#[test]
fn no_report_tells_the_value() {
    let leak = json!({"payload": {"iban": RAW, "deep": {"iban": RAW}}, "error": RAW});
    let mut pdp = features::pdp();
    let permit = pdp.decide(&payment(json!({"params": {"amount": "5"}}))).permit_id.unwrap();
    // Foreign, invented, by request, malformed: none is known to be of an action type without secrets.
    pdp.report_as("P2", &with(report_body(&PermitId::from_random([1; 16]), "success"), leak.clone()));
    pdp.report_as("P1", &with(report_body(&permit, "success"), with(leak.clone(), json!({"outcome": "done"}))));
    let by_request = with(report_body(&permit, "not_attempted"), json!({"permit_id": null, "request_id": uuid()}));
    pdp.report_as("P1", &with(by_request, leak));
    nowhere(&pdp, RAW);
    let flat = json!({"payload": {"iban": RAW}, "error": RAW});
    pdp.report_as("P2", &with(report_body(&permit, "success"), flat.clone()));
    pdp.report_as("P1", &with(report_body(&permit, "success"), flat.clone()));
    pdp.report_as("P1", &with(report_body(&permit, "success"), flat));
    nowhere(&pdp, RAW);
}

/// Goal: an unkeyed digest of a short value is the value; none is made of one that is hidden (found here).
#[test]
fn a_mismatch_records_no_unkeyed_digest_of_a_hidden_value() {
    for original in
        [request("read.status", json!({})), request("pay.card", json!({"amount": "900"})), request("nope.x", json!({}))]
    {
        let mut pdp = features::pdp();
        pdp.decide(&original);
        let secret = json!({"pin": 1234, "colour": "red"});
        let raw = with(request("pay.secret", secret.clone()), json!({"request_id": original["request_id"]}));
        let reply = pdp.decide(&raw);
        let Body::ReplayMismatch(mismatch) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
        let parsed = placet_core::request::DecideRequest::parse(raw.to_string().as_bytes()).unwrap();
        assert_ne!(mismatch.request_digest, parsed.digest(&parsed.params_canonical()));
    }
}

/// Goal: of a hidden URL the evidence names which list calls its host opaque, not the host.
#[test]
fn a_hidden_url_hides_its_host() {
    let mut pdp = features::pdp();
    pdp.edit(|document| document.actions.get_mut("web.get").unwrap().redact = vec!["params.url".to_owned()]);
    let reply = pdp.ask("web.get", json!({"url": "https://bit.ly/abc"}));
    assert_eq!(says(&reply), ("propose", "effect_floor"));
    assert_eq!(pdp.decided(&reply).opaque_class.as_deref(), Some("builtin"));
    nowhere(&pdp, "bit.ly");
}

#[test]
fn local_decisions_are_redacted_too() {
    let mut pdp = features::pdp();
    let local = |action: &str| {
        json!({
            "action_type": action, "completed_at": "2026-08-17T09:00:00Z", "decided_at": "2026-08-17T09:00:00Z",
            "mode": "fail_open", "outcome": "success", "params": {"iban": RAW}, "rationale": RAW, "error": RAW,
            "request_id": uuid(), "source": "llm",
        })
    };
    let body = json!({"protocol": "aadp/0.2", "entries": [local("pay.card"), local("pay.crad")]});
    pdp.call("P1", Op::RecordLocal(body.to_string().into_bytes())).unwrap();
    assert_eq!(pdp.kinds(), ["local_decision", "local_decision"]);
    nowhere(&pdp, RAW);
}

#[test]
fn without_the_key_nothing_is_judged() {
    let mut pdp = features::pdp();
    pdp.without_keys();
    let before = pdp.state.entries.len();
    for body in [payment(json!({})), payment(json!({"action_type": "pay.crad"}))] {
        let refused = pdp.call("P1", Op::Decide(body.to_string().into_bytes()));
        assert!(matches!(refused, Err(Reject::Unavailable { .. })), "{refused:?}");
    }
    assert_eq!(pdp.state.entries.len(), before);
    // What is no request is still on record, without a byte of it.
    pdp.decide_bytes("P1", RAW.as_bytes());
    nowhere(&pdp, RAW);
}
