//! What the policy in force hides shows in no entry (AADP §14.1): absent, null, or a keyed digest.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Check, Difference};
use crate::event::{Body, Decided, LocalDecision};
use crate::evidence;
use crate::ids::{ActionType, EvidenceIndex};
use crate::json::{self, Json};
use crate::policy::PolicySet;
use crate::redact;
use crate::request::DecideRequest;

impl Check<'_> {
    /// The policy that this entry names.
    pub(super) fn policy(&self) -> Option<&Arc<PolicySet>> {
        self.state.policies.get(self.entry.policy.as_ref()?)
    }

    fn hidden(&self, action_type: &ActionType) -> Cow<'_, [String]> {
        self.policy().map(|policy| redact::paths_of(policy, action_type.as_str())).unwrap_or_default()
    }

    /// The value itself is in no message.
    fn shown(&self, path: &str) -> Difference {
        self.differs(path, "in clear", "hidden by the policy in force")
    }

    pub(super) fn decision_is_covered(&self, recorded: &Decided, request: &DecideRequest) -> Result<(), Difference> {
        let hidden = self.hidden(&recorded.action_type);
        if let Some(path) = recorded.redacted.iter().find(|path| !hidden.contains(path)) {
            return Err(self.differs("redacted", path, "nothing that the policy hides"));
        }
        if let Some(path) = redact::shown(&request.params, "params.", &hidden) {
            return Err(self.shown(path));
        }
        self.text_is_covered("rationale", Some(&recorded.rationale), &hidden)
    }

    pub(super) fn local_is_covered(&self, local: &LocalDecision) -> Result<(), Difference> {
        let hidden = self.hidden(&local.action_type);
        let Ok(Json::Object(params)) = json::parse_record(local.params.as_bytes()) else {
            return Err(self.differs("params", "unreadable", "a JSON object"));
        };
        if let Some(path) = redact::shown(&params, "params.", &hidden)
            && !redact::is_mark(&Json::Object(params))
        {
            return Err(self.shown(path));
        }
        self.text_is_covered("rationale", Some(&local.rationale), &hidden)?;
        self.text_is_covered("error", local.error.as_deref(), &hidden)
    }

    /// Of a report whose action the policy does not know, all is hidden that could be.
    pub(super) fn report_is_covered(
        &self,
        payload: Option<&str>,
        error: Option<&str>,
        action_type: Option<&ActionType>,
    ) -> Result<(), Difference> {
        let Some(policy) = self.policy().filter(|policy| policy.redacts()) else { return Ok(()) };
        let action = action_type.and_then(|name| policy.document().actions.get(name.as_str()));
        let all = ["error".to_owned()];
        let hidden = action.map_or(all.as_slice(), |action| &action.redact);
        if !self.error_of_local(error) {
            self.text_is_covered("error", error, hidden)?;
        }
        let Some(payload) = payload else { return Ok(()) };
        match json::parse_record(payload.as_bytes()) {
            Ok(value) if redact::is_mark(&value) => Ok(()),
            Ok(Json::Object(_)) | Err(_) if action.is_none() => Err(self.shown("payload")),
            Ok(Json::Object(members)) => match redact::shown(&members, "payload.", hidden) {
                Some(path) => Err(self.shown(path)),
                None => Ok(()),
            },
            _ => Err(self.differs("payload", "unreadable", "a JSON object")),
        }
    }

    fn text_is_covered(&self, path: &str, text: Option<&str>, hidden: &[String]) -> Result<(), Difference> {
        let open = text.is_some_and(|text| !redact::is_text_mark(text));
        if open && hidden.iter().any(|one| one == path) { Err(self.shown(path)) } else { Ok(()) }
    }

    /// Whether this report is that of a local decision right before it, whose error it repeats: it was covered there.
    fn error_of_local(&self, error: Option<&str>) -> bool {
        let repeats = |body: &Body| matches!(body, Body::LocalDecision(local) if local.error.as_deref() == error);
        let Some(before) = self.before.filter(|before| before.principal == self.entry.principal) else { return false };
        match &before.body {
            Body::ReservationReleased(_) | Body::ReservationExpired(_) => {
                let index = EvidenceIndex(before.index.0.saturating_sub(1));
                let entry = self.state.entries.get(&index).and_then(|bytes| evidence::decode(bytes).ok());
                entry.is_some_and(|entry| entry.principal == self.entry.principal && repeats(&entry.body))
            }
            body => repeats(body),
        }
    }
}
