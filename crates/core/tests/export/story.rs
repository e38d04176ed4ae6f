//! A morning in which everything happens that evidence has a word for.

use placet_core::evaluate::{mandate_statement, ratification_statement};
use placet_core::event::{MandateSet, SwitchScope};
use placet_core::evidence;
use placet_core::ids::{ActionType, EvidenceIndex, Principal};
use placet_core::op::{Answer, Op};
use placet_core::reply::Verdict;
use serde_json::json;

use crate::desk::{Desk, authorised};

pub const POLICY: &str = r#"
apiVersion: placet/v1
timezone: Europe/Amsterdam
defaults: { execute_within: 10m, approval_ttl: 1h }
approvers: { finance: { members: [ada, grace, joan], quorum: 2 } }
mandate: { authority: AUTHORITY }
budgets:
  eur-daily: { kind: value, unit: EUR, limit: "500.00", window: day }
  calls: { kind: rate, limit: 40, window: PT1H, per: principal }
effects:
  money.egress: { draws: [eur-daily] }
  net.partner: { min_tier: 3 }
policies:
  - { action_type: accounts.balance, tier: 0, bounds: { required: [account] } }
  - action_type: payments.transfer
    tier: 2
    dry_run: false
    compensating_command: payments.reverse
    cost: { param: amount_eur, unit: EUR }
    draws: [calls]
    effects: [money.egress]
    bounds: { required: [payee, amount_eur], numeric: { amount_eur: { min: "0.01", max: "400" } } }
    obligations: [{ type: idempotency_key }]
  - action_type: payments.reverse
    tier: 1
    dry_run: false
    compensating_command: payments.reverse
    bounds: { strict_params: false }
  - action_type: payments.wire
    tier: 3
    dry_run: false
    cost: { param: amount_eur, unit: EUR }
    effects: [money.egress]
    approval: { group: finance }
    bounds: { required: [amount_eur] }
  - action_type: payroll.pay
    tier: 1
    dry_run: false
    compensating_command: payments.reverse
    redact: [params.iban, rationale, payload.receipt]
    bounds: { required: [iban] }
  - action_type: treaty.sign
    tier: 2
    dry_run: false
    compensating_command: payments.reverse
    requires_external_authorization: true
    bounds: { strict_params: false }
  - action_type: web.post
    tier: 1
    dry_run: false
    compensating_command: payments.reverse
    bounds: { required: [url] }
    param_effects: [{ param: url, url: { hosts: [partner.example], include_subdomains: true }, add_effects: [net.partner] }]
  - { action_type: reports.send, tier: 1, compensating_command: payments.reverse, bounds: { strict_params: false } }
"#;

/// The entries that the golden export holds.
pub fn story() -> Desk {
    let mut desk = Desk::new();
    // Before any policy, nothing is allowed.
    desk.decide("agent-1", "accounts.balance", json!({"account": "NL1"}), json!({}));
    desk.publish(POLICY);
    money(&mut desk);
    people(&mut desk);
    authorities(&mut desk);
    words(&mut desk);
    desk.sign_head();
    later(&mut desk);
    desk.sign_head();
    desk.decide("agent-1", "accounts.balance", json!({"account": "NL1"}), json!({"rationale": "last"}));
    desk
}

/// Permits and what became of them, undo, and budgets that run out.
fn money(desk: &mut Desk) {
    let transfer = |amount: &str| json!({"payee": "Zoë & Söhne \"GmbH\"", "amount_eur": amount});
    desk.decide("agent-1", "accounts.balance", json!({"account": "NL1"}), json!({}));
    let paid = desk.decide("agent-1", "payments.transfer", transfer("120.50"), json!({"session_id": "s-1"}));
    desk.wait(1);
    let permit = json!({"permit_id": paid.permit_id.clone().unwrap()});
    desk.report("agent-1", permit.clone(), "success", json!({"payload": {"ref": "a\tb\u{7f}\u{e9}", "n": 1.50}}));
    desk.report("agent-1", permit.clone(), "success", json!({}));
    desk.report("agent-2", permit, "success", json!({}));
    let elsewhere = json!({"url": "https://elsewhere.example"});
    let posted = desk.decide("agent-1", "web.post", elsewhere.clone(), json!({}));
    desk.report("agent-1", json!({"permit_id": posted.permit_id.unwrap()}), "success", json!({}));
    let undo = json!({"source": "undo", "parent_id": posted.evidence_id.to_string()});
    let reversed = desk.decide("agent-1", "payments.reverse", elsewhere.clone(), undo.clone());
    desk.decide("agent-1", "payments.reverse", elsewhere, undo);
    desk.report("agent-1", json!({"permit_id": reversed.permit_id.unwrap()}), "timeout", json!({}));
    let given_up = desk.decide("agent-1", "payments.transfer", transfer("90"), json!({}));
    let permit = json!({"permit_id": given_up.permit_id.unwrap()});
    desk.report("agent-1", permit, "failure", json!({"no_effect": true, "error": "bank said no"}));
    let denied = desk.decide("agent-1", "payments.transfer", transfer("400"), json!({}));
    assert_eq!(denied.verdict, Verdict::Deny);
    desk.report("agent-1", json!({"request_id": denied.request_id.unwrap()}), "not_attempted", json!({}));
    desk.decide("agent-1", "payments.transfer", transfer("400.01"), json!({"protocol": "aadp/0.1"}));
    desk.decide("agent-1", "reports.send", json!({"to": ["a", {"b": null}]}), json!({}));
    desk.decide("agent-1", "unknown.action", json!({}), json!({}));
    desk.decide("agent-1", "payroll.pay", json!({"iban": "NL00RAW"}), json!({"rationale": "salary"}));
}

