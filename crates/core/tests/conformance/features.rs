//! The policies of the later features, by their names, and the mandate authority that they trust.

use ed25519_dalek::{Signer, SigningKey};
use placet_core::evaluate::{mandate_statement, ratification_statement};
use placet_core::event::MandateSet;
use placet_core::evidence;
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, hex};
use placet_core::op::{Answer, Op, Reject};

use super::fixture::Pdp;

/// Everything that the fixture of AADP §23.1 does not need; `KEY` stands for the authority's public key.
const FEATURES: &str = r#"
apiVersion: placet/v1
mandate: { authority: "KEY" }
budgets:
  eur-day: { kind: value, unit: EUR, limit: "500", window: day }
  eur-5h: { kind: value, unit: EUR, limit: "300", window: PT5H, per: principal }
  calls: { kind: rate, limit: 400, window: day }
effects:
  egress: { min_tier: 3 }
  bulk: { min_tier: 2 }
  web: {}
  spend: { draws: [eur-day] }
approvers:
  treasury: { members: [A1, A2, A3, P1], quorum: 2 }
policies:
  - { action_type: read.status, tier: 0 }
  - action_type: lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: lamp.restore
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: lamp.restore
    tier: 1
    dry_run: false
    compensating_command: lamp.toggle
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - { action_type: pay.back, tier: 1, dry_run: false, compensating_command: pay.back, bounds: { strict_params: false } }
  - action_type: pay.card
    tier: 2
    dry_run: false
    compensating_command: pay.back
    cost: { param: amount }
    draws: [eur-5h, calls]
    effects: [spend]
    bounds: { numeric: { amount: { min: "0.01", max: 200 } }, required: [amount], strict_params: false }
    redact: [params.iban, params.to.iban, rationale, payload.iban, error]
  - action_type: pay.secret
    tier: 3
    dry_run: false
    bounds: { numeric: { pin: { min: 1000, max: 9999 } }, enum: { colour: [red] }, required: [pin, colour], strict_params: false }
    param_effects:
      - { param: site, url: { hosts: [bank.example] }, add_effects: [egress] }
    redact: [params.pin, params.colour, params.site]
  - action_type: web.get
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    param_effects:
      - param: url
        url: { hosts: [bank.example], include_subdomains: true, cidrs: [192.0.2.0/24], opaque: { builtin: true } }
        add_effects: [egress]
  - action_type: web.plain
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    param_effects: [{ param: url, url: { hosts: [bank.example], opaque: { builtin: true } }, add_effects: [web] }]
  - action_type: web.bulk
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    param_effects: [{ param: url, url: { hosts: [bank.example], opaque: { builtin: true } }, add_effects: [bulk] }]
  - action_type: web.confirm
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    param_effects: [{ param: url, url: { hosts: [bank.example], opaque: { builtin: true } }, add_effects: [web] }]
  - action_type: mandated.auto
    tier: 1
    dry_run: false
    compensating_command: pay.back
    requires_external_authorization: true
    bounds: { numeric: { n: { max: 10 } }, strict_params: false }
  - { action_type: mandated.confirm, tier: 3, dry_run: false, requires_external_authorization: true, bounds: { strict_params: false } }
  - { action_type: mandated.floor, tier: 1, dry_run: false, compensating_command: pay.back, requires_external_authorization: true, effects: [egress], bounds: { strict_params: false } }
  - { action_type: mandated.read, tier: 0, requires_external_authorization: true }
  - { action_type: wire.treasury, tier: 3, dry_run: false, cost: { param: amount }, draws: [eur-day], bounds: { numeric: { amount: { max: 500 } }, required: [amount] }, approval: { group: treasury, ttl: 30m } }
  - { action_type: bound.act, tier: 2, dry_run: false, compensating_command: pay.back, present_bound: "https://bank.example/act", cost: { param: amount }, draws: [eur-day], bounds: { required: [amount] } }
  - { action_type: bound.confirm, tier: 3, dry_run: false, present_bound: "https://bank.example/act", bounds: { strict_params: false } }
  - { action_type: flood, tier: 3, dry_run: false, bounds: { strict_params: false }, approval: { queue: { per_principal: 20, per_minute: 30 } } }
  - { action_type: flood.plain, tier: 3, dry_run: false, bounds: { strict_params: false } }
  - action_type: obliged
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    obligations:
      - { type: isolate, value: microvm }
      - { type: idempotency_key }
      - { type: x-acme.audit, value: full }
  - { action_type: rehearsed, tier: 1, compensating_command: pay.back, bounds: { strict_params: false } }
"#;

fn authority() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

/// The document of the later features.
pub fn document() -> String {
    FEATURES.replace("KEY", &hex(authority().verifying_key().as_bytes()))
}

/// A fresh store under it.
pub fn pdp() -> Pdp {
    Pdp::under(&document())
}

/// The authority's signature.
pub fn sign(statement: &[u8]) -> String {
    hex(&authority().sign(statement).to_bytes())
}

/// The authority answers one approval; anyone may carry the answer.
pub fn ratify(pdp: &mut Pdp, id: &ApprovalId, approved: bool) -> Result<Answer, Reject> {
    let signature = sign(&ratification_statement(None, &pdp.state.approvals[id], approved));
    pdp.call("A4", Op::RatifyApproval { id: id.clone(), approved, signature })
}

/// The authority's standing word about an action type.
pub fn mandate(pdp: &mut Pdp, action: &str, denied: bool, serial: u64) -> Result<Answer, Reject> {
    let action_type = ActionType::new(action);
    let cluster = evidence::hash(&pdp.state.entries[&EvidenceIndex(1)]);
    let signature = sign(&mandate_statement(cluster, &action_type, denied, serial));
    pdp.call("A4", Op::SetMandate(MandateSet { action_type, authority: None, denied, serial, signature }))
}
