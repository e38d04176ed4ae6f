//! Policy: what operators allow (AADP §8). A document is read once, checked whole, and identified by the SHA-256 of
//! its meaning; spelling, order of keys and comments do not count.
//! Absent on purpose: code. A policy is data, and the same data judges the same way on every node.

pub mod cases;
pub mod convert;
pub mod diff;
mod load;
pub mod url;
mod yaml;

pub use load::{Loaded, load};

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::event::BudgetKind;
use crate::exact::{Amount, Exact};
use crate::ids::{PolicyDigest, hex};
use crate::limits::{MATCHED_BYTES_MAX, PATTERN_COMPILED_BYTES_MAX, ROLLING_BUCKETS};
use crate::reply::Tier;
use crate::stamp::{Calendar, Stamp, format_duration, parse_duration_ms};
use url::{CompiledUrlRule, UrlRule};

/// How the canonical form is rendered: part of it, so that a new rendering is not taken for new rules.
const SCHEME: &str = "placet/policy/1";

/// A mistake, or a warning, in a policy document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mistake {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What is wrong, and which form is accepted.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// The meaning of a policy document. Fields stand in the order of their names: canonical JSON sorts its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// By action type.
    pub actions: BTreeMap<String, Action>,
    /// How long a proposal may wait for a human and its approval for use.
    pub approval_ttl_ms: i64,
    /// Groups of approvers, by name.
    pub approvers: BTreeMap<String, Group>,
    /// By name.
    pub budgets: BTreeMap<String, Budget>,
    /// By label.
    pub effects: BTreeMap<String, Effect>,
    /// How long a permit may wait for its act.
    pub execute_within_ms: i64,
    /// Whether an expired permit leaves its calls counted (AADP §9.4); its amounts always go back.
    pub expiry_keeps_rate: bool,
    /// The mandate authority's Ed25519 key, 64 hex digits (AADP §11.5).
    pub mandate_authority: Option<String>,
    /// How long after a permit's deadline its report is still taken: the act may have begun in time (AADP §25).
    pub report_grace_ms: i64,
    /// How this form is rendered.
    pub scheme: String,
    /// IANA name; calendar windows begin at its midnight.
    pub timezone: String,
}

/// The rules of one action type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the table of AADP §8.1 is the documentation")]
pub struct Action {
    pub approval: ApprovalRules,
    pub bounds: Bounds,
    pub compensating_command: Option<String>,
    pub cost: Option<Cost>,
    /// Budgets, in the order in which they are checked.
    pub draws: Vec<String>,
    pub dry_run: bool,
    pub dry_run_until: Option<Stamp>,
    pub effects: Vec<String>,
    pub execute_within_ms: Option<i64>,
    pub obligations: Vec<ObligationRule>,
    pub param_effects: Vec<ParamEffect>,
    pub present_bound: Option<String>,
    /// `params.<name>`, `payload.<name>`, `rationale`, `error`: never written in the clear.
    pub redact: Vec<String>,
    pub requires_external_authorization: bool,
    pub tier: Tier,
    pub undo_window_ms: i64,
}

/// How proposals of an action type are decided (AADP §11).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRules {
    /// Who decides; without one, any approver.
    pub group: Option<String>,
    /// Proposals of one principal in any minute.
    pub per_minute: Option<u64>,
    /// Proposals of one principal that may wait at once.
    pub per_principal: Option<u64>,
    /// How long a proposal may wait for a human and its approval for use.
    pub ttl_ms: Option<i64>,
}

/// People who decide together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Their principals.
    pub members: Vec<String>,
    /// How many of them must grant.
    pub quorum: u32,
}

/// What the arguments must look like (AADP §8.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the table of AADP §8.1 is the documentation")]
pub struct Bounds {
    #[serde(rename = "enum")]
    pub choices: BTreeMap<String, Vec<String>>,
    pub numeric: BTreeMap<String, Range>,
    pub required: Vec<String>,
    pub strict_params: bool,
}

/// An inclusive range; either end may be open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "two words that say themselves")]
pub struct Range {
    pub max: Option<Exact>,
    pub min: Option<Exact>,
}

/// Where an action's cost is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The argument that holds it.
    pub param: String,
    /// What it counts.
    pub unit: String,
}

/// What an effect does to every action that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "AADP §8.1")]
pub struct Effect {
    pub draws: Vec<String>,
    pub min_tier: Option<Tier>,
}

/// Adds effects when an argument matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "AADP §8.1")]
pub struct ParamEffect {
    pub add_effects: Vec<String>,
    pub param: String,
    /// A regular expression over the whole string form.
    pub pattern: Option<String>,
    /// A rule about the argument as a URL (AADP §19).
    pub url: Option<UrlRule>,
}

/// An obligation that every permit of an action carries, beside those that all permits carry (AADP §13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "AADP §13")]
pub struct ObligationRule {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: Option<String>,
}

/// A named counter and its limit (AADP §9.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Calls or value.
    pub kind: BudgetKind,
    /// The most that one window holds.
    pub limit: Amount,
    /// One counter for each, instead of one for all.
    pub per: Option<Scope>,
    /// `calls`, or the unit of a value budget. A name keeps its unit: publishing another one under it is refused.
    pub unit: String,
    /// Over which time.
    pub window: Window,
}

/// What a budget has one counter for each of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "two words that say themselves")]
pub enum Scope {
    Principal,
    Session,
}

/// Over which time a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Window {
    /// The local calendar day.
    Day,
    /// The local calendar month.
    Month,
    /// Any interval of this many milliseconds.
    Rolling(i64),
}

