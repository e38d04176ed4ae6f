//! Arguments of operator calls, checked the same way at both doors: each refusal names the field and the accepted
//! form.
//! Absent on purpose: bodies of decide and report, which the core reads itself.

use placet_core::ids::{ApprovalId, EvidenceIndex, PolicyDigest};
use placet_core::limits::{LABEL_BYTES_MAX, PAGE_BYTES_MAX};
use placet_core::op::{BudgetCursor, BudgetView};

use crate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::reject::Refusal;

pub(crate) fn approval_id(field: &str, text: &str) -> Result<ApprovalId, Refusal> {
    let digits = text.strip_prefix("apr-").unwrap_or_default();
    if digits.len() == 32 && is_lower_hex(digits) {
        Ok(ApprovalId::new(text))
    } else {
        Err(Refusal::invalid(format!("`{field}` is not an approval id: `apr-` and 32 lowercase hex digits")))
    }
}

pub(crate) fn evidence_id(field: &str, text: &str) -> Result<EvidenceIndex, Refusal> {
    let form = || Refusal::invalid(format!("`{field}` is not an evidence id: `aud-` and an ordinal from 1"));
    EvidenceIndex::parse(text).ok_or_else(form)
}

/// Where a listing of evidence goes on; `aud-0` is before the first entry.
pub(crate) fn evidence_after(field: &str, text: &str) -> Result<EvidenceIndex, Refusal> {
    if text == "aud-0" { Ok(EvidenceIndex(0)) } else { evidence_id(field, text) }
}

pub(crate) fn policy_digest(field: &str, text: &str) -> Result<PolicyDigest, Refusal> {
    if text.len() == 64 && is_lower_hex(text) {
        Ok(PolicyDigest::new(text))
    } else {
        Err(Refusal::invalid(format!("`{field}` is not a policy digest: 64 lowercase hex digits")))
    }
}

/// What a publication expects to replace.
pub(crate) fn expected_policy(field: &str, text: &str) -> Result<String, Refusal> {
    if text == "none" {
        return Ok(text.to_owned());
    }
    let form =
        |_| Refusal::invalid(format!("`{field}` is neither `none` nor a policy digest (64 lowercase hex digits)"));
    policy_digest(field, text).map(|digest| digest.to_string()).map_err(form)
}

pub(crate) fn limit(given: Option<u32>) -> Result<u32, Refusal> {
    match given {
        None => Ok(PAGE_DEFAULT),
        Some(limit @ 1..=PAGE_MAX) => Ok(limit),
        Some(_) => Err(Refusal::invalid(format!("`limit` is not from 1 to {PAGE_MAX}"))),
    }
}

pub(crate) fn label(field: &str, text: String) -> Result<String, Refusal> {
    if text.len() > LABEL_BYTES_MAX {
        return Err(Refusal::invalid(format!("`{field}` is longer than {LABEL_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// A cursor travels as the text that a page before gave out; clients do not take it apart.
pub(crate) fn budget_cursor(field: &str, text: &str) -> Result<BudgetCursor, Refusal> {
    serde_json::from_str(text).map_err(|_| Refusal::invalid(format!("`{field}` is not the `next` of a page before")))
}

pub(crate) fn budget_next(views: &[BudgetView], limit: u32) -> Option<String> {
    let last = last_of_full(views, limit)?;
    let (budget, window) = (last.name.clone(), last.window_key.clone());
    serde_json::to_string(&BudgetCursor { budget, window, scope: last.scope.clone() }).ok()
}

/// The last item of a page that is full: there may be more behind it.
pub(crate) fn last_of_full<T>(items: &[T], limit: u32) -> Option<&T> {
    if items.len() < usize::try_from(limit).unwrap_or(usize::MAX) { None } else { items.last() }
}

/// The same for records that may be large: a page also ends when it holds enough bytes.
pub(crate) fn last_of_heavy<T>(items: &[T], limit: u32, size: impl Fn(&T) -> usize) -> Option<&T> {
    let bytes: usize = items.iter().map(size).sum();
    if bytes >= PAGE_BYTES_MAX { items.last() } else { last_of_full(items, limit) }
}

/// The kind of an evidence entry, from its text.
pub(crate) fn entry_kind(entry: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Shape {
        body: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Shape>(entry).ok()?.body.into_keys().next()
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
