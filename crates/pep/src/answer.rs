//! What a decision point answered, read so that a newer one is understood or refused, never guessed (AADP §10, §14).
//! Absent on purpose: the closed lists of reasons and obligation types; a reason is never acted on, and an obligation
//! that is not understood is refused where it is checked.

use placet_core::json;
use placet_core::reply::{BudgetObject, Verdict};
use serde_json::{Map, Value};

use crate::limits::{NAME_BYTES_MAX, OBLIGATIONS_MAX};

/// A decide response (AADP §10.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The request that this answers.
    pub request_id: Option<String>,
    /// The answer; an unknown one never becomes a `Decision`.
    pub verdict: Verdict,
    /// Why. For people and evidence: act on the verdict alone.
    pub reason: String,
    /// For people; never parse it.
    pub detail: String,
    /// The policy's tier, 0 to 3.
    pub nominal_tier: Option<u8>,
    /// What evaluation arrived at, 0 to 3.
    pub effective_tier: Option<u8>,
    /// On a permit only: the capability to report.
    pub permit_id: Option<String>,
    /// On a permit only.
    pub obligations: Vec<Obligation>,
    /// On a proposal only: present it with [`crate::Action::approval_ref`] once it is granted.
    pub approval_id: Option<String>,
    /// The entry that records the decision; empty if the answer names none.
    pub evidence_id: String,
    /// Whether this answer was given before.
    pub replayed: bool,
    /// The budget that refused, if one did.
    pub budget: Option<BudgetObject>,
}

/// One obligation of a permit (AADP §13).
#[derive(Clone, Debug, PartialEq)]
pub struct Obligation {
    /// A registered name, or `x-<vendor>.<name>`.
    pub kind: String,
    /// Its syntax depends on the type.
    pub value: Option<Value>,
    /// `false` makes a type that is known advisory; a type that is not known binds anyway.
    pub required: bool,
}

impl Obligation {
    /// The value, if it is a string.
    pub fn text(&self) -> Option<&str> {
        self.value.as_ref().and_then(Value::as_str)
    }

    fn read(value: &Value) -> Self {
        let kind = value.get("type").and_then(Value::as_str).filter(|kind| kind.len() <= NAME_BYTES_MAX);
        let Some(kind) = kind else { return Self::unreadable() };
        Self {
            kind: kind.to_owned(),
            value: value.get("value").filter(|value| !value.is_null()).cloned(),
            required: value.get("required") != Some(&Value::Bool(false)),
        }
    }

    /// Stands for what cannot be read. Its name is no type, so it is refused like every unknown type.
    fn unreadable() -> Self {
        Self { kind: "(unreadable obligation)".to_owned(), value: None, required: true }
    }
}

impl Decision {
    /// Reads a body. The error says what is wrong with it; nothing may be done on such an answer.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let of = object(body)?;
        let verdict = match of.get("verdict").and_then(Value::as_str) {
            Some("permit") => Verdict::Permit,
            Some("deny") => Verdict::Deny,
            Some("propose") => Verdict::Propose,
            Some("dry_run") => Verdict::DryRun,
            Some("observe") => Verdict::Observe,
            Some(other) => return Err(format!("verdict `{}` is unknown", clip(other))),
            None => return Err("the answer has no verdict".to_owned()),
        };
        let permit_id = text(&of, "permit_id");
        if verdict == Verdict::Permit && permit_id.as_deref().is_none_or(str::is_empty) {
            return Err("the answer is a permit without `permit_id`".to_owned());
        }
        let obligations = match of.get("obligations") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) if list.len() <= OBLIGATIONS_MAX => list.iter().map(Obligation::read).collect(),
            Some(_) => vec![Obligation::unreadable()],
        };
        let tier = |name: &str| of.get(name).and_then(Value::as_u64).and_then(|tier| u8::try_from(tier).ok());
        Ok(Self {
            request_id: text(&of, "request_id"),
            verdict,
            reason: text(&of, "reason").unwrap_or_default(),
            detail: text(&of, "detail").unwrap_or_default(),
            nominal_tier: tier("nominal_tier"),
            effective_tier: tier("effective_tier"),
            permit_id,
            obligations,
            approval_id: text(&of, "approval_id"),
            evidence_id: text(&of, "evidence_id").unwrap_or_default(),
            replayed: of.get("replayed") == Some(&Value::Bool(true)),
            budget: of.get("budget").and_then(|budget| serde_json::from_value(budget.clone()).ok()),
        })
    }
}

/// A report response (AADP §10.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Whether this report became the result of its permit. `false` also when an earlier one did.
    pub accepted: bool,
    /// The entry that records the result, or the refusal.
    pub evidence_id: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// For people; never parse it.
    pub detail: String,
}

impl Receipt {
    /// Reads a body; the error says what is wrong with it.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let of = object(body)?;
        let accepted = of.get("accepted").and_then(Value::as_bool).ok_or("the answer does not say `accepted`")?;
        Ok(Self {
            accepted,
            evidence_id: text(&of, "evidence_id").unwrap_or_default(),
            reason: text(&of, "reason"),
            detail: text(&of, "detail").unwrap_or_default(),
        })
    }
}

/// The members of a strict JSON object: no duplicates, nothing behind it (AADP §18.1).
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, String> {
    json::parse(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(of)) => Ok(of),
        Ok(_) => Err("the answer is not a JSON object".to_owned()),
        Err(error) => Err(format!("the answer is not JSON: {error}")),
    }
}

pub(crate) fn text(of: &Map<String, Value>, name: &str) -> Option<String> {
    of.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// Received text for a message to a human: short, whatever was sent.
pub(crate) fn clip(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 200;
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_verdicts_become_decisions() {
        for (body, wrong) in [
            (r#"{"verdict":"permit","permit_id":"pmt-1","obligations":[]}"#, None),
            (r#"{"verdict":"deny","zz":1,"reason":"x-acme.new"}"#, None),
            (r#"{"verdict":"permit"}"#, Some("permit_id")),
            (r#"{"verdict":"permit","permit_id":null}"#, Some("permit_id")),
            (r#"{"verdict":"replay"}"#, Some("unknown")),
            (r#"{"verdict":"Permit"}"#, Some("unknown")),
            (r#"{"verdict":1}"#, Some("no verdict")),
            (r#"{"verdict":"deny","verdict":"permit"}"#, Some("twice")),
            (r#"["permit"]"#, Some("object")),
            ("permit", Some("JSON")),
        ] {
            let read = Decision::read(body.as_bytes());
            match wrong {
                None => assert!(read.is_ok(), "{body}: {read:?}"),
                Some(word) => assert!(read.clone().unwrap_err().contains(word), "{body}: {read:?}"),
            }
        }
    }

    #[test]
    fn an_obligation_that_cannot_be_read_is_unknown_and_binds() {
        for obligations in ["7", r#"[{"kind":"x"}]"#, r#"["report_result"]"#, r#"[{"type":9,"required":false}]"#] {
            let body = format!(r#"{{"verdict":"permit","permit_id":"p","obligations":{obligations}}}"#);
            let decision = Decision::read(body.as_bytes()).unwrap();
            assert_eq!(decision.obligations, [Obligation::unreadable()], "{obligations}");
        }
    }
}
