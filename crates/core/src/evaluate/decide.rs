//! Decide: the pipeline of AADP §6.3, in its order.
//!
//! ```text
//! parse ─ replay ─ approval ─ kill switch ─ lookup ─ effects ─ reversibility ─ bounds ─ observe | propose
//!       ─ dry run ─ budgets ─ permit
//! ```

use std::sync::Arc;

use super::bounds;
use super::budget::{self, Refusal};
use super::replay;
use super::{Outcome, Recorder, malformed};
use crate::event::{ApprovalRefStatus, ApprovalState, Body, BudgetKind, Check, CheckResult, Decided, Draw};
use crate::exact::Amount;
use crate::ids::{ApprovalId, Entropy, EvidenceIndex, Hash, PermitId};
use crate::op::{Answer, Reject};
use crate::policy::{Action, PolicySet, Window};
use crate::reply::{BudgetObject, Obligation, Protocol, Reason, Tier, Verdict};
use crate::request::DecideRequest;
use crate::stamp::Stamp;
use crate::state::{ApprovalRecord, Meta, Read, ReadError};

pub(super) fn decide(
    state: &impl Read,
    meta: &Meta,
    mut recorder: Recorder<'_>,
    body: &[u8],
    entropy: Entropy,
) -> Result<Outcome, Reject> {
    let request = match DecideRequest::parse(body) {
        Ok(request) => request,
        Err(found) => return Ok(malformed(recorder, "decide", *found)),
    };
    let params_canonical = request.params_canonical();
    let digest = request.digest(&params_canonical);
    if let Some(record) = state.request(&request.request_id)? {
        return replay::replay(state, recorder, &request, digest, &record);
    }
    let policy = active_policy(state, meta)?;
    let approval = resolve_approval_ref(state, &recorder, &request, &params_canonical, policy.as_deref())?;
    let case =
        Case { state, meta, policy: policy.as_deref(), request: &request, recorder: &recorder, approval: &approval };
    let judged = case.judge()?;
    // An approved action runs at tier 1 whatever the policy says (AADP §3.2).
    let judged = if case.approved() { judged } else { judged.named() };
    let permit_id = (judged.verdict == Verdict::Permit).then(|| PermitId::from_random(entropy.permit));
    let approval_id = (judged.verdict == Verdict::Propose).then(|| ApprovalId::from_random(entropy.approval));
    let (deadline, undo_until, obligations) = match &permit_id {
        Some(permit_id) => case.permit_terms(&judged, permit_id),
        None => (None, None, Vec::new()),
    };
    let decided = Decided {
        action_type: request.action_type.clone(),
        approval_deadline: approval_id.as_ref().map(|_| recorder.at.plus_ms(case.approval_ttl_ms())),
        approval_id,
        approval_ref: request.approval_ref.clone(),
        approval_ref_status: approval.status,
        budget: judged.budget,
        cost: judged.cost,
        cost_eur: request.cost_eur,
        created_at: request.created_at,
        deadline,
        detail: judged.detail,
        draws: judged.draws,
        effective_tier: judged.effective,
        effects: judged.effects,
        nominal_tier: judged.nominal,
        obligations,
        params: request.params_raw,
        parent_id: request.parent_id,
        permit_digest: permit_id.as_ref().map(PermitId::digest),
        rationale: request.rationale,
        reason: judged.reason,
        request_digest: digest,
        request_id: request.request_id,
        resumes: approval.resumes,
        session_id: request.session_id,
        source: request.source,
        trace: judged.trace,
        undo_until,
        verdict: judged.verdict,
    };
    let protocol = request.protocol;
    let reply = replay::reply(protocol, recorder.next, &decided, permit_id.clone());
    let body = match decided.verdict {
        Verdict::Permit => Body::ExecIntent(Box::new(decided)),
        _ => Body::Decision(Box::new(decided)),
    };
    recorder.record(protocol, body, permit_id);
    Ok(recorder.answer(Answer::Decide(reply)))
}

/// The policy in force. One that state names and cannot produce is a fault, not an empty policy.
fn active_policy(state: &impl Read, meta: &Meta) -> Result<Option<Arc<PolicySet>>, ReadError> {
    match &meta.active_policy {
        None => Ok(None),
        Some(digest) => match state.policy(digest)? {
            Some(policy) => Ok(Some(policy)),
            None => Err(ReadError(format!("policy `{digest}` is in force and cannot be read"))),
        },
    }
}

/// What a presented approval is worth.
struct PresentedApproval {
    status: ApprovalRefStatus,
    /// The proposal, when the approval is honoured.
    resumes: Option<EvidenceIndex>,
}

