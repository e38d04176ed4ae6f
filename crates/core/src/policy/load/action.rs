//! One entry of `policies`: the rules of an action type, and where they stand.

use std::collections::{BTreeMap, HashSet};

use super::fields::{Fields, Report, text};
use super::{Dialect, Loader};
use crate::event::BudgetKind;
use crate::limits::UNDO_WINDOW_MS_DEFAULT;
use crate::policy::yaml::{At, Kind, Node};
use crate::policy::{Action, Bounds, Budget, Cost, Effect, ObligationRule, ParamEffect, Range, compile_pattern};
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
        let approval_ttl_ms = self.approval(&mut fields);
        self.refuse_unenforced(&mut fields);
        fields.finish(&mut self.report);
        let rules = Action {
            approval_ttl_ms,
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
            tier: tier.unwrap_or(Tier::Confirm),
            undo_window_ms,
        };
        let command_at = command.map(|(at, _)| at);
        let action = ActionAt { at, name: name.clone(), rules, draws_at, effects_at: all_effects, command_at, cost_at };
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
            let url = rule.take("url");
            let add_effects = rule.texts("add_effects", report);
            rule.finish(report);
            if let Some((key, _)) = &url {
                report.mistake(key.at, "`url` rules are not enforced by this version; match with `pattern`, or wait");
            }
            if param.is_none() {
                report.mistake(at, "a `param_effects` rule has no `param`");
            }
            if pattern.is_some() == url.is_some() {
                report.mistake(at, "a `param_effects` rule has exactly one of `pattern` and `url`");
            }
            if add_effects.is_empty() {
                report.mistake(at, "a `param_effects` rule has no `add_effects`");
            }
            let (Some((_, param)), Some((pattern_at, pattern))) = (param, pattern) else { continue };
            if let Err(message) = compile_pattern(&pattern) {
                report.mistake(pattern_at, message);
            }
            labels.extend(add_effects.iter().cloned());
            rules.push(ParamEffect {
                add_effects: add_effects.into_iter().map(|(_, label)| label).collect(),
                param,
                pattern,
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

    fn approval(&mut self, fields: &mut Fields) -> Option<i64> {
        if self.dialect == Dialect::Onedoor {
            return None;
        }
        let mut approval = fields.mapping("approval", &mut self.report)?;
        let ttl = approval.duration("ttl", &mut self.report);
        for name in ["group", "queue"] {
            if let Some((key, _)) = approval.take(name) {
                self.report.mistake(key.at, format!("`approval.{name}` is not enforced by this version; remove it"));
            }
        }
        approval.finish(&mut self.report);
        ttl
    }

    /// Fields of both dialects that promise something this version does not do. Their harmless values pass.
    fn refuse_unenforced(&mut self, fields: &mut Fields) {
        for name in ["requires_step_up", "requires_external_authorization"] {
            if let Some((at, true)) = fields.flag(name, &mut self.report) {
                self.report.mistake(at, format!("`{name}: true` is not enforced by this version"));
            }
        }
        for name in ["present_bound", "bound_permit_action_type"] {
            if let Some((key, _)) = fields.take(name) {
                self.report.mistake(key.at, format!("`{name}` is not enforced by this version; remove it"));
            }
        }
        if self.dialect == Dialect::Placet {
            if let Some((key, _)) = fields.take("redact") {
                self.report.mistake(key.at, "`redact` is not enforced by this version; remove it");
            }
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
