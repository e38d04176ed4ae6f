//! One entry of `policies`: the rules of an action type, and where they stand.

use std::collections::{BTreeMap, HashSet};

use super::fields::{Fields, Report, text};
use super::{Dialect, Loader};
use crate::event::BudgetKind;
use crate::limits::{REDACTED_PATHS_MAX, UNDO_WINDOW_MS_DEFAULT};
use crate::policy::url::{Opaque, UrlRule};
use crate::policy::yaml::{At, Kind, Node};
use crate::policy::{
    Action, ApprovalRules, Bounds, Budget, Cost, Effect, Group, ObligationRule, ParamEffect, Range, compile_pattern,
};
use crate::redact;
use crate::reply::Tier;
use crate::request::is_action_type;
use crate::stamp::{Stamp, parse_duration_ms};

/// The unit of an action that names none: `cost_eur` of the request.
const DEFAULT_UNIT: &str = "EUR";

/// Ten years, like every other duration of a policy.
const UNDO_WINDOW_SECONDS_MAX: i64 = 10 * 366 * 86_400;

/// An action with the places that later checks point at.
#[derive(Debug)]
pub(super) struct ActionAt {
    at: At,
    name: String,
    pub(super) rules: Action,
    pub(super) draws_at: Vec<(At, String)>,
    effects_at: Vec<(At, String)>,
    command_at: Option<At>,
    cost_at: Option<At>,
    group_at: Option<At>,
    external_at: Option<At>,
    redact_at: Option<At>,
}

impl Loader {
    pub(super) fn action(&mut self, node: Node) {
        let Some(mut fields) = Fields::of(node, "a policy", &mut self.report) else { return };
        let at = fields.at;
        let Some((name_at, name)) = fields.text("action_type", &mut self.report) else {
            self.report.mistake(at, "a policy has no `action_type`");
            return;
        };
        if !is_action_type(&name) {
            let message = format!(
                "`{name}` is not an action type: ASCII letters, digits, `_`, `.`, `:`, `-`, a letter or `_` first"
            );
            self.report.mistake(name_at, message);
        }
        let tier = fields.tier("tier", &mut self.report).map(|(_, tier)| tier);
        if tier.is_none() {
            self.report.mistake(at, format!("policy `{name}` has no usable `tier`, 0 to 3"));
        }
        let command = fields.text("compensating_command", &mut self.report);
        let (cost_at, cost) = self.cost(&mut fields).unzip();
        let bounds = self.bounds(&mut fields);
        let effects_at = fields.texts("effects", &mut self.report);
        let mut all_effects = effects_at.clone();
        let param_effects = self.param_effects(&mut fields, &mut all_effects);
        let draws_at = self.draws(&mut fields, &name);
        let dry_run = fields.flag("dry_run", &mut self.report).is_none_or(|(_, flag)| flag);
        let dry_run_until = self.instant(&mut fields, "dry_run_until");
        let undo_window_ms = self.undo_window(&mut fields);
        let (execute_within_ms, obligations) = self.obligations(&mut fields);
        let (approval, group_at) = self.approval(&mut fields);
        let (present_bound, external_at) = self.authority(&mut fields);
        let (redact, redact_at) = self.redact(&mut fields);
        self.refuse_unenforced(&mut fields);
        fields.finish(&mut self.report);
        let rules = Action {
            approval,
            bounds,
            compensating_command: command.as_ref().map(|(_, name)| name.clone()),
            cost,
            draws: draws_at.iter().map(|(_, name)| name.clone()).collect(),
            dry_run,
            dry_run_until,
            effects: effects_at.into_iter().map(|(_, label)| label).collect(),
            execute_within_ms,
            obligations,
            param_effects,
            present_bound,
            redact,
            requires_external_authorization: external_at.is_some(),
            tier: tier.unwrap_or(Tier::Confirm),
            undo_window_ms,
        };
        let command_at = command.map(|(at, _)| at);
        let effects_at = all_effects;
        let action = ActionAt {
            at,
            name: name.clone(),
            rules,
            draws_at,
            effects_at,
            command_at,
            cost_at,
            group_at,
            external_at,
            redact_at,
        };
        if self.actions.insert(name.clone(), action).is_some() {
            self.report.mistake(name_at, format!("action type `{name}` appears twice"));
        }
    }

