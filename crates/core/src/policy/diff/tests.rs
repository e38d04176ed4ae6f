//! What is found, and what is said to loosen: one row per kind of change, and no field without a rule.

use serde_json::Value;

use super::rules::{NEUTRAL, RULES};
use super::{ChangeKind, describe, diff, loosening, tree};
use crate::policy::{Document, load};

/// Every field is set.
const BASE: &str = r#"apiVersion: placet/v1
timezone: Europe/Amsterdam
defaults: { execute_within: 10m, approval_ttl: 1h, report_grace: 5s, expiry: keep_rate }
mandate: { authority: d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a }
budgets:
  eur: { kind: value, unit: EUR, limit: "500.00", window: day }
  calls: { kind: rate, limit: 9, window: PT5H, per: principal }
  spare: { kind: rate, limit: 9, window: day }
approvers:
  treasury: { members: [alice, bob, carol], quorum: 2 }
  board: { members: [dave], quorum: 1 }
effects:
  egress: { min_tier: 2, draws: [eur] }
  other: {}
policies:
  - action_type: pay.send
    tier: 2
    dry_run: false
    dry_run_until: 2026-09-01T00:00:00Z
    compensating_command: pay.back
    undo_window: 15m
    cost: { param: amount, unit: EUR }
    draws: [calls, spare]
    effects: [egress, other]
    param_effects:
      - { param: memo, pattern: "x.*", add_effects: [egress] }
      - { param: url, url: { hosts: [a.example, b.example], cidrs: [10.0.0.0/8], schemes: [https, ftp], include_subdomains: true, opaque: { builtin: true, extra: [go.example] } }, add_effects: [other] }
    approval: { group: treasury, ttl: 30m, queue: { per_principal: 20, per_minute: 10 } }
    present_bound: https://pay.example
    redact: [params.iban, rationale]
    requires_external_authorization: true
    bounds:
      numeric: { amount: { min: 1, max: 500 }, n: { max: 3 } }
      enum: { currency: [EUR, USD] }
      required: [amount, payee, iban]
      strict_params: true
    obligations: [{ type: isolate, value: microvm }, { type: idempotency_key }, { type: execute_within, value: PT2M }]
  - { action_type: pay.back, tier: 3 }
"#;

const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const OTHER_KEY: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

fn document(text: &str) -> Document {
    load(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}")).policy.document().clone()
}

