//! From a meaning back to a document: `apiVersion: placet/v1`, the same digest.
//! Absent on purpose: what a text had beside its meaning. Comments, order and the other dialect's words are gone;
//! names that onedoor's `caps` became are spelled out as budgets.
//! INVARIANT (round trip): what is written loads to the digest that it was written from.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::url::UrlRule;
use super::{Action, Bounds, Budget, Document, Effect, Group, Scope};
use crate::event::BudgetKind;
use crate::limits::UNDO_WINDOW_MS_DEFAULT;
use crate::reply::Tier;
use crate::stamp::format_duration;

/// A document of the Placet dialect with this meaning.
pub fn to_yaml(document: &Document) -> String {
    let mut out = Page::default();
    out.line(0, "apiVersion: placet/v1");
    out.line(0, &format!("timezone: {}", word(&document.timezone)));
    let mut defaults = vec![
        ("execute_within", format_duration(document.execute_within_ms)),
        ("approval_ttl", format_duration(document.approval_ttl_ms)),
    ];
    if document.report_grace_ms > 0 {
        defaults.push(("report_grace", format_duration(document.report_grace_ms)));
    }
    if document.expiry_keeps_rate {
        defaults.push(("expiry", "keep_rate".to_owned()));
    }
    out.line(0, &format!("defaults: {}", flow(&defaults)));
    if let Some(key) = &document.mandate_authority {
        out.line(0, &format!("mandate: {{ authority: {} }}", word(key)));
    }
    out.section("budgets", &document.budgets, budget);
    out.section("effects", &document.effects, effect);
    out.section("approvers", &document.approvers, group);
    if document.actions.is_empty() {
        out.line(0, "policies: []");
        return out.text;
    }
    out.line(0, "");
    out.line(0, "policies:");
    for (at, (name, rules)) in document.actions.iter().enumerate() {
        if at > 0 {
            out.line(0, "");
        }
        action(&mut out, name, rules);
    }
    out.text
}

/// Lines of text.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, indent: usize, text: &str) {
        // Writing to memory has no way to fail.
        let _ = writeln!(self.text, "{:indent$}{text}", "");
    }

    fn section<T>(&mut self, name: &str, entries: &BTreeMap<String, T>, write: impl Fn(&T) -> String) {
        if entries.is_empty() {
            return;
        }
        self.line(0, "");
        self.line(0, &format!("{name}:"));
        for (key, value) in entries {
            self.line(2, &format!("{}: {}", word(key), write(value)));
        }
    }
}

fn budget(budget: &Budget) -> String {
    let kind = match budget.kind {
        BudgetKind::Rate => "rate",
        BudgetKind::Value => "value",
    };
    let mut fields = vec![("kind", kind.to_owned())];
    if budget.kind == BudgetKind::Value {
        fields.push(("unit", word(&budget.unit)));
    }
    fields.push(("limit", quoted(&budget.limit.to_string())));
    fields.push(("window", String::from(budget.window)));
    match budget.per {
        Some(Scope::Principal) => fields.push(("per", "principal".to_owned())),
        Some(Scope::Session) => fields.push(("per", "session".to_owned())),
        None => {}
    }
    flow(&fields)
}

fn effect(effect: &Effect) -> String {
    let mut fields = Vec::new();
    if let Some(tier) = effect.min_tier {
        fields.push(("min_tier", u8::from(tier).to_string()));
    }
    if !effect.draws.is_empty() {
        fields.push(("draws", list(&effect.draws)));
    }
    flow(&fields)
}

fn group(group: &Group) -> String {
    flow(&[("members", list(&group.members)), ("quorum", group.quorum.to_string())])
}

