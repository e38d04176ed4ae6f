//! A case at play: calls judged and folded one after the other, as the leader of a cluster does it.
//! Names and ids are made from a count, so that the same file gives the same run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::{Asked, Case, Grantors, Message, Spending, Step};
use super::{CaseReport, Difference, Stopped};
use crate::evaluate::{Due, Keys, evaluate, expire, window_now};
use crate::event::{ApprovalState, ApprovalTransition, Body, Decided, Entry, Event};
use crate::evidence::ENTRY_VERSION;
use crate::fold::fold;
use crate::ids::{ActionType, ApprovalId, Entropy, PermitId, Principal, RequestId};
use crate::json::{self, Json};
use crate::op::{Answer, Call, Op};
use crate::policy::{PolicySet, Window};
use crate::redact::RedactionKey;
use crate::reply::{DecideReply, Protocol};
use crate::stamp::Stamp;
use crate::state::{ApprovalRecord, Counter, CounterKey, Mandate, MemState, Overlay, Spent};

/// Who engages kill switches.
const OPERATOR: &str = "operator";

/// Who grants and denies where nobody is named and no group decides.
const APPROVER: &str = "approver-1";

/// Stands for the last proposal in `approval_ref`, for the last permit in `parent_id`.
const LAST: &str = "last";

/// A decision, and what its evidence says beside it.
pub(super) struct Seen {
    reply: DecideReply,
    decided: Option<Box<Decided>>,
}

impl Seen {
    /// A member as one word, `none` when it is not there.
    pub(super) fn word(&self, name: &str) -> String {
        let none = || "none".to_owned();
        let decided = self.decided.as_deref();
        match name {
            "verdict" => self.reply.verdict.as_str().to_owned(),
            "reason" => self.reply.reason.as_str().to_owned(),
            "nominal_tier" => u8::from(self.reply.nominal_tier).to_string(),
            "effective_tier" => u8::from(self.reply.effective_tier).to_string(),
            "replayed" => self.reply.replayed.to_string(),
            "detail" => self.reply.detail.clone(),
            "budget" => self.reply.budget.as_ref().map_or_else(none, |budget| budget.name.clone()),
            "remaining" => self.reply.budget.as_ref().map_or_else(none, |budget| budget.remaining.to_string()),
            "cost" => decided.and_then(|decided| decided.cost).map_or_else(none, |cost| cost.to_string()),
            "group" => decided.and_then(|decided| decided.approval_terms.as_ref()?.group.clone()).unwrap_or_else(none),
            "approval_ref_status" => decided
                .and_then(|decided| serde_json::to_value(decided.approval_ref_status).ok()?.as_str().map(str::to_owned))
                .unwrap_or_else(none),
            _ => none(),
        }
    }

    /// A member that is a list of names.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let Some(decided) = self.decided.as_deref() else { return Vec::new() };
        match name {
            "effects" => decided.effects.clone(),
            "redacted" => decided.redacted.clone(),
            _ => decided.draws.iter().map(|draw| draw.budget.clone()).collect(),
        }
    }

    pub(super) fn obligations(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.reply.obligations.iter().map(|one| (&*one.kind, one.value.as_deref()))
    }
}

/// A decision point of its own.
struct World<'a> {
    state: MemState,
    policy: &'a PolicySet,
    keys: Keys,
    at: Stamp,
    calls: u64,
    proposal: Option<ApprovalId>,
    permit: Option<(PermitId, Principal)>,
    seen: Option<Seen>,
}

impl Case {
    /// Plays the case from its beginning.
    pub(super) fn run(&self, policy: &Arc<PolicySet>, now: Stamp) -> CaseReport {
        let mut world = World::under(policy, self.now.unwrap_or(now));
        let (differences, stopped) = match world.play(self) {
            Ok(differences) => (differences, None),
            Err(Stopped(why)) => (Vec::new(), Some(why)),
        };
        let passed = stopped.is_none() && differences.is_empty();
        let seen = world.seen.filter(|_| !passed);
        CaseReport {
            name: self.name.clone(),
            line: self.at.line,
            passed,
            differences,
            stopped,
            detail: seen.as_ref().map(|seen| seen.reply.detail.clone()),
            trace: seen.and_then(|seen| seen.decided?.trace.checks().ok()).unwrap_or_default(),
        }
    }
}

impl<'a> World<'a> {
    /// A decision point where a policy is in force and nothing happened yet.
    fn under(policy: &'a Arc<PolicySet>, at: Stamp) -> Self {
        let mut state = MemState::default();
        state.policies.insert(policy.digest().clone(), Arc::clone(policy));
        state.meta.active_policy = Some(policy.digest().clone());
        // What is hidden stays hidden here too; the key of a test need not be a secret.
        let keys = Keys::new(Some(RedactionKey::new([0; 32])), None);
        Self { state, policy, keys, at, calls: 0, proposal: None, permit: None, seen: None }
    }

