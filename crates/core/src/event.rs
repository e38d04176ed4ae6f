//! Events: what happened, one evidence entry each (AADP §14). The log holds these, never requests.
//! Absent on purpose: anything mutable, and the capability to report: an entry shows a permit's digest only.
//!
//! Fields stand in the order of their serialised names: canonical JSON sorts its members (AADP §14.5).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::exact::Amount;
use crate::head::SignedHead;
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use crate::reply::{BudgetObject, Obligation, Protocol, Reason, Tier, Verdict};
use crate::request::{Malformed, Outcome, Source};
use crate::stamp::Stamp;
use crate::trace::Trace;

/// One fact in the log: an entry for everyone, and the capability that only state may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What auditors read.
    pub entry: Entry,
    /// The canonical bytes of `entry`: what the log carries and the chain covers.
    pub bytes: Bytes,
    /// The permit that this event issues or ends.
    pub permit_id: Option<PermitId>,
    /// The hash of `bytes`, computed once: the next entry names it, and every node compares it.
    pub hash: Hash,
}

impl Event {
    /// A new event; its bytes are made here, once.
    pub fn new(entry: Entry, permit_id: Option<PermitId>) -> Self {
        Self::of(crate::evidence::encode(&entry).into(), entry, permit_id)
    }

    /// An event whose entry was read from `bytes`.
    pub(crate) fn of(bytes: Bytes, entry: Entry, permit_id: Option<PermitId>) -> Self {
        let hash = crate::evidence::hash(&bytes);
        Self { entry, bytes, permit_id, hash }
    }

    /// An event from the log.
    pub fn decode(bytes: Bytes, permit_id: Option<PermitId>) -> Result<Self, crate::evidence::EvidenceError> {
        let entry = crate::evidence::decode(&bytes)?;
        Ok(Self::of(bytes, entry, permit_id))
    }
}

/// An evidence entry (AADP §14.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When the leader recorded it.
    pub at: Stamp,
    /// What happened.
    pub body: Body,
    /// Position, from 1, without gaps.
    pub index: EvidenceIndex,
    /// The policy in force; absent before the first was published.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<PolicyDigest>,
    /// Hash of the entry before; 64 zeros for the first.
    pub prev: Hash,
    /// Who caused it.
    pub principal: Principal,
    /// Whose vocabulary it uses; an entry without a stamp uses the oldest (AADP §5.1).
    #[serde(default = "Protocol::unstamped")]
    pub protocol: Protocol,
    /// Version of this form.
    pub v: u32,
}

/// The kinds of entry (AADP §14.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// An approval was granted, denied, withdrawn or expired.
    ApprovalTransition(ApprovalTransition),
    /// A verdict that is not a permit.
    Decision(Box<Decided>),
    /// A permit: the intent that is durable before the permit leaves.
    ExecIntent(Box<Decided>),
    /// The result of a permit.
    ExecResult(ExecResult),
    /// The switch was engaged or released.
    KillSwitch(KillSwitchSet),
    /// A body that was not a request.
    MalformedRequest(MalformedRequest),
    /// A policy was published and is in force from here.
    PolicyChange(PolicyChange),
    /// A request id came back with another body, or from another principal.
    ReplayMismatch(ReplayMismatch),
    /// Information about a decision that had no permit.
    ReportNoted(ReportNoted),
    /// A report that changed nothing.
    ReportRefused(ReportRefused),
    /// The head of the evidence so far, signed by the node that led.
    HeadSigned(SignedHead),
    /// An act that an enforcement point decided by itself while no decision point could be reached.
    LocalDecision(Box<LocalDecision>),
    /// The mandate authority spoke about an action type.
    MandateSet(MandateSet),
    /// An attempt on an approval that this principal cannot decide.
    ApprovalRefused(ApprovalRefused),
    /// Approvers' events were delivered up to a position.
    Notified(Notified),
    /// The cluster began anew from a backup.
    Restored(Restored),
    /// A permit's deadline passed without a report.
    ReservationExpired(ReservationEnded),
    /// A report gave the value part of a reservation back.
    ReservationReleased(ReservationEnded),
}