    fn cost(&mut self, fields: &mut Fields) -> Option<(At, Cost)> {
        let short = fields.text("cost_param", &mut self.report);
        if self.dialect == Dialect::Placet
            && let Some(mut cost) = fields.mapping("cost", &mut self.report)
        {
            let param = cost.text("param", &mut self.report);
            let unit = cost.text("unit", &mut self.report).map_or_else(|| DEFAULT_UNIT.to_owned(), |(_, unit)| unit);
            let at = cost.at;
            cost.finish(&mut self.report);
            if let Some((at, _)) = short {
                self.report.mistake(at, "`cost_param` and `cost` say the same thing; keep one");
            }
            if param.is_none() {
                self.report.mistake(at, "`cost` has no `param`, the argument that holds the amount");
            }
            return param.map(|(at, param)| (at, Cost { param, unit }));
        }
        short.map(|(at, param)| (at, Cost { param, unit: DEFAULT_UNIT.to_owned() }))
    }

    fn bounds(&mut self, fields: &mut Fields) -> Bounds {
        let report = &mut self.report;
        let mut bounds = Bounds { strict_params: true, ..Bounds::default() };
        let Some(mut fields) = fields.mapping("bounds", report) else { return bounds };
        if let Some(numeric) = fields.mapping("numeric", report) {
            for (key, node) in numeric.into_entries() {
                let Some(mut range) = Fields::of(node, format!("numeric bound `{}`", key.text), report) else {
                    continue;
                };
                let min = range.exact("min", report).map(|(_, min)| min);
                let max = range.exact("max", report).map(|(_, max)| max);
                range.finish(report);
                if let (Some(low), Some(high)) = (&min, &max)
                    && low > high
                {
                    report.mistake(key.at, format!("`{}` has a `min` above its `max`: nothing can pass", key.text));
                }
                bounds.numeric.insert(key.text, Range { max, min });
            }
        }
        if let Some(choices) = fields.mapping("enum", report) {
            for (key, node) in choices.into_entries() {
                match node.kind {
                    Kind::Sequence(items) if !items.is_empty() => {
                        let words = items.iter().filter_map(|item| text(item, &key.text, report)).collect();
                        bounds.choices.insert(key.text, words);
                    }
                    _ => report.mistake(node.at, format!("`enum.{}` is not a list of at least one text", key.text)),
                }
            }
        }
        bounds.required = fields.texts("required", report).into_iter().map(|(_, name)| name).collect();
        bounds.strict_params = fields.flag("strict_params", report).is_none_or(|(_, flag)| flag);
        fields.finish(report);
        bounds
    }

    fn param_effects(&mut self, fields: &mut Fields, labels: &mut Vec<(At, String)>) -> Vec<ParamEffect> {
        let report = &mut self.report;
        let mut rules = Vec::new();
        for node in fields.list("param_effects", report) {
            let Some(mut rule) = Fields::of(node, "a `param_effects` rule", report) else { continue };
            let at = rule.at;
            let param = rule.text("param", report);
            let pattern = rule.text("pattern", report);
            let url_given = rule.has("url");
            let url = rule.mapping("url", report).and_then(|url| url_rule(url, report));
            let add_effects = rule.texts("add_effects", report);
            rule.finish(report);
            if param.is_none() {
                report.mistake(at, "a `param_effects` rule has no `param`");
            }
            if pattern.is_some() == url_given {
                report.mistake(at, "a `param_effects` rule has exactly one of `pattern` and `url`");
            }
            if add_effects.is_empty() {
                report.mistake(at, "a `param_effects` rule has no `add_effects`");
            }
            let Some((_, param)) = param else { continue };
            if let Some((at, pattern)) = &pattern
                && let Err(message) = compile_pattern(pattern)
            {
                report.mistake(*at, message);
            }
            let pattern = pattern.map(|(_, pattern)| pattern);
            labels.extend(add_effects.iter().cloned());
            rules.push(ParamEffect {
                add_effects: add_effects.into_iter().map(|(_, label)| label).collect(),
                param,
                pattern,
                url,
            });
        }
        rules
    }

