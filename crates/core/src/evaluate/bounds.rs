//! Bounds on arguments (AADP §8.2): required, unknown, numeric, enum; the first failure is reported.
//! Absent on purpose: rounding. A number is compared digit by digit, however long it is.

use std::collections::BTreeMap;

use crate::exact::Exact;
use crate::json::{self, Json, clip};
use crate::policy::Bounds;

/// Which rule failed, what it demands and what it saw.
pub(super) struct BoundsFailure {
    pub(super) rule: String,
    pub(super) condition: String,
    pub(super) value: String,
    /// The argument whose value `value` shows.
    pub(super) param: Option<String>,
}

pub(super) fn check(bounds: &Bounds, params: &BTreeMap<String, Json>) -> Result<(), BoundsFailure> {
    let fail =
        |rule: String, condition: String, value: String| Err(BoundsFailure { rule, condition, value, param: None });
    let fail_at = |name: &String, rule: String, condition: String, value: String| {
        Err(BoundsFailure { rule, condition, value, param: Some(name.clone()) })
    };
    if let Some(name) = bounds.required.iter().find(|name| present(params, name).is_none()) {
        return fail(format!("required.{name}"), "present".to_owned(), "none".to_owned());
    }
    if bounds.strict_params {
        let known = |name: &String| {
            bounds.numeric.contains_key(name) || bounds.choices.contains_key(name) || bounds.required.contains(name)
        };
        if let Some(name) = params.keys().find(|name| !known(name)) {
            return fail(
                "strict_params".to_owned(),
                "no parameter that the policy does not name".to_owned(),
                clip(name),
            );
        }
    }
    for (name, range) in &bounds.numeric {
        let Some(value) = present(params, name) else { continue };
        let condition = match (&range.min, &range.max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "a number".to_owned(),
        };
        let inside = number(value).is_some_and(|number| {
            range.min.as_ref().is_none_or(|min| *min <= number) && range.max.as_ref().is_none_or(|max| number <= *max)
        });
        if !inside {
            return fail_at(name, format!("numeric.{name}"), condition, clip(&string_form(value)));
        }
    }
    for (name, choices) in &bounds.choices {
        let value = present(params, name);
        if !matches!(value, Some(Json::String(text)) if choices.contains(text)) {
            let value = value.map_or_else(|| "none".to_owned(), |value| clip(&string_form(value)));
            return fail_at(name, format!("enum.{name}"), clip(&format!("one of {}", choices.join(", "))), value);
        }
    }
    Ok(())
}

/// Whether arguments are inside bounds, for who must judge without a decision point (AADP §16); the error says which
/// rule failed.
pub fn within_bounds(bounds: &Bounds, params: &BTreeMap<String, Json>) -> Result<(), String> {
    check(bounds, params)
        .map_err(|failure| format!("`{}` demands {}, found {}", failure.rule, failure.condition, failure.value))
}

/// An argument that is there: `null` is absence.
pub(super) fn present<'a>(params: &'a BTreeMap<String, Json>, name: &str) -> Option<&'a Json> {
    params.get(name).filter(|value| **value != Json::Null)
}

/// An argument as a number: a decimal string or a JSON number; nothing else is one (AADP §18.3).
pub(super) fn number(value: &Json) -> Option<Exact> {
    match value {
        Json::String(text) => Exact::parse_decimal(text),
        Json::Number(token) => Exact::parse_number(token),
        _ => None,
    }
}

/// An argument as text, for patterns and for traces.
pub(super) fn string_form(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        // One value, one text: a spelling must not choose which rules it meets.
        Json::Number(token) => Exact::parse_number(token).map_or_else(|| token.clone(), |exact| exact.to_string()),
        other => json::canonical(other),
    }
}
