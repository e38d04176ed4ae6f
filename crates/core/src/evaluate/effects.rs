//! Which effects an act has (AADP §6.2 step 8, §19): the policy's labels, then those that its parameter rules add.
//! Absent on purpose: trust in names. A URL counts as what it reaches, not as what it is spelled like.

use super::bounds;
use crate::json::Json;
use crate::policy::url::{self, CANONICALIZER};
use crate::policy::{Action, PolicySet};
use crate::redact;
use crate::request::DecideRequest;

/// The effects of one request.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) labels: Vec<String>,
    /// The opaque host that one of its URLs names.
    pub(super) opaque: Option<String>,
    /// A parameter under a URL rule that no canonical URL can be made of, and why.
    pub(super) unreadable: Option<(String, String)>,
    /// Set when a URL rule was asked.
    pub(super) url_canonicalizer: Option<String>,
}

pub(super) fn resolve(policy: &PolicySet, action: &Action, request: &DecideRequest) -> Resolved {
    let mut resolved = Resolved { labels: action.effects.clone(), ..Resolved::default() };
    for (at, rule) in action.param_effects.iter().enumerate() {
        let Some(value) = bounds::present(&request.params, &rule.param) else { continue };
        let matches = match &rule.pattern {
            Some(pattern) => policy.pattern_matches(pattern, &bounds::string_form(value)),
            None => url_matches(policy, (action, request.action_type.as_str(), at), &rule.param, value, &mut resolved),
        };
        if matches {
            for label in &rule.add_effects {
                if !resolved.labels.contains(label) {
                    resolved.labels.push(label.clone());
                }
            }
        }
    }
    resolved
}

fn url_matches(
    policy: &PolicySet,
    (action, name, at): (&Action, &str, usize),
    param: &str,
    value: &Json,
    resolved: &mut Resolved,
) -> bool {
    // A rule that was compiled with its policy is there.
    let Some(rule) = policy.url_rule(name, at) else { return false };
    let hidden = redact::covers(&action.redact, param);
    resolved.url_canonicalizer = Some(CANONICALIZER.to_owned());
    let canonical = match value {
        Json::String(text) => url::canonicalize(text).map_err(|error| error.to_string()),
        _ => Err("a URL is a string".to_owned()),
    };
    match canonical {
        Ok(canonical) => {
            let found = rule.matches(&canonical);
            let applies = found.applies();
            // The class of a hidden argument is only which list names it.
            let class = found.opaque.map(|class| match class.split_once(':') {
                Some((list, _)) if hidden => list.to_owned(),
                _ => class,
            });
            resolved.opaque = resolved.opaque.take().or(class);
            applies
        }
        Err(error) => {
            resolved.unreadable = resolved.unreadable.take().or_else(|| Some((param.to_owned(), error)));
            false
        }
    }
}