    fn play(&mut self, case: &Case) -> Result<Vec<Difference>, Stopped> {
        case.start.spent.iter().for_each(|spending| self.spend(spending));
        for name in &case.start.mandate_denied {
            let authority = self.policy.document().mandate_authority.clone();
            let denied = Mandate { authority, denied: true, serial: 1 };
            Arc::make_mut(&mut self.state.meta.mandates).insert(ActionType::new(name.as_str()), denied);
        }
        for (at, step) in &case.start.before {
            self.step(step).map_err(|Stopped(why)| Stopped(format!("the step in line {}: {why}", at.line)))?;
        }
        for scope in &case.start.switches {
            let (origin, scope) = ("case".to_owned(), scope.clone());
            self.call(&Principal::new(OPERATOR), Op::SetKillSwitch { engaged: true, origin, note: None, scope })?;
        }
        Ok(case.expect.differences(self.decide(&case.request)?))
    }

    /// Puts an amount into the window of this moment.
    fn spend(&mut self, spending: &Spending) {
        let Some(budget) = self.policy.document().budgets.get(&spending.budget) else { return };
        let (window, _) = window_now(self.policy, budget.window, self.at);
        let bucket = match budget.window {
            Window::Rolling(length_ms) => {
                let width = Window::bucket_ms(length_ms);
                self.at.0.div_euclid(width).saturating_mul(width)
            }
            Window::Day | Window::Month => 0,
        };
        let key = CounterKey { budget: spending.budget.clone(), window, scope: spending.scope.clone() };
        let spent = Spent { settled: spending.amount, ..Spent::default() };
        self.state.counters.insert(key, Counter { buckets: BTreeMap::from([(bucket, spent)]), scopes: 0 });
    }

    fn step(&mut self, step: &Step) -> Result<(), Stopped> {
        match step {
            Step::Request(asked, expect) => {
                let differences = expect.differences(self.decide(asked)?);
                match differences.first() {
                    Some(Difference { member, expected, got }) => {
                        Err(Stopped(format!("{member}: expected {expected}, got {got}")))
                    }
                    None => Ok(()),
                }
            }
            Step::Grant(grantors) => self.grant(grantors),
            Step::Deny => {
                let id = self.last_proposal()?;
                let name = self.enough(&id)?.into_iter().next().unwrap_or_else(|| APPROVER.to_owned());
                self.call(&Principal::new(name), Op::ResolveApproval { id, grant: false, note: None }).map(drop)
            }
            Step::Ratify(approved) => self.ratify(*approved),
            Step::Report { outcome, no_effect } => self.report(outcome, *no_effect),
            Step::Wait(ms) => self.wait(*ms),
        }
    }

    fn decide(&mut self, asked: &Asked) -> Result<&Seen, Stopped> {
        let principal = Principal::new(asked.principal.as_str());
        let body = match &asked.message {
            Message::Body(text) => text.clone().into_bytes(),
            Message::Members(members) => json::canonical(&self.message(members)?).into_bytes(),
        };
        let (answer, events) = self.call(&principal, Op::Decide(body))?;
        let Answer::Decide(reply) = answer else {
            return Err(Stopped("a decide was answered with something else".to_owned()));
        };
        self.proposal = reply.approval_id.clone().or(self.proposal.take());
        self.permit = reply.permit_id.clone().map(|permit| (permit, principal)).or(self.permit.take());
        let decided = events.into_iter().find_map(|event| match event.entry.body {
            Body::Decision(decided) | Body::ExecIntent(decided) => Some(decided),
            _ => None,
        });
        Ok(self.seen.insert(Seen { reply, decided }))
    }

    /// A whole message: what a case leaves out gets the plainest value.
    fn message(&self, members: &BTreeMap<String, Json>) -> Result<Json, Stopped> {
        let text = |text: &str| Json::String(text.to_owned());
        let request_id = RequestId::from_random(self.entropy().request);
        let mut all = BTreeMap::from([
            ("created_at".to_owned(), text(&self.at.to_string())),
            ("protocol".to_owned(), text(Protocol::LATEST.as_str())),
            ("rationale".to_owned(), text("")),
            ("request_id".to_owned(), text(request_id.as_str())),
            ("source".to_owned(), text("llm")),
        ]);
        all.extend(members.clone());
        let last = text(LAST);
        if all.get("approval_ref") == Some(&last) {
            all.insert("approval_ref".to_owned(), text(self.last_proposal()?.as_str()));
        }
        if all.get("parent_id") == Some(&last) {
            all.insert("parent_id".to_owned(), text(self.last_permit()?.0.as_str()));
        }
        Ok(Json::Object(all))
    }

    fn grant(&mut self, grantors: &Grantors) -> Result<(), Stopped> {
        let id = self.last_proposal()?;
        let names = match grantors {
            Grantors::Named(names) => names.clone(),
            Grantors::Enough => self.enough(&id)?,
        };
        for name in names {
            self.call(&Principal::new(name), Op::ResolveApproval { id: id.clone(), grant: true, note: None })?;
        }
        Ok(())
    }

