//! What a search through the evidence asks for, read the same way at both doors: a word that could never match is
//! refused, because an empty answer would look like a finding.

use placet_core::ids::{Hash, RequestId};
use placet_core::op::EvidenceFilter;
use placet_core::reply::Verdict;
use placet_core::stamp::Stamp;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NoSuchWord, StrDeserializer};

use super::{action_type, permit_id, principal};
use crate::reject::Refusal;

/// The parameters of a search, for messages.
pub(crate) const FILTERS: &str = "since, until, kind, action_type, principal, verdict, reason, request_id, permit, \
                                  reconcile";

/// The kinds of entry (AADP §14.2). A test compares them with the core's.
const KINDS: [&str; 18] = [
    "approval_refused",
    "approval_transition",
    "decision",
    "exec_intent",
    "exec_result",
    "head_signed",
    "kill_switch",
    "local_decision",
    "malformed_request",
    "mandate_set",
    "notified",
    "policy_change",
    "replay_mismatch",
    "report_noted",
    "report_refused",
    "reservation_expired",
    "reservation_released",
    "restored",
];

/// Longest reason: those of the registry are far shorter, vendors' begin with `x-`.
const REASON_BYTES_MAX: usize = 255;

/// Reads a filter; `text` gives a parameter by its name.
pub(crate) fn evidence_filter(
    reconcile: bool,
    mut text: impl FnMut(&str) -> Option<String>,
) -> Result<EvidenceFilter, Refusal> {
    Ok(EvidenceFilter {
        since: read("since", &mut text, instant)?,
        until: read("until", &mut text, instant)?,
        kind: read("kind", &mut text, kind)?,
        action_type: read("action_type", &mut text, action_type)?,
        principal: read("principal", &mut text, principal)?,
        verdict: read("verdict", &mut text, verdict)?,
        reason: read("reason", &mut text, reason)?,
        request_id: read("request_id", &mut text, request_id)?,
        permit: read("permit", &mut text, permit)?,
        reconcile,
    })
}

fn read<T>(
    name: &str,
    text: &mut impl FnMut(&str) -> Option<String>,
    read: fn(&str, &str) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    text(name).map(|text| read(name, &text)).transpose()
}

fn instant(field: &str, text: &str) -> Result<Stamp, Refusal> {
    let form = || Refusal::invalid(format!("`{field}` is not an instant: RFC 3339 in UTC, `2026-08-17T09:00:00Z`"));
    Stamp::parse(text).ok_or_else(form)
}

fn kind(field: &str, text: &str) -> Result<String, Refusal> {
    if KINDS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(Refusal::invalid(format!("`{field}` is no kind of entry; kinds are {}", KINDS.join(", "))))
}

fn verdict(field: &str, text: &str) -> Result<Verdict, Refusal> {
    let word: StrDeserializer<'_, NoSuchWord> = text.into_deserializer();
    let form = |_| Refusal::invalid(format!("`{field}` is none of permit, deny, propose, dry_run and observe"));
    Verdict::deserialize(word).map_err(form)
}

/// The registry of reasons is open, so only the form counts.
fn reason(field: &str, text: &str) -> Result<String, Refusal> {
    let plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.'));
    if plain && (1..=REASON_BYTES_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(Refusal::invalid(format!("`{field}` is not a reason: lowercase letters, digits, `_`, `-` and `.`")))
}

fn request_id(field: &str, text: &str) -> Result<RequestId, Refusal> {
    RequestId::parse(text).ok_or_else(|| Refusal::invalid(format!("`{field}` is not a UUID")))
}

/// Evidence shows digests only, so a permit goes no further than this.
fn permit(field: &str, text: &str) -> Result<Hash, Refusal> {
    let form = |_| {
        let forms = "a permit id (`pmt-` and 32 lowercase hex digits) nor its digest (64)";
        Refusal::invalid(format!("`{field}` is neither {forms}"))
    };
    match Hash::parse(text) {
        Some(digest) => Ok(digest),
        None => permit_id(field, text).map(|permit| permit.digest()).map_err(form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever adds a kind to the core learns that searches do not know it.
    #[test]
    fn all_kinds_can_be_asked_for() {
        let error = serde_json::from_str::<placet_core::event::Body>(r#"{"none":{}}"#).unwrap_err().to_string();
        let mut kinds: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, KINDS, "{error}");
    }
}
