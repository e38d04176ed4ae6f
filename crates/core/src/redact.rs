//! Redaction (AADP §14.1, §16): what a policy wants kept out of every record is replaced before anything is recorded,
//! by a digest under a key that no record holds.
//! Absent on purpose: a way back. INVARIANT (redaction): behind [`decide`] and [`report`] the raw value exists only in
//! the memory that judges this one request.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::event::LocalDecision;
use crate::ids::{Hash, hex};
use crate::json::{self, Json};
use crate::policy::{Action, PolicySet};
use crate::request::{DecideRequest, Malformed, ReportRequest};

/// The member of an object that stands for a value.
const MARK: &str = "$redacted";

/// The secret under which equal values get equal digests. Every node of a cluster holds the same one; without it, who
/// reads the evidence could try all account numbers.
#[derive(Clone)]
pub struct RedactionKey([u8; 32]);

impl fmt::Debug for RedactionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactionKey").finish_non_exhaustive()
    }
}

impl RedactionKey {
    /// A key of 32 secret bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of a value: 64 hex digits, equal for equal values whatever their spelling.
    pub fn digest(&self, value: &Json) -> Hash {
        self.digest_bytes(json::canonical(value).as_bytes())
    }

    fn digest_bytes(&self, bytes: &[u8]) -> Hash {
        Hash(*blake3::keyed_hash(&self.0, bytes).as_bytes())
    }

    fn mark(&self, value: &Json) -> Json {
        Json::Object(BTreeMap::from([(MARK.to_owned(), Json::String(self.digest(value).to_string()))]))
    }

    fn mark_text(&self, text: &str) -> String {
        format!("{MARK}:{}", self.digest(&Json::String(text.to_owned())))
    }
}

/// Whether `path` is one that can be redacted.
pub fn is_path(path: &str) -> bool {
    let named = |prefix: &str| path.strip_prefix(prefix).is_some_and(|name| !name.is_empty());
    path == "rationale" || path == "error" || named("params.") || named("payload.")
}

/// A decide request as it may be recorded, and which paths were replaced.
pub fn decide(request: &mut DecideRequest, paths: &[String], key: &RedactionKey) -> Vec<String> {
    let mut replaced = members(&mut request.params, "params.", paths, key);
    if !replaced.is_empty() {
        request.params_raw = json::canonical(&Json::Object(request.params.clone()));
    }
    if paths.iter().any(|path| path == "rationale") {
        request.rationale = key.mark_text(&request.rationale);
        replaced.push("rationale".to_owned());
    }
    replaced
}

/// A report as it may be recorded. `paths` are those of the action type; an unknown one has all of them.
pub fn report(request: &mut ReportRequest, paths: Option<&[String]>, key: &RedactionKey) -> Vec<String> {
    let mut replaced = Vec::new();
    if let Some(raw) = &request.payload_raw {
        match (paths, json::parse(raw.as_bytes())) {
            (Some(paths), Ok(Json::Object(mut payload))) => {
                replaced = members(&mut payload, "payload.", paths, key);
                if !replaced.is_empty() {
                    request.payload_raw = Some(json::canonical(&Json::Object(payload)));
                }
            }
            (_, parsed) => {
                let whole = parsed.unwrap_or_else(|_| Json::String(raw.clone()));
                request.payload_raw = Some(json::canonical(&key.mark(&whole)));
                replaced.push("payload".to_owned());
            }
        }
    }
    if let Some(error) = &request.error
        && paths.is_none_or(|paths| paths.iter().any(|path| path == "error"))
    {
        request.error = Some(key.mark_text(error));
        replaced.push("error".to_owned());
    }
    replaced
}

/// A local decision as it may be recorded.
pub fn local(local: &mut LocalDecision, paths: &[String], key: &RedactionKey) {
    if let Ok(Json::Object(mut params)) = json::parse(local.params.as_bytes()) {
        local.redacted = members(&mut params, "params.", paths, key);
        local.params = json::canonical(&Json::Object(params));
    }
    if paths.iter().any(|path| path == "rationale") {
        local.rationale = key.mark_text(&local.rationale);
        local.redacted.push("rationale".to_owned());
    }
    if let Some(error) = local.error.take_if(|_| paths.iter().any(|path| path == "error")) {
        local.error = Some(key.mark_text(&error));
        local.redacted.push("error".to_owned());
    }
}

/// A body that is not a request may hold anything: under a policy that redacts, none of it is kept.
pub fn malformed(found: &mut Malformed, policy: &PolicySet, key: Option<&RedactionKey>) {
    if !policy.redacts() {
        return;
    }
    let whole = format!("{}:{}", found.digest, found.bytes);
    found.digest = key.map_or(Hash::GENESIS, |key| key.digest_bytes(whole.as_bytes()));
    found.received = String::new();
    found.received_clipped = true;
    found.detail = format!("the body is not a request ({}); the policy redacts, so nothing of it is kept", found.kind);
}