    /// As many people as the proposal needs, none of them its proposer.
    fn enough(&self, id: &ApprovalId) -> Result<Vec<String>, Stopped> {
        let approval = self.approval(id)?;
        let groups = &self.policy.document().approvers;
        let Some(group) = approval.terms.group.as_ref().and_then(|name| groups.get(name)) else {
            return Ok(vec![APPROVER.to_owned()]);
        };
        let others = group.members.iter().filter(|member| member.as_str() != approval.proposer.as_str());
        Ok(others.take(usize::try_from(group.quorum).unwrap_or(usize::MAX)).cloned().collect())
    }

    /// The mandate authority's answer, as if its signature had been checked.
    fn ratify(&mut self, approved: bool) -> Result<(), Stopped> {
        let approval = self.approval(&self.last_proposal()?)?;
        if !approval.terms.authority || approval.state != ApprovalState::Pending {
            return Err(Stopped("the last proposal does not wait for the mandate authority".to_owned()));
        }
        let to = match (approved, approval.terms.human) {
            (false, _) => ApprovalState::Denied,
            (true, true) => ApprovalState::Pending,
            (true, false) => ApprovalState::Approved,
        };
        let change = ApprovalTransition {
            approval_id: approval.approval_id,
            from: approval.state,
            note: None,
            proposal: approval.proposal,
            ratified: approved,
            signature: None,
            to,
            votes: approval.votes,
        };
        let meta = &self.state.meta;
        let entry = Entry {
            at: self.at,
            body: Body::ApprovalTransition(change),
            index: meta.next_index,
            policy: meta.active_policy.clone(),
            prev: meta.chain_head,
            principal: Principal::new("mandate-authority"),
            protocol: Protocol::LATEST,
            v: ENTRY_VERSION,
        };
        self.add(&[Event::new(entry, None)])
    }

    fn report(&mut self, outcome: &str, no_effect: bool) -> Result<(), Stopped> {
        let (permit, principal) = self.last_permit()?;
        let text = |text: &str| Json::String(text.to_owned());
        let body = Json::Object(BTreeMap::from([
            ("completed_at".to_owned(), text(&self.at.to_string())),
            ("no_effect".to_owned(), Json::Bool(no_effect)),
            ("outcome".to_owned(), text(outcome)),
            ("permit_id".to_owned(), text(permit.as_str())),
            ("protocol".to_owned(), text(Protocol::LATEST.as_str())),
        ]));
        match self.call(&principal, Op::Report(json::canonical(&body).into_bytes()))?.0 {
            Answer::Report(reply) if !reply.accepted => Err(Stopped(format!("not accepted: {}", reply.detail))),
            _ => Ok(()),
        }
    }

    /// Lets time pass; what is due then expires, as a leader would let it.
    fn wait(&mut self, ms: i64) -> Result<(), Stopped> {
        self.at = self.at.plus_ms(ms);
        let permits = self.state.permits.keys().cloned().map(Due::Permit);
        let approvals = self.state.approvals.keys().cloned().map(Due::Approval);
        for due in permits.chain(approvals).collect::<Vec<_>>() {
            if let Some(event) = expire(&self.state, &due, self.at)? {
                self.add(&[event])?;
            }
        }
        Ok(())
    }

    fn call(&mut self, principal: &Principal, op: Op) -> Result<(Answer, Vec<Event>), Stopped> {
        let call = Call { principal: principal.clone(), op };
        let outcome = evaluate(&self.state, &call, self.at, self.entropy(), &self.keys)?;
        self.calls = self.calls.saturating_add(1);
        self.add(&outcome.events)?;
        match outcome.answer {
            Answer::Refused(reject) => Err(reject.into()),
            answer => Ok((answer, outcome.events)),
        }
    }

    fn add(&mut self, events: &[Event]) -> Result<(), Stopped> {
        let mut overlay = Overlay::new(&self.state);
        for event in events {
            fold(&mut overlay, event)?;
        }
        let changes = overlay.into_changes();
        self.state.write(changes);
        Ok(())
    }

    fn approval(&self, id: &ApprovalId) -> Result<ApprovalRecord, Stopped> {
        self.state.approvals.get(id).cloned().ok_or_else(|| Stopped(format!("no approval `{id}`")))
    }

    fn last_proposal(&self) -> Result<ApprovalId, Stopped> {
        self.proposal.clone().ok_or_else(|| Stopped("nothing was proposed before".to_owned()))
    }

    fn last_permit(&self) -> Result<(PermitId, Principal), Stopped> {
        self.permit.clone().ok_or_else(|| Stopped("nothing was permitted before".to_owned()))
    }

    fn entropy(&self) -> Entropy {
        let bits = u128::from(self.calls).to_be_bytes();
        Entropy { permit: bits, approval: bits, request: bits }
    }
}
