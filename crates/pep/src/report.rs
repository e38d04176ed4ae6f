//! A report by hand (AADP §10.3), for a minimal enforcement point that acts without [`crate::Pep::run`].
//! Absent on purpose: durability. Who reports by hand keeps the report until it has a receipt.

use placet_core::request::Outcome;
use serde_json::Value;

use crate::delivery::ReportBody;
use crate::outbox::Ending;

/// What happened to a permit, or to a decision without one.
#[derive(Clone, Debug)]
pub struct Report {
    permit_id: Option<String>,
    request_id: Option<String>,
    ending: Ending,
}

impl Report {
    /// About a permit: settles it. The completion time is now.
    pub fn new(permit_id: impl Into<String>, outcome: Outcome) -> Self {
        Self { permit_id: Some(permit_id.into()), request_id: None, ending: Ending::new(outcome, "") }
    }

    /// About a decision that gave no permit, such as a proposal that was not acted on: kept as information.
    pub fn on_request(request_id: impl Into<String>, outcome: Outcome) -> Self {
        Self { permit_id: None, request_id: Some(request_id.into()), ending: Ending::new(outcome, "") }
    }

    /// Why there was no success; names the obligation type where one was refused.
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.ending.error = Some(error.into());
        self
    }

    /// Result data; an object.
    pub fn payload(mut self, payload: Value) -> Self {
        self.ending.payload = Some(payload);
        self
    }

    /// With a failure: the act positively had no effect.
    pub fn no_effect(mut self) -> Self {
        self.ending.no_effect = true;
        self
    }

    pub(crate) fn body(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&ReportBody::new(self.permit_id.as_deref(), self.request_id.as_deref(), &self.ending))
    }
}
