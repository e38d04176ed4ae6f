//! The loader: what it accepts in both dialects, and that every mistake comes back with its place.

use super::{Window, load};

fn mistakes(text: &str) -> Vec<(u64, u64, String)> {
    load(text).err().unwrap_or_default().into_iter().map(|m| (m.line, m.column, m.message)).collect()
}

const PLACET: &str = r#"apiVersion: placet/v1
timezone: Europe/Amsterdam
defaults: { execute_within: 10m, approval_ttl: 1h }
budgets:
  eur-daily: { kind: value, unit: EUR, limit: "500.00", window: day }
  calls: { kind: rate, limit: 20, window: PT5H, per: principal }
effects:
  money.egress: { min_tier: 2, draws: [eur-daily] }
policies:
  - action_type: payments.transfer
    tier: 2
    dry_run: false
    compensating_command: payments.reverse
    undo_window: 15m
    cost: { param: amount_eur, unit: EUR }
    draws: [eur-daily, calls]
    bounds:
      numeric: { amount_eur: { min: "0.01", max: 500 } }
      enum: { currency: [EUR] }
      required: [payee, amount_eur]
    effects: [money.egress]
    approval: { ttl: 30m }
    obligations:
      - { type: execute_within, value: PT2M }
      - { type: idempotency_key }
      - { type: x-acme.audit, value: full }
  - { action_type: payments.reverse, tier: 3 }
"#;

#[test]
fn the_placet_dialect() {
    let loaded = load(PLACET).unwrap();
    let document = loaded.policy.document();
    let transfer = &document.actions["payments.transfer"];
    assert_eq!(document.timezone, "Europe/Amsterdam");
    assert_eq!(transfer.execute_within_ms, Some(120_000));
    assert_eq!(transfer.approval.ttl_ms, Some(1_800_000));
    assert_eq!(transfer.undo_window_ms, 900_000);
    assert_eq!(document.budgets["calls"].window, Window::Rolling(18_000_000));
    assert!(transfer.bounds.strict_params && !transfer.dry_run);
    assert!(document.actions["payments.reverse"].dry_run);
    assert!(loaded.warnings.is_empty());
}

#[test]
fn identity_is_meaning_not_spelling() {
    let respelled = PLACET.replace("\"500.00\"", "500").replace("10m", "600s").replace("PT2M", "120s");
    let first = load(PLACET).unwrap().policy;
    let other = load(&format!("# a comment\n{respelled}")).unwrap().policy;
    assert_eq!(first.digest(), other.digest());
    assert_ne!(first.digest(), load(&PLACET.replace("500.00", "501")).unwrap().policy.digest());
    let value: serde_json::Value = serde_json::from_str(first.canonical()).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), first.canonical(), "members are sorted");
}

#[test]
fn every_mistake_in_one_pass() {
    let text = r#"apiVersion: placet/v1
timezone: Mars/Olympus
budgets:
  b: { kind: weight, limit: -1, window: week }
  b: { kind: rate, limit: 1, window: day }
  tok: { kind: value, unit: TOK, limit: 5, window: day }
policies:
  - action_type: a.b
    tier: 1
    colour: red
    draws: [nowhere, tok]
    effects: [unheard]
    compensating_command: also.unheard
    cost: { param: amount }
    bounds: { numeric: { x: { min: 2, max: 1 } } }
  - action_type: "über"
    tier: 7
  - action_type: c.d
    tier: 0
    param_effects: [{ param: p, pattern: "(", add_effects: [unheard] }]
    redact: [params.iban, iban]
"#;
    let found = mistakes(text);
    for (line, column, part) in [
        (2, 11, "`Mars/Olympus` is not a time zone"),
        (4, 14, "`kind` is `weight`"),
        (4, 29, "`limit` is -1"),
        (4, 41, "`week` is neither"),
        (5, 3, "key `b` appears twice, first in line 4"),
        (10, 5, "`colour` is not a field of a policy"),
        (11, 13, "budget `nowhere` is not declared"),
        (11, 22, "budget `tok` counts TOK"),
        (12, 15, "effect `unheard` is not declared"),
        (13, 27, "compensating command `also.unheard`"),
        (14, 20, "cost parameter `amount` is not in `bounds.required`"),
        (15, 26, "`min` above its `max`"),
        (16, 18, "`über` is not an action type"),
        (17, 11, "`tier` is 7"),
        (20, 42, "does not compile"),
        (21, 27, "`iban` cannot be redacted"),
    ] {
        let hit = found.iter().any(|(l, c, m)| (*l, *c) == (line, column) && m.contains(part));
        assert!(hit, "{line}:{column} {part}\n{found:#?}");
    }
}

