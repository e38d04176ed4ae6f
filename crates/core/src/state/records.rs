//! The records themselves. Each is derived from events only, and carries what later events need.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{ApprovalState, ApprovalTerms, Draw, SwitchScope};
use crate::exact::Amount;
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use crate::reply::{Reason, Tier};
use crate::request::Outcome;
use crate::stamp::Stamp;

/// The state of a whole domain that is not keyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The policy in force.
    pub active_policy: Option<PolicyDigest>,
    /// Hash of the last entry.
    pub chain_head: Hash,
    /// The switch.
    pub kill_switch: KillSwitch,
    /// Time of the last entry; stamps never run backwards from it.
    pub last_stamp: Stamp,
    /// Position of the next entry.
    pub next_index: EvidenceIndex,
    /// Permits that have neither a result nor expired.
    pub open_permits: u64,
    /// Approvals that wait for a human.
    pub pending_approvals: u64,
    /// How far approvers' events were delivered.
    #[serde(default)]
    pub notified: EvidenceIndex,
    /// Reports that came after their permit had expired, although the act may have happened.
    #[serde(default)]
    pub late_reports: u64,
    /// Scoped switches that are engaged; shared, since each call reads a copy.
    #[serde(default)]
    pub switches: Arc<Vec<(SwitchScope, KillSwitch)>>,
    /// The standing words of the mandate authority.
    #[serde(default)]
    pub mandates: Arc<BTreeMap<ActionType, Mandate>>,
    /// Names the cluster since it was restored; without it, the hash of its first entry does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Hash>,
    /// Restored from a backup, and nothing recorded since: the next entry says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restoring: bool,
}

/// The standing word about one action type (AADP §11.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mandate {
    /// Whose word it is; under another authority it counts as none.
    #[serde(default)]
    pub authority: Option<String>,
    /// Denied until the authority says otherwise.
    pub denied: bool,
    /// The highest number seen.
    pub serial: u64,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            active_policy: None,
            chain_head: Hash::GENESIS,
            kill_switch: KillSwitch::default(),
            last_stamp: Stamp::default(),
            next_index: EvidenceIndex(1),
            open_permits: 0,
            pending_approvals: 0,
            notified: EvidenceIndex(0),
            late_reports: 0,
            switches: Arc::default(),
            mandates: Arc::default(),
            cluster: None,
            restoring: false,
        }
    }
}

/// The kill switch (AADP §7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillSwitch {
    /// On or off.
    pub engaged: bool,
    /// Who set it last.
    pub by: Option<Principal>,
    /// The operator's label.
    pub origin: Option<String>,
    /// The operator's words.
    #[serde(default)]
    pub note: Option<String>,
    /// When it was set; engaging again while engaged keeps the first moment.
    pub since: Option<Stamp>,
    /// The policy when it was first engaged: the baseline of the lift report.
    pub baseline: Option<PolicyDigest>,
    /// A policy was published since then, even if it was changed back.
    #[serde(default)]
    pub policy_changed: bool,
}

/// What a request id stands for (AADP §12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// What a replay must repeat.
    pub digest: Hash,
    /// The entry that holds the decision.
    pub index: EvidenceIndex,
    /// The permit, if the verdict was one.
    pub permit_id: Option<PermitId>,
    /// Whose request it is.
    pub principal: Principal,
}

/// The life of a permit (AADP §9.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PermitStatus {
    /// No report yet; the reservation stands.
    Held,
    /// A result is recorded; the amounts stay spent.
    Settled,
    /// A result is recorded; the value part went back.
    Released,
    /// The deadline passed first; everything went back.
    Expired,
}

