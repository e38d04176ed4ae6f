//! Which form of a request may be recorded (AADP §14.1, §16), and what equality means for it.

use super::Keys;
use crate::op::Reject;
use crate::policy::PolicySet;
use crate::redact::{self, RedactionKey};
use crate::request::{DecideRequest, ReportRequest};

/// A request as it may be recorded.
pub(super) struct Recorded {
    pub(super) request: DecideRequest,
    /// What was replaced.
    pub(super) redacted: Vec<String>,
}

/// Without the key of its cluster a node cannot record what the policy wants hidden, so it does not judge it.
pub(super) fn key(keys: &Keys) -> Result<&RedactionKey, Reject> {
    let none = || Reject::Unavailable { detail: "the policy redacts and this node has no redaction key".to_owned() };
    keys.redaction.as_ref().ok_or_else(none)
}

/// The form of `request` that the policy lets into the records; `None` when that is the request itself.
pub(super) fn recorded(
    request: &DecideRequest,
    policy: Option<&PolicySet>,
    keys: &Keys,
) -> Result<Option<Recorded>, Reject> {
    if keys.from_record {
        return Ok(None);
    }
    let paths = policy.map(|policy| redact::paths_of(policy, request.action_type.as_str()));
    let Some(paths) = paths.filter(|paths| !paths.is_empty()) else { return Ok(None) };
    let mut request = request.clone();
    let redacted = redact::decide(&mut request, &paths, key(keys)?);
    Ok(Some(Recorded { request, redacted }))
}

/// The canonical arguments with the same paths replaced as in an earlier record, to compare with it.
pub(super) fn canonical_under(request: &DecideRequest, paths: &[String], keys: &Keys) -> Result<String, Reject> {
    if paths.is_empty() || keys.from_record {
        return Ok(request.params_canonical());
    }
    let mut request = request.clone();
    redact::decide(&mut request, paths, key(keys)?);
    Ok(request.params_canonical())
}

/// Replaces what the policy in force hides of a report; `action_type` when its permit or decision is known.
pub(super) fn report(
    request: &mut ReportRequest,
    action_type: Option<&str>,
    policy: Option<&PolicySet>,
    keys: &Keys,
) -> Result<Vec<String>, Reject> {
    let Some(policy) = policy.filter(|policy| policy.redacts()) else { return Ok(Vec::new()) };
    let known = action_type.and_then(|name| policy.document().actions.get(name));
    match known {
        Some(action) if action.redact.is_empty() => Ok(Vec::new()),
        Some(action) => Ok(redact::report(request, Some(&action.redact), key(keys)?)),
        None => Ok(redact::report(request, None, key(keys)?)),
    }
}
