//! Typed reading of a YAML tree: every helper returns what it could read and records what it could not.

use std::collections::HashSet;

use crate::exact::{Amount, Exact};
use crate::limits::POLICY_MISTAKES_MAX;
use crate::policy::Mistake;
use crate::policy::yaml::{At, Key, Kind, Node};
use crate::reply::Tier;
use crate::stamp::parse_duration_ms;

/// Mistakes and warnings so far.
#[derive(Debug, Default)]
pub(in crate::policy) struct Report {
    pub(in crate::policy) mistakes: Vec<Mistake>,
    pub(in crate::policy) warnings: Vec<Mistake>,
}

impl Report {
    pub(in crate::policy) fn mistake(&mut self, at: At, message: impl Into<String>) {
        if self.mistakes.len() < POLICY_MISTAKES_MAX {
            self.mistakes.push(at.says(message));
        }
    }

    pub(in crate::policy) fn warning(&mut self, at: At, message: impl Into<String>) {
        if self.warnings.len() < POLICY_MISTAKES_MAX {
            self.warnings.push(at.says(message));
        }
    }
}

/// The fields of one mapping; what is not taken is unknown.
#[derive(Debug)]
pub(in crate::policy) struct Fields {
    pub(in crate::policy) at: At,
    /// What the mapping is, for messages.
    what: String,
    entries: Vec<(Key, Node)>,
}

impl Fields {
    pub(in crate::policy) fn of(node: Node, what: impl Into<String>, report: &mut Report) -> Option<Self> {
        let what = what.into();
        match node.kind {
            Kind::Mapping(entries) => Some(Self { at: node.at, what, entries }),
            _ => {
                report.mistake(node.at, format!("{what} is not a mapping of names to values"));
                None
            }
        }
    }

    /// Whether a field is there, whatever it holds.
    pub(in crate::policy) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, node)| key.text == name && !node.is_null())
    }

    /// Takes a field; `null` is absence.
    pub(in crate::policy) fn take(&mut self, name: &str) -> Option<(Key, Node)> {
        let position = self.entries.iter().position(|(key, _)| key.text == name)?;
        let (key, node) = self.entries.remove(position);
        (!node.is_null()).then_some((key, node))
    }

    pub(in crate::policy) fn text(&mut self, name: &str, report: &mut Report) -> Option<(At, String)> {
        let (_, node) = self.take(name)?;
        text(&node, name, report).map(|text| (node.at, text))
    }

    pub(in crate::policy) fn flag(&mut self, name: &str, report: &mut Report) -> Option<(At, bool)> {
        let (_, node) = self.take(name)?;
        match &node.kind {
            Kind::Scalar { text, plain: true } if text == "true" => return Some((node.at, true)),
            Kind::Scalar { text, plain: true } if text == "false" => return Some((node.at, false)),
            _ => report.mistake(node.at, format!("`{name}` is neither true nor false")),
        }
        None
    }

    pub(in crate::policy) fn integer(&mut self, name: &str, report: &mut Report) -> Option<(At, i64)> {
        let (_, node) = self.take(name)?;
        let number = match &node.kind {
            Kind::Scalar { text, .. } if text.len() <= 15 => Exact::parse_decimal(text).and(text.parse::<i64>().ok()),
            _ => None,
        };
        if number.is_none() {
            report.mistake(node.at, format!("`{name}` is not a whole number"));
        }
        number.map(|number| (node.at, number))
    }

    pub(in crate::policy) fn tier(&mut self, name: &str, report: &mut Report) -> Option<(At, Tier)> {
        let (at, number) = self.integer(name, report)?;
        let tier = u8::try_from(number).ok().and_then(|number| Tier::try_from(number).ok());
        if tier.is_none() {
            report
                .mistake(at, format!("`{name}` is {number}; a tier is 0 observe, 1 auto, 2 auto_capped or 3 confirm"));
        }
        tier.map(|tier| (at, tier))
    }

    pub(in crate::policy) fn exact(&mut self, name: &str, report: &mut Report) -> Option<(At, Exact)> {
        let (_, node) = self.take(name)?;
        let number = match &node.kind {
            Kind::Scalar { text, .. } => Exact::parse_decimal(text),
            _ => None,
        };
        if number.is_none() {
            report.mistake(node.at, format!("`{name}` is not a decimal such as 0.01 or \"500.00\""));
        }
        number.map(|number| (node.at, number))
    }

    /// A limit: a decimal of zero or more that fits exactly.
    pub(in crate::policy) fn limit(&mut self, name: &str, report: &mut Report) -> Option<(At, Amount)> {
        let (at, exact) = self.exact(name, report)?;
        let amount = exact.to_amount().filter(|amount| !amount.is_negative());
        if amount.is_none() {
            report.mistake(at, format!("`{name}` is {exact}; it is zero or more and has at most 28 digits"));
        }
        amount.map(|amount| (at, amount))
    }

    pub(in crate::policy) fn duration(&mut self, name: &str, report: &mut Report) -> Option<i64> {
        let (at, text) = self.text(name, report)?;
        let ms = parse_duration_ms(&text);
        if ms.is_none() {
            report.mistake(at, format!("`{name}` is `{text}`, not a duration such as 90s, 10m, 1h or PT2M"));
        }
        ms
    }

    /// A list of texts, each with its place, without repeats.
    pub(in crate::policy) fn texts(&mut self, name: &str, report: &mut Report) -> Vec<(At, String)> {
        let Some((_, node)) = self.take(name) else { return Vec::new() };
        let mut found: Vec<(At, String)> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        for item in items(node, name, report) {
            if let Some(text) = text(&item, name, report) {
                if seen.insert(text.clone()) {
                    found.push((item.at, text));
                } else {
                    report.mistake(item.at, format!("`{text}` appears twice in `{name}`"));
                }
            }
        }
        found
    }

    pub(in crate::policy) fn mapping(&mut self, name: &str, report: &mut Report) -> Option<Self> {
        let (_, node) = self.take(name)?;
        Self::of(node, format!("`{name}`"), report)
    }

    pub(in crate::policy) fn list(&mut self, name: &str, report: &mut Report) -> Vec<Node> {
        self.take(name).map(|(_, node)| items(node, name, report)).unwrap_or_default()
    }

    /// All entries, for mappings whose keys are names.
    pub(in crate::policy) fn into_entries(self) -> Vec<(Key, Node)> {
        self.entries
    }

    /// Reports every field that nobody took.
    pub(in crate::policy) fn finish(self, report: &mut Report) {
        for (key, _) in self.entries {
            report.mistake(key.at, format!("`{}` is not a field of {}", key.text, self.what));
        }
    }
}

pub(in crate::policy) fn text(node: &Node, name: &str, report: &mut Report) -> Option<String> {
    match &node.kind {
        Kind::Scalar { text, .. } if !node.is_null() => Some(text.clone()),
        _ => {
            report.mistake(node.at, format!("`{name}` is not text"));
            None
        }
    }
}

fn items(node: Node, name: &str, report: &mut Report) -> Vec<Node> {
    match node.kind {
        Kind::Sequence(items) => items,
        _ => {
            report.mistake(node.at, format!("`{name}` is not a list"));
            Vec::new()
        }
    }
}
