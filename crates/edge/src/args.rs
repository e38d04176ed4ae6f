//! Arguments of operator calls, checked the same way at both doors: each refusal names the field and the accepted
//! form.
//! Absent on purpose: bodies of decide and report, which the core reads itself.

mod filter;

use placet_core::event::SwitchScope;
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, PermitId, PolicyDigest, Principal};
use placet_core::limits::{ACTION_TYPE_BYTES_MAX, LABEL_BYTES_MAX, PAGE_BYTES_MAX};
use placet_core::op::{BudgetCursor, BudgetView, EvidenceView};
use placet_core::request::is_action_type;

use crate::limits::{PAGE_DEFAULT, PAGE_MAX, PRINCIPAL_BYTES_MAX};
use crate::reject::Refusal;

pub(crate) use filter::{FILTERS, evidence_filter};

pub(crate) fn approval_id(field: &str, text: &str) -> Result<ApprovalId, Refusal> {
    let digits = text.strip_prefix("apr-").unwrap_or_default();
    if digits.len() == 32 && is_lower_hex(digits) {
        Ok(ApprovalId::new(text))
    } else {
        Err(Refusal::invalid(format!("`{field}` is not an approval id: `apr-` and 32 lowercase hex digits")))
    }
}

pub(crate) fn permit_id(field: &str, text: &str) -> Result<PermitId, Refusal> {
    let digits = text.strip_prefix("pmt-").unwrap_or_default();
    if digits.len() == 32 && is_lower_hex(digits) {
        Ok(PermitId::new(text))
    } else {
        Err(Refusal::invalid(format!("`{field}` is not a permit id: `pmt-` and 32 lowercase hex digits")))
    }
}

pub(crate) fn action_type(field: &str, text: &str) -> Result<ActionType, Refusal> {
    let form = "a letter or `_`, then letters, digits, `_`, `.`, `:` and `-`, 255 at most";
    let wrong = || Refusal::invalid(format!("`{field}` is not an action type: {form}"));
    is_action_type(text).then(|| ActionType::new(text)).ok_or_else(wrong)
}

pub(crate) fn principal(field: &str, text: &str) -> Result<Principal, Refusal> {
    name(field, text, PRINCIPAL_BYTES_MAX).map(Principal::new)
}

/// What a scoped kill switch stops: the kinds of scope are its members' names.
pub(crate) const SCOPES: [&str; 3] = ["action_type", "effect", "principal"];

/// A scope of the kind `kind`, one of [`SCOPES`].
pub(crate) fn switch_scope(kind: &str, text: &str) -> Result<SwitchScope, Refusal> {
    let field = format!("scope.{kind}");
    match kind {
        "action_type" => action_type(&field, text).map(SwitchScope::ActionType),
        "effect" => name(&field, text, ACTION_TYPE_BYTES_MAX).map(|label| SwitchScope::Effect(label.to_owned())),
        "principal" => principal(&field, text).map(SwitchScope::Principal),
        _ => Err(no_scope()),
    }
}

/// A scope that names nothing, or more than one thing.
pub(crate) fn no_scope() -> Refusal {
    Refusal::invalid("`scope` has exactly one of `action_type`, `effect` and `principal`; leave it out to stop all")
}

/// A signature of the mandate authority. Its worth is the core's question.
pub(crate) fn signature(field: &str, text: String) -> Result<String, Refusal> {
    if text.len() == 128 && is_lower_hex(&text) {
        return Ok(text);
    }
    Err(Refusal::invalid(format!("`{field}` is not an Ed25519 signature: 128 lowercase hex digits")))
}

/// How many entries a head or a proof is about.
pub(crate) fn size(field: &str, text: &str) -> Result<u64, Refusal> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    sized(field, plain.then(|| text.parse().ok()).flatten().unwrap_or_default())
}

/// The same, from a number.
pub(crate) fn sized(field: &str, number: u64) -> Result<u64, Refusal> {
    if number > 0 { Ok(number) } else { Err(Refusal::invalid(format!("`{field}` is not a number of entries from 1"))) }
}

/// The sizes of two heads, the older first.
pub(crate) fn heads(from: u64, to: u64) -> Result<(u64, u64), Refusal> {
    if from <= to { Ok((from, to)) } else { Err(Refusal::invalid("`from` is above `to`: the older head comes first")) }
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

/// Where a page of evidence ends, if there may be more behind it.
pub(crate) fn evidence_next(views: &[EvidenceView], limit: u32) -> Option<EvidenceIndex> {
    last_of_heavy(views, limit, |one| one.entry.len()).map(|last| last.evidence_id)
}

/// The kind of an evidence entry, from its text.
pub(crate) fn entry_kind(entry: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Shape {
        body: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Shape>(entry).ok()?.body.into_keys().next()
}

fn name<'t>(field: &str, text: &'t str, max: usize) -> Result<&'t str, Refusal> {
    let plain = !text.chars().any(char::is_control);
    if plain && (1..=max).contains(&text.len()) {
        return Ok(text);
    }
    Err(Refusal::invalid(format!("`{field}` is empty, longer than {max} bytes, or has control characters")))
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