impl Body {
    /// The decision, where this is one.
    pub fn decided(&self) -> Option<&Decided> {
        match self {
            Self::Decision(decided) | Self::ExecIntent(decided) => Some(decided),
            _ => None,
        }
    }

    /// The word for this kind (AADP §14.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ApprovalTransition(_) => "approval_transition",
            Self::Decision(_) => "decision",
            Self::ExecIntent(_) => "exec_intent",
            Self::ExecResult(_) => "exec_result",
            Self::KillSwitch(_) => "kill_switch",
            Self::MalformedRequest(_) => "malformed_request",
            Self::PolicyChange(_) => "policy_change",
            Self::ReplayMismatch(_) => "replay_mismatch",
            Self::ReportNoted(_) => "report_noted",
            Self::ReportRefused(_) => "report_refused",
            Self::ReservationExpired(_) => "reservation_expired",
            Self::ReservationReleased(_) => "reservation_released",
            Self::HeadSigned(_) => "head_signed",
            Self::LocalDecision(_) => "local_decision",
            Self::MandateSet(_) => "mandate_set",
            Self::ApprovalRefused(_) => "approval_refused",
            Self::Notified(_) => "notified",
            Self::Restored(_) => "restored",
        }
    }
}

/// A decision, with everything that is needed to derive it again (AADP §10 of the draft, §14.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the tables of AADP §10 and §14.3 are the documentation")]
pub struct Decided {
    pub action_type: ActionType,
    /// When the approval opened here must be decided and used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_deadline: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<ApprovalId>,
    /// As presented; it may name nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_ref: Option<ApprovalId>,
    pub approval_ref_status: ApprovalRefStatus,
    /// What an approval of this proposal needs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_terms: Option<ApprovalTerms>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<BudgetObject>,
    /// What was drawn from value budgets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_eur: Option<Amount>,
    pub created_at: Stamp,
    /// When the permit and its reservation end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline: Option<Stamp>,
    pub detail: String,
    /// The exact deltas of the reservation.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub draws: Vec<Draw>,
    pub effective_tier: Tier,
    /// Labels that the policy and its parameter rules gave this action.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub effects: Vec<String>,
    /// Why a request that could be parsed is malformed all the same: `url` (AADP §19).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub malformed_kind: Option<String>,
    pub nominal_tier: Tier,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub obligations: Vec<Obligation>,
    /// The declared opaque host that a URL of this request names (AADP §19).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub opaque_class: Option<String>,
    /// Exactly as received; canonical, with digests in place of values, where `redacted` says so.
    pub params: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub permit_digest: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub presented_audience: Option<String>,
    pub rationale: String,
    pub reason: Reason,
    /// Which fields were replaced by keyed digests before anything was written (AADP §14.1).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    /// What a replay must repeat.
    pub request_digest: Hash,
    pub request_id: RequestId,
    /// The approver who resumed the proposal in the proposer's name (AADP §11.3).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resumed_by: Option<Principal>,
    /// The proposal whose approval this decision consumed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resumes: Option<EvidenceIndex>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<String>,
    pub source: Source,
    pub trace: Trace,
    /// The intent that this decision reverses (AADP §20).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undo_of: Option<EvidenceIndex>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undo_until: Option<Stamp>,
    /// Which canonicaliser read the URLs of this request, where a rule asked for one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url_canonicalizer: Option<String>,
    pub verdict: Verdict,
}

/// What a proposal waits for (AADP §11, §11.5). Absent terms are the plain ones: one human, no authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalTerms {
    /// The mandate authority must ratify.
    pub authority: bool,
    /// Only members of this group may grant, as many of them as the policy in force then says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
    /// An approver must grant.
    pub human: bool,
}

