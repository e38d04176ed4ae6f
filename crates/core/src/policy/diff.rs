//! What one policy allows that another did not: changes of meaning, by path, and which of them loosen.
//! Absent on purpose: text. Comments, order and spelling are no change; two documents with one digest have none.
//! INVARIANT (caution): where it cannot be told whether a change loosens, it is said to loosen.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Document;

/// One change of meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where: `actions.payments.transfer.bounds.numeric.amount.max`.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// How it was; for a removed one, what was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// How it is; for an added one, what was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Why this allows what was not allowed before; absent where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loosens: Option<&'static str>,
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "three words that say themselves")]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

/// All changes that lead from one meaning to another, by path.
pub fn diff(before: &Document, after: &Document) -> Vec<Change> {
    let mut walk = Walk { before, after, path: Vec::new(), changes: Vec::new() };
    let (Value::Object(one), Value::Object(two)) = (tree(before), tree(after)) else { return Vec::new() };
    walk.members(&one, &two);
    walk.changes
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        let text = |value: &Option<Value>| value.as_ref().map(shown).unwrap_or_default();
        match self.kind {
            ChangeKind::Added => write!(f, "+ {path}: {}", text(&self.after))?,
            ChangeKind::Removed => write!(f, "- {path}: {}", text(&self.before))?,
            ChangeKind::Changed => write!(f, "~ {path}: {} -> {}", text(&self.before), text(&self.after))?,
        }
        match self.loosens {
            Some(why) => write!(f, "  (loosens: {why})"),
            None => Ok(()),
        }
    }
}

/// A value for people: nothing that says nothing, and no quotes around a lone text that has no control characters.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.clone(),
        Value::Object(_) => said(value).to_string(),
        other => other.to_string(),
    }
}

/// Without members that are absent or empty.
fn said(value: &Value) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let kept = members.iter().map(|(name, value)| (name.clone(), said(value))).filter(|(_, value)| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    });
    Value::Object(kept.collect())
}

/// A document as mappings all the way down: lists become mappings, since what is in them counts, by name.
fn tree(document: &Document) -> Value {
    let mut value = serde_json::to_value(document).unwrap_or_default();
    let actions = value.get_mut("actions").and_then(Value::as_object_mut);
    for action in actions.into_iter().flat_map(Map::values_mut) {
        if let Some(rules) = action.get_mut("param_effects") {
            keyed(rules, |rule| {
                let labels = rule.get("add_effects").and_then(Value::as_array).into_iter().flatten();
                let mut labels: Vec<&str> = labels.filter_map(Value::as_str).collect();
                labels.sort_unstable();
                let param = rule.get("param").and_then(Value::as_str).unwrap_or_default();
                format!("{param}->{}", labels.join("+"))
            });
        }
        if let Some(rules) = action.get_mut("obligations") {
            keyed(rules, |rule| rule.get("type").and_then(Value::as_str).unwrap_or_default().to_owned());
        }
    }
    value
}

/// A list of mappings as one mapping; a name that comes again gets a number.
fn keyed(list: &mut Value, name: impl Fn(&Value) -> String) {
    let Value::Array(items) = list.take() else { return };
    let mut found = Map::new();
    for item in items {
        let name = name(&item);
        let free = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}#{n}") });
        if let Some(name) = free.into_iter().find(|name: &String| !found.contains_key(name)) {
            found.insert(name, item);
        }
    }
    *list = Value::Object(found);
}

/// A walk through both trees at once.
struct Walk<'a> {
    before: &'a Document,
    after: &'a Document,
    path: Vec<String>,
    changes: Vec<Change>,
}

impl Walk<'_> {
    fn members(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let present = |members: &Map<String, Value>| members.get(name).filter(|value| !value.is_null()).cloned();
            self.path.push(name.clone());
            self.values(present(before), present(after));
            self.path.pop();
        }
    }

    fn values(&mut self, before: Option<Value>, after: Option<Value>) {
        match (before, after) {
            (Some(Value::Object(before)), Some(Value::Object(after))) => self.members(&before, &after),
            (Some(Value::Array(before)), Some(Value::Array(after))) => self.lists(before, after),
            (before, after) if before == after => {}
            (before, after) => self.change(before, after, None),
        }
    }

    /// What is in only one of two lists; their order only where they hold the same.
    fn lists(&mut self, before: Vec<Value>, after: Vec<Value>) {
        if before == after {
            return;
        }
        let removed: Vec<Value> = before.iter().filter(|item| !after.contains(item)).cloned().collect();
        let added: Vec<Value> = after.iter().filter(|item| !before.contains(item)).cloned().collect();
        if removed.is_empty() && added.is_empty() {
            return self.change(Some(Value::Array(before)), Some(Value::Array(after)), None);
        }
        let lists = Some((before.as_slice(), after.as_slice()));
        removed.into_iter().for_each(|item| self.change(Some(item), None, lists));
        added.into_iter().for_each(|item| self.change(None, Some(item), lists));
    }

    fn change(&mut self, before: Option<Value>, after: Option<Value>, lists: Option<(&[Value], &[Value])>) {
        let kind = match (&before, &after) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Removed,
            _ => ChangeKind::Changed,
        };
        let site = rules::Site {
            path: &self.path,
            was: before.as_ref(),
            is: after.as_ref(),
            lists,
            before: self.before,
            after: self.after,
        };
        let loosens = rules::loosens(&site);
        self.changes.push(Change { path: self.path.join("."), kind, before, after, loosens });
    }
}

/// How many changes loosen.
pub fn loosening(changes: &[Change]) -> usize {
    changes.iter().filter(|change| change.loosens.is_some()).count()
}

/// The changes as lines, under a count.
pub fn describe(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "no change of meaning".to_owned();
    }
    let mut of_section: BTreeMap<&str, usize> = BTreeMap::new();
    for change in changes {
        let section = change.path.split('.').next().unwrap_or_default();
        *of_section.entry(section).or_default() += 1;
    }
    let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let sections: Vec<String> = of_section.iter().map(|(section, count)| format!("{count} in {section}")).collect();
    let count = if changes.len() == 1 { "1 change".to_owned() } else { format!("{} changes", changes.len()) };
    let loose = match loosening(changes) {
        0 => "none loosens".to_owned(),
        1 => "1 loosens".to_owned(),
        more => format!("{more} loosen"),
    };
    format!("{}\n{count} ({}); {loose}", lines.join("\n"), sections.join(", "))
}

#[cfg(test)]
mod tests;
