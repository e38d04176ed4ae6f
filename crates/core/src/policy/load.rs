//! The loader: from text to a [`PolicySet`], or to every mistake with its line and column, in one pass (AADP §8.1).
//! Two dialects with one meaning: onedoor's (no `apiVersion`) and Placet's (`apiVersion: placet/v1`).
//! Absent on purpose: fields that would be read and not enforced. They are refused, by name.

mod action;
pub(super) mod fields;

use std::collections::{BTreeMap, BTreeSet};

use self::action::ActionAt;
use self::fields::{Fields, Report};
use super::yaml::{self, At};
use super::{Budget, Document, Effect, Group, Mistake, PolicySet, Scope, Window};
use crate::event::BudgetKind;
use crate::exact::Amount;
use crate::limits::{APPROVAL_TTL_MS_DEFAULT, EXECUTE_WITHIN_MS_DEFAULT, GROUP_MEMBERS_MAX, POLICY_BYTES_MAX};
use crate::stamp::Calendar;

/// A policy that loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Ready to use.
    pub policy: PolicySet,
    /// Things that load but may not be meant.
    pub warnings: Vec<Mistake>,
}

/// Reads a policy document in either dialect. All mistakes come back, in the order of the text.
pub fn load(text: &str) -> Result<Loaded, Vec<Mistake>> {
    let top = At { line: 1, column: 1 };
    if text.len() > POLICY_BYTES_MAX {
        return Err(vec![top.says("the document is larger than 1 MiB")]);
    }
    let (node, syntax) = yaml::parse(text);
    let mut loader = Loader { report: Report { mistakes: syntax, warnings: Vec::new() }, ..Loader::default() };
    match node {
        Some(node) => loader.document(node),
        None if loader.report.mistakes.is_empty() => loader.report.mistake(top, "the document is empty"),
        None => {}
    }
    loader.finish()
}

/// Which words a document uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    Onedoor,
    Placet,
}

#[derive(Debug, Default)]
struct Loader {
    report: Report,
    dialect: Dialect,
    timezone: Option<String>,
    execute_within_ms: Option<i64>,
    approval_ttl_ms: Option<i64>,
    expiry_keeps_rate: bool,
    report_grace_ms: Option<i64>,
    mandate_authority: Option<String>,
    approvers: BTreeMap<String, Group>,
    budgets: BTreeMap<String, Budget>,
    budgets_at: BTreeMap<String, At>,
    effects: BTreeMap<String, Effect>,
    /// Names that an effect draws on, with their places, checked when every budget is known.
    effect_draws_at: Vec<(At, String)>,
    actions: BTreeMap<String, ActionAt>,
}

impl Loader {
    fn document(&mut self, node: yaml::Node) {
        let Some(mut fields) = Fields::of(node, "the document", &mut self.report) else { return };
        if let Some((at, version)) = fields.text("apiVersion", &mut self.report) {
            self.dialect = Dialect::Placet;
            if version != "placet/v1" {
                self.report.mistake(at, format!("`apiVersion` is `{version}`; this program reads placet/v1"));
            }
        }
        if self.dialect == Dialect::Placet {
            self.placet_head(&mut fields);
        }
        if let Some(effects) = fields.mapping("effects", &mut self.report) {
            self.effects(effects);
        }
        let policies_at = fields.at;
        let listed = fields.take("policies");
        if listed.is_none() {
            self.report.mistake(policies_at, "`policies` is missing; it is the list of action types");
        }
        if let Some((_, node)) = listed {
            match node.kind {
                yaml::Kind::Sequence(items) => items.into_iter().for_each(|item| self.action(item)),
                _ => self.report.mistake(node.at, "`policies` is not a list"),
            }
        }
        fields.finish(&mut self.report);
        self.check_names();
    }

