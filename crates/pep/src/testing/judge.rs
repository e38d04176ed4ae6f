//! The decision core with a state in memory and this machine's clock.
//! Absent on purpose: approvers; one that says yes is enough here.

use std::sync::Arc;

use placet_core::evaluate::{Keys, evaluate};
use placet_core::fold::fold;
use placet_core::ids::{ApprovalId, Entropy, PermitId, Principal};
use placet_core::op::{Answer, Call, Op, Query};
use placet_core::policy::{Document, PolicySet, load};
use placet_core::query;
use placet_core::state::{MemState, Overlay, Read};
use serde_json::Value;

use crate::clock;

/// The principal of everyone who has the token.
const CALLER: &str = "local-pep";

#[derive(Debug, Default)]
pub(super) struct Judge {
    state: MemState,
}

impl Judge {
    pub(super) fn under(policies: &str, edit: impl FnOnce(&mut Document)) -> Result<Self, String> {
        let loaded = load(policies)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        let mut document = loaded.policy.document().clone();
        edit(&mut document);
        let policy = PolicySet::compile(document).map_err(|error| format!("{error:?}"))?;
        let mut judge = Self::default();
        judge.state.meta.active_policy = Some(policy.digest().clone());
        judge.state.policies.insert(policy.digest().clone(), Arc::new(policy));
        Ok(judge)
    }

    pub(super) fn decide(&mut self, body: Vec<u8>) -> Result<Value, String> {
        self.call(CALLER, Op::Decide(body))
    }

    pub(super) fn report(&mut self, body: Vec<u8>) -> Result<Value, String> {
        self.call(CALLER, Op::Report(body))
    }

    pub(super) fn set_kill_switch(&mut self, engaged: bool) {
        let op = Op::SetKillSwitch { engaged, origin: "testing".to_owned(), note: None, scope: None };
        if let Err(error) = self.call("local-operator", op) {
            tracing::error!(error, "the kill switch did not move");
        }
    }

    fn call(&mut self, principal: &str, op: Op) -> Result<Value, String> {
        let mut entropy = Entropy::default();
        getrandom::fill(&mut entropy.permit).map_err(|error| error.to_string())?;
        getrandom::fill(&mut entropy.approval).map_err(|error| error.to_string())?;
        let call = Call { principal: Principal::new(principal), op };
        let outcome =
            evaluate(&self.state, &call, clock::now(), entropy, &Keys::default()).map_err(|reject| reject.detail())?;
        let mut overlay = Overlay::new(&self.state);
        for event in &outcome.events {
            fold(&mut overlay, event).map_err(|error| error.to_string())?;
        }
        let changes = overlay.into_changes();
        self.state.write(changes);
        match outcome.answer {
            Answer::Decide(reply) => serde_json::to_value(reply).map_err(|error| error.to_string()),
            Answer::Report(reply) => serde_json::to_value(reply).map_err(|error| error.to_string()),
            Answer::Local(recorded) => serde_json::to_value(recorded).map_err(|error| error.to_string()),
            _ => Ok(Value::Null),
        }
    }

    /// Grants and resumes; returns the id of the resumed request.
    pub(super) fn approve(&mut self, approval_id: &str) -> Result<String, String> {
        let id = ApprovalId::new(approval_id);
        self.call("local-approver", Op::ResumeApproval { id: id.clone(), note: None })?;
        let approval = self.state.approval(&id).map_err(|error| error.to_string())?;
        let resumed = approval.and_then(|approval| approval.resumed_request);
        resumed.map(|id| id.to_string()).ok_or_else(|| "the approval needs more than this".to_owned())
    }

    /// `POST /v1/permits/check`.
    pub(super) fn check(&self, body: &[u8]) -> Result<Value, String> {
        let asked: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let permit_id = asked.get("permit_id").and_then(Value::as_str).map(PermitId::new);
        let permit_id = permit_id.ok_or("`permit_id` is none")?;
        let caller = Principal::new(CALLER);
        let answer = query::answer(&self.state, &Query::CheckPermit { permit_id }, &caller, clock::now());
        match answer.map_err(|reject| reject.detail())? {
            Answer::Permit(check) => serde_json::to_value(check).map_err(|error| error.to_string()),
            _ => Ok(Value::Null),
        }
    }

    /// `GET /v1/static`.
    pub(super) fn static_list(&self) -> Result<Value, String> {
        let caller = Principal::new(CALLER);
        let answer = query::answer(&self.state, &Query::StaticActions, &caller, clock::now());
        match answer.map_err(|reject| reject.detail())? {
            Answer::Static(list) => serde_json::to_value(list).map_err(|error| error.to_string()),
            _ => Ok(Value::Null),
        }
    }

    /// `POST /v1/local`.
    pub(super) fn take_local(&mut self, body: &[u8]) -> Result<Value, String> {
        self.call(CALLER, Op::RecordLocal(body.to_vec()))
    }

    /// The local acts on record, in their order.
    pub(super) fn local_acts(&self) -> Vec<Value> {
        let act = |entry: &Value| entry.get("body")?.get("local_decision").cloned();
        self.evidence().iter().filter_map(act).collect()
    }

    pub(super) fn evidence(&self) -> Vec<Value> {
        self.state.entries.values().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect()
    }

    pub(super) fn results(&self) -> Vec<String> {
        let outcome =
            |entry: &Value| entry.get("body")?.get("exec_result")?.get("outcome")?.as_str().map(str::to_owned);
        self.evidence().iter().filter_map(outcome).collect()
    }
}