/// AADP §11.4, in its order. An unusable reference is worth nothing and tells nothing.
fn resolve_approval_ref(
    state: &impl Read,
    recorder: &Recorder<'_>,
    request: &DecideRequest,
    params_canonical: &str,
    policy: Option<&PolicySet>,
) -> Result<PresentedApproval, ReadError> {
    let unusable = |status| PresentedApproval { status, resumes: None };
    let Some(id) = &request.approval_ref else { return Ok(unusable(ApprovalRefStatus::Absent)) };
    let Some(approval) = state.approval(id)? else { return Ok(unusable(ApprovalRefStatus::Unknown)) };
    let status = match approval.state {
        ApprovalState::Consumed | ApprovalState::Denied => ApprovalRefStatus::Consumed,
        ApprovalState::Expired => ApprovalRefStatus::Expired,
        _ if approval.deadline <= recorder.at => ApprovalRefStatus::Expired,
        ApprovalState::Pending => ApprovalRefStatus::Unknown,
        ApprovalState::Approved if !equivalent(&approval, request, params_canonical, policy) => {
            ApprovalRefStatus::ActionMismatch
        }
        ApprovalState::Approved if approval.proposer != *recorder.principal => ApprovalRefStatus::PrincipalMismatch,
        ApprovalState::Approved => {
            return Ok(PresentedApproval { status: ApprovalRefStatus::Honored, resumes: Some(approval.proposal) });
        }
    };
    Ok(unusable(status))
}

/// Same action, same arguments whatever their spelling, and the same declared cost where nothing else fixes it.
fn equivalent(
    approval: &ApprovalRecord,
    request: &DecideRequest,
    params_canonical: &str,
    policy: Option<&PolicySet>,
) -> bool {
    let priced_by_param = policy
        .and_then(|policy| policy.document().actions.get(request.action_type.as_str()))
        .is_some_and(|action| action.cost.is_some());
    approval.action_type == request.action_type
        && approval.params_digest == Hash::of(params_canonical.as_bytes())
        && (priced_by_param || approval.cost_eur == request.cost_eur)
}

/// One request and everything that it is judged by.
struct Case<'a, R> {
    state: &'a R,
    meta: &'a Meta,
    policy: Option<&'a PolicySet>,
    request: &'a DecideRequest,
    recorder: &'a Recorder<'a>,
    approval: &'a PresentedApproval,
}

/// What judging came to.
struct Judged {
    verdict: Verdict,
    reason: Reason,
    detail: String,
    nominal: Tier,
    effective: Tier,
    effects: Vec<String>,
    trace: Vec<Check>,
    budget: Option<BudgetObject>,
    cost: Option<Amount>,
    draws: Vec<Draw>,
}

impl Judged {
    fn settle(mut self, verdict: Verdict, reason: Reason, detail: impl Into<String>) -> Self {
        self.verdict = verdict;
        self.reason = reason;
        self.detail = detail.into();
        self
    }

    /// A tier above the policy's is answered only with the reason that names the escalation (AADP §9.7 of the draft);
    /// where another check decided, the escalation stays in the trace.
    fn named(mut self) -> Self {
        let names_it = matches!(
            self.reason,
            Reason::TierConfirm | Reason::EffectFloor | Reason::NoCompensatingCommand | Reason::KillSwitch
        );
        if !names_it {
            self.effective = self.effective.min(self.nominal);
        }
        self
    }

    fn deny(self, reason: Reason, detail: impl Into<String>) -> Self {
        self.settle(Verdict::Deny, reason, detail)
    }

    fn check(&mut self, check: &str, rule: &str, condition: &str, value: impl Into<String>, passed: bool) {
        let result = if passed { CheckResult::Pass } else { CheckResult::Fail };
        self.trace.push(Check {
            check: check.to_owned(),
            condition: condition.to_owned(),
            result,
            rule: rule.to_owned(),
            value: value.into(),
        });
    }
}

