//! What may be asked of a decision point, and what it answers: one type for every door and for forwarding.
//! Absent on purpose: bytes of any protocol, and transport status; doors translate both ways.

use serde::{Deserialize, Serialize};

use crate::event::{ApprovalState, BudgetKind, Draw, LiftReport};
use crate::exact::Amount;
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use crate::policy::Mistake;
use crate::reply::{DecideReply, Reason, ReportReply, Tier};
use crate::request::Malformed;
use crate::stamp::Stamp;

/// One call by an authenticated principal whose role was checked at the door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Who asks.
    pub principal: Principal,
    /// For what.
    pub op: Op,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// `POST /v1/decide`: the body as received.
    Decide(#[serde(with = "body")] Vec<u8>),
    /// `POST /v1/report`: the body as received.
    Report(#[serde(with = "body")] Vec<u8>),
    /// A body that a door refused before it could be parsed (too large, wrong media type): recorded, never judged.
    Malformed {
        /// `decide` or `report`.
        operation: String,
        /// What arrived.
        request: Malformed,
    },
    /// Grants or denies an approval.
    ResolveApproval {
        /// Which.
        id: ApprovalId,
        /// `true` grants, `false` denies (or withdraws a grant that is not consumed yet).
        grant: bool,
        /// The approver's words.
        note: Option<String>,
    },
    /// Engages or releases the kill switch.
    SetKillSwitch {
        /// On or off.
        engaged: bool,
        /// Free label.
        origin: String,
    },
    /// Checks, publishes and activates a policy document.
    PublishPolicy {
        /// YAML, either dialect.
        document: String,
        /// Publish only if this is the policy in force; `Some("none")` means that none may be.
        expect: Option<String>,
    },
    /// Reads; answered by the leader after it has confirmed that it still leads.
    Query(Query),
}

/// A read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each names the record that it lists; `after` and `limit` page through it")]
pub enum Query {
    /// Approvals; pending ones only unless `all`.
    Approvals {
        all: bool,
        after: Option<ApprovalId>,
        limit: u32,
    },
    Approval {
        id: ApprovalId,
    },
    KillSwitch,
    /// The policy in force, or the one named.
    Policy {
        digest: Option<PolicyDigest>,
    },
    Evidence {
        index: EvidenceIndex,
    },
    /// Entries behind `after`, oldest first.
    EvidenceTail {
        after: EvidenceIndex,
        limit: u32,
    },
    /// Permits without a report.
    Intents {
        after: Option<EvidenceIndex>,
        limit: u32,
    },
    /// Counters of the current windows.
    Budgets {
        after: Option<BudgetCursor>,
        limit: u32,
    },
}

impl Op {
    /// Whether the operation only reads.
    pub fn is_query(&self) -> bool {
        matches!(self, Self::Query(_))
    }
}

/// Where a listing of counters goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the parts of a counter's key")]
pub struct BudgetCursor {
    pub budget: String,
    pub window: String,
    pub scope: Option<String>,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "one per operation")]
pub enum Answer {
    Decide(DecideReply),
    Report(ReportReply),
    Approval(ApprovalView),
    Approvals(Vec<ApprovalView>),
    KillSwitch(KillSwitchView),
    PolicyPublished(PolicyPublished),
    Policy(PolicyView),
    Evidence(EvidenceView),
    EvidenceTail(Vec<EvidenceView>),
    Intents(Vec<IntentView>),
    Budgets(Vec<BudgetView>),
}

/// An approval as approvers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the list of AADP §11.1 is the documentation")]
pub struct ApprovalView {
    pub approval_id: ApprovalId,
    pub state: ApprovalState,
    pub action_type: ActionType,
    /// The arguments exactly as received.
    pub params: String,
    pub rationale: String,
    pub reason: Reason,
    pub nominal_tier: Tier,
    pub proposer: Principal,
    pub request_id: RequestId,
    #[serde(with = "crate::reply::evidence_id")]
    pub proposal: EvidenceIndex,
    pub created: Stamp,
    pub deadline: Stamp,
    pub decided_by: Option<Principal>,
    pub decided_at: Option<Stamp>,
    pub note: Option<String>,
    pub consumed_by: Option<EvidenceIndex>,
}