    fn instant(&mut self, fields: &mut Fields, name: &str) -> Option<Stamp> {
        let (at, text) = fields.text(name, &mut self.report)?;
        let stamp = Stamp::parse(&text);
        if stamp.is_none() {
            self.report
                .mistake(at, format!("`{name}` is `{text}`, not an instant in UTC such as 2026-08-17T09:00:00Z"));
        }
        stamp
    }

    fn undo_window(&mut self, fields: &mut Fields) -> i64 {
        let seconds = fields.integer("undo_window_seconds", &mut self.report);
        let window = match self.dialect {
            Dialect::Placet => fields.duration("undo_window", &mut self.report),
            Dialect::Onedoor => None,
        };
        match (seconds, window) {
            (Some((at, seconds)), _) if !(0..=UNDO_WINDOW_SECONDS_MAX).contains(&seconds) => {
                self.report.mistake(at, "`undo_window_seconds` is zero or more, and at most ten years");
                UNDO_WINDOW_MS_DEFAULT
            }
            (Some((at, _)), Some(_)) => {
                self.report.mistake(at, "`undo_window_seconds` and `undo_window` say the same thing; keep one");
                UNDO_WINDOW_MS_DEFAULT
            }
            (Some((_, seconds)), None) => seconds.saturating_mul(1000),
            (None, window) => window.unwrap_or(UNDO_WINDOW_MS_DEFAULT),
        }
    }

    /// The deadline that an `execute_within` obligation names, and the other obligations.
    fn obligations(&mut self, fields: &mut Fields) -> (Option<i64>, Vec<ObligationRule>) {
        if self.dialect == Dialect::Onedoor {
            return (None, Vec::new());
        }
        let report = &mut self.report;
        let mut execute_within_ms = None;
        let mut kinds: HashSet<String> = HashSet::new();
        let mut rules: Vec<ObligationRule> = Vec::new();
        for node in fields.list("obligations", report) {
            let Some(mut rule) = Fields::of(node, "an obligation", report) else { continue };
            let at = rule.at;
            let kind = rule.text("type", report);
            let value = rule.text("value", report);
            rule.finish(report);
            let Some((kind_at, kind)) = kind else {
                report.mistake(at, "an obligation has no `type`");
                continue;
            };
            if !kinds.insert(kind.clone()) {
                report.mistake(kind_at, format!("obligation `{kind}` appears twice"));
            }
            match (kind.as_str(), &value) {
                ("execute_within", Some((at, text))) => match parse_duration_ms(text) {
                    Some(ms) => execute_within_ms = Some(ms),
                    None => report.mistake(*at, format!("`{text}` is not a duration such as PT2M")),
                },
                ("execute_within" | "isolate", None) => report.mistake(kind_at, format!("`{kind}` needs a `value`")),
                ("idempotency_key", Some((at, _))) => report.mistake(*at, "the decision point makes this value"),
                ("idempotency_key" | "isolate", _) => {}
                (vendor, _) if is_vendor_name(vendor) => {}
                _ => report.mistake(
                    kind_at,
                    format!("`{kind}` is none of execute_within, idempotency_key, isolate and x-<vendor>.<name>"),
                ),
            }
            if kind != "execute_within" {
                rules.push(ObligationRule { kind, value: value.map(|(_, value)| value) });
            }
        }
        (execute_within_ms, rules)
    }

    fn approval(&mut self, fields: &mut Fields) -> (ApprovalRules, Option<At>) {
        if self.dialect == Dialect::Onedoor {
            return (ApprovalRules::default(), None);
        }
        let report = &mut self.report;
        let Some(mut approval) = fields.mapping("approval", report) else { return (ApprovalRules::default(), None) };
        let ttl_ms = approval.duration("ttl", report);
        let (group_at, group) = approval.text("group", report).unzip();
        let (mut per_minute, mut per_principal) = (None, None);
        if let Some(mut queue) = approval.mapping("queue", report) {
            per_minute = count(&mut queue, "per_minute", report);
            per_principal = count(&mut queue, "per_principal", report);
            queue.finish(report);
        }
        approval.finish(report);
        (ApprovalRules { group, per_minute, per_principal, ttl_ms }, group_at)
    }