impl Window {
    /// Width of one bucket of a rolling window. One more than the window is covered by whole buckets, so the sum
    /// errs to the strict side.
    pub fn bucket_ms(length_ms: i64) -> i64 {
        let spans = ROLLING_BUCKETS - 1;
        (length_ms.saturating_add(spans - 1) / spans).max(1)
    }
}

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is neither day, month nor a duration such as PT5H"))
    }
}

impl Window {
    /// Reads `day`, `month` or a duration of a second or more.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "day" => Some(Self::Day),
            "month" => Some(Self::Month),
            other => parse_duration_ms(other).filter(|ms| *ms >= 1000).map(Self::Rolling),
        }
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        match window {
            Window::Day => "day".to_owned(),
            Window::Month => "month".to_owned(),
            Window::Rolling(ms) => format_duration(ms),
        }
    }
}

/// A policy as evaluation uses it: its meaning, its identity, and what was compiled from it.
#[derive(Clone, Debug)]
pub struct PolicySet {
    document: Document,
    canonical: String,
    digest: PolicyDigest,
    calendar: Calendar,
    /// Compiled patterns by their source.
    patterns: BTreeMap<String, Regex>,
    /// Compiled URL rules by action type and position of the rule.
    urls: BTreeMap<String, BTreeMap<usize, CompiledUrlRule>>,
    redacts: bool,
}

impl PolicySet {
    /// Compiles a meaning. Fails on what evaluation could not use: an unknown zone, a pattern that does not compile,
    /// a draw on a budget or an effect that is not declared.
    pub fn compile(mut document: Document) -> Result<Self, String> {
        document.scheme = SCHEME.to_owned();
        let calendar = Calendar::of(&document.timezone)
            .ok_or_else(|| format!("`{}` is not a time zone of the IANA database", document.timezone))?;
        let mut patterns = BTreeMap::new();
        let mut urls: BTreeMap<String, BTreeMap<usize, CompiledUrlRule>> = BTreeMap::new();
        for (name, action) in &document.actions {
            for (at, rule) in action.param_effects.iter().enumerate() {
                match (&rule.pattern, &rule.url) {
                    (Some(pattern), None) => {
                        patterns.insert(pattern.clone(), compile_pattern(pattern)?);
                    }
                    (None, Some(url)) => {
                        urls.entry(name.clone()).or_default().insert(at, url.compile()?);
                    }
                    _ => return Err("a `param_effects` rule has exactly one of `pattern` and `url`".to_owned()),
                }
            }
            if let Some(group) = &action.approval.group
                && !document.approvers.contains_key(group)
            {
                return Err(format!("group `{group}` is not declared"));
            }
            let labels = action.effects.iter().chain(action.param_effects.iter().flat_map(|rule| &rule.add_effects));
            if let Some(label) = labels.clone().find(|label| !document.effects.contains_key(*label)) {
                return Err(format!("effect `{label}` is not declared"));
            }
        }
        let draws = document.actions.values().flat_map(|action| &action.draws);
        let effect_draws = document.effects.values().flat_map(|effect| &effect.draws);
        if let Some(name) = draws.chain(effect_draws).find(|name| !document.budgets.contains_key(*name)) {
            return Err(format!("budget `{name}` is not declared"));
        }
        let canonical = serde_json::to_string(&document).map_err(|error| error.to_string())?;
        let digest = PolicyDigest::new(hex(&Sha256::digest(canonical.as_bytes())));
        let redacts = document.actions.values().any(|action| !action.redact.is_empty());
        Ok(Self { document, canonical, digest, calendar, patterns, urls, redacts })
    }

    /// Reads the canonical form back, as the log carries it.
    pub fn from_canonical(text: &str) -> Result<Self, String> {
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document.scheme != SCHEME {
            return Err(format!("policy scheme `{}` is not `{SCHEME}`", document.scheme));
        }
        let mut policy = Self::compile(document)?;
        // The text that was recorded is what its digest names, whatever a later version would write in its place.
        policy.digest = PolicyDigest::new(hex(&Sha256::digest(text.as_bytes())));
        text.clone_into(&mut policy.canonical);
        Ok(policy)
    }

    /// The meaning.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The canonical form: JSON text.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// SHA-256 of the canonical form.
    pub fn digest(&self) -> &PolicyDigest {
        &self.digest
    }

    /// The calendar of the policy's zone.
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// The compiled URL rule at position `at` of an action type's `param_effects`.
    pub fn url_rule(&self, action: &str, at: usize) -> Option<&CompiledUrlRule> {
        self.urls.get(action)?.get(&at)
    }

    /// Whether any action type has fields that are never written in the clear.
    pub fn redacts(&self) -> bool {
        self.redacts
    }

    /// Whether a rule's pattern covers the whole of `text`. Text that is too long to be searched while everyone waits
    /// counts as a match: a rule adds caution, so doubt adds it too.
    pub fn pattern_matches(&self, pattern: &str, text: &str) -> bool {
        text.len() > MATCHED_BYTES_MAX || self.patterns.get(pattern).is_some_and(|compiled| compiled.is_match(text))
    }
}

/// Anchors a pattern at both ends: a rule is about the whole value.
fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    let compile = |text: &str| {
        regex::RegexBuilder::new(text)
            .size_limit(PATTERN_COMPILED_BYTES_MAX)
            // A line break inside a value must not hide the rest of it.
            .dot_matches_new_line(true)
            .build()
            .map_err(|error| format!("pattern `{pattern}` does not compile: {}", error.to_string().replace('\n', " ")))
    };
    // Alone first: a pattern that closes a group which it did not open would escape the anchors.
    compile(pattern)?;
    compile(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests;
