//! From the text of a case file to cases, or to every mistake with its place, in one pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expect::Expected;
use crate::event::SwitchScope;
use crate::exact::Amount;
use crate::ids::{ActionType, Principal};
use crate::json::{self, Json};
use crate::limits::POLICY_BYTES_MAX;
use crate::policy::load::fields::{Fields, Report, text};
use crate::policy::yaml::{self, At, Kind, Node};
use crate::policy::{Document, Mistake, PolicySet, load};
use crate::stamp::Stamp;

/// Who asks where a case names nobody.
const PRINCIPAL: &str = "agent-1";

/// When a case plays where its file names no time.
const NOW: &str = "2026-08-17T09:00:00Z";

/// Members of a request that go into the message as they are.
const MEMBERS: &[&str] = &[
    "approval_ref",
    "cost_eur",
    "created_at",
    "parent_id",
    "presented_audience",
    "protocol",
    "rationale",
    "request_id",
    "session_id",
    "source",
];

pub(super) struct CaseFile {
    pub(super) policy: Arc<PolicySet>,
    pub(super) now: Stamp,
    pub(super) cases: Vec<Case>,
}

pub(super) struct Case {
    pub(super) at: At,
    pub(super) name: String,
    pub(super) now: Option<Stamp>,
    pub(super) start: Start,
    pub(super) request: Asked,
    pub(super) expect: Expected,
}

/// What is so before.
#[derive(Default)]
pub(super) struct Start {
    /// Engaged switches; `None` is the global one.
    pub(super) switches: Vec<Option<SwitchScope>>,
    pub(super) spent: Vec<Spending>,
    /// Action types that the mandate authority denies.
    pub(super) mandate_denied: Vec<String>,
    pub(super) before: Vec<(At, Step)>,
}

/// What a counter holds already.
pub(super) struct Spending {
    pub(super) budget: String,
    pub(super) scope: Option<String>,
    pub(super) amount: Amount,
}

pub(super) enum Step {
    Request(Asked, Expected),
    Grant(Grantors),
    Deny,
    Ratify(bool),
    Report { outcome: String, no_effect: bool },
    Wait(i64),
}

pub(super) enum Grantors {
    /// As many as the proposal needs.
    Enough,
    Named(Vec<String>),
}

/// A decide request: its members, or the bytes of its body.
pub(super) struct Asked {
    pub(super) principal: String,
    pub(super) message: Message,
}

pub(super) enum Message {
    Members(BTreeMap<String, Json>),
    Body(String),
}

impl CaseFile {
    /// Reads the file and the policy that it names.
    pub(super) fn read(text: &str, read: impl FnOnce(&str) -> Result<String, String>) -> Result<Self, Vec<Mistake>> {
        let top = At { line: 1, column: 1 };
        if text.len() > POLICY_BYTES_MAX {
            return Err(vec![top.says("the case file is larger than 1 MiB")]);
        }
        let (node, syntax) = yaml::parse(text);
        let mut report = Report { mistakes: syntax, warnings: Vec::new() };
        let fields = node.and_then(|node| Fields::of(node, "the case file", &mut report));
        let found = fields.map(|mut fields| {
            let policy = policy(&mut fields, read, &mut report);
            let document = policy.as_ref().map(PolicySet::document);
            let now = instant(&mut fields, "now", &mut report).or_else(|| Stamp::parse(NOW)).unwrap_or_default();
            let at = fields.at;
            let listed = fields.list("cases", &mut report);
            if listed.is_empty() {
                report.mistake(at, "`cases` is missing or empty; it is a list of cases");
            }
            fields.finish(&mut report);
            let mut reader = Reader { report: &mut report, policy: document };
            let cases = listed.into_iter().filter_map(|node| reader.case(node)).collect();
            policy.map(|policy| Self { policy: Arc::new(policy), now, cases })
        });
        if found.is_none() && report.mistakes.is_empty() {
            report.mistake(top, "the case file is empty");
        }
        report.mistakes.sort();
        report.mistakes.dedup();
        match found.flatten() {
            Some(found) if report.mistakes.is_empty() => Ok(found),
            _ => Err(report.mistakes),
        }
    }
}

fn policy(
    fields: &mut Fields,
    read: impl FnOnce(&str) -> Result<String, String>,
    report: &mut Report,
) -> Option<PolicySet> {
    let Some((at, path)) = fields.text("policy", report) else {
        report.mistake(fields.at, "`policy` is missing; it is the path of a policy, from the folder of this file");
        return None;
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) => {
            report.mistake(at, format!("policy `{path}` cannot be read: {error}"));
            return None;
        }
    };
    match load(&text) {
        Ok(loaded) => Some(loaded.policy),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| report.mistake(at, format!("policy `{path}`, {mistake}")));
            None
        }
    }
}

