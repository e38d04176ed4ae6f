//! From core views to messages of `placet.v1`. An absent string becomes an empty one.

use placet_core::cluster::{ClusterView, HeardView, MemberAddresses, MemberView};
use placet_core::event::{Draw, SwitchScope};
use placet_core::head::SignedHead;
use placet_core::op::{
    ApprovalView, BudgetView, EvidenceView, IntentView, KillSwitchView, MandateView, PermitCheck, PolicyFacts,
    PolicyPublished, PolicyView, ProofView, SignedHeadView, StaticAction, StaticActions,
};
use placet_core::policy::Mistake;
use placet_core::reply::{BudgetObject, DecideReply, Obligation, ReportReply};
use placet_wire::archive::Part;
use placet_wire::v1;
use placet_wire::v1::switch_scope::Of;
use serde::Serialize;

use crate::args;
use crate::reject::{Kind, Refusal};

/// The word that an enum is on the wire.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(super) fn decided(reply: DecideReply) -> v1::DecideResponse {
    v1::DecideResponse {
        protocol: reply.protocol.as_str().to_owned(),
        request_id: text(reply.request_id),
        verdict: reply.verdict.as_str().to_owned(),
        reason: reply.reason.as_str().to_owned(),
        detail: reply.detail,
        nominal_tier: u8::from(reply.nominal_tier).into(),
        effective_tier: u8::from(reply.effective_tier).into(),
        permit_id: text(reply.permit_id),
        obligations: reply.obligations.into_iter().map(obligation).collect(),
        approval_id: text(reply.approval_id),
        evidence_id: reply.evidence_id.to_string(),
        replayed: reply.replayed,
        budget: reply.budget.map(budget_object),
    }
}