#[test]
fn one_change_and_whether_it_loosens() {
    let base = document(BASE);
    let s = "actions.pay.send";
    for (from, to, path, loosens) in [
        ("tier: 2\n", "tier: 1\n", "tier", "the tier is lower"),
        ("tier: 2\n", "tier: 3\n", "tier", ""),
        ("max: 500 ", "max: 501 ", "bounds.numeric.amount.max", "larger values"),
        ("max: 500 ", "max: 99.5 ", "bounds.numeric.amount.max", ""),
        (", max: 500 }", " }", "bounds.numeric.amount.max", "larger values"),
        ("min: 1,", "min: \"0.5\",", "bounds.numeric.amount.min", "smaller values"),
        (", n: { max: 3 }", "", "bounds.numeric.n", ""),
        (", n: { max: 3 }", ", n: { max: 3 }, m: {}", "bounds.numeric.m", "was refused"),
        (", n: { max: 3 }", ", n: { max: 3 }, payee: {}", "bounds.numeric.payee", ""),
        ("amount: { min: 1, max: 500 }, ", "", "bounds.numeric.amount", "any value"),
        ("EUR, USD]", "EUR, USD, GBP]", "bounds.enum.currency", "one more value"),
        ("EUR, USD]", "EUR]", "bounds.enum.currency", ""),
        (", iban]", "]", "bounds.required", "may be absent"),
        (", iban]", ", iban, bic]", "bounds.required", "was refused"),
        (", iban]", ", iban, n]", "bounds.required", ""),
        ("strict_params: true", "strict_params: false", "bounds.strict_params", "does not name"),
        ("undo_window: 15m", "undo_window: 5m", "undo_window_ms", "less time"),
        ("[calls, spare]", "[calls]", "draws", "no longer limits the action"),
        ("[calls, spare]", "[spare, calls]", "draws", ""),
        ("effects: [egress, other]", "effects: [other]", "effects", "no longer apply"),
        ("pattern: \"x.*\"", "pattern: \"y.*\"", "param_effects.memo->egress.pattern", "other arguments"),
        ("[a.example, b.example]", "[a.example]", "param_effects.url->other.url.hosts", "the host no longer"),
        ("[a.example, b.example]", "[a.example, b.example, c.example]", "param_effects.url->other.url.hosts", ""),
        ("cidrs: [10.0.0.0/8], ", "", "param_effects.url->other.url.cidrs", "the network"),
        ("schemes: [https, ftp]", "schemes: [https]", "param_effects.url->other.url.schemes", "other schemes"),
        ("include_subdomains: true, ", "", "param_effects.url->other.url.include_subdomains", "hosts below"),
        (", opaque: { builtin: true, extra: [go.example] }", "", "param_effects.url->other.url.opaque", "redirectors"),
        ("builtin: true, ", "", "param_effects.url->other.url.opaque.builtin", "redirectors"),
        (", extra: [go.example]", "", "param_effects.url->other.url.opaque.extra", "the redirector"),
        ("group: treasury, ", "", "approval.group", "other people"),
        ("group: treasury", "group: board", "approval.group", "other people"),
        ("ttl: 30m", "ttl: 31m", "approval.ttl_ms", "live longer"),
        ("ttl: 30m, ", "", "approval.ttl_ms", "live longer"),
        ("per_principal: 20", "per_principal: 19", "approval.per_principal", ""),
        ("per_principal: 20, ", "", "approval.per_principal", "may wait"),
        ("per_minute: 10", "per_minute: 11", "approval.per_minute", "per minute"),
        ("https://pay.example", "https://other.example", "present_bound", "another audience"),
        ("redact: [params.iban, rationale]", "redact: [params.iban]", "redact", "in the clear"),
        ("requires_external_authorization: true", "", "requires_external_authorization", "no longer asked"),
        ("{ type: isolate, value: microvm }, ", "", "obligations.isolate", "is gone"),
        ("value: microvm", "value: none", "obligations.isolate.value", "something else"),
        ("PT2M", "PT3M", "execute_within_ms", "permits live longer"),
        ("2026-09-01", "2026-08-01", "dry_run_until", "ends earlier"),
        ("2026-09-01", "2026-10-01", "dry_run_until", ""),
    ] {
        found(&base, from, to, &format!("{s}.{path}"), loosens);
    }
    for (from, to, path, loosens) in [
        ("limit: \"500.00\"", "limit: 1000", "budgets.eur.limit", "the limit is higher"),
        ("limit: \"500.00\"", "limit: 60", "budgets.eur.limit", ""),
        ("per: principal", "per: session", "budgets.calls.per", "a counter of its own"),
        (", per: principal", "", "budgets.calls.per", ""),
        ("PT5H", "PT4H", "budgets.calls.window", "starts again"),
        ("min_tier: 2", "min_tier: 1", "effects.egress.min_tier", "floor is lower"),
        ("min_tier: 2, ", "", "effects.egress.min_tier", "floor is lower"),
        ("min_tier: 2", "min_tier: 3", "effects.egress.min_tier", ""),
        (", draws: [eur]", "", "effects.egress.draws", "no longer limits the effect"),
        ("bob, carol]", "bob, carol, eve]", "approvers.treasury.members", "one more person"),
        ("quorum: 2", "quorum: 1", "approvers.treasury.quorum", "fewer people"),
        ("quorum: 2", "quorum: 3", "approvers.treasury.quorum", ""),
        (KEY, OTHER_KEY, "mandate_authority", "another key"),
        (", expiry: keep_rate", "", "expiry_keeps_rate", "free again"),
        ("report_grace: 5s", "report_grace: 50s", "report_grace_ms", ""),
        ("Europe/Amsterdam", "UTC", "timezone", "another moment"),
        ("execute_within: 10m", "execute_within: 1h", "execute_within_ms", "live longer"),
        (
            "  - { action_type: pay.back, tier: 3 }",
            "  - { action_type: pay.back, tier: 3 }\n  - { action_type: new, tier: 3 }",
            "actions.new",
            "",
        ),
        (
            "  - { action_type: pay.back, tier: 3 }",
            "  - { action_type: pay.back, tier: 3 }\n  - { action_type: new, tier: 0 }",
            "actions.new",
            "denied by default",
        ),
        (
            "pay.back, tier: 3 }",
            "pay.back, tier: 3, dry_run: false }",
            "actions.pay.back.dry_run",
            "no longer rehearses",
        ),
    ] {
        found(&base, from, to, path, loosens);
    }
}