    fn placet_head(&mut self, fields: &mut Fields) {
        if let Some((at, zone)) = fields.text("timezone", &mut self.report) {
            if Calendar::of(&zone).is_none() {
                self.report.mistake(at, format!("`{zone}` is not a time zone such as Europe/Amsterdam"));
            }
            self.timezone = Some(zone);
        }
        if let Some(mut defaults) = fields.mapping("defaults", &mut self.report) {
            self.execute_within_ms = defaults.duration("execute_within", &mut self.report);
            self.approval_ttl_ms = defaults.duration("approval_ttl", &mut self.report);
            self.report_grace_ms = defaults.duration("report_grace", &mut self.report);
            self.expiry_keeps_rate = match defaults.text("expiry", &mut self.report) {
                Some((_, word)) if word == "keep_rate" => true,
                Some((at, word)) if word != "release" => {
                    self.report.mistake(at, format!("`expiry` is `{word}`; it is release or keep_rate"));
                    false
                }
                _ => false,
            };
            defaults.finish(&mut self.report);
        }
        if let Some(budgets) = fields.mapping("budgets", &mut self.report) {
            for (key, node) in budgets.into_entries() {
                if let Some(budget) = self.budget(&key.text, node) {
                    self.budgets_at.insert(key.text.clone(), key.at);
                    self.budgets.insert(key.text, budget);
                }
            }
        }
        if let Some(groups) = fields.mapping("approvers", &mut self.report) {
            for (key, node) in groups.into_entries() {
                if let Some(group) = self.group(&key.text, node) {
                    self.approvers.insert(key.text, group);
                }
            }
        }
        if let Some(mut mandate) = fields.mapping("mandate", &mut self.report) {
            let at = mandate.at;
            self.mandate_authority = mandate.text("authority", &mut self.report).map(|(_, key)| key);
            mandate.finish(&mut self.report);
            if self.mandate_authority.as_ref().is_none_or(|key| !crate::head::is_public_key(key)) {
                self.report
                    .mistake(at, "`mandate` needs an `authority`: an Ed25519 public key, 64 lowercase hex digits");
            }
        }
    }

    fn group(&mut self, name: &str, node: yaml::Node) -> Option<Group> {
        let mut fields = Fields::of(node, format!("group `{name}`"), &mut self.report)?;
        let at = fields.at;
        let members: Vec<String> =
            fields.texts("members", &mut self.report).into_iter().map(|(_, member)| member).collect();
        let quorum = fields.integer("quorum", &mut self.report);
        fields.finish(&mut self.report);
        if members.is_empty() || members.len() > GROUP_MEMBERS_MAX {
            self.report.mistake(at, format!("group `{name}` has 1 to {GROUP_MEMBERS_MAX} `members`, each a principal"));
        }
        let distinct: BTreeSet<&String> = members.iter().collect();
        if distinct.len() < members.len() {
            // Nobody counts twice, so a quorum might never be reached.
            self.report.mistake(at, format!("group `{name}` names a member twice"));
        }
        let (quorum_at, quorum) = quorum.unwrap_or((at, 1));
        match u32::try_from(quorum) {
            Ok(quorum) if quorum >= 1 && usize::try_from(quorum).is_ok_and(|quorum| quorum <= members.len()) => {
                Some(Group { members, quorum })
            }
            _ => {
                let message =
                    format!("`quorum` is {quorum}; it is at least 1 and at most the {} members", members.len());
                self.report.mistake(quorum_at, message);
                None
            }
        }
    }

    fn budget(&mut self, name: &str, node: yaml::Node) -> Option<Budget> {
        let report = &mut self.report;
        let mut fields = Fields::of(node, format!("budget `{name}`"), report)?;
        let at = fields.at;
        if name.starts_with('#') {
            report.mistake(at, "a budget's name does not begin with `#`: those count proposals");
        }
        let kind = match fields.text("kind", report) {
            Some((_, word)) if word == "rate" => Some(BudgetKind::Rate),
            Some((_, word)) if word == "value" => Some(BudgetKind::Value),
            Some((at, word)) => {
                report.mistake(at, format!("`kind` is `{word}`; a budget is of kind rate or value"));
                None
            }
            None => {
                report.mistake(at, format!("budget `{name}` has no `kind`; it is rate or value"));
                None
            }
        };
        let unit = fields.text("unit", report);
        let limit = fields.limit("limit", report);
        let window = fields.text("window", report);
        let per = fields.text("per", report);
        fields.finish(report);
        let per = match per {
            Some((_, word)) if word == "principal" => Some(Scope::Principal),
            Some((_, word)) if word == "session" => Some(Scope::Session),
            Some((at, word)) => {
                report.mistake(at, format!("`per` is `{word}`; it is principal or session"));
                None
            }
            None => None,
        };
        let unit = match (kind, unit) {
            (Some(BudgetKind::Value), Some((_, unit))) => Some(unit),
            (Some(BudgetKind::Value), None) => {
                report.mistake(at, format!("value budget `{name}` has no `unit`, such as EUR"));
                None
            }
            (Some(BudgetKind::Rate), Some((at, unit))) if unit != "calls" => {
                report.mistake(at, format!("`unit` is `{unit}`; a rate budget counts calls"));
                None
            }
            _ => Some("calls".to_owned()),
        };
        if limit.is_none() {
            report.mistake(at, format!("budget `{name}` has no usable `limit`"));
        }
        let window = match window {
            Some((at, word)) => match Window::try_from(word) {
                Ok(window) => Some(window),
                Err(message) => {
                    report.mistake(at, format!("`window`: {message}"));
                    None
                }
            },
            None => {
                report.mistake(at, format!("budget `{name}` has no `window`; it is day, month or a duration"));
                None
            }
        };
        Some(Budget { kind: kind?, limit: limit?.1, per, unit: unit?, window: window? })
    }

