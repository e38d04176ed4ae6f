//! That every document comes back as what it meant, whatever its dialect and its names.

use super::to_yaml;
use crate::policy::load;

const ONEDOOR: &str = r#"
effects:
  money.egress: { min_tier: 2, caps: { daily_rate: 50, eur_day: "500.00", eur_month: 5000 } }
  noted:
policies:
  - action_type: payments.transfer
    tier: 2
    dry_run: false
    dry_run_until: 2026-09-01T00:00:00Z
    compensating_command: payments.reverse
    cost_param: amount_eur
    undo_window_seconds: 0
    caps: { daily_rate: 20, eur_day: "250" }
    bounds:
      numeric: { amount_eur: { min: "0.01", max: 500 } }
      enum: { currency: [EUR, "no", "true"] }
      required: [payee, amount_eur]
      strict_params: false
    effects: [money.egress]
    param_effects:
      - { param: memo, pattern: '(?i)gift\s*card "x"', add_effects: [noted] }
      - param: url
        url: { hosts: [Bank.Example.COM], cidrs: [10.0.0.0/8], schemes: [HTTPS], include_subdomains: true, opaque: { builtin: true, extra: [go.example.com] } }
        add_effects: [money.egress, noted]
  - { action_type: payments.reverse, tier: 3, undo_window_seconds: 90, present_bound: "https://pay.example/a?b=c" }
"#;

const PLACET: &str = r#"
apiVersion: placet/v1
timezone: Europe/Amsterdam
defaults: { execute_within: 90s, approval_ttl: 2d, report_grace: 30s, expiry: keep_rate }
mandate: { authority: d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a }
budgets:
  "tokens: 5h, all": { kind: value, unit: TOK, limit: "2000000.125", window: PT5H30M, per: session }
  calls: { kind: rate, limit: 20, window: month, per: principal }
approvers:
  treasury: { members: ["spiffe://corp.example/alice", "token:bob", "č, \"d\""], quorum: 2 }
effects: { e: {}, f: { draws: [calls] } }
policies:
  - action_type: a.b:c
    tier: 3
    dry_run: false
    requires_external_authorization: true
    cost: { param: n, unit: TOK }
    draws: [calls, "tokens: 5h, all"]
    effects: [f, e]
    redact: [rationale, params.iban, "params.a b"]
    approval: { group: treasury, ttl: 30m, queue: { per_principal: 20, per_minute: 10 } }
    bounds: { required: [n], numeric: { n: {}, m: { max: "-0.5" } }, enum: { "": ["", " ", "\u0085\u2028\x7f\0"] } }
    obligations:
      - { type: isolate, value: "micro: vm" }
      - { type: execute_within, value: PT2M }
      - { type: x-acme.audit }
  - { action_type: read, tier: 0 }
"#;

#[test]
fn what_is_written_has_the_digest_that_it_was_written_from() {
    for (name, text) in [
        ("onedoor", ONEDOOR),
        ("placet", PLACET),
        ("empty", "policies: []"),
        ("example", include_str!("../../../../../examples/payments.yaml")),
    ] {
        let loaded = load(text).unwrap_or_else(|m| panic!("{name}: {m:#?}"));
        let written = to_yaml(loaded.policy.document());
        let again = load(&written).unwrap_or_else(|m| panic!("{name}: {m:#?}\n{written}"));
        assert_eq!(again.policy.canonical(), loaded.policy.canonical(), "{name}:\n{written}");
        assert_eq!(again.policy.digest(), loaded.policy.digest());
        assert_eq!(to_yaml(again.policy.document()), written);
        let notes =
            |found: &crate::policy::Loaded| found.warnings.iter().map(|w| w.message.clone()).collect::<Vec<_>>();
        assert_eq!(notes(&again).len(), notes(&loaded).len(), "{name}");
    }
}

#[test]
fn the_caps_of_onedoor_are_budgets_with_their_names() {
    let written = to_yaml(load(ONEDOOR).unwrap().policy.document());
    for line in [
        "  \"effect:money.egress.eur_day\": { kind: value, unit: EUR, limit: \"500\", window: day }",
        "  payments.transfer.rate: { kind: rate, limit: \"20\", window: day }",
        "    draws: [payments.transfer.rate, payments.transfer.eur_day]",
        "    undo_window_seconds: 0",
        "        currency: [EUR, \"no\", \"true\"]",
    ] {
        assert!(written.lines().any(|found| found == line), "{line}\n{written}");
    }
}