impl Default for ApprovalTerms {
    fn default() -> Self {
        Self { authority: false, group: None, human: true }
    }
}

/// What became of a presented `approval_ref` (AADP §11.4). Evidence only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the table of AADP §11.4 is the documentation")]
pub enum ApprovalRefStatus {
    Absent,
    Honored,
    Expired,
    Consumed,
    Unknown,
    ActionMismatch,
    PrincipalMismatch,
}

/// What kind of quantity a budget counts (AADP §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetKind {
    /// Calls.
    Rate,
    /// An amount of a unit.
    Value,
}

/// One delta of a reservation, with the window that it was taken from: later events act on that window, whatever
/// the clock says by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// How much.
    pub amount: Amount,
    /// Start of the bucket of a rolling window, in milliseconds; 0 in a calendar window.
    pub bucket: i64,
    /// Which budget.
    pub budget: String,
    /// Calls or value.
    pub kind: BudgetKind,
    /// The principal or session whose counter this is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<String>,
    /// `2026-08-17`, `2026-08`, or the rolling duration.
    pub window: String,
}

/// The end of an intent (AADP §9.4, §10.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table of AADP §10.3 is the documentation")]
pub struct ExecResult {
    pub action_type: ActionType,
    pub completed_at: Stamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The intent.
    pub intent: EvidenceIndex,
    pub no_effect: bool,
    /// `no_effect` was set where it means nothing.
    pub no_effect_ignored: bool,
    pub outcome: Outcome,
    /// Exactly as received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload: Option<String>,
    pub permit_digest: Hash,
    /// Which fields of the report were replaced by keyed digests.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    pub request_id: RequestId,
    /// `null` for `not_attempted` and `timeout`: nobody knows, or nothing was tried.
    pub success: Option<bool>,
}

/// A report about a decision that gave no permit (AADP §10.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table of AADP §10.3 is the documentation")]
pub struct ReportNoted {
    pub completed_at: Stamp,
    /// The decision, if this principal has one under that request id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decision: Option<EvidenceIndex>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    pub request_id: RequestId,
}

/// A report that was not taken (AADP §12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table of AADP §10.3 is the documentation")]
pub struct ReportRefused {
    pub completed_at: Stamp,
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The intent, when the presented identifier is a permit, whoever owns it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub intent: Option<EvidenceIndex>,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload: Option<String>,
    /// Digest of the presented identifier.
    pub permit_digest: Hash,
    pub reason: Reason,
    /// The act may have happened and its budget went back: a human must reconcile the two (AADP §9.4).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub reconcile: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
}

/// A reservation was released or has expired; `reason` tells which (AADP §9.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the field list of AADP §9.4 is the documentation")]
pub struct ReservationEnded {
    pub action_type: ActionType,
    pub detail: String,
    pub intent: EvidenceIndex,
    /// Whose permit it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<Principal>,
    pub permit_digest: Hash,
    pub reason: String,
    /// What went back to its counter.
    pub released: Vec<Draw>,
    pub request_id: RequestId,
}

/// An approval changed its state (AADP §11.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the list of AADP §11.1 is the documentation")]
pub struct ApprovalTransition {
    pub approval_id: ApprovalId,
    pub from: ApprovalState,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// The entry that opened the approval.
    pub proposal: EvidenceIndex,
    /// The mandate authority ratified it, now or before.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub ratified: bool,
    /// The mandate authority's, when this is its answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signature: Option<String>,
    pub to: ApprovalState,
    /// Everyone who has granted so far, where a group decides.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub votes: Vec<Principal>,
}

/// The life of an approval (AADP §11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the state list of AADP §11.2 is the documentation")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    Expired,
    Consumed,
}

/// The switch was set (AADP §7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillSwitchSet {
    /// On or off.
    pub engaged: bool,
    /// On release: whether the policy changed while it was engaged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lift: Option<LiftReport>,
    /// Why, in the operator's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Free label of the operator.
    pub origin: String,
    /// What it stops; absent for everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<SwitchScope>,
}

