//! What answers show: records as doors tell them.
//! Absent on purpose: secrets and capabilities that their reader does not own already.

use serde::{Deserialize, Serialize};

use crate::event::{ApprovalState, BudgetKind, Draw, LiftReport, SwitchScope};
use crate::exact::Amount;
use crate::head::SignedHead;
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use crate::policy::{Bounds, Mistake};
use crate::reply::{BudgetObject, Reason, Tier};
use crate::stamp::Stamp;

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
    #[serde(with = "crate::reply::evidence_id_or_none")]
    pub consumed_by: Option<EvidenceIndex>,
    /// What the act draws from value budgets, as far as it can be told now.
    pub cost: Option<Amount>,
    /// What the budgets that it draws on have left now.
    pub budgets: Vec<BudgetObject>,
    /// The group that decides, if one does.
    pub group: Option<String>,
    /// How many of them must grant.
    pub quorum: u32,
    /// Who has granted so far.
    pub votes: Vec<Principal>,
    /// The mandate authority must ratify it.
    pub needs_authority: bool,
    /// It did.
    pub ratified: bool,
    /// The request id of the resumption that an approver drove.
    pub resumed_request: Option<RequestId>,
    /// Which arguments only digests are kept of.
    pub redacted: Vec<String>,
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
    pub note: Option<String>,
    /// What it stops; absent for everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<SwitchScope>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<LiftReport>,
    /// A scope that the policy in force does not name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub warning: Option<String>,
    /// On a read of the global switch: the scoped ones that are engaged.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub scoped: Vec<KillSwitchView>,
    /// The entry that recorded this change; absent on a read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_id: Option<String>,
}

/// A policy was checked and kept, and perhaps put in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a publication")]
pub struct PolicyPublished {
    pub digest: PolicyDigest,
    pub previous: Option<PolicyDigest>,
    /// Whether it is in force.
    pub active: bool,
    /// The entry that recorded it; the one that did so before, when this changed nothing.
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

/// One kept policy in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a policy")]
pub struct PolicyFacts {
    pub digest: PolicyDigest,
    pub active: bool,
    /// Whether an entry may have been judged by it: then it is kept for ever.
    pub used: bool,
    pub published_at: Stamp,
    pub published_by: Principal,
    /// The entry that holds the document.
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
}

/// A policy is no longer kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the facts of a policy")]
pub struct PolicyDropped {
    pub digest: PolicyDigest,
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
}

/// A page of a search through the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidencePage {
    /// What matched.
    pub entries: Vec<EvidenceView>,
    /// Where the search goes on; absent at the end. A page may be empty and have more behind it.
    pub next: Option<EvidenceIndex>,
}

/// A signed head and the entry that records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the two say it")]
pub struct SignedHeadView {
    pub signed: SignedHead,
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
}

/// A Merkle proof (RFC 9162): the hashes, and the root that they lead to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of RFC 9162")]
pub struct ProofView {
    pub path: Vec<Hash>,
    pub root: Hash,
    pub size: u64,
    /// The leaf hash of an inclusion proof, the older root of a consistency proof.
    pub start: Hash,
}

/// Whether a permit may be acted on now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitCheck {
    /// Act, or do not start.
    pub usable: bool,
    /// Why not: `unknown`, `expired`, `reported`, `kill_switch`. A foreign permit is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// The act must begin before this.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Stamp>,
    /// The intent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evidence_id: Option<String>,
}

/// What an enforcement point may decide alone (AADP §16).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticActions {
    /// The policy that it was derived from.
    pub policy: Option<PolicyDigest>,
    /// When.
    pub as_of: Stamp,
    /// Unbudgeted actions of tier 0 and 1 that nothing but their arguments decides.
    pub actions: Vec<StaticAction>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of the policy")]
pub struct StaticAction {
    pub action_type: ActionType,
    pub tier: Tier,
    pub params: Bounds,
}

/// Local decisions are on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRecorded {
    /// One for each, in their order; an entry that came before has its first id.
    pub evidence_ids: Vec<String>,
}

/// The standing word of the mandate authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the statement and where it is on record")]
pub struct MandateView {
    pub action_type: ActionType,
    pub denied: bool,
    pub serial: u64,
    #[serde(with = "crate::reply::evidence_id")]
    pub evidence_id: EvidenceIndex,
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
    pub effects: Vec<String>,
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
