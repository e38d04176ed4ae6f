//! What a case wants to see of an answer, and how the answer differs. Only what is named is compared.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Difference;
use super::play::Seen;
use crate::event::ApprovalRefStatus;
use crate::policy::Document;
use crate::policy::load::fields::{Fields, Report, text};
use crate::policy::yaml::{At, Kind, Node};
use crate::reply::{Reason, Verdict};

/// The members that are named.
#[derive(Default)]
pub(super) struct Expected {
    members: Vec<(&'static str, Want)>,
}

/// How a member must be.
enum Want {
    /// This word; `none` for what is not there.
    Word(String),
    /// A text that holds this one.
    Part(String),
    /// These names and no others, in any order.
    Exactly(Vec<String>),
    /// These obligations, perhaps among others; with a value where one is given.
    Among(Vec<(String, Option<String>)>),
}

impl Expected {
    pub(super) fn read(mut fields: Fields, policy: Option<&Document>, report: &mut Report) -> Self {
        let mut members: Vec<(&'static str, Want)> = Vec::new();
        if let Some((at, word)) = fields.text("verdict", report) {
            known::<Verdict>(at, "verdict", &word, report);
            members.push(("verdict", Want::Word(word)));
        }
        if let Some((at, word)) = fields.text("reason", report) {
            known::<Reason>(at, "reason", &word, report);
            members.push(("reason", Want::Word(word)));
        }
        for name in ["nominal_tier", "effective_tier"] {
            let tier = fields.tier(name, report).map(|(_, tier)| u8::from(tier).to_string());
            members.extend(tier.map(|tier| (name, Want::Word(tier))));
        }
        if let Some((at, word)) = fields.text("approval_ref_status", report) {
            known::<ApprovalRefStatus>(at, "approval_ref_status", &word, report);
            members.push(("approval_ref_status", Want::Word(word)));
        }
        for name in ["budget", "group"] {
            let Some((at, word)) = fields.text(name, report) else { continue };
            let declared = policy.is_none_or(|policy| match name {
                "budget" => policy.budgets.contains_key(&word),
                _ => policy.approvers.contains_key(&word),
            });
            if !declared && word != "none" {
                report.mistake(at, format!("{name} `{word}` is not in the policy"));
            }
            members.push((name, Want::Word(word)));
        }
        for name in ["cost", "remaining"] {
            let Some((_, node)) = fields.take(name) else { continue };
            members.extend(amount(&node, name, report).map(|word| (name, Want::Word(word))));
        }
        members.extend(fields.flag("replayed", report).map(|(_, flag)| ("replayed", Want::Word(flag.to_string()))));
        members.extend(fields.text("detail", report).map(|(_, part)| ("detail", Want::Part(part))));
        for name in ["draws", "effects", "redacted"] {
            if !fields.has(name) {
                fields.take(name);
                continue;
            }
            let found = fields.texts(name, report);
            for (at, item) in &found {
                let declared = policy.is_none_or(|policy| match name {
                    "draws" => policy.budgets.contains_key(item),
                    "effects" => policy.effects.contains_key(item),
                    _ => true,
                });
                if !declared {
                    report.mistake(*at, format!("`{item}` of `{name}` is not in the policy"));
                }
            }
            members.push((name, Want::Exactly(found.into_iter().map(|(_, item)| item).collect())));
        }
        if fields.has("obligations") {
            let nodes = fields.list("obligations", report);
            let found = nodes.into_iter().filter_map(|node| obligation(node, report)).collect();
            members.push(("obligations", Want::Among(found)));
        }
        let at = fields.at;
        fields.finish(report);
        if members.is_empty() && report.mistakes.is_empty() {
            report.mistake(at, "`expect` names nothing, so nothing would be tested");
        }
        Self { members }
    }

    /// What is not as it must be.
    pub(super) fn differences(&self, seen: &Seen) -> Vec<Difference> {
        self.members
            .iter()
            .filter_map(|(name, want)| {
                let (expected, got) = want.differs(name, seen)?;
                Some(Difference { member: (*name).to_owned(), expected, got })
            })
            .collect()
    }
}

impl Want {
    fn differs(&self, name: &str, seen: &Seen) -> Option<(String, String)> {
        match self {
            Self::Word(word) => {
                let got = seen.word(name);
                (got != *word).then(|| (word.clone(), got))
            }
            Self::Part(part) => {
                let got = seen.word(name);
                (!got.contains(part.as_str())).then(|| (format!("text with `{part}`"), got))
            }
            Self::Exactly(items) => {
                let (mut wanted, mut got) = (items.clone(), seen.names(name));
                wanted.sort();
                got.sort();
                (wanted != got).then(|| (listed(&wanted), listed(&got)))
            }
            Self::Among(wanted) => {
                let has = |(kind, value): &&(String, Option<String>)| {
                    !seen.obligations().any(|(other, found)| {
                        other == kind && value.as_ref().is_none_or(|value| found == Some(value.as_str()))
                    })
                };
                let missing: Vec<String> =
                    wanted.iter().filter(has).map(|(kind, value)| pair(kind, value.as_deref())).collect();
                let got: Vec<String> = seen.obligations().map(|(kind, value)| pair(kind, value)).collect();
                (!missing.is_empty()).then(|| (listed(&missing), listed(&got)))
            }
        }
    }
}

fn pair(kind: &str, value: Option<&str>) -> String {
    value.map_or_else(|| kind.to_owned(), |value| format!("{kind}={value}"))
}

fn listed(items: &[String]) -> String {
    format!("[{}]", items.join(", "))
}

/// Whether a word is one of an enumeration's.
fn known<T: DeserializeOwned>(at: At, name: &str, word: &str, report: &mut Report) {
    if let Err(error) = serde_json::from_value::<T>(Value::from(word)) {
        report.mistake(at, format!("`{name}`: {error}"));
    }
}

/// An amount in its one spelling, or `none`.
fn amount(node: &Node, name: &str, report: &mut Report) -> Option<String> {
    let word = text(node, name, report)?;
    let amount = crate::exact::Amount::parse(&word).map(|amount| amount.to_string());
    if amount.is_none() && word != "none" {
        report.mistake(node.at, format!("`{name}` is `{word}`, not a decimal and not none"));
    }
    Some(amount.unwrap_or(word))
}

/// A type, or a mapping of `type` and `value`.
fn obligation(node: Node, report: &mut Report) -> Option<(String, Option<String>)> {
    if !matches!(node.kind, Kind::Mapping(_)) {
        return text(&node, "obligations", report).map(|kind| (kind, None));
    }
    let mut fields = Fields::of(node, "an obligation", report)?;
    let at = fields.at;
    let kind = fields.text("type", report);
    let value = fields.text("value", report).map(|(_, value)| value);
    fields.finish(report);
    if kind.is_none() {
        report.mistake(at, "an obligation has no `type`");
    }
    kind.map(|(_, kind)| (kind, value))
}
