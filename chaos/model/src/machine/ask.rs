//! From the description of a call to the call: with the identifiers that its sender knows by then.
//! Absent on purpose: guesses. A client reports a permit only after it has heard of it; approvers see what is applied.

use placet_core::ids::{ApprovalId, EvidenceIndex, PermitId, Principal};
use placet_core::op::{Answer, Call, Op};
use serde_json::json;

use crate::system::{Clients, Heard, System, Waiter};
use crate::world::{CallSpec, What, World, request_id};

/// When clients believe to write, whatever the leader's clock says.
const CREATED_AT: &str = "2026-08-17T09:00:00Z";

/// What the sender of a call knows of what it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    permit: Option<PermitId>,
    approval: Option<ApprovalId>,
    parent: Option<EvidenceIndex>,
}

/// What is needed for a call; `None` while the sender does not know it.
pub(super) fn known(system: &System, spec: &CallSpec) -> Option<Known> {
    let clients = &system.clients;
    match &spec.what {
        What::Decide { approval_of, undo_of, .. } => {
            let approval = match approval_of {
                Some(of) => Some(clients.about(*of).find_map(|heard| heard.approval.clone())?),
                None => None,
            };
            let parent = match undo_of {
                Some(of) => Some(clients.about(*of).find(|heard| heard.permit.is_some())?.evidence),
                None => None,
            };
            Some(Known { permit: None, approval, parent })
        }
        What::Report { request, .. } => {
            let permit = clients.about(*request).find_map(|heard| heard.permit.clone())?;
            Some(Known { permit: Some(permit), ..Known::default() })
        }
        What::Resolve { request, .. } | What::Resume { request, .. } => {
            let asked = request_id(*request);
            let mut seen = system.applied.records.approvals.values();
            let approval = seen.find(|approval| approval.request_id.as_str() == asked)?;
            Some(Known { approval: Some(approval.approval_id.clone()), ..Known::default() })
        }
        What::Switch { .. } => Some(Known::default()),
    }
}

/// The call.
pub(super) fn call(spec: &CallSpec, known: &Known) -> Call {
    let named = || known.approval.clone().unwrap_or_else(|| ApprovalId::new("none"));
    let op = match &spec.what {
        What::Decide { request, action, params, .. } => {
            let mut body = json!({
                "protocol": "aadp/0.2", "request_id": request_id(*request), "action_type": action, "params": params,
                "source": if known.parent.is_some() { "undo" } else { "llm" },
                "rationale": "model", "created_at": CREATED_AT,
            });
            if let Some(members) = body.as_object_mut() {
                members.extend(known.approval.iter().map(|id| ("approval_ref".to_owned(), json!(id.as_str()))));
                members.extend(known.parent.iter().map(|at| ("parent_id".to_owned(), json!(at.to_string()))));
            }
            Op::Decide(body.to_string().into_bytes())
        }
        What::Report { outcome, no_effect, .. } => {
            let mut body = json!({
                "protocol": "aadp/0.2", "permit_id": known.permit.as_ref().map(PermitId::as_str),
                "outcome": outcome, "completed_at": CREATED_AT,
            });
            if let (true, Some(members)) = (*no_effect, body.as_object_mut()) {
                members.insert("no_effect".to_owned(), json!(true));
            }
            Op::Report(body.to_string().into_bytes())
        }
        What::Resolve { grant, .. } => Op::ResolveApproval { id: named(), grant: *grant, note: None },
        What::Resume { .. } => Op::ResumeApproval { id: named(), note: None },
        What::Switch { engaged, scope } => {
            Op::SetKillSwitch { engaged: *engaged, origin: "model".to_owned(), note: None, scope: scope.clone() }
        }
    };
    Call { principal: Principal::new(spec.principal), op }
}

/// What clients know once an answer has arrived.
pub(super) fn hear(world: &World, clients: &mut Clients, (number, spoken): &Waiter) {
    let Some(spec) = world.call(*number) else { return };
    match (&spec.what, &spoken.answer) {
        (What::Decide { request, .. } | What::Resume { into: request, .. }, Ok(Answer::Decide(reply))) => {
            let heard = Heard {
                request: *request,
                call: *number,
                verdict: reply.verdict,
                reason: reply.reason,
                permit: reply.permit_id.clone(),
                approval: reply.approval_id.clone(),
                evidence: reply.evidence_id,
            };
            // A repetition names another entry only where it was refused as a mismatch; that is no news.
            if !clients.heard.iter().any(|old| Heard { evidence: heard.evidence, ..old.clone() } == heard) {
                clients.heard.push(heard);
                clients.heard.sort_by_key(|heard| (heard.request, heard.call, heard.evidence));
            }
        }
        (What::Report { request, .. }, Ok(Answer::Report(reply))) if reply.accepted => {
            if let Some(count) = clients.accepted.get_mut(usize::from(*request)) {
                *count = count.saturating_add(1);
            }
        }
        _ => {}
    }
}

/// A call, for a reader.
pub(super) fn text(spec: &CallSpec) -> String {
    let who = spec.principal;
    match &spec.what {
        What::Decide { request, action, params, approval_of, undo_of } => {
            let with = approval_of.map(|of| format!(", with the approval of r{of}")).unwrap_or_default();
            let undo = undo_of.map(|of| format!(", to reverse r{of}")).unwrap_or_default();
            format!("{who} asks r{request}: {action} {params}{with}{undo}")
        }
        What::Report { request, outcome, no_effect } => {
            let nothing = if *no_effect { ", nothing came of it" } else { "" };
            format!("{who} reports the permit of r{request}: {outcome:?}{nothing}")
        }
        What::Resolve { request, grant } => {
            format!("{who} {} what r{request} proposed", if *grant { "grants" } else { "denies" })
        }
        What::Resume { request, .. } => format!("{who} grants what r{request} proposed and has it decided again"),
        What::Switch { engaged, scope } => {
            let what = scope.as_ref().map_or("everything".to_owned(), ToString::to_string);
            format!("{who} {} the switch for {what}", if *engaged { "engages" } else { "releases" })
        }
    }
}