fn obligation(obligation: Obligation) -> v1::Obligation {
    v1::Obligation { r#type: obligation.kind.into_owned(), value: obligation.value, required: obligation.required }
}

fn budget_object(budget: BudgetObject) -> v1::Budget {
    v1::Budget {
        name: budget.name,
        dimension: budget.dimension,
        window: budget.window,
        limit: budget.limit.to_string(),
        consumed: budget.consumed.to_string(),
        remaining: budget.remaining.to_string(),
        window_resets_at: budget.window_resets_at.to_string(),
    }
}

pub(super) fn reported(reply: ReportReply) -> v1::ReportResponse {
    v1::ReportResponse {
        protocol: reply.protocol.as_str().to_owned(),
        accepted: reply.accepted,
        evidence_id: reply.evidence_id.to_string(),
        reason: reply.reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
        detail: reply.detail,
    }
}

pub(super) fn approval(view: ApprovalView) -> v1::Approval {
    v1::Approval {
        approval_id: view.approval_id.to_string(),
        state: word(&view.state),
        action_type: view.action_type.to_string(),
        params: view.params.into_bytes().into(),
        rationale: view.rationale,
        reason: view.reason.as_str().to_owned(),
        nominal_tier: u8::from(view.nominal_tier).into(),
        proposer: view.proposer.to_string(),
        request_id: view.request_id.to_string(),
        proposal: view.proposal.to_string(),
        created: view.created.to_string(),
        deadline: view.deadline.to_string(),
        decided_by: text(view.decided_by),
        decided_at: text(view.decided_at),
        note: view.note.unwrap_or_default(),
        consumed_by: text(view.consumed_by),
        cost: text(view.cost),
        budgets: view.budgets.into_iter().map(budget_object).collect(),
        group: view.group.unwrap_or_default(),
        quorum: view.quorum,
        votes: view.votes.iter().map(ToString::to_string).collect(),
        needs_authority: view.needs_authority,
        ratified: view.ratified,
        resumed_request: text(view.resumed_request),
        redacted: view.redacted,
    }
}

pub(super) fn mandate(view: MandateView) -> v1::Mandate {
    v1::Mandate {
        action_type: view.action_type.to_string(),
        denied: view.denied,
        serial: view.serial,
        evidence_id: view.evidence_id.to_string(),
    }
}

pub(super) fn permit_check(check: PermitCheck) -> v1::PermitCheck {
    v1::PermitCheck {
        usable: check.usable,
        reason: check.reason.unwrap_or_default(),
        deadline: text(check.deadline),
        evidence_id: check.evidence_id.unwrap_or_default(),
    }
}

pub(super) fn static_actions(view: StaticActions) -> Result<v1::StaticActions, Refusal> {
    let actions = view.actions.into_iter().map(static_action).collect::<Result<_, _>>()?;
    Ok(v1::StaticActions { policy: text(view.policy), as_of: view.as_of.to_string(), actions })
}

/// Without its bounds, an action would be permitted with any arguments: rather none than that.
fn static_action(action: StaticAction) -> Result<v1::StaticAction, Refusal> {
    let params = serde_json::to_vec(&action.params).map_err(|error| {
        tracing::error!(%error, "the bounds of an action cannot be written");
        Refusal::new(Kind::Internal, "the bounds of an action cannot be written")
    })?;
    let (action_type, tier) = (action.action_type.to_string(), u8::from(action.tier).into());
    Ok(v1::StaticAction { action_type, tier, params: params.into() })
}

pub(super) fn kill_switch(view: KillSwitchView) -> v1::KillSwitch {
    v1::KillSwitch {
        engaged: view.engaged,
        since: text(view.since),
        by: text(view.by),
        origin: view.origin.unwrap_or_default(),
        policy: view.policy.map(|policy| word(&policy)).unwrap_or_default(),
        evidence_id: view.evidence_id.unwrap_or_default(),
        note: view.note.unwrap_or_default(),
        scope: view.scope.map(switch_scope),
        scoped: view.scoped.into_iter().map(kill_switch).collect(),
        warning: view.warning.unwrap_or_default(),
    }
}

pub(super) fn switch_scope(scope: SwitchScope) -> v1::SwitchScope {
    let of = match scope {
        SwitchScope::ActionType(name) => Of::ActionType(name.to_string()),
        SwitchScope::Effect(label) => Of::Effect(label),
        SwitchScope::Principal(name) => Of::Principal(name.to_string()),
    };
    v1::SwitchScope { of: Some(of) }
}

pub(super) fn published(published: PolicyPublished) -> v1::PublishPolicyResponse {
    v1::PublishPolicyResponse {
        digest: published.digest.to_string(),
        previous: text(published.previous),
        evidence_id: published.evidence_id.to_string(),
        warnings: published.warnings.into_iter().map(mistake).collect(),
        active: published.active,
    }
}

pub(super) fn policy_facts(facts: PolicyFacts) -> v1::PolicyFacts {
    v1::PolicyFacts {
        digest: facts.digest.to_string(),
        active: facts.active,
        used: facts.used,
        published_at: facts.published_at.to_string(),
        published_by: facts.published_by.to_string(),
        evidence_id: facts.evidence_id.to_string(),
    }
}

fn mistake(mistake: Mistake) -> v1::Mistake {
    v1::Mistake { line: mistake.line, column: mistake.column, message: mistake.message }
}

pub(super) fn policy(view: PolicyView) -> v1::Policy {
    v1::Policy { digest: view.digest.to_string(), active: view.active, document: view.document }
}

pub(super) fn evidence(view: EvidenceView) -> v1::Evidence {
    v1::Evidence {
        evidence_id: view.evidence_id.to_string(),
        kind: args::entry_kind(&view.entry).unwrap_or_default(),
        hash: view.hash.to_string(),
        entry: view.entry.into_bytes().into(),
    }
}

pub(super) fn signed_head(view: SignedHeadView) -> v1::SignedHead {
    let SignedHead { head, key, signature } = view.signed;
    v1::SignedHead {
        at: head.at.to_string(),
        chain_head: head.chain_head.to_string(),
        root: head.root.to_string(),
        size: head.size,
        key,
        signature,
        evidence_id: view.evidence_id.to_string(),
    }
}

pub(super) fn proof(view: ProofView) -> v1::Proof {
    v1::Proof {
        path: view.path.iter().map(ToString::to_string).collect(),
        root: view.root.to_string(),
        size: view.size,
        start: view.start.to_string(),
    }
}

pub(super) fn cluster(view: ClusterView) -> v1::Cluster {
    v1::Cluster {
        node_id: view.node_id,
        leader_id: view.leader_id,
        term: view.term,
        members: view.members.into_iter().map(member).collect(),
        last_log_index: view.last_log_index,
        applied_index: view.applied_index,
        snapshot_index: view.snapshot_index,
        evidence_index: view.evidence_index.to_string(),
        chain_head: view.chain_head.to_string(),
        clock: Some(v1::Clock {
            state: word(&view.clock.state),
            offset_ms: view.clock.offset_ms,
            bound_ms: view.clock.bound_ms,
            stamp_ahead_ms: view.clock.stamp_ahead_ms,
        }),
        version: view.version,
        log_format: view.log_format,
        cluster: text(view.cluster),
    }
}

fn heard(view: HeardView) -> v1::Heard {
    v1::Heard {
        ago_ms: view.ago_ms,
        round_trip_ms: view.round_trip_ms,
        clock_ahead_ms: view.clock_ahead_ms,
        version: view.version,
        log_format: view.log_format,
        last_log_index: view.last_log_index,
        applied_index: view.applied_index,
        recovering: view.recovering,
    }
}

pub(super) fn backup_part(part: Part) -> v1::BackupPart {
    let part = match part {
        Part::File { name, size } => v1::backup_part::Part::File(v1::BackupFile { name, size }),
        Part::Data(data) => v1::backup_part::Part::Data(data),
    };
    v1::BackupPart { part: Some(part) }
}

fn member(view: MemberView) -> v1::Member {
    let MemberAddresses { peer, http, grpc } = view.addresses;
    v1::Member {
        id: view.id,
        role: word(&view.role),
        addresses: Some(v1::Addresses { peer, http, grpc }),
        matched_index: view.matched_index,
        heard: view.heard.map(heard),
    }
}

pub(super) fn intent(view: IntentView) -> v1::Intent {
    v1::Intent {
        permit_id: view.permit_id.to_string(),
        request_id: view.request_id.to_string(),
        action_type: view.action_type.to_string(),
        principal: view.principal.to_string(),
        evidence_id: view.evidence_id.to_string(),
        at: view.at.to_string(),
        deadline: view.deadline.to_string(),
        draws: view.draws.into_iter().map(draw).collect(),
        effects: view.effects,
    }
}

fn draw(draw: Draw) -> v1::Draw {
    v1::Draw {
        budget: draw.budget,
        kind: word(&draw.kind),
        amount: draw.amount.to_string(),
        window: draw.window,
        scope: draw.scope.unwrap_or_default(),
        bucket: draw.bucket,
    }
}

pub(super) fn budget(view: BudgetView) -> v1::BudgetCounter {
    v1::BudgetCounter {
        name: view.name,
        kind: word(&view.kind),
        dimension: view.dimension,
        window: view.window,
        window_key: view.window_key,
        scope: view.scope.unwrap_or_default(),
        limit: text(view.limit),
        reserved: view.reserved.to_string(),
        settled: view.settled.to_string(),
        consumed: view.consumed.to_string(),
        remaining: text(view.remaining),
    }
}