fn action(out: &mut Page, name: &str, rules: &Action) {
    out.line(2, &format!("- action_type: {}", word(name)));
    let mut field = |name: &str, value: String| out.line(4, &format!("{name}: {value}"));
    field("tier", u8::from(rules.tier).to_string());
    if rules.tier != Tier::Observe || !rules.dry_run {
        field("dry_run", rules.dry_run.to_string());
    }
    if let Some(until) = rules.dry_run_until {
        field("dry_run_until", quoted(&until.to_string()));
    }
    if let Some(command) = &rules.compensating_command {
        field("compensating_command", word(command));
    }
    if rules.undo_window_ms == 0 {
        field("undo_window_seconds", "0".to_owned());
    } else if rules.undo_window_ms != UNDO_WINDOW_MS_DEFAULT {
        field("undo_window", format_duration(rules.undo_window_ms));
    }
    if let Some(cost) = &rules.cost {
        field("cost", flow(&[("param", word(&cost.param)), ("unit", word(&cost.unit))]));
    }
    for (name, items) in [("draws", &rules.draws), ("effects", &rules.effects), ("redact", &rules.redact)] {
        if !items.is_empty() {
            field(name, list(items));
        }
    }
    if let Some(audience) = &rules.present_bound {
        field("present_bound", quoted(audience));
    }
    if rules.requires_external_authorization {
        field("requires_external_authorization", "true".to_owned());
    }
    let approval = approval(rules);
    if !approval.is_empty() {
        field("approval", flow(&approval));
    }
    bounds(out, &rules.bounds);
    if !rules.param_effects.is_empty() {
        out.line(4, "param_effects:");
        for rule in &rules.param_effects {
            let matcher = match (&rule.pattern, &rule.url) {
                (Some(pattern), _) => ("pattern", quoted(pattern)),
                (None, url) => ("url", url.as_ref().map(url_rule).unwrap_or_default()),
            };
            let fields = [("param", word(&rule.param)), matcher, ("add_effects", list(&rule.add_effects))];
            out.line(6, &format!("- {}", flow(&fields)));
        }
    }
    let within = rules
        .execute_within_ms
        .map(|ms| flow(&[("type", "execute_within".to_owned()), ("value", format_duration(ms))]));
    let others = rules.obligations.iter().map(|rule| {
        let mut fields = vec![("type", word(&rule.kind))];
        fields.extend(rule.value.as_ref().map(|value| ("value", quoted(value))));
        flow(&fields)
    });
    let obligations: Vec<String> = within.into_iter().chain(others).collect();
    if !obligations.is_empty() {
        out.line(4, "obligations:");
        obligations.iter().for_each(|rule| out.line(6, &format!("- {rule}")));
    }
}

fn approval(rules: &Action) -> Vec<(&'static str, String)> {
    let rules = &rules.approval;
    let mut fields = Vec::new();
    fields.extend(rules.group.as_ref().map(|group| ("group", word(group))));
    fields.extend(rules.ttl_ms.map(|ms| ("ttl", format_duration(ms))));
    let mut queue = Vec::new();
    queue.extend(rules.per_principal.map(|count| ("per_principal", count.to_string())));
    queue.extend(rules.per_minute.map(|count| ("per_minute", count.to_string())));
    if !queue.is_empty() {
        fields.push(("queue", flow(&queue)));
    }
    fields
}

fn bounds(out: &mut Page, bounds: &Bounds) {
    if *bounds == (Bounds { strict_params: true, ..Bounds::default() }) {
        return;
    }
    out.line(4, "bounds:");
    if !bounds.required.is_empty() {
        out.line(6, &format!("required: {}", list(&bounds.required)));
    }
    if !bounds.numeric.is_empty() {
        out.line(6, "numeric:");
        for (name, range) in &bounds.numeric {
            let mut fields = Vec::new();
            fields.extend(range.min.as_ref().map(|min| ("min", quoted(&min.to_string()))));
            fields.extend(range.max.as_ref().map(|max| ("max", quoted(&max.to_string()))));
            out.line(8, &format!("{}: {}", word(name), flow(&fields)));
        }
    }
    if !bounds.choices.is_empty() {
        out.line(6, "enum:");
        for (name, choices) in &bounds.choices {
            out.line(8, &format!("{}: {}", word(name), list(choices)));
        }
    }
    if !bounds.strict_params {
        out.line(6, "strict_params: false");
    }
}

fn url_rule(rule: &UrlRule) -> String {
    let mut fields = Vec::new();
    for (name, items) in [("hosts", &rule.hosts), ("cidrs", &rule.cidrs), ("schemes", &rule.schemes)] {
        if !items.is_empty() {
            fields.push((name, list(items)));
        }
    }
    if rule.include_subdomains {
        fields.push(("include_subdomains", "true".to_owned()));
    }
    if let Some(opaque) = &rule.opaque {
        let mut inside = Vec::new();
        if opaque.builtin {
            inside.push(("builtin", "true".to_owned()));
        }
        if !opaque.extra.is_empty() {
            inside.push(("extra", list(&opaque.extra)));
        }
        fields.push(("opaque", flow(&inside)));
    }
    flow(&fields)
}

fn flow(fields: &[(&str, String)]) -> String {
    if fields.is_empty() {
        return "{}".to_owned();
    }
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| word(item)).collect();
    format!("[{}]", items.join(", "))
}

/// Text as it is where YAML takes it for text and a reader does too, else in quotes.
fn word(text: &str) -> String {
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain { text.to_owned() } else { quoted(text) }
}

/// In double quotes, with everything escaped that YAML may not hold or a terminal may not show.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            letter
                if letter.is_control()
                    || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
            {
                out.push_str(&format!("\\u{:04X}", u32::from(letter)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests;