struct Reader<'a> {
    report: &'a mut Report,
    /// Absent when it has mistakes; names are not checked then.
    policy: Option<&'a Document>,
}

impl Reader<'_> {
    fn case(&mut self, node: Node) -> Option<Case> {
        let mut fields = Fields::of(node, "a case", self.report)?;
        let at = fields.at;
        let name = fields.text("name", self.report);
        if name.is_none() {
            self.report.mistake(at, "a case has no `name`");
        }
        let now = instant(&mut fields, "now", self.report);
        let start = fields.mapping("state", self.report).map(|state| self.start(state)).unwrap_or_default();
        if !fields.has("request") {
            self.report.mistake(at, "a case has no `request`");
        }
        let request = fields.take("request").and_then(|(_, node)| self.asked(node));
        let expect = fields.mapping("expect", self.report);
        if expect.is_none() {
            self.report.mistake(at, "a case has no `expect`, the members of the answer that matter");
        }
        fields.finish(self.report);
        let expect = Expected::read(expect?, self.policy, self.report);
        Some(Case { at, name: name?.1, now, start, request: request?, expect })
    }

    fn start(&mut self, mut fields: Fields) -> Start {
        let mut start = Start::default();
        if let Some((_, node)) = fields.take("kill_switch") {
            let nodes = match node.kind {
                Kind::Sequence(nodes) => nodes,
                _ => vec![node],
            };
            start.switches = nodes.into_iter().filter_map(|node| self.switch(node)).collect();
        }
        if let Some(spent) = fields.mapping("spent", self.report) {
            for (key, node) in spent.into_entries() {
                self.spending(key.at, &key.text, node, &mut start.spent);
            }
        }
        start.mandate_denied =
            fields.texts("mandate_denied", self.report).into_iter().map(|(_, action_type)| action_type).collect();
        for node in fields.list("before", self.report) {
            let at = node.at;
            if let Some(step) = self.step(node) {
                start.before.push((at, step));
            }
        }
        fields.finish(self.report);
        start
    }

    /// `engaged`, or what a scoped switch stops.
    fn switch(&mut self, node: Node) -> Option<Option<SwitchScope>> {
        let at = node.at;
        if let Kind::Scalar { text, .. } = &node.kind {
            if text != "engaged" {
                self.report.mistake(at, format!("`kill_switch` is `{text}`; it is engaged, or what it stops"));
            }
            return (text == "engaged").then_some(None);
        }
        let mut fields = Fields::of(node, "a kill switch", self.report)?;
        let scopes = [
            fields.text("action_type", self.report).map(|(_, name)| SwitchScope::ActionType(ActionType::new(name))),
            fields.text("effect", self.report).map(|(_, label)| SwitchScope::Effect(label)),
            fields.text("principal", self.report).map(|(_, name)| SwitchScope::Principal(Principal::new(name))),
        ];
        fields.finish(self.report);
        let mut scopes = scopes.into_iter().flatten();
        match (scopes.next(), scopes.next()) {
            (Some(scope), None) => Some(Some(scope)),
            _ => {
                self.report.mistake(at, "a kill switch stops exactly one `action_type`, `effect` or `principal`");
                None
            }
        }
    }

    fn spending(&mut self, at: At, budget: &str, node: Node, spent: &mut Vec<Spending>) {
        let Some(policy) = self.policy else { return };
        let Some(known) = policy.budgets.get(budget) else {
            self.report.mistake(at, format!("budget `{budget}` is not in the policy"));
            return;
        };
        let mut add = |scope: Option<String>, node: &Node, report: &mut Report| {
            let amount = match &node.kind {
                Kind::Scalar { text, .. } => Amount::parse(text).filter(|amount| !amount.is_negative()),
                _ => None,
            };
            match amount {
                Some(amount) => spent.push(Spending { budget: budget.to_owned(), scope, amount }),
                None => report.mistake(node.at, format!("`{budget}` is spent by a decimal of zero or more")),
            }
        };
        match (known.per, node.kind) {
            (None, kind @ Kind::Scalar { .. }) => add(None, &Node { at: node.at, kind }, self.report),
            (Some(_), Kind::Mapping(entries)) => {
                entries.iter().for_each(|(key, node)| add(Some(key.text.clone()), node, self.report));
            }
            (None, _) => self.report.mistake(node.at, format!("budget `{budget}` has one counter: give one amount")),
            (Some(_), _) => {
                self.report.mistake(node.at, format!("budget `{budget}` has a counter for each: give them by name"));
            }
        }
    }

    fn step(&mut self, node: Node) -> Option<Step> {
        let before = self.report.mistakes.len();
        let mut fields = Fields::of(node, "a step", self.report)?;
        let at = fields.at;
        let mut steps: Vec<Step> = Vec::new();
        if let Some((_, node)) = fields.take("request") {
            let asked = self.asked(node);
            let expect = fields.mapping("expect", self.report);
            let expect = expect.map(|fields| Expected::read(fields, self.policy, self.report));
            steps.extend(asked.map(|asked| Step::Request(asked, expect.unwrap_or_default())));
        }
        if let Some((_, node)) = fields.take("grant") {
            steps.extend(self.grant(&node));
        }
        if let Some((at, flag)) = fields.flag("deny", self.report) {
            if !flag {
                self.report.mistake(at, "`deny` is true, or is not there");
            }
            steps.push(Step::Deny);
        }
        steps.extend(fields.flag("ratify", self.report).map(|(_, flag)| Step::Ratify(flag)));
        if let Some((_, node)) = fields.take("report") {
            steps.extend(self.outcome(node));
        }
        steps.extend(fields.duration("wait", self.report).map(Step::Wait));
        fields.finish(self.report);
        if steps.len() > 1 {
            self.report.mistake(at, "one step does one thing: request, grant, deny, ratify, report or wait");
        }
        let step = steps.pop();
        if step.is_none() && self.report.mistakes.len() == before {
            self.report.mistake(at, "a step has a request, grant, deny, ratify, report or wait");
        }
        step
    }

    /// `true`, a name, or a list of names.
    fn grant(&mut self, node: &Node) -> Option<Step> {
        match &node.kind {
            Kind::Scalar { text, plain: true } if text == "true" => Some(Step::Grant(Grantors::Enough)),
            Kind::Sequence(items) => {
                let names = items.iter().filter_map(|item| text(item, "grant", self.report)).collect();
                Some(Step::Grant(Grantors::Named(names)))
            }
            _ => text(node, "grant", self.report).map(|name| Step::Grant(Grantors::Named(vec![name]))),
        }
    }

    /// An outcome, or a mapping with one.
    fn outcome(&mut self, node: Node) -> Option<Step> {
        let ((at, outcome), no_effect) = match &node.kind {
            Kind::Mapping(_) => {
                let mut fields = Fields::of(node, "a report", self.report)?;
                let outcome = fields.text("outcome", self.report);
                let no_effect = fields.flag("no_effect", self.report).is_some_and(|(_, flag)| flag);
                fields.finish(self.report);
                (outcome?, no_effect)
            }
            _ => ((node.at, text(&node, "report", self.report)?), false),
        };
        if !matches!(outcome.as_str(), "success" | "failure" | "timeout" | "not_attempted") {
            let message = format!("`{outcome}` is no outcome; it is success, failure, timeout or not_attempted");
            self.report.mistake(at, message);
        }
        Some(Step::Report { outcome, no_effect })
    }

    /// A request. Its values are not judged here: what a door would refuse, a case may want to see refused.
    fn asked(&mut self, node: Node) -> Option<Asked> {
        let mut fields = Fields::of(node, "a request", self.report)?;
        let at = fields.at;
        let principal = fields.text("principal", self.report).map_or_else(|| PRINCIPAL.to_owned(), |(_, name)| name);
        if let Some((_, body)) = fields.text("body", self.report) {
            fields.finish(self.report);
            return Some(Asked { principal, message: Message::Body(body) });
        }
        let mut members = BTreeMap::new();
        match fields.text("action_type", self.report) {
            Some((_, name)) => drop(members.insert("action_type".to_owned(), Json::String(name))),
            None => self.report.mistake(at, "a request has no `action_type`"),
        }
        let params = fields.take("params").map_or_else(|| Json::Object(BTreeMap::new()), |(_, node)| json_of(&node));
        members.insert("params".to_owned(), params);
        for name in MEMBERS {
            if let Some((_, value)) = fields.text(name, self.report) {
                members.insert((*name).to_owned(), Json::String(value));
            }
        }
        fields.finish(self.report);
        Some(Asked { principal, message: Message::Members(members) })
    }
}

fn instant(fields: &mut Fields, name: &str, report: &mut Report) -> Option<Stamp> {
    let (at, text) = fields.text(name, report)?;
    let stamp = Stamp::parse(&text);
    if stamp.is_none() {
        report.mistake(at, format!("`{name}` is `{text}`, not an instant in UTC such as {NOW}"));
    }
    stamp
}

/// YAML as JSON: a word without quotes is a number, a flag or nothing where JSON has it so, else text.
fn json_of(node: &Node) -> Json {
    match &node.kind {
        Kind::Scalar { .. } if node.is_null() => Json::Null,
        Kind::Scalar { text, plain: true } => match json::parse(text.as_bytes()) {
            Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
            _ => Json::String(text.clone()),
        },
        Kind::Scalar { text, .. } => Json::String(text.clone()),
        Kind::Sequence(items) => Json::Array(items.iter().map(json_of).collect()),
        Kind::Mapping(entries) => {
            Json::Object(entries.iter().map(|(key, node)| (key.text.clone(), json_of(node))).collect())
        }
    }
}