    /// Who else must agree, and who alone may be shown the permit.
    fn authority(&mut self, fields: &mut Fields) -> (Option<String>, Option<At>) {
        let external = match fields.flag("requires_external_authorization", &mut self.report) {
            Some((at, true)) => Some(at),
            _ => None,
        };
        let bound = fields.text("present_bound", &mut self.report).and_then(|(at, audience)| {
            let absolute = audience.split_once(':').is_some_and(|(scheme, rest)| {
                scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                    && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
                    && !rest.is_empty()
                    && audience.bytes().all(|b| b.is_ascii_graphic())
            });
            if !absolute {
                self.report.mistake(at, format!("`present_bound` is `{audience}`, not an absolute URI"));
            }
            absolute.then_some(audience)
        });
        (bound, external)
    }

    fn redact(&mut self, fields: &mut Fields) -> (Vec<String>, Option<At>) {
        if self.dialect == Dialect::Onedoor {
            return (Vec::new(), None);
        }
        let paths = fields.texts("redact", &mut self.report);
        let first = paths.first().map(|(at, _)| *at);
        if paths.len() > REDACTED_PATHS_MAX
            && let Some(at) = first
        {
            self.report.mistake(at, format!("`redact` has more than {REDACTED_PATHS_MAX} paths"));
        }
        let mut kept = Vec::new();
        for (at, path) in paths {
            if redact::is_path(&path) {
                kept.push(path);
            } else {
                self.report.mistake(
                    at,
                    format!("`{path}` cannot be redacted; it is params.<name>, payload.<name>, rationale or error"),
                );
            }
        }
        kept.sort();
        (kept, first)
    }

    /// Fields of both dialects that promise something this version does not do. Their harmless values pass.
    fn refuse_unenforced(&mut self, fields: &mut Fields) {
        if let Some((at, true)) = fields.flag("requires_step_up", &mut self.report) {
            self.report.mistake(at, "`requires_step_up: true` is not enforced by this version");
        }
        if let Some((key, _)) = fields.take("bound_permit_action_type") {
            self.report.mistake(key.at, "`bound_permit_action_type` is not enforced by this version; remove it");
        }
        if self.dialect == Dialect::Placet {
            match fields.text("on_timeout", &mut self.report) {
                Some((at, word)) if word != "settle" => {
                    self.report
                        .mistake(at, format!("`on_timeout: {word}` is not enforced by this version; it is settle"));
                }
                _ => {}
            }
        }
    }
}

impl ActionAt {
    pub(super) fn check(
        &self,
        budgets: &BTreeMap<String, Budget>,
        effects: &BTreeMap<String, Effect>,
        actions: &BTreeMap<String, ActionAt>,
        report: &mut Report,
    ) {
        let name = &self.name;
        let rules = &self.rules;
        match (&rules.compensating_command, self.command_at) {
            (Some(command), Some(at)) if !actions.contains_key(command) => {
                report.mistake(at, format!("compensating command `{command}` is not an action type of this policy"));
            }
            (None, _) if matches!(rules.tier, Tier::Auto | Tier::AutoCapped) => {
                report.mistake(
                    self.at,
                    format!("policy `{name}` runs without a human and has no `compensating_command`"),
                );
            }
            _ => {}
        }
        if rules.tier == Tier::Observe
            && (!rules.draws.is_empty() || rules.cost.is_some() || rules.compensating_command.is_some())
        {
            let message =
                format!("policy `{name}` is tier 0, a read: it has no budgets, no cost and no compensating command");
            report.mistake(self.at, message);
        }
        if let (Some(cost), Some(at)) = (&rules.cost, self.cost_at)
            && !rules.bounds.required.contains(&cost.param)
        {
            let message =
                format!("cost parameter `{}` is not in `bounds.required`: an absent amount is not zero", cost.param);
            report.mistake(at, message);
        }
        for (at, label) in &self.effects_at {
            if !effects.contains_key(label) {
                report.mistake(*at, format!("effect `{label}` is not declared under `effects`"));
            }
        }
        self.check_draws(budgets, effects, report);
    }