/// The paths that `policy` hides of an action type. Of one that it does not name, perhaps misspelt, it hides whatever it
/// hides of any.
pub(crate) fn paths_of<'p>(policy: &'p PolicySet, action_type: &str) -> Cow<'p, [String]> {
    let actions = &policy.document().actions;
    match actions.get(action_type) {
        Some(action) => Cow::Borrowed(&action.redact),
        None if policy.redacts() => {
            let all: BTreeSet<&String> = actions.values().flat_map(|action| &action.redact).collect();
            Cow::Owned(all.into_iter().cloned().collect())
        }
        None => Cow::Borrowed(&[]),
    }
}

/// Whether a rule of `action` reads the value at `path`, or something that it is in.
pub(crate) fn is_judged(action: &Action, path: &str) -> bool {
    let here = [path.to_owned()];
    let read = |name: &String| covers(&here, name);
    action.bounds.numeric.keys().any(read)
        || action.bounds.choices.keys().any(read)
        || action.cost.as_ref().is_some_and(|cost| read(&cost.param))
        || action.param_effects.iter().any(|rule| read(&rule.param))
}

/// Whether `name` of the params is replaced, or something in it.
pub fn covers(paths: &[String], name: &str) -> bool {
    paths
        .iter()
        .filter_map(|path| path.strip_prefix("params."))
        .any(|path| path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

fn members(object: &mut BTreeMap<String, Json>, prefix: &str, paths: &[String], key: &RedactionKey) -> Vec<String> {
    let of_object = paths.iter().filter_map(|path| Some((path, path.strip_prefix(prefix)?)));
    let replaced = of_object.filter(|(_, path)| replace(object, path, key)).map(|(whole, _)| whole.clone());
    replaced.collect()
}

/// Replaces what `path` names: a member of that whole name, or a member of a member. Lists are looked through.
fn replace(object: &mut BTreeMap<String, Json>, path: &str, key: &RedactionKey) -> bool {
    let mut replaced = false;
    if let Some(value) = object.get_mut(path)
        && *value != Json::Null
    {
        *value = key.mark(value);
        replaced = true;
    }
    for (at, _) in path.match_indices('.') {
        let (Some(head), Some(rest)) = (path.get(..at), path.get(at + 1..)) else { continue };
        if let Some(inner) = object.get_mut(head) {
            replaced |= replace_in(inner, rest, key);
        }
    }
    replaced
}

fn replace_in(value: &mut Json, path: &str, key: &RedactionKey) -> bool {
    match value {
        Json::Object(object) => replace(object, path, key),
        Json::Array(items) => {
            let mut replaced = false;
            for item in items {
                replaced |= replace_in(item, path, key);
            }
            replaced
        }
        _ => false,
    }
}

/// A hexadecimal key of 64 digits, as a key file holds it.
pub fn parse_key(text: &str) -> Option<RedactionKey> {
    Hash::parse(text.trim()).map(|hash| RedactionKey::new(hash.0))
}

/// The form of [`parse_key`].
pub fn format_key(bytes: [u8; 32]) -> String {
    hex(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(params: &str, paths: &[&str]) -> (String, Vec<String>) {
        let Ok(Json::Object(mut object)) = json::parse(params.as_bytes()) else { panic!("not an object") };
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let done = members(&mut object, "params.", &paths, &RedactionKey::new([7; 32]));
        (json::canonical(&Json::Object(object)), done)
    }

    #[test]
    fn every_place_that_a_path_names_is_replaced() {
        for (params, path, hidden) in [
            (r#"{"iban":"NL00RAW"}"#, "params.iban", true),
            (r#"{"to":{"iban":"NL00RAW"}}"#, "params.to.iban", true),
            (r#"{"to":[{"iban":"NL00RAW"},{"iban":"NL00RAW"}]}"#, "params.to.iban", true),
            (r#"{"to.iban":"NL00RAW"}"#, "params.to.iban", true),
            (r#"{"to":{"iban":["NL00RAW"]}}"#, "params.to", true),
            (r#"{"to":{"bic":"NL00RAW"}}"#, "params.to.iban", false),
        ] {
            let (text, done) = redacted(params, &[path]);
            assert_eq!(!text.contains("NL00RAW"), hidden, "{text}");
            assert_eq!(!done.is_empty(), hidden, "{text}");
        }
    }

    #[test]
    fn equal_values_have_equal_digests_and_a_mark_is_not_its_value() {
        let (one, _) = redacted(r#"{"n":250}"#, &["params.n"]);
        let (same, _) = redacted(r#"{"n":250.00}"#, &["params.n"]);
        let (other, _) = redacted(r#"{"n":"250"}"#, &["params.n"]);
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_ne!(redacted(&one, &["params.n"]).0, one, "a mark that is sent as a value is a value");
    }

    #[test]
    fn paths() {
        for (path, is) in
            [("params.iban", true), ("payload.x", true), ("rationale", true), ("error", true), ("params.", false)]
        {
            assert_eq!(is_path(path), is, "{path}");
        }
        assert!(covers(&["params.to.iban".to_owned()], "to") && !covers(&["params.to".to_owned()], "t"));
    }
}
