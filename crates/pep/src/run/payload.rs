//! The payload and the error of a report, inside their bounds (AADP §10.3).
//! Absent on purpose: the outcome; a report arrives whatever had to be left out of it.

use serde_json::{Map, Value, json};

use crate::limits::{ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::permit::Notes;

/// Result data and discharge evidence (AADP §10.3), inside the bound. What the sink says about an obligation adds to
/// what this crate says.
pub(super) fn payload(notes: Notes, mut evidence: Vec<(String, Value)>) -> Option<Value> {
    for (kind, said) in notes.evidence {
        let known = evidence.iter_mut().find(|(known, _)| *known == kind);
        match (known, said) {
            (Some((_, Value::Object(known))), Value::Object(said)) => known.extend(said),
            (Some((_, Value::Object(known))), said) => drop(known.insert("evidence".to_owned(), said)),
            (_, said) => evidence.push((kind, said)),
        }
    }
    let mut payload = notes.payload;
    if !evidence.is_empty() {
        let list = evidence.into_iter().map(|(kind, evidence)| json!({ "type": kind, "evidence": evidence }));
        payload.insert("obligations".to_owned(), list.collect());
    }
    if payload.is_empty() {
        return None;
    }
    let bytes = serde_json::to_vec(&payload).map_or(usize::MAX, |bytes| bytes.len());
    if bytes <= PAYLOAD_BYTES_MAX {
        return Some(Value::Object(payload));
    }
    let mut left = Map::new();
    left.insert("payload_left_out".to_owned(), json!({ "bytes": bytes, "bytes_max": PAYLOAD_BYTES_MAX }));
    if let Some(list) = payload.remove("obligations")
        && serde_json::to_vec(&list).is_ok_and(|bytes| bytes.len() <= PAYLOAD_BYTES_MAX / 2)
    {
        left.insert("obligations".to_owned(), list);
    }
    Some(Value::Object(left))
}

/// At most [`ERROR_BYTES_MAX`] of a text.
pub(super) fn clip_bytes(text: &str) -> String {
    let end = (0..=ERROR_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}