    pub(super) fn check_approval(&self, groups: &BTreeMap<String, Group>, has_authority: bool, report: &mut Report) {
        if let (Some(at), Some(group)) = (self.group_at, &self.rules.approval.group)
            && !groups.contains_key(group)
        {
            report.mistake(at, format!("group `{group}` is not declared under `approvers`"));
        }
        if let Some(at) = self.external_at
            && !has_authority
        {
            report.mistake(at, "an external authorization needs `mandate: { authority: <key> }`");
        }
        if let Some(at) = self.redact_at {
            if let Some(cost) = &self.rules.cost
                && redact::covers(&self.rules.redact, &cost.param)
            {
                let param = &cost.param;
                report
                    .mistake(at, format!("`{param}` is the cost: what it draws is on record, so it cannot be hidden"));
            }
            for path in self.rules.redact.iter().filter(|path| redact::is_judged(&self.rules, path)) {
                report.warning(at, format!("a rule reads `{path}`: what it decides cannot be derived again"));
            }
        }
    }

    fn check_draws(&self, budgets: &BTreeMap<String, Budget>, effects: &BTreeMap<String, Effect>, report: &mut Report) {
        for (at, budget) in &self.draws_at {
            if !budgets.contains_key(budget) {
                report.mistake(*at, format!("budget `{budget}` is not declared under `budgets`"));
            }
        }
        let unit = self.rules.cost.as_ref().map_or(DEFAULT_UNIT, |cost| cost.unit.as_str());
        let from_effects = self.effects_at.iter().filter_map(|(at, label)| Some((at, &effects.get(label)?.draws)));
        let drawn = self
            .draws_at
            .iter()
            .map(|(at, budget)| (at, budget))
            .chain(from_effects.flat_map(|(at, draws)| draws.iter().map(move |budget| (at, budget))));
        if self.rules.tier == Tier::Observe {
            if let Some((at, _)) = drawn.clone().next() {
                report.mistake(
                    *at,
                    format!("`{}` is tier 0, a read: an effect that draws on budgets cannot hold it", self.name),
                );
            }
            return;
        }
        let mut unpriced = false;
        for (at, name) in drawn {
            let Some(budget) = budgets.get(name).filter(|budget| budget.kind == BudgetKind::Value) else { continue };
            if budget.unit != unit {
                report.mistake(
                    *at,
                    format!("budget `{name}` counts {}, and the cost of `{}` is in {unit}", budget.unit, self.name),
                );
            } else if self.rules.cost.is_none() && !unpriced {
                unpriced = true;
                let message = format!(
                    "`{}` draws on value budget `{name}` without a cost parameter: a request without `cost_eur` is denied `cost_unknown`",
                    self.name
                );
                report.warning(*at, message);
            }
        }
    }
}

/// `x-<vendor>.<name>` (AADP §5.2).
fn is_vendor_name(text: &str) -> bool {
    text.strip_prefix("x-").and_then(|rest| rest.split_once('.')).is_some_and(|(vendor, name)| {
        let word = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        };
        word(vendor) && word(name)
    })
}

fn count(fields: &mut Fields, name: &str, report: &mut Report) -> Option<u64> {
    let (at, number) = fields.integer(name, report)?;
    let count = u64::try_from(number).ok().filter(|count| *count > 0);
    if count.is_none() {
        report.mistake(at, format!("`{name}` is {number}; it is 1 or more"));
    }
    count
}

/// The rule of AADP §19; what it names must be readable.
fn url_rule(mut fields: Fields, report: &mut Report) -> Option<UrlRule> {
    let at = fields.at;
    let texts = |fields: &mut Fields, name: &str, report: &mut Report| -> Vec<String> {
        fields.texts(name, report).into_iter().map(|(_, text)| text).collect()
    };
    let cidrs = texts(&mut fields, "cidrs", report);
    let hosts = texts(&mut fields, "hosts", report);
    let schemes = texts(&mut fields, "schemes", report);
    let include_subdomains = fields.flag("include_subdomains", report).is_some_and(|(_, flag)| flag);
    let opaque = fields.mapping("opaque", report).map(|mut opaque| {
        let builtin = opaque.flag("builtin", report).is_some_and(|(_, flag)| flag);
        let extra = texts(&mut opaque, "extra", report);
        opaque.finish(report);
        Opaque { builtin, extra }
    });
    fields.finish(report);
    let rule = UrlRule { cidrs, hosts, include_subdomains, opaque, schemes };
    match rule.compile() {
        // In its one form, so that spelling does not change the identity of the policy.
        Ok(compiled) => Some(compiled.rule()),
        Err(message) => {
            report.mistake(at, message);
            None
        }
    }
}