impl<R: Read> Case<'_, R> {
    fn action(&self) -> Option<&Action> {
        self.policy?.document().actions.get(self.request.action_type.as_str())
    }

    fn approved(&self) -> bool {
        self.approval.resumes.is_some()
    }

    fn judge(&self) -> Result<Judged, ReadError> {
        let action = self.action();
        let nominal = action.map_or(Tier::Confirm, |action| action.tier);
        let effects = action.map(|action| self.effects(action)).unwrap_or_default();
        let floor = self.floor(&effects).map(|(label, tier)| (label.to_owned(), tier));
        let mut judged = Judged {
            verdict: Verdict::Deny,
            reason: Reason::DefaultDeny,
            detail: String::new(),
            nominal,
            effective: Tier::Confirm,
            effects,
            trace: Vec::new(),
            budget: None,
            cost: None,
            draws: Vec::new(),
        };
        // INVARIANT (kill switch): only a declared read that nothing escalates passes an engaged switch.
        let read = !self.approved()
            && action.is_some()
            && nominal == Tier::Observe
            && floor.as_ref().is_none_or(|(_, tier)| *tier == Tier::Observe);
        if !read {
            let engaged = self.meta.kill_switch.engaged;
            judged.check(
                "kill_switch",
                "kill_switch",
                "released",
                if engaged { "engaged" } else { "released" },
                !engaged,
            );
            if engaged {
                return Ok(judged.deny(Reason::KillSwitch, "the kill switch is engaged"));
            }
        }
        let name = self.request.action_type.as_str();
        judged.check("default_deny", name, "the policy in force names the action type", name, action.is_some());
        let Some(action) = action else {
            return Ok(judged.deny(Reason::DefaultDeny, format!("no policy names action type `{name}`")));
        };
        let escalation = self.escalate(action, floor, &mut judged);
        if let Err(failure) = bounds::check(&action.bounds, &self.request.params) {
            let detail = format!("`{}` demands {}, found {}", failure.rule, failure.condition, failure.value);
            judged.check("bounds", &failure.rule, &failure.condition, failure.value, false);
            return Ok(judged.deny(Reason::Bounds, detail));
        }
        judged.check("bounds", "bounds", "arguments inside the policy's bounds", "inside", true);
        match judged.effective {
            Tier::Observe => Ok(judged.settle(Verdict::Observe, Reason::Observe, "recorded; a read is not a permit")),
            Tier::Confirm => {
                let (reason, detail) =
                    escalation.unwrap_or((Reason::TierConfirm, "the policy asks for a human".to_owned()));
                if reason == Reason::TierConfirm {
                    judged.check("tier_confirm", "tier", "below 3", "3", false);
                }
                Ok(judged.settle(Verdict::Propose, reason, detail))
            }
            Tier::Auto | Tier::AutoCapped => self.permit(action, judged, escalation),
        }
    }

    /// The labels of this action: the policy's own, then those that its parameter rules add.
    fn effects(&self, action: &Action) -> Vec<String> {
        let mut labels = action.effects.clone();
        for rule in &action.param_effects {
            let matches = bounds::present(&self.request.params, &rule.param).is_some_and(|value| {
                self.policy.is_some_and(|policy| policy.pattern_matches(&rule.pattern, &bounds::string_form(value)))
            });
            if matches {
                for label in &rule.add_effects {
                    if !labels.contains(label) {
                        labels.push(label.clone());
                    }
                }
            }
        }
        labels
    }

    /// The highest floor among the effects, and which label sets it.
    fn floor<'l>(&self, labels: &'l [String]) -> Option<(&'l str, Tier)> {
        let effects = &self.policy?.document().effects;
        let mut highest: Option<(&str, Tier)> = None;
        for label in labels {
            if let Some(tier) = effects.get(label).and_then(|effect| effect.min_tier)
                && highest.is_none_or(|(_, before)| tier > before)
            {
                highest = Some((label, tier));
            }
        }
        highest
    }

    /// Sets the effective tier; returns the escalation that explains it, if one did (AADP §5.3, §6.2).
    fn escalate(
        &self,
        action: &Action,
        floor: Option<(String, Tier)>,
        judged: &mut Judged,
    ) -> Option<(Reason, String)> {
        if self.approved() {
            judged.effective = Tier::Auto;
            return None;
        }
        judged.effective = action.tier;
        let mut escalation = None;
        if let Some((label, tier)) = floor {
            let raised = tier > action.tier;
            judged.check(
                "effect_floor",
                &label,
                &format!("tier {} or more", u8::from(tier)),
                u8::from(action.tier).to_string(),
                !raised,
            );
            if raised {
                judged.effective = tier;
                let detail = format!("effect `{label}` demands tier {} or more", u8::from(tier));
                escalation = Some((Reason::EffectFloor, detail));
            }
        }
        if matches!(judged.effective, Tier::Auto | Tier::AutoCapped) {
            let reversible = action.compensating_command.is_some();
            let value = action.compensating_command.as_deref().unwrap_or("none");
            judged.check("reversibility", "compensating_command", "registered", value, reversible);
            if !reversible {
                judged.effective = Tier::Confirm;
                let detail = "nothing reverses this action, so a human decides".to_owned();
                escalation = Some((Reason::NoCompensatingCommand, detail));
            }
        }
        escalation
    }

    /// The last checks of an action that may run: rehearsal, then budgets.
    fn permit(
        &self,
        action: &Action,
        mut judged: Judged,
        escalation: Option<(Reason, String)>,
    ) -> Result<Judged, ReadError> {
        let at = self.recorder.at;
        let rehearses = action.dry_run || action.dry_run_until.is_some_and(|until| at < until);
        judged.check("dry_run", "dry_run", "live", if rehearses { "rehearsing" } else { "live" }, !rehearses);
        if rehearses {
            return Ok(judged.settle(Verdict::DryRun, Reason::DryRun, "rehearsing; nothing is reserved"));
        }
        let Some(policy) = self.policy else { return Ok(judged) };
        let principal = self.recorder.principal.as_str();
        match budget::draw(self.state, policy, action, &judged.effects, self.request, principal, at)? {
            Ok(drawn) => {
                let names: Vec<&str> = drawn.draws.iter().map(|draw| draw.budget.as_str()).collect();
                let value = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                judged.check("caps", "budgets", "every budget has enough left", value, true);
                judged.draws = drawn.draws;
                judged.cost = drawn.cost;
                let (reason, detail) = escalation.unwrap_or((Reason::Passed, String::new()));
                Ok(judged.settle(Verdict::Permit, reason, detail))
            }
            Err(Refusal::CostUnknown { budget }) => {
                judged.trace.push(Check {
                    check: "cost_unknown".to_owned(),
                    condition: "an amount that can be resolved".to_owned(),
                    result: CheckResult::Unresolved,
                    rule: budget.clone(),
                    value: "none".to_owned(),
                });
                Ok(judged.deny(Reason::CostUnknown, format!("budget `{budget}` applies and the amount is unknown")))
            }
            Err(Refusal::Exhausted { kind, window, object, detail }) => {
                let reason = exhausted(self.request.protocol, kind, window);
                let detail = detail.unwrap_or_else(|| {
                    format!(
                        "budget `{}` has {} of {} {} left",
                        object.name, object.remaining, object.limit, object.dimension
                    )
                });
                judged.check(
                    reason.as_str(),
                    &object.name,
                    &format!("at most {}", object.limit),
                    object.consumed.to_string(),
                    false,
                );
                judged.budget = (self.request.protocol >= Protocol::V02).then_some(object);
                Ok(judged.deny(reason, detail))
            }
        }
    }

    fn approval_ttl_ms(&self) -> i64 {
        let policy =
            self.policy.map_or(crate::limits::APPROVAL_TTL_MS_DEFAULT, |policy| policy.document().approval_ttl_ms);
        self.action().and_then(|action| action.approval_ttl_ms).unwrap_or(policy)
    }

    /// Deadline, end of the undo window, and obligations of a permit (AADP §13).
    fn permit_terms(&self, judged: &Judged, permit_id: &PermitId) -> (Option<Stamp>, Option<Stamp>, Vec<Obligation>) {
        let (Some(policy), Some(action)) = (self.policy, self.action()) else { return (None, None, Vec::new()) };
        let within_ms = action.execute_within_ms.unwrap_or(policy.document().execute_within_ms);
        let deadline = self.recorder.at.plus_ms(within_ms);
        let undoable = judged.effective == Tier::Auto && !self.approved() && action.compensating_command.is_some();
        let undo_until = undoable.then(|| self.recorder.at.plus_ms(action.undo_window_ms));
        let obligation =
            |kind: &str, value: Option<String>| Obligation { required: true, kind: kind.to_owned(), value };
        let mut obligations =
            vec![obligation("report_result", None), obligation("execute_within", Some(deadline.to_string()))];
        if let Some(until) = undo_until {
            obligations.push(obligation("undo_available_until", Some(until.to_string())));
        }
        for rule in &action.obligations {
            let value = match rule.kind.as_str() {
                // A function of the permit alone (AADP §12), and not the capability itself: evidence shows it.
                "idempotency_key" => Some(permit_id.digest().to_string()),
                _ => rule.value.clone(),
            };
            obligations.push(obligation(&rule.kind, value));
        }
        (Some(deadline), undo_until, obligations)
    }
}

/// The reason for an exhausted budget in the vocabulary of the request (AADP §5.1). The euro names of 0.1 know days
/// and months only; any other window is nearest to a day.
fn exhausted(protocol: Protocol, kind: BudgetKind, window: Window) -> Reason {
    match (protocol, kind, window) {
        (Protocol::V01, BudgetKind::Rate, _) => Reason::CapDailyRate,
        (Protocol::V01, BudgetKind::Value, Window::Month) => Reason::CapEurMonth,
        (Protocol::V01, BudgetKind::Value, _) => Reason::CapEurDay,
        (_, BudgetKind::Rate, _) => Reason::RateExhausted,
        (_, BudgetKind::Value, _) => Reason::BudgetExhausted,
    }
}
