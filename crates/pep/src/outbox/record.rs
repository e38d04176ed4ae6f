//! What is in the outbox and in its file: acts and what became of them.
//! Absent on purpose: order and delivery; the parent's and the delivery's.

use placet_core::request::{Outcome, Source};
use placet_core::stamp::Stamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock;

/// What an item is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// A permit: it is owed exactly one report.
    Permit { permit_id: String, request_id: String, action_type: String },
    /// A decision without a permit: its report is information (AADP §10.5).
    Request { request_id: String },
    /// An act that was decided here.
    Local(Box<LocalAct>),
}

/// What a decision point learns about an act that was decided without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LocalAct {
    pub(crate) request_id: String,
    pub(crate) action_type: String,
    pub(crate) params: Value,
    pub(crate) source: Source,
    pub(crate) rationale: String,
    pub(crate) decided_at: Stamp,
    pub(crate) mode: LocalMode,
    /// Digest of the policy that the list came from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) policy: Option<String>,
}

/// Why an act could be decided here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LocalMode {
    FailStatic,
    FailOpen,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) payload: Option<Value>,
    pub(crate) completed_at: Stamp,
    #[serde(default)]
    pub(crate) no_effect: bool,
}

impl Ending {
    pub(crate) fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        let error = Some(error.into()).filter(|text| !text.is_empty());
        Self { outcome, error, payload: None, completed_at: clock::now(), no_effect: false }
    }
}

/// One change of the outbox, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// Whatever begins under this request id has begun: nothing else may.
    Claimed {
        request_id: String,
    },
    Begun {
        key: u64,
        subject: Subject,
    },
    Ended {
        key: u64,
        ending: Ending,
    },
    Delivered {
        key: u64,
    },
}