fn found(base: &Document, from: &str, to: &str, path: &str, loosens: &str) {
    assert_eq!(BASE.matches(from).count(), 1, "`{from}` is not one place");
    let text = BASE.replace(from, to);
    let changes = diff(base, &document(&text));
    assert_eq!(changes.len(), 1, "{from} -> {to}: {changes:#?}");
    assert_eq!(changes[0].path, path);
    let why = changes[0].loosens.unwrap_or_default();
    assert!(why.contains(loosens) && why.is_empty() == loosens.is_empty(), "{path}: {from} -> {to}: `{why}`");
    assert_eq!(loosening(&changes), usize::from(!loosens.is_empty()));
}

#[test]
fn removed_reversals_and_costs_loosen() {
    let base = document(BASE.replace("tier: 2\n", "tier: 3\n").as_str());
    let text = BASE.replace("tier: 2\n", "tier: 3\n").replace("    compensating_command: pay.back\n", "");
    let changes = diff(&base, &document(&text));
    assert_eq!(
        changes[0].to_string(),
        "- actions.pay.send.compensating_command: pay.back  (loosens: nothing reverses the action)"
    );
    let text = BASE.replace("tier: 2\n", "tier: 3\n").replace("    cost: { param: amount, unit: EUR }\n", "");
    let changes = diff(&base, &document(&text));
    assert_eq!((changes.len(), changes[0].kind, changes[0].loosens.is_some()), (1, ChangeKind::Removed, true));
}

#[test]
fn spelling_is_no_change_and_lines_say_what_changed() {
    let base = document(BASE);
    let respelled = BASE.replace("10m", "PT600S").replace("\"500.00\"", "500");
    assert!(diff(&base, &document(&respelled)).is_empty());
    assert_eq!(describe(&[]), "no change of meaning");
    let text = BASE.replace("tier: 2\n", "tier: 3\n").replace("limit: \"500.00\"", "limit: 600");
    let told = describe(&diff(&base, &document(&text)));
    assert_eq!(
        told,
        "~ actions.pay.send.tier: 2 -> 3\n\
         ~ budgets.eur.limit: 500 -> 600  (loosens: the limit is higher)\n\
         2 changes (1 in actions, 1 in budgets); 1 loosens"
    );
}

/// The paths of all fields, as patterns.
fn fields(value: &Value, path: &[String], found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                fields(member, &[path, std::slice::from_ref(name)].concat(), found);
            }
        }
        Value::Array(_) => found.push(format!("{}/", path.join("/"))),
        _ => found.push(path.join("/")),
    }
}

#[test]
fn no_field_is_without_a_rule() {
    let mut found = Vec::new();
    fields(&tree(&document(BASE)), &[], &mut found);
    let covers = |pattern: &str, path: &str| {
        let (one, two): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
        one.len() == two.len() && one.iter().zip(&two).all(|(word, name)| *word == "*" || word == name)
    };
    assert!(found.len() > 60, "{found:#?}");
    for path in &found {
        let known = RULES.iter().map(|rule| rule.0).chain(NEUTRAL.iter().copied()).any(|pattern| covers(pattern, path));
        // What is absent here is `null`, and has a rule of its own where another entry has it.
        assert!(known, "`{path}` has no rule: does a change of it loosen?");
    }
    let used = |pattern: &str| {
        let whole = ["actions/*", "actions/*/bounds/enum/*", "actions/*/bounds/numeric/*", "actions/*/cost"];
        let whole = [&whole[..], &["actions/*/obligations/*", "actions/*/param_effects/*"]].concat();
        let whole = [&whole[..], &["actions/*/param_effects/*/url", "actions/*/param_effects/*/url/opaque"]].concat();
        whole.contains(&pattern) || found.iter().any(|path| covers(pattern, path))
    };
    for (pattern, ..) in RULES {
        assert!(used(pattern), "`{pattern}` is about no field");
    }
}

/// Goal: the page lists every rule, and no other.
#[test]
fn the_page_lists_what_is_flagged() {
    let page = include_str!("../../../../../docs/POLICY.md");
    let table = page.split("| path | when | loosens because |\n").nth(1).unwrap_or_default();
    let table = table.split("\n\n").next().unwrap_or_default();
    let listed: Vec<(String, &str)> = table
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].trim_matches('`').to_owned(), cells[2])
        })
        .collect();
    let item = |path: &str| path.strip_suffix('/').map(|path| format!("{}/", path.replace('/', ".")));
    let rules: Vec<(String, &str)> =
        RULES.iter().map(|(path, _, why)| (item(path).unwrap_or_else(|| path.replace('/', ".")), *why)).collect();
    assert_eq!(listed, rules);
}