/// What a scoped kill switch stops (AADP §7).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "three nouns of the specification")]
pub enum SwitchScope {
    ActionType(ActionType),
    Effect(String),
    Principal(Principal),
}

impl std::fmt::Display for SwitchScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ActionType(name) => write!(f, "action_type:{name}"),
            Self::Effect(label) => write!(f, "effect:{label}"),
            Self::Principal(name) => write!(f, "principal:{name}"),
        }
    }
}

/// What a release says about the policy during the episode (AADP §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "three words that say themselves")]
pub enum LiftReport {
    Changed,
    Unchanged,
    NoEpisode,
}

/// A body that was not a request, and where it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MalformedRequest {
    /// `decide` or `report`.
    pub operation: String,
    /// What arrived.
    pub request: Malformed,
}

/// A step in the life of a policy (AADP §8.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// SHA-256 of the canonical form.
    pub digest: PolicyDigest,
    /// The policy in its canonical form, whole; absent when an entry before holds it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub document: Option<String>,
    /// What was in force before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<PolicyDigest>,
    /// What happened to it.
    pub step: PolicyStep,
}

/// What happened to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyStep {
    /// It is in force from here.
    Activated,
    /// It was never used, and is no longer kept.
    Dropped,
    /// It is kept, and not in force.
    Published,
}

/// An act that an enforcement point decided by itself (AADP §16): never a verdict of this decision point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the members of the enforcement point's record")]
pub struct LocalDecision {
    pub action_type: ActionType,
    pub completed_at: Stamp,
    /// When the enforcement point decided, by its own clock.
    pub decided_at: Stamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    pub mode: LocalMode,
    pub outcome: Outcome,
    /// In canonical form.
    pub params: String,
    /// The policy that the enforcement point's list came from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<PolicyDigest>,
    pub rationale: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    pub request_id: RequestId,
    pub source: Source,
}

/// Under which mode an enforcement point acted alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the table of AADP §16 is the documentation")]
pub enum LocalMode {
    FailOpen,
    FailStatic,
}

/// The standing word of the mandate authority about an action type (AADP §11.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MandateSet {
    /// About what.
    pub action_type: ActionType,
    /// The key that signed it; the decision point fills it in. Its word ends with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub authority: Option<String>,
    /// Denied until the authority says otherwise; else each request waits for it.
    pub denied: bool,
    /// Above every number that the authority used before for this action type.
    pub serial: u64,
    /// Ed25519, hex, over the statement.
    pub signature: String,
}

/// Someone tried to decide an approval that was not theirs to decide (AADP §11.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRefused {
    /// Which.
    pub approval_id: ApprovalId,
    /// What was tried: `grant`, `deny`, `ratify`.
    pub attempt: String,
    /// Why it failed.
    pub detail: String,
    /// The entry that opened the approval.
    pub proposal: EvidenceIndex,
}

/// Approvers' events were delivered to the webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notified {
    /// Everything up to here.
    pub up_to: EvidenceIndex,
}

/// A cluster was restored from a backup. Everything before this entry is the backup's; what the cluster before recorded
/// behind that is no part of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The chain hash of the backup's last entry.
    pub chain_head: Hash,
    /// Names the cluster from here on: random, so that two restores of one backup are two clusters.
    pub cluster: Hash,
    /// How many entries the backup holds.
    pub entries: u64,
    /// What named the cluster that the backup is of; 64 zeros when it had recorded nothing.
    pub previous: Hash,
}

/// A request id was used again for something else (AADP §12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayMismatch {
    /// `request` or `principal`.
    pub differs: String,
    /// The entry that holds the original.
    pub original: EvidenceIndex,
    /// Digest of what came now.
    pub request_digest: Hash,
    /// The id.
    pub request_id: RequestId,
}
