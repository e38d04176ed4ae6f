//! What the decision point answers: verdicts, reasons, obligations, budget objects (AADP §4, §5, §10, §13).
//! Absent on purpose: transport status codes; those are the doors' table.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::exact::Amount;
use crate::ids::{ApprovalId, EvidenceIndex, Parsed, PermitId, RequestId};
use crate::stamp::Stamp;

/// The protocol version whose vocabulary a message uses (AADP §17): the minor of `aadp/0.x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `aadp/0.1`: euro-named budget reasons.
    V01,
    /// `aadp/0.2`: unit-neutral budget reasons with a budget object.
    V02,
}

impl Protocol {
    /// The highest version spoken here.
    pub const LATEST: Self = Self::V02;

    /// How a record that names no version is read (AADP §5.1).
    pub(crate) fn unstamped() -> Self {
        Self::V01
    }

    /// Negotiates: the lower of the requested and the supported minor; `None` for another major or for nonsense.
    pub fn negotiate(text: &str) -> Option<Self> {
        let minor = text.strip_prefix("aadp/0.")?;
        let plain = !minor.is_empty()
            && minor.len() <= 9
            && minor.bytes().all(|b| b.is_ascii_digit())
            && !minor.starts_with('0');
        match minor.parse::<u32>() {
            Ok(1) if plain => Some(Self::V01),
            Ok(_) if plain => Some(Self::V02),
            _ => None,
        }
    }

    /// The wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V01 => "aadp/0.1",
            Self::V02 => "aadp/0.2",
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(Self::negotiate, "a protocol of major 0"))
    }
}

/// An autonomy tier, 0 to 3 (AADP §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Tier {
    /// 0: a read; recorded, never reserved.
    Observe,
    /// 1: runs without a human, reversible.
    Auto,
    /// 2: runs without a human under budgets.
    AutoCapped,
    /// 3: waits for a human.
    Confirm,
}

impl TryFrom<u8> for Tier {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self::Observe),
            1 => Ok(Self::Auto),
            2 => Ok(Self::AutoCapped),
            3 => Ok(Self::Confirm),
            _ => Err("a tier is 0, 1, 2 or 3"),
        }
    }
}

impl From<Tier> for u8 {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Observe => 0,
            Tier::Auto => 1,
            Tier::AutoCapped => 2,
            Tier::Confirm => 3,
        }
    }
}

/// The answer (AADP §4). Only `Permit` lets an action run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the table of AADP §4 is the documentation")]
pub enum Verdict {
    Permit,
    Deny,
    Propose,
    DryRun,
    Observe,
}

impl Verdict {
    /// The wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::Propose => "propose",
            Self::DryRun => "dry_run",
            Self::Observe => "observe",
        }
    }
}

/// Why (AADP §5.2). Audit vocabulary: an enforcement point acts on the verdict alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the table of AADP §5.2 is the documentation")]
pub enum Reason {
    Passed,
    Malformed,
    KillSwitch,
    DefaultDeny,
    Bounds,
    TierConfirm,
    EffectFloor,
    NoCompensatingCommand,
    Observe,
    DryRun,
    CostUnknown,
    CapDailyRate,
    CapEurDay,
    CapEurMonth,
    /// Once written as `cap_rate`.
    #[serde(alias = "cap_rate")]
    RateExhausted,
    /// Once written as `cap_value`.
    #[serde(alias = "cap_value")]
    BudgetExhausted,
    Expired,
    SenderMismatch,
    ExternalAuthorization,
    PresentBound,
    /// Too many proposals wait for a human, or came within a minute.
    #[serde(rename = "x-placet.proposals_exhausted")]
    ProposalsExhausted,
    /// The undo names nothing that can be reversed, or that was reversed before.
    #[serde(rename = "x-placet.undo_refused")]
    UndoRefused,
    /// A second report of one permit; the first one stands.
    #[serde(rename = "x-placet.already_reported")]
    AlreadyReported,
}

