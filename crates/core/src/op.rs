//! What may be asked of a decision point, and what it answers: one type for every door and for forwarding.
//! Absent on purpose: bytes of any protocol, and transport status; doors translate both ways.

mod views;

pub use views::*;

use serde::{Deserialize, Serialize};

use crate::event::{MandateSet, SwitchScope};
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use crate::merkle::MerkleError;
use crate::policy::Mistake;
use crate::reply::{DecideReply, ReportReply, Verdict};
use crate::request::Malformed;
use crate::stamp::Stamp;
use crate::state::ReadError;

/// The target of the spans of calls: one for each, which costs more than its place in a log is worth. Whoever exports
/// traces lets them through.
pub const CALLS: &str = "placet::calls";

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
    /// Grants an approval and, when nothing else is missing, decides its proposal again in the proposer's name (AADP
    /// §11.3). An approval that is granted already is only resumed.
    ResumeApproval {
        /// Which.
        id: ApprovalId,
        /// The approver's words.
        note: Option<String>,
    },
    /// The mandate authority's answer to one approval (AADP §11.5).
    RatifyApproval {
        /// Which.
        id: ApprovalId,
        /// Approved or disapproved.
        approved: bool,
        /// Ed25519 over the statement, hex.
        signature: String,
    },
    /// The mandate authority's standing word about an action type.
    SetMandate(MandateSet),
    /// Engages or releases the kill switch.
    SetKillSwitch {
        /// On or off.
        engaged: bool,
        /// Free label.
        origin: String,
        /// Why.
        note: Option<String>,
        /// What it stops; everything without one.
        scope: Option<SwitchScope>,
    },
    /// Checks a policy document, keeps it and, unless told otherwise, puts it in force.
    PublishPolicy {
        /// YAML, either dialect.
        document: String,
        /// Publish only if this is the policy in force; `Some("none")` means that none may be.
        expect: Option<String>,
        /// Whether it is in force from here.
        activate: bool,
    },
    /// Puts a kept policy in force: forward, or back.
    ActivatePolicy {
        /// Which.
        digest: PolicyDigest,
        /// Only if this is the policy in force.
        expect: Option<String>,
    },
    /// Forgets a policy that no entry was ever judged by.
    DropPolicy {
        /// Which.
        digest: PolicyDigest,
    },
    /// `POST /v1/local`: what an enforcement point did by itself (AADP §16); the body as received.
    RecordLocal(#[serde(with = "body")] Vec<u8>),
    /// Signs the head of the evidence and records it.
    SignHead,
    /// Approvers' events were delivered.
    Notified {
        /// Everything up to here.
        up_to: EvidenceIndex,
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
    /// All kept policies, by digest.
    Policies {
        after: Option<PolicyDigest>,
        limit: u32,
    },
    Evidence {
        index: EvidenceIndex,
    },
    /// Entries behind `after`, oldest first.
    EvidenceTail {
        after: EvidenceIndex,
        limit: u32,
    },
    /// Entries behind `after` that match, oldest first. One page looks at a bounded number of entries.
    EvidenceFind {
        after: EvidenceIndex,
        limit: u32,
        filter: EvidenceFilter,
    },
    /// That an entry is under the head of `size` entries (RFC 9162).
    InclusionProof {
        index: EvidenceIndex,
        size: u64,
    },
    /// That the head of `to` entries continues the head of `from`.
    ConsistencyProof {
        from: u64,
        to: u64,
    },
    /// Whether the caller may start the act of a permit now.
    CheckPermit {
        permit_id: PermitId,
    },
    /// What an enforcement point may decide by itself while no decision point can be reached (AADP §16).
    StaticActions,
    /// How far approvers' events were delivered.
    Notified,
    /// The last entry of the evidence: whoever has applied it has missed nothing.
    Position,
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
    /// A word for metrics and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Decide(_) => "decide",
            Self::Report(_) => "report",
            Self::Malformed { .. } => "malformed",
            Self::ResolveApproval { .. } => "resolve_approval",
            Self::ResumeApproval { .. } => "resume_approval",
            Self::RatifyApproval { .. } => "ratify_approval",
            Self::SetMandate(_) => "set_mandate",
            Self::SetKillSwitch { .. } => "kill_switch",
            Self::PublishPolicy { .. } => "publish_policy",
            Self::ActivatePolicy { .. } => "activate_policy",
            Self::DropPolicy { .. } => "drop_policy",
            Self::RecordLocal(_) => "record_local",
            Self::SignHead => "sign_head",
            Self::Notified { .. } => "notified",
            Self::Query(_) => "query",
        }
    }

    /// Whether the operation engages or releases a kill switch.
    pub fn is_switch(&self) -> bool {
        matches!(self, Self::SetKillSwitch { .. })
    }

    /// Whether the operation only reads.
    pub fn is_query(&self) -> bool {
        matches!(self, Self::Query(_))
    }
}

/// Which entries a search wants; absent members match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of an entry that can be asked for")]
pub struct EvidenceFilter {
    pub since: Option<Stamp>,
    /// Not included.
    pub until: Option<Stamp>,
    pub kind: Option<String>,
    pub action_type: Option<ActionType>,
    pub principal: Option<Principal>,
    pub verdict: Option<Verdict>,
    pub reason: Option<String>,
    pub request_id: Option<RequestId>,
    /// Digest of the permit: evidence never shows the permit itself.
    pub permit: Option<Hash>,
    /// Only reports that came too late and ask for a human's reconciliation.
    pub reconcile: bool,
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
    Policies(Vec<PolicyFacts>),
    PolicyDropped(PolicyDropped),
    Evidence(EvidenceView),
    EvidenceTail(Vec<EvidenceView>),
    EvidencePage(EvidencePage),
    Head(SignedHeadView),
    Proof(ProofView),
    Permit(PermitCheck),
    Static(StaticActions),
    Local(LocalRecorded),
    Mandate(MandateView),
    /// How far approvers' events were delivered.
    Notified(EvidenceIndex),
    /// The last entry of the evidence; 0 when there is none.
    Position(EvidenceIndex),
    /// An attempt that is on record and has no other answer. Who receives it tells the caller the reject.
    Refused(Reject),
    Intents(Vec<IntentView>),
    Budgets(Vec<BudgetView>),
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

impl From<ReadError> for Reject {
    fn from(error: ReadError) -> Self {
        Self::Unavailable { detail: error.to_string() }
    }
}

impl From<MerkleError<ReadError>> for Reject {
    fn from(error: MerkleError<ReadError>) -> Self {
        match error {
            MerkleError::Beyond { asked, size } => {
                Self::Invalid { detail: format!("`{asked}` is beyond the evidence, which has {size} entries") }
            }
            other => ReadError::from(other).into(),
        }
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