    fn effects(&mut self, effects: Fields) {
        for (key, node) in effects.into_entries() {
            if node.is_null() {
                self.effects.insert(key.text, Effect::default());
                continue;
            }
            let Some(mut fields) = Fields::of(node, format!("effect `{}`", key.text), &mut self.report) else {
                continue;
            };
            let min_tier = fields.tier("min_tier", &mut self.report).map(|(_, tier)| tier);
            let draws = self.draws(&mut fields, &format!("effect:{}", key.text));
            fields.finish(&mut self.report);
            self.effect_draws_at.extend(draws.iter().cloned());
            let draws = draws.into_iter().map(|(_, name)| name).collect();
            self.effects.insert(key.text, Effect { draws, min_tier });
        }
    }

    /// The budgets that an owner draws on: named ones, or onedoor's `caps`, which become budgets of that owner.
    fn draws(&mut self, fields: &mut Fields, owner: &str) -> Vec<(At, String)> {
        let mut draws = match self.dialect {
            Dialect::Placet => fields.texts("draws", &mut self.report),
            Dialect::Onedoor => Vec::new(),
        };
        let at = fields.at;
        let Some(mut caps) = fields.mapping("caps", &mut self.report) else { return draws };
        let rate = caps.integer("daily_rate", &mut self.report).and_then(|(at, count)| {
            let amount = Amount::parse(&count.to_string()).filter(|amount| !amount.is_negative());
            if amount.is_none() {
                self.report.mistake(at, "`daily_rate` is zero or more");
            }
            amount
        });
        let day = caps.limit("eur_day", &mut self.report).map(|(_, limit)| limit);
        let month = caps.limit("eur_month", &mut self.report).map(|(_, limit)| limit);
        caps.finish(&mut self.report);
        let caps = [
            ("rate", BudgetKind::Rate, "calls", Window::Day, rate),
            ("eur_day", BudgetKind::Value, "EUR", Window::Day, day),
            ("eur_month", BudgetKind::Value, "EUR", Window::Month, month),
        ];
        for (suffix, kind, unit, window, limit) in caps {
            if let Some(limit) = limit {
                let name = format!("{owner}.{suffix}");
                let budget = Budget { kind, limit, per: None, unit: unit.to_owned(), window };
                if self.budgets.insert(name.clone(), budget).is_some() {
                    self.report.mistake(at, format!("budget `{name}` exists twice"));
                }
                draws.push((at, name));
            }
        }
        draws
    }

    /// What can be checked only when everything is read: names that nothing declares, units, reversals.
    fn check_names(&mut self) {
        let mut used: Vec<&str> = Vec::new();
        for (at, name) in &self.effect_draws_at {
            used.push(name);
            if !self.budgets.contains_key(name) {
                self.report.mistake(*at, format!("budget `{name}` is not declared under `budgets`"));
            }
        }
        for action in self.actions.values() {
            action.check(&self.budgets, &self.effects, &self.actions, &mut self.report);
            action.check_approval(&self.approvers, self.mandate_authority.is_some(), &mut self.report);
            used.extend(action.draws_at.iter().map(|(_, name)| name.as_str()));
        }
        for (name, at) in &self.budgets_at {
            if !used.contains(&name.as_str()) {
                self.report.warning(*at, format!("nothing draws on budget `{name}`"));
            }
        }
    }

    fn finish(self) -> Result<Loaded, Vec<Mistake>> {
        let Report { mut mistakes, mut warnings } = self.report;
        mistakes.sort();
        mistakes.dedup();
        warnings.sort();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let document = Document {
            actions: self.actions.into_iter().map(|(name, action)| (name, action.rules)).collect(),
            approval_ttl_ms: self.approval_ttl_ms.unwrap_or(APPROVAL_TTL_MS_DEFAULT),
            approvers: self.approvers,
            budgets: self.budgets,
            effects: self.effects,
            execute_within_ms: self.execute_within_ms.unwrap_or(EXECUTE_WITHIN_MS_DEFAULT),
            expiry_keeps_rate: self.expiry_keeps_rate,
            mandate_authority: self.mandate_authority,
            report_grace_ms: self.report_grace_ms.unwrap_or(0),
            scheme: String::new(),
            timezone: self.timezone.unwrap_or_else(|| "UTC".to_owned()),
        };
        match PolicySet::compile(document) {
            Ok(policy) => Ok(Loaded { policy, warnings }),
            Err(message) => Err(vec![At { line: 1, column: 1 }.says(message)]),
        }
    }
}
