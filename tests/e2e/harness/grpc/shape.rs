//! From messages of `placet.v1` to the JSON that the HTTP door answers for the same view: an empty string is a member
//! that is absent, or `null` where HTTP says so.

use placet_wire::v1;
use serde_json::{Map, Value, json};

/// `null` for what is empty.
fn maybe(text: String) -> Value {
    if text.is_empty() { Value::Null } else { Value::String(text) }
}

/// The same without the members of these names that are `null`, empty or false.
fn without_empty(mut object: Value, names: &[&str]) -> Value {
    let members: &mut Map<String, Value> = object.as_object_mut().unwrap();
    members.retain(|name, value| {
        let empty = value.is_null()
            || *value == Value::Bool(false)
            || value.as_str().is_some_and(str::is_empty)
            || value.as_array().is_some_and(Vec::is_empty);
        !(names.contains(&name.as_str()) && empty)
    });
    object
}

fn list<T>(items: Vec<T>, shape: fn(T) -> Value) -> Value {
    items.into_iter().map(shape).collect()
}

fn json_text(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

pub fn page<T>(name: &str, items: Vec<T>, shape: fn(T) -> Value, next: String) -> Value {
    json!({name: list(items, shape), "next": maybe(next)})
}

pub fn decided(reply: v1::DecideResponse) -> Value {
    let obligation = |one: v1::Obligation| {
        without_empty(json!({"type": one.r#type, "value": one.value, "required": one.required}), &["value"])
    };
    let whole = json!({
        "protocol": reply.protocol, "request_id": reply.request_id, "verdict": reply.verdict, "reason": reply.reason,
        "detail": reply.detail, "nominal_tier": reply.nominal_tier, "effective_tier": reply.effective_tier,
        "permit_id": reply.permit_id, "obligations": list(reply.obligations, obligation),
        "approval_id": reply.approval_id, "evidence_id": reply.evidence_id, "replayed": reply.replayed,
        "budget": reply.budget.map(budget),
    });
    without_empty(whole, &["request_id", "permit_id", "obligations", "approval_id", "replayed", "budget"])
}

fn budget(budget: v1::Budget) -> Value {
    json!({
        "name": budget.name, "dimension": budget.dimension, "window": budget.window, "limit": budget.limit,
        "consumed": budget.consumed, "remaining": budget.remaining, "window_resets_at": budget.window_resets_at,
    })
}

pub fn reported(reply: v1::ReportResponse) -> Value {
    let whole = json!({
        "protocol": reply.protocol, "accepted": reply.accepted, "evidence_id": reply.evidence_id,
        "reason": reply.reason, "detail": reply.detail,
    });
    without_empty(whole, &["reason", "detail"])
}

pub fn checked(check: v1::PermitCheck) -> Value {
    let whole = json!({
        "usable": check.usable, "reason": check.reason, "deadline": check.deadline, "evidence_id": check.evidence_id,
    });
    without_empty(whole, &["reason", "deadline", "evidence_id"])
}

pub fn statics(found: v1::StaticActions) -> Value {
    let one = |one: v1::StaticAction| json!({"action_type": one.action_type, "tier": one.tier, "params": json_text(&one.params)});
    json!({"policy": maybe(found.policy), "as_of": found.as_of, "actions": list(found.actions, one)})
}

pub fn approval(view: v1::Approval) -> Value {
    json!({
        "approval_id": view.approval_id, "state": view.state, "action_type": view.action_type,
        "params": String::from_utf8(view.params.to_vec()).unwrap(), "rationale": view.rationale,
        "reason": view.reason, "nominal_tier": view.nominal_tier, "proposer": view.proposer,
        "request_id": view.request_id, "proposal": view.proposal, "created": view.created, "deadline": view.deadline,
        "decided_by": maybe(view.decided_by), "decided_at": maybe(view.decided_at), "note": maybe(view.note),
        "consumed_by": maybe(view.consumed_by), "cost": maybe(view.cost), "budgets": list(view.budgets, budget),
        "group": maybe(view.group), "quorum": view.quorum, "votes": view.votes,
        "needs_authority": view.needs_authority, "ratified": view.ratified,
        "resumed_request": maybe(view.resumed_request), "redacted": view.redacted,
    })
}

/// 200 and the decision; 202 and the approval while it needs more votes.
pub fn approved(answer: v1::ApproveResponse) -> (u16, Value) {
    use v1::approve_response::Answer;
    match answer.answer.unwrap() {
        Answer::Decision(reply) => (200, decided(reply)),
        Answer::Approval(view) => (202, approval(view)),
    }
}

pub fn mandate(view: v1::Mandate) -> Value {
    json!({
        "action_type": view.action_type, "denied": view.denied, "serial": view.serial,
        "evidence_id": view.evidence_id,
    })
}

pub fn scope(scope: v1::SwitchScope) -> Value {
    use v1::switch_scope::Of;
    match scope.of.unwrap() {
        Of::ActionType(name) => json!({"action_type": name}),
        Of::Effect(label) => json!({"effect": label}),
        Of::Principal(name) => json!({"principal": name}),
    }
}

pub fn switch(view: v1::KillSwitch) -> Value {
    let whole = json!({
        "engaged": view.engaged, "since": maybe(view.since), "by": maybe(view.by), "origin": maybe(view.origin),
        "note": view.note, "scope": view.scope.map(scope), "policy": view.policy,
        "scoped": list(view.scoped, switch), "evidence_id": view.evidence_id, "warning": view.warning,
    });
    without_empty(whole, &["note", "scope", "policy", "scoped", "evidence_id", "warning"])
}

pub fn mistake(mistake: v1::Mistake) -> Value {
    json!({"line": mistake.line, "column": mistake.column, "message": mistake.message})
}

pub fn published(answer: v1::PublishPolicyResponse) -> Value {
    json!({
        "digest": answer.digest, "previous": maybe(answer.previous), "active": answer.active,
        "evidence_id": answer.evidence_id, "warnings": list(answer.warnings, mistake),
    })
}

pub fn policy(view: v1::Policy) -> Value {
    json!({"digest": view.digest, "active": view.active, "document": view.document})
}

pub fn policy_facts(facts: v1::PolicyFacts) -> Value {
    json!({
        "digest": facts.digest, "active": facts.active, "used": facts.used, "published_at": facts.published_at,
        "published_by": facts.published_by, "evidence_id": facts.evidence_id,
    })
}

pub fn evidence(view: v1::Evidence) -> Value {
    json!({
        "evidence_id": view.evidence_id, "kind": view.kind, "hash": view.hash, "entry": json_text(&view.entry),
    })
}

pub fn head(view: v1::SignedHead) -> Value {
    let head = json!({"at": view.at, "chain_head": view.chain_head, "root": view.root, "size": view.size});
    let signed = json!({"head": head, "key": view.key, "signature": view.signature});
    json!({"signed": signed, "evidence_id": view.evidence_id})
}

pub fn proof(view: v1::Proof) -> Value {
    json!({"path": view.path, "root": view.root, "size": view.size, "start": view.start})
}

pub fn intent(view: v1::Intent) -> Value {
    let draw = |draw: v1::Draw| {
        let whole = json!({
            "amount": draw.amount, "bucket": draw.bucket, "budget": draw.budget, "kind": draw.kind,
            "scope": draw.scope, "window": draw.window,
        });
        without_empty(whole, &["scope"])
    };
    json!({
        "permit_id": view.permit_id, "request_id": view.request_id, "action_type": view.action_type,
        "principal": view.principal, "evidence_id": view.evidence_id, "at": view.at, "deadline": view.deadline,
        "draws": list(view.draws, draw), "effects": view.effects,
    })
}

pub fn counter(view: v1::BudgetCounter) -> Value {
    json!({
        "name": view.name, "kind": view.kind, "dimension": view.dimension, "window": view.window,
        "window_key": view.window_key, "scope": maybe(view.scope), "limit": maybe(view.limit),
        "reserved": view.reserved, "settled": view.settled, "consumed": view.consumed,
        "remaining": maybe(view.remaining),
    })
}

fn heard(heard: v1::Heard) -> Value {
    json!({
        "ago_ms": heard.ago_ms, "round_trip_ms": heard.round_trip_ms, "clock_ahead_ms": heard.clock_ahead_ms,
        "version": heard.version, "log_format": heard.log_format, "last_log_index": heard.last_log_index,
        "applied_index": heard.applied_index, "recovering": heard.recovering,
    })
}

pub fn cluster(view: v1::Cluster) -> Value {
    let member = |member: v1::Member| {
        let v1::Addresses { peer, http, grpc } = member.addresses.unwrap();
        json!({
            "id": member.id, "role": member.role, "addresses": {"peer": peer, "http": http, "grpc": grpc},
            "matched_index": member.matched_index, "heard": member.heard.map(heard),
        })
    };
    let clock = view.clock.unwrap_or_default();
    let entries: u64 = view.evidence_index.trim_start_matches("aud-").parse().unwrap();
    json!({
        "node_id": view.node_id, "leader_id": view.leader_id, "term": view.term,
        "members": list(view.members, member), "last_log_index": view.last_log_index,
        "applied_index": view.applied_index, "snapshot_index": view.snapshot_index, "evidence_index": entries,
        "chain_head": view.chain_head, "version": view.version, "log_format": view.log_format,
        "clock": {
            "state": clock.state, "offset_ms": clock.offset_ms, "bound_ms": clock.bound_ms,
            "stamp_ahead_ms": clock.stamp_ahead_ms,
        },
    })
}