#[test]
fn documents_that_are_not_documents() {
    for (text, part) in [
        ("", "empty"),
        ("- a", "not a mapping"),
        ("policies: {}", "not a list"),
        ("a: [", "not YAML"),
        ("policies: []\n---\npolicies: []", "second document"),
        ("policies: &x []", "anchor"),
        ("policies: *x", ""),
        ("policies: !!seq []", "tag"),
        ("apiVersion: placet/v9\npolicies: []", "placet/v1"),
        ("budgets: {}\npolicies: []", "`budgets` is not a field"),
    ] {
        let found = mistakes(text);
        assert!(!found.is_empty() && found.iter().any(|(_, _, m)| m.contains(part)), "{text}: {found:?}");
    }
    assert!(!mistakes(&"x".repeat((1 << 20) + 1)).is_empty());
    let deep = format!("policies: {}{}", "[".repeat(2000), "]".repeat(2000));
    let found = mistakes(&deep);
    assert!(found.iter().any(|(_, _, m)| m.contains("deep") || m.contains("recursion")), "{found:?}");
}

#[test]
fn what_would_not_be_enforced_is_refused() {
    for field in ["requires_step_up: true", "bound_permit_action_type: a", "on_timeout: hold"] {
        let text = format!("apiVersion: placet/v1\npolicies:\n  - action_type: a\n    tier: 3\n    {field}\n");
        assert!(mistakes(&text).iter().any(|(line, _, m)| *line == 5 && m.contains("not enforced")), "{field}");
    }
}

/// Goal: what an action asks others for is there, and could be had.
#[test]
fn what_could_never_be_met_is_refused() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    for (head, field, part) in [
        ("", "requires_external_authorization: true", "mandate"),
        ("mandate: { authority: 00 }", "requires_external_authorization: true", "public key"),
        ("", "present_bound: bank", "absolute URI"),
        ("", "approval: { group: g }", "not declared"),
        ("approvers: { g: { members: [a], quorum: 2 } }", "approval: { group: g }", "quorum"),
        ("approvers: { g: { members: [a, a], quorum: 2 } }", "approval: { group: g }", "twice"),
        ("approvers: { g: { members: [], quorum: 0 } }", "approval: { group: g }", "members"),
        ("", "approval: { queue: { per_principal: 0 } }", "1 or more"),
        ("", "redact: [iban]", "cannot be redacted"),
        ("effects: { e: {} }", "param_effects: [{ param: u, url: { schemes: [https] }, add_effects: [e] }]", ""),
        ("effects: { e: {} }", "param_effects: [{ param: u, url: { cidrs: [192.0.2.1/99] }, add_effects: [e] }]", ""),
    ] {
        let text = format!("apiVersion: placet/v1\n{head}\npolicies:\n  - action_type: a\n    tier: 3\n    {field}\n");
        let found = mistakes(&text);
        assert!(found.iter().any(|(_, _, m)| m.contains(part)), "{head} {field}: {found:?}");
    }
    for (head, field) in [
        (format!("mandate: {{ authority: \"{key}\" }}"), "requires_external_authorization: true"),
        (String::new(), "present_bound: https://bank.example/act"),
        (
            "approvers: { g: { members: [a, b], quorum: 2 } }".to_owned(),
            "approval: { group: g, queue: { per_minute: 1 } }",
        ),
        (
            "effects: { e: {} }".to_owned(),
            "param_effects: [{ param: u, url: { hosts: [x.example] }, add_effects: [e] }]",
        ),
    ] {
        let text = format!("apiVersion: placet/v1\n{head}\npolicies:\n  - action_type: a\n    tier: 3\n    {field}\n");
        assert!(mistakes(&text).is_empty(), "{field}: {:?}", mistakes(&text));
    }
    // A rule that reads what is hidden is allowed, with a warning.
    let text = "apiVersion: placet/v1\npolicies:\n  - { action_type: a, tier: 3, bounds: { numeric: { n: { max: 1 } } }, redact: [params.n, params.m] }\n";
    let warnings = load(text).unwrap().warnings;
    assert_eq!(warnings.iter().filter(|one| one.message.contains("params.n")).count(), 1, "{warnings:?}");
}
