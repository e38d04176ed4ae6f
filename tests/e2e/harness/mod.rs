//! A cluster of `placet serve` processes for one test, and a client to all of its nodes for each of its doors.

mod client;
mod cluster;
mod grpc;
mod unix;

pub use client::{Answer, Call, Client, Door, escaped};
pub use cluster::{Cluster, Settings, WEBHOOK_SECRET};
pub use grpc::with_token;
pub use unix::can_become_others;

use serde_json::{Value, json};

/// Tokens of the principals of AADP §23.1, and of the operator roles.
pub const P1: &str = "token-of-principal-one";
pub const P2: &str = "token-of-principal-two";
pub const A1: &str = "token-of-approver-one";
pub const A2: &str = "token-of-approver-two";
pub const A3: &str = "token-of-approver-three";
pub const OPERATE: &str = "token-of-the-operator";
pub const POLICY: &str = "token-of-the-policy-desk";
pub const AUDIT: &str = "token-of-the-auditor";

/// Who they are, and the role of each.
pub const PRINCIPALS: &[(&str, &str, &str)] = &[
    ("P1", "decide", P1),
    ("P2", "decide", P2),
    ("A1", "approve", A1),
    ("A2", "approve", A2),
    ("A3", "approve", A3),
    ("O1", "operate", OPERATE),
    ("D1", "policy", POLICY),
    ("X1", "audit", AUDIT),
];

/// A random UUID.
pub fn uuid() -> String {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).unwrap();
    let hex: String = bits.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A number below `below`.
pub fn random(below: u64) -> u64 {
    let mut bits = [0u8; 8];
    getrandom::fill(&mut bits).unwrap();
    u64::from_be_bytes(bits) % below
}

/// A decide body.
pub fn request(action: &str, params: Value) -> Value {
    json!({
        "protocol": "aadp/0.1", "request_id": uuid(), "action_type": action, "params": params,
        "source": "llm", "rationale": "t", "created_at": "2026-08-17T09:00:00Z",
    })
}

/// The same body with some members replaced; `null` removes.
pub fn with(mut body: Value, members: Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        if value.is_null() {
            body.as_object_mut().unwrap().remove(name);
        } else {
            body[name] = value.clone();
        }
    }
    body
}

pub fn report(permit: &str, outcome: &str) -> Value {
    json!({"protocol": "aadp/0.2", "permit_id": permit, "outcome": outcome, "completed_at": "2026-08-17T09:00:01Z"})
}

/// Text of a member; empty when it is not there.
pub fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body[name].as_str().unwrap_or_default()
}

/// Verdict and reason.
pub fn says(body: &Value) -> (&str, &str) {
    (text(body, "verdict"), text(body, "reason"))
}
