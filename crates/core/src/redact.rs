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
use crate::limits::{BODY_BYTES_MAX, LOCAL_DECISIONS_MAX, REDACTED_PATHS_MAX};
use crate::policy::{Action, PolicySet};
use crate::request::{DecideRequest, Malformed, ReportRequest};

/// The member of an object that stands for a value.
const MARK: &str = "$redacted";

/// Largest payload of a report that is recorded in canonical form: a body, and a mark for every path.
const PAYLOAD_BYTES_MAX: usize = BODY_BYTES_MAX + 128 * REDACTED_PATHS_MAX;

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
    let (text, mut replaced) = members(&mut request.params, "params.", paths, BODY_BYTES_MAX, key);
    request.params_raw = text.unwrap_or_else(|| std::mem::take(&mut request.params_raw));
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
                let text;
                (text, replaced) = members(&mut payload, "payload.", paths, BODY_BYTES_MAX, key);
                match text {
                    // Its numbers alone may be too long in canonical form.
                    Some(text) if text.len() > PAYLOAD_BYTES_MAX => {
                        request.payload_raw = Some(json::canonical(&key.mark(&Json::Object(payload))));
                        replaced = vec!["payload".to_owned()];
                    }
                    Some(text) => request.payload_raw = Some(text),
                    None => {}
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
    match json::parse_record(local.params.as_bytes()) {
        Ok(Json::Object(mut params)) => {
            let most = local.params.len().saturating_mul(2).saturating_add(BODY_BYTES_MAX / LOCAL_DECISIONS_MAX);
            let (text, replaced) = members(&mut params, "params.", paths, most, key);
            local.params = text.unwrap_or_else(|| std::mem::take(&mut local.params));
            local.redacted = replaced;
        }
        // What cannot be told apart is hidden whole.
        _ => {
            local.params = json::canonical(&key.mark(&Json::String(local.params.clone())));
            local.redacted = vec!["params".to_owned()];
        }
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
    paths.iter().filter_map(|path| path.strip_prefix("params.")).any(|path| starts_with_member(path, name))
}

/// Replaces what `paths` name in `object`; the new text, where that changed anything, and which of them did. A mark is
/// longer than most values: when the text grows beyond `most`, the members that hold marks are hidden whole.
fn members(
    object: &mut BTreeMap<String, Json>,
    prefix: &str,
    paths: &[String],
    most: usize,
    key: &RedactionKey,
) -> (Option<String>, Vec<String>) {
    let of_object = paths.iter().filter_map(|path| Some((path, path.strip_prefix(prefix)?)));
    let replaced: Vec<(&String, &str)> = of_object.filter(|(_, path)| replace(object, path, key)).collect();
    if replaced.is_empty() {
        return (None, Vec::new());
    }
    let mut text = json::canonical(&Json::Object(object.clone()));
    if text.len() > most {
        let holds = |name: &String| replaced.iter().any(|(_, path)| starts_with_member(path, name));
        for (_, value) in object.iter_mut().filter(|(name, value)| !is_mark(value) && holds(name)) {
            *value = key.mark(value);
        }
        text = json::canonical(&Json::Object(object.clone()));
    }
    (Some(text), replaced.into_iter().map(|(whole, _)| whole.clone()).collect())
}

/// Whether `path` is the member `name` or leads into it.
fn starts_with_member(path: &str, name: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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

/// The first of `paths` below `prefix` whose value `object` shows: neither absent, nor null, nor a mark.
pub(crate) fn shown<'p>(object: &BTreeMap<String, Json>, prefix: &str, paths: &'p [String]) -> Option<&'p str> {
    paths.iter().map(String::as_str).find(|path| path.strip_prefix(prefix).is_some_and(|path| shows(object, path)))
}

fn shows(object: &BTreeMap<String, Json>, path: &str) -> bool {
    let open = |value: &Json| *value != Json::Null && !is_mark(value);
    object.get(path).is_some_and(open)
        || path.match_indices('.').any(|(at, _)| match (path.get(..at), path.get(at + 1..)) {
            (Some(head), Some(rest)) => object.get(head).is_some_and(|inner| shows_in(inner, rest)),
            _ => false,
        })
}

fn shows_in(value: &Json, path: &str) -> bool {
    match value {
        Json::Object(object) => !is_mark(value) && shows(object, path),
        Json::Array(items) => items.iter().any(|item| shows_in(item, path)),
        _ => false,
    }
}

/// Whether this stands for a value, or for something that stands for one.
pub(crate) fn is_mark(value: &Json) -> bool {
    let Json::Object(members) = value else { return false };
    members.len() == 1
        && members.get(MARK).is_some_and(|digest| match digest {
            Json::String(text) => Hash::parse(text).is_some(),
            other => is_mark(other),
        })
}

/// Whether this stands for a text.
pub(crate) fn is_text_mark(text: &str) -> bool {
    text.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(':')).is_some_and(|digest| Hash::parse(digest).is_some())
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
        let (_, done) = members(&mut object, "params.", &paths, 1 << 10, &RedactionKey::new([7; 32]));
        assert_eq!(shown(&object, "params.", &paths), None);
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
    fn what_marks_would_blow_up_is_hidden_whole() {
        let params = format!(r#"{{"to":[{}{{"n":1}}],"x":1}}"#, r#"{"n":1},"#.repeat(100));
        let (text, done) = redacted(&params, &["params.to.n"]);
        assert_eq!((text.len() < 120, done), (true, vec!["params.to.n".to_owned()]), "{text}");
        assert!(text.contains("\"x\":1"), "{text}");
        assert_eq!(redacted(&params, &["params.to.n"]).0, text);
    }

    #[test]
    fn a_value_that_a_path_names_is_seen() {
        let path = ["params.to.iban".to_owned()];
        for (params, seen) in [
            (r#"{"to":{"iban":"x"}}"#, true),
            (r#"{"to":[{},[{"iban":0}]]}"#, true),
            (r#"{"to.iban":false}"#, true),
            (r#"{"to":{"iban":{"$redacted":"x"}}}"#, true),
            (r#"{"to":{"iban":null},"iban":"x"}"#, false),
            (r#"{"to":[1,{}]}"#, false),
        ] {
            let Ok(Json::Object(object)) = json::parse(params.as_bytes()) else { panic!("not an object") };
            assert_eq!(shown(&object, "params.", &path).is_some(), seen, "{params}");
        }
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