/// Approvals: a group that needs two, a withdrawal, resumption by either side, and one that nobody answers.
fn people(desk: &mut Desk) {
    let wire = |amount: &str| json!({"amount_eur": amount});
    let first = desk.decide("agent-2", "payments.wire", wire("200"), json!({})).approval_id.unwrap();
    desk.resolve("ada", &first, true, Some("checked"));
    desk.resolve("mallory", &first, true, None);
    desk.resolve("grace", &first, true, None);
    desk.decide("agent-2", "payments.wire", wire("200.00"), json!({"approval_ref": first}));
    desk.decide("agent-2", "payments.wire", wire("200"), json!({"approval_ref": first}));
    let refused = desk.decide("agent-2", "payments.wire", wire("5"), json!({})).approval_id.unwrap();
    desk.resolve("joan", &refused, false, Some("no"));
    let driven = desk.decide("agent-2", "payments.wire", wire("6"), json!({})).approval_id.unwrap();
    desk.resolve("joan", &driven, true, None);
    desk.call("ada", Op::ResumeApproval { id: driven, note: None });
    desk.decide("agent-2", "web.post", json!({"url": "https://api.partner.example/x"}), json!({}));
}

/// The mandate authority, kill switches, and the policy's own life.
fn authorities(desk: &mut Desk) {
    let treaty = ActionType::new("treaty.sign");
    let waits = desk.decide("agent-3", "treaty.sign", json!({"with": "x"}), json!({})).approval_id.unwrap();
    let statement = ratification_statement(None, &desk.state.approvals[&waits], true);
    let signature = authorised(&statement);
    desk.call("treaty-desk", Op::RatifyApproval { id: waits, approved: true, signature });
    let cluster = evidence::hash(&desk.state.entries[&EvidenceIndex(1)]);
    let signature = authorised(&mandate_statement(cluster, &treaty, true, 1));
    desk.call(
        "treaty-desk",
        Op::SetMandate(MandateSet { action_type: treaty, authority: None, denied: true, serial: 1, signature }),
    );
    desk.decide("agent-3", "treaty.sign", json!({"with": "y"}), json!({}));
    let scope = Some(SwitchScope::Principal(Principal::new("agent-2")));
    let note = Some("odd wires".to_owned());
    desk.call("operator", Op::SetKillSwitch { engaged: true, origin: "pager".to_owned(), note, scope });
    desk.decide("agent-2", "payments.transfer", json!({"payee": "x", "amount_eur": "1"}), json!({}));
    desk.switch(true);
    desk.decide("agent-1", "payments.transfer", json!({"payee": "x", "amount_eur": "1"}), json!({}));
    desk.switch(false);
    let other = POLICY.replace("500.00", "450").replace("mandate: { authority: AUTHORITY }\n", "");
    let other = other.replace("    requires_external_authorization: true\n", "");
    let kept = Op::PublishPolicy { document: other.clone(), expect: None, activate: false };
    let Answer::PolicyPublished(kept) = desk.call("policy-admin", kept) else { panic!() };
    desk.call("policy-admin", Op::DropPolicy { digest: kept.digest });
}

/// What is no decision of this decision point.
fn words(desk: &mut Desk) {
    desk.call("agent-1", Op::Decide(b"{\"protocol\": \"aadp/0.2\", \xff".to_vec()));
    let local = json!({"protocol": "aadp/0.2", "entries": [{
        "request_id": desk.uuid(), "action_type": "reports.send", "params": {"to": "b"}, "source": "rule",
        "rationale": "cut off", "mode": "fail_static", "decided_at": desk.now, "completed_at": desk.now,
        "outcome": "success",
    }]});
    desk.call("agent-1", Op::RecordLocal(local.to_string().into_bytes()));
    desk.decide("agent-1", "accounts.balance", json!({"account": "NL2"}), json!({"request_id": FIRST}));
    desk.call("placet:system", Op::Notified { up_to: EvidenceIndex(desk.entries()) });
}

/// The request id of the first call.
const FIRST: &str = "00000000-0000-4000-8000-000000000001";

/// Deadlines pass; a report comes too late; another policy judges.
fn later(desk: &mut Desk) {
    let open = desk.decide("agent-1", "payments.transfer", json!({"payee": "x", "amount_eur": "10"}), json!({}));
    desk.wait(4000);
    desk.report("agent-1", json!({"permit_id": open.permit_id.unwrap()}), "success", json!({}));
    desk.publish(&POLICY.replace("max: \"400\"", "max: \"40\""));
    desk.decide("agent-1", "payments.transfer", json!({"payee": "x", "amount_eur": "41"}), json!({}));
    desk.decide("agent-1", "payments.transfer", json!({"payee": "x", "amount_eur": "39.99"}), json!({}));
}