/// A permit and its reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitRecord {
    /// What was permitted.
    pub action_type: ActionType,
    /// When it was permitted.
    pub at: Stamp,
    /// When it ends without a report.
    pub deadline: Stamp,
    /// The exact deltas of the reservation.
    pub draws: Vec<Draw>,
    /// The intent.
    pub index: EvidenceIndex,
    /// Who may report.
    pub principal: Principal,
    /// The request it answers.
    pub request_id: RequestId,
    /// Where it stands.
    pub status: PermitStatus,
    /// Until when the act may begin; the deadline is this and the grace that its report has.
    #[serde(default)]
    pub act_until: Stamp,
    /// The labels of the act: a switch that stops one of them stops this permit.
    #[serde(default)]
    pub effects: Vec<String>,
    /// What the report said.
    #[serde(default)]
    pub outcome: Option<Outcome>,
    /// Until when the act may be reversed; absent when it was not of the kind (AADP §20).
    #[serde(default)]
    pub undo_until: Option<Stamp>,
    /// The intent that reverses it. One at most.
    #[serde(default)]
    pub undone_by: Option<EvidenceIndex>,
    /// The intent that it reverses.
    #[serde(default)]
    pub undo_of: Option<EvidenceIndex>,
}

/// An approval (AADP §11.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRecord {
    /// Its id.
    pub approval_id: ApprovalId,
    /// What is asked for.
    pub action_type: ActionType,
    /// Which decision consumed it.
    pub consumed_by: Option<EvidenceIndex>,
    /// Part of equivalence when the policy has no `cost_param` (AADP §11.4).
    pub cost_eur: Option<Amount>,
    /// When it was opened.
    pub created: Stamp,
    /// When it can no longer be decided nor used.
    pub deadline: Stamp,
    /// When a human decided.
    pub decided_at: Option<Stamp>,
    /// Who decided.
    pub decided_by: Option<Principal>,
    /// The policy's tier when it was opened.
    pub nominal_tier: Tier,
    /// The approver's words.
    pub note: Option<String>,
    /// The arguments exactly as received, for the approver's eyes.
    pub params: String,
    /// Digest of the canonical arguments: what equivalence compares.
    pub params_digest: Hash,
    /// The proposal.
    pub proposal: EvidenceIndex,
    /// Who proposed; nobody else may use it, and they may not grant it.
    pub proposer: Principal,
    /// Why the agent wants it; evidence, never an input.
    pub rationale: String,
    /// Why a human is needed.
    pub reason: Reason,
    /// The proposing request.
    pub request_id: RequestId,
    /// Where it stands.
    pub state: ApprovalState,
    /// What it needs.
    #[serde(default)]
    pub terms: ApprovalTerms,
    /// Who has granted so far, where a group decides.
    #[serde(default)]
    pub votes: Vec<Principal>,
    /// The mandate authority ratified it.
    #[serde(default)]
    pub ratified: bool,
    /// The request id of the resumption that an approver drove.
    #[serde(default)]
    pub resumed_request: Option<RequestId>,
    /// Which fields only digests are kept of.
    #[serde(default)]
    pub redacted: Vec<String>,
}

/// A policy that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// When it was published first.
    pub at: Stamp,
    /// By whom.
    pub by: Principal,
    /// The entry that holds the document.
    pub index: EvidenceIndex,
    /// Whether it was ever in force: then entries name it, and it is kept for ever.
    pub used: bool,
}

/// Which counter (AADP §9.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CounterKey {
    /// The budget's name.
    pub budget: String,
    /// The window: `2026-08-17`, `2026-08`, or the duration of a rolling one.
    pub window: String,
    /// The principal or session, for budgets with one counter each.
    pub scope: Option<String>,
}

/// What one counter holds, by bucket; a calendar window has one bucket, 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Amounts by start of bucket, in milliseconds.
    pub buckets: BTreeMap<i64, Spent>,
    /// On the unscoped record of a scoped budget: how many scopes have a counter in this window.
    #[serde(default)]
    pub scopes: u64,
}

/// Reserved until a report or the deadline; settled for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Held by open permits.
    pub reserved: Amount,
    /// Held by results.
    pub settled: Amount,
}

impl Counter {
    /// Settled and reserved together, in the buckets from `from` on; `None` when the sum does not fit exactly.
    pub fn consumed(&self, from: i64) -> Option<Amount> {
        self.buckets
            .range(from..)
            .try_fold(Amount::ZERO, |sum, (_, spent)| sum.checked_add(spent.reserved)?.checked_add(spent.settled))
    }
}