/// The kill switch, and on release what happened to the policy meanwhile (AADP §7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of AADP §7")]
pub struct KillSwitchView {
    pub engaged: bool,
    pub since: Option<Stamp>,
    pub by: Option<Principal>,
    pub origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<LiftReport>,
    /// The entry that recorded this change; absent on a read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_id: Option<String>,
}

/// A policy was checked, published and activated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a publication")]
pub struct PolicyPublished {
    pub digest: PolicyDigest,
    pub previous: Option<PolicyDigest>,
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
    /// Things that load but may not be meant.
    pub warnings: Vec<Mistake>,
}

/// A published policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a policy")]
pub struct PolicyView {
    pub digest: PolicyDigest,
    pub active: bool,
    /// The canonical form: JSON text whose SHA-256 is the digest.
    pub document: String,
}

/// One evidence entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceView {
    /// `aud-<ordinal>`.
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
    /// The canonical bytes, which are JSON text: what the hash covers.
    pub entry: String,
    /// Hash of `entry`.
    pub hash: Hash,
}

/// A permit that nobody has reported yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of an open permit")]
pub struct IntentView {
    pub permit_id: PermitId,
    pub request_id: RequestId,
    pub action_type: ActionType,
    pub principal: Principal,
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
    pub at: Stamp,
    pub deadline: Stamp,
    pub draws: Vec<Draw>,
}

/// One counter of one budget in its current window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a counter")]
pub struct BudgetView {
    pub name: String,
    pub kind: BudgetKind,
    pub dimension: String,
    pub window: String,
    /// `2026-08-17`, `2026-08`, or the rolling duration.
    pub window_key: String,
    pub scope: Option<String>,
    /// Absent when the policy in force no longer has this budget.
    pub limit: Option<Amount>,
    pub reserved: Amount,
    pub settled: Amount,
    pub consumed: Amount,
    pub remaining: Option<Amount>,
}

/// Why an operation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Reject {
    /// Nothing happened; retry, for a decide with the same request id.
    Unavailable {
        detail: String,
    },
    /// It may have happened; ask again with the same request id.
    Unknown {
        detail: String,
    },
    NotFound {
        detail: String,
    },
    /// The record is not in a state that allows this.
    Conflict {
        detail: String,
    },
    /// This principal may not do this, whatever its roles.
    Forbidden {
        detail: String,
    },
    /// An argument is wrong.
    Invalid {
        detail: String,
    },
    /// A policy document with mistakes.
    PolicyMistakes {
        mistakes: Vec<Mistake>,
    },
    /// Evaluating this request failed inside; recorded nowhere, nothing reserved.
    Internal {
        detail: String,
    },
}

impl Reject {
    /// The stable code; `docs/ERRORS.md` says what to do about each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
            Self::NotFound { .. } => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::Forbidden { .. } => "forbidden",
            Self::Invalid { .. } => "invalid",
            Self::PolicyMistakes { .. } => "policy_mistakes",
            Self::Internal { .. } => "internal",
        }
    }

    /// What to tell a human.
    pub fn detail(&self) -> String {
        match self {
            Self::Unavailable { detail }
            | Self::Unknown { detail }
            | Self::NotFound { detail }
            | Self::Conflict { detail }
            | Self::Forbidden { detail }
            | Self::Invalid { detail }
            | Self::Internal { detail } => detail.clone(),
            Self::PolicyMistakes { mistakes } => format!("the policy document has {} mistakes", mistakes.len()),
        }
    }
}

impl From<crate::state::ReadError> for Reject {
    fn from(error: crate::state::ReadError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

/// Bodies travel between nodes as text where they are text, so that forwarding stays readable.
mod body {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Carried {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(body: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(body) {
            Ok(text) => Carried::Text(text.to_owned()),
            Err(_) => Carried::Bytes(body.to_vec()),
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Carried::deserialize(deserializer)? {
            Carried::Text(text) => text.into_bytes(),
            Carried::Bytes(bytes) => bytes,
        })
    }
}