impl Reason {
    /// The wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Malformed => "malformed",
            Self::KillSwitch => "kill_switch",
            Self::DefaultDeny => "default_deny",
            Self::Bounds => "bounds",
            Self::TierConfirm => "tier_confirm",
            Self::EffectFloor => "effect_floor",
            Self::NoCompensatingCommand => "no_compensating_command",
            Self::Observe => "observe",
            Self::DryRun => "dry_run",
            Self::CostUnknown => "cost_unknown",
            Self::CapDailyRate => "cap_daily_rate",
            Self::CapEurDay => "cap_eur_day",
            Self::CapEurMonth => "cap_eur_month",
            Self::RateExhausted => "rate_exhausted",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Expired => "expired",
            Self::SenderMismatch => "sender_mismatch",
            Self::ExternalAuthorization => "external_authorization",
            Self::PresentBound => "present_bound",
            Self::ProposalsExhausted => "x-placet.proposals_exhausted",
            Self::UndoRefused => "x-placet.undo_refused",
            Self::AlreadyReported => "x-placet.already_reported",
        }
    }
}

/// What the enforcement point must do, or else not act (AADP §13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obligation {
    /// Only ever `true`: every obligation issued here binds.
    pub required: bool,
    /// Registered name, or `x-<vendor>.<name>`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// Syntax depends on the type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
}

/// The counter that refused (AADP §9.5); from protocol 0.2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetObject {
    /// Settled and reserved before this request.
    pub consumed: Amount,
    /// A unit: an ISO 4217 code, or `calls`.
    pub dimension: String,
    /// The most this window may hold.
    pub limit: Amount,
    /// The identity of the budget.
    pub name: String,
    /// Before this request, not below zero.
    pub remaining: Amount,
    /// `day`, `month`, or an ISO 8601 duration.
    pub window: String,
    /// When this window starts again; for a rolling window, when its oldest bucket leaves.
    pub window_resets_at: Stamp,
}

/// Decide response (AADP §10.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecideReply {
    /// The version whose vocabulary is used.
    pub protocol: Protocol,
    /// Echoed when one could be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<RequestId>,
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// For humans; never parsed.
    pub detail: String,
    /// The policy's tier; 3 when there is none.
    pub nominal_tier: Tier,
    /// What evaluation arrived at.
    pub effective_tier: Tier,
    /// On a permit only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub permit_id: Option<PermitId>,
    /// On a permit only; at least `report_result`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub obligations: Vec<Obligation>,
    /// On a proposal only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval_id: Option<ApprovalId>,
    /// The entry that records this decision.
    #[serde(with = "evidence_id")]
    pub evidence_id: EvidenceIndex,
    /// `true` when this answer was given before.
    #[serde(skip_serializing_if = "is_false", default)]
    pub replayed: bool,
    /// On a budget denial under protocol 0.2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<BudgetObject>,
}

/// Report response (AADP §10.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReply {
    /// The version whose vocabulary is used.
    pub protocol: Protocol,
    /// Whether this report became the result of its permit.
    pub accepted: bool,
    /// The entry that records the result, or the refusal.
    #[serde(with = "evidence_id")]
    pub evidence_id: EvidenceIndex,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<Reason>,
    /// For humans; never parsed.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// `aud-<ordinal>` on the wire, or nothing.
pub(crate) mod evidence_id_or_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::ids::EvidenceIndex;

    pub(crate) fn serialize<S: Serializer>(index: &Option<EvidenceIndex>, serializer: S) -> Result<S::Ok, S::Error> {
        index.map(|index| index.to_string()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EvidenceIndex>, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let read =
            |text: &str| EvidenceIndex::parse(text).ok_or_else(|| serde::de::Error::custom("not an evidence id"));
        text.as_deref().map(read).transpose()
    }
}

/// `aud-<ordinal>` on the wire.
pub(crate) mod evidence_id {
    use serde::{Deserializer, Serializer};

    use crate::ids::{EvidenceIndex, Parsed};

    pub(crate) fn serialize<S: Serializer>(index: &EvidenceIndex, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(index)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EvidenceIndex, D::Error> {
        deserializer.deserialize_str(Parsed(EvidenceIndex::parse, "an evidence id is `aud-<ordinal>`"))
    }
}
