//! Judgement of one request: the checks of AADP §6.3 in their order.
//!
//! ```text
//! effects ─ kill switch ─ lookup ─ floor ─ opaque ─ reversibility ─ mandate ─ bounds ─ undo ─ audience
//!         ─ observe | propose ─ dry run ─ budgets ─ permit
//! ```

use std::borrow::Cow;

use super::approval_ref::PresentedApproval;
use super::budget::{self, Refusal};
use super::effects::{self, Resolved};
use super::{Keys, Recorder, bounds, queue, switch, undo};
use crate::event::{ApprovalTerms, BudgetKind, Draw};
use crate::exact::Amount;
use crate::ids::EvidenceIndex;
use crate::json::clip;
use crate::op::Reject;
use crate::policy::{Action, PolicySet, Window};
use crate::redact;
use crate::reply::{BudgetObject, Protocol, Reason, Tier, Verdict};
use crate::request::DecideRequest;
use crate::state::{Meta, Read, ReadError};
use crate::trace::{Check, CheckResult};

/// Text of a trace: words of this program are not copied.
trait Text: Into<Cow<'static, str>> {}

impl<T: Into<Cow<'static, str>>> Text for T {}

/// One request and everything that it is judged by.
pub(super) struct Case<'a, R> {
    pub(super) state: &'a R,
    pub(super) meta: &'a Meta,
    pub(super) policy: Option<&'a PolicySet>,
    pub(super) request: &'a DecideRequest,
    pub(super) recorder: &'a Recorder<'a>,
    pub(super) approval: &'a PresentedApproval,
    pub(super) keys: &'a Keys,
}

/// What judging came to.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) reason: Reason,
    pub(super) detail: String,
    pub(super) nominal: Tier,
    pub(super) effective: Tier,
    pub(super) effects: Vec<String>,
    pub(super) trace: Vec<Check>,
    pub(super) budget: Option<BudgetObject>,
    pub(super) cost: Option<Amount>,
    pub(super) draws: Vec<Draw>,
    /// What an approval needs, when this becomes a proposal.
    pub(super) terms: ApprovalTerms,
    pub(super) malformed_kind: Option<String>,
    pub(super) opaque_class: Option<String>,
    pub(super) undo_of: Option<EvidenceIndex>,
    pub(super) url_canonicalizer: Option<String>,
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
    pub(super) fn named(mut self) -> Self {
        let names_it = matches!(
            self.reason,
            Reason::TierConfirm
                | Reason::EffectFloor
                | Reason::NoCompensatingCommand
                | Reason::KillSwitch
                | Reason::ExternalAuthorization
        );
        if !names_it {
            self.effective = self.effective.min(self.nominal);
        }
        self
    }

    /// A URL that nobody can read is not a request (AADP §5.2, §19). Its text is shown unless the policy hides it.
    fn unreadable_url(mut self, param: &str, error: &str, hidden: bool) -> Self {
        self.trace.clear();
        self.nominal = Tier::Confirm;
        self.effective = Tier::Confirm;
        self.malformed_kind = Some("url".to_owned());
        let shown = if hidden { "redacted" } else { error };
        self.deny(Reason::Malformed, format!("`{param}` is not a URL that a rule can be about: {shown}"))
    }

    fn deny(self, reason: Reason, detail: impl Into<String>) -> Self {
        self.settle(Verdict::Deny, reason, detail)
    }

    fn check(&mut self, check: &'static str, rule: impl Text, condition: impl Text, value: impl Text, passed: bool) {
        let result = if passed { CheckResult::Pass } else { CheckResult::Fail };
        self.step(check, rule, condition, value, result);
    }

    fn step(
        &mut self,
        check: &'static str,
        rule: impl Text,
        condition: impl Text,
        value: impl Text,
        result: CheckResult,
    ) {
        let (rule, condition, value) = (rule.into(), condition.into(), value.into());
        self.trace.push(Check { check: check.into(), condition, result, rule, value });
    }
}

impl<R: Read> Case<'_, R> {
    pub(super) fn action(&self) -> Option<&Action> {
        self.policy?.document().actions.get(self.request.action_type.as_str())
    }

    pub(super) fn approved(&self) -> bool {
        self.approval.resumes.is_some()
    }

    /// The mandate authority has no say, or has ratified what is presented.
    fn ratified(&self) -> bool {
        self.approval.ratified || self.action().is_none_or(|action| !action.requires_external_authorization)
    }

    /// Everyone whose word the policy asks for has given it: a human, and the mandate authority where it has a say. An
    /// authority stands in for no human.
    pub(super) fn authorised(&self) -> bool {
        self.approved() && self.approval.granted && self.ratified()
    }

    pub(super) fn judge(&self) -> Result<Judged, Reject> {
        let action = self.action();
        let nominal = action.map_or(Tier::Confirm, |action| action.tier);
        let resolved = match (self.policy, action) {
            (Some(policy), Some(action)) => effects::resolve(policy, action, self.request),
            _ => Resolved::default(),
        };
        let floor = self.floor(&resolved.labels).map(|(label, tier)| (label.to_owned(), tier));
        let mut judged = Judged {
            verdict: Verdict::Deny,
            reason: Reason::DefaultDeny,
            detail: String::new(),
            nominal,
            effective: Tier::Confirm,
            effects: resolved.labels,
            trace: Vec::new(),
            budget: None,
            cost: None,
            draws: Vec::new(),
            terms: ApprovalTerms::default(),
            malformed_kind: None,
            opaque_class: resolved.opaque,
            undo_of: None,
            url_canonicalizer: resolved.url_canonicalizer,
        };
        // INVARIANT (kill switch): only a declared read that nothing escalates passes an engaged switch.
        let read = !self.approved()
            && action.is_some_and(|action| !action.requires_external_authorization)
            && nominal == Tier::Observe
            && resolved.unreadable.is_none()
            && floor.as_ref().is_none_or(|(_, tier)| *tier == Tier::Observe);
        if !read {
            let (request, principal) = (self.request, self.recorder.principal);
            let engaged = switch::stops(self.meta, &request.action_type, principal, &judged.effects);
            let (rule, value) = match &engaged {
                Some(switch) => (Cow::Owned(switch.clone()), "engaged"),
                None => (Cow::Borrowed("kill_switch"), "released"),
            };
            judged.check("kill_switch", rule, "released", value, engaged.is_none());
            if let Some(switch) = engaged {
                let detail = match switch.strip_prefix("kill_switch:") {
                    Some(scope) => format!("the kill switch for {scope} is engaged"),
                    None => "the kill switch is engaged".to_owned(),
                };
                return Ok(judged.deny(Reason::KillSwitch, detail));
            }
        }
        let name = self.request.action_type.as_str();
        let (rule, condition) = (name.to_owned(), "the policy in force names the action type");
        judged.check("default_deny", rule, condition, name.to_owned(), action.is_some());
        let (Some(action), Some(policy)) = (action, self.policy) else {
            return Ok(judged.deny(Reason::DefaultDeny, format!("no policy names action type `{name}`")));
        };
        if let Some((param, error)) = resolved.unreadable {
            return Ok(judged.unreadable_url(&param, &error, redact::covers(&action.redact, &param)));
        }
        let escalation = match self.escalate(action, floor, &mut judged) {
            Ok(escalation) => escalation,
            Err(detail) => return Ok(judged.deny(Reason::ExternalAuthorization, detail)),
        };
        if let Err(mut failure) = bounds::check(&action.bounds, &self.request.params) {
            if failure.param.as_ref().is_some_and(|param| redact::covers(&action.redact, param)) {
                "redacted".clone_into(&mut failure.value);
            }
            let detail = format!("`{}` demands {}, found {}", failure.rule, failure.condition, failure.value);
            judged.check("bounds", failure.rule, failure.condition, failure.value, false);
            return Ok(judged.deny(Reason::Bounds, detail));
        }
        judged.check("bounds", "bounds", "arguments inside the policy's bounds", "inside", true);
        match undo::target(self.state, policy, self.request, self.recorder.principal, self.recorder.at, self.keys)? {
            Ok(target) => judged.undo_of = target,
            Err(detail) => {
                judged.check("undo", "parent_id", "a reversible action of this principal", detail, false);
                return Ok(judged.deny(Reason::UndoRefused, detail));
            }
        }
        if let Some(audience) = &action.present_bound {
            let presented = self.request.presented_audience.as_deref().unwrap_or("none");
            judged.check("present_bound", "present_bound", audience.clone(), clip(presented), presented == audience);
            if presented != audience {
                let detail = format!("a permit is for `{audience}` alone, and `presented_audience` is another");
                return Ok(judged.deny(Reason::PresentBound, detail));
            }
        }
        match judged.effective {
            Tier::Observe => Ok(judged.settle(Verdict::Observe, Reason::Observe, "recorded; a read is not a permit")),
            Tier::Confirm => Ok(self.propose(action, judged, escalation)?),
            Tier::Auto | Tier::AutoCapped => Ok(self.permit(action, judged, escalation)?),
        }
    }

    fn propose(
        &self,
        action: &Action,
        mut judged: Judged,
        escalation: Option<(Reason, String)>,
    ) -> Result<Judged, ReadError> {
        let (reason, detail) = escalation.unwrap_or((Reason::TierConfirm, "the policy asks for a human".to_owned()));
        let (recorder, name) = (self.recorder, &self.request.action_type);
        if let Some(detail) = queue::full(self.state, &action.approval, name, recorder.principal, recorder.at)? {
            let check = Reason::ProposalsExhausted.as_str();
            judged.check(check, "approval.queue", "room for one more", detail.clone(), false);
            return Ok(judged.deny(Reason::ProposalsExhausted, detail));
        }
        if reason == Reason::TierConfirm {
            judged.check("tier_confirm", "tier", "below 3", "3", false);
        }
        Ok(judged.settle(Verdict::Propose, reason, detail))
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
    ) -> Result<Option<(Reason, String)>, String> {
        if self.authorised() {
            judged.effective = Tier::Auto;
            if action.requires_external_authorization {
                self.defer(judged, &mut None)?;
            }
            return Ok(None);
        }
        judged.effective = action.tier;
        let mut escalation = None;
        if let Some((label, tier)) = floor {
            let raised = tier > action.tier;
            let (demand, value) = (format!("tier {} or more", u8::from(tier)), u8::from(action.tier).to_string());
            judged.check("effect_floor", label.clone(), demand, value, !raised);
            if raised {
                judged.effective = tier;
                let detail = format!("effect `{label}` demands tier {} or more", u8::from(tier));
                escalation = Some((Reason::EffectFloor, detail));
            }
        }
        if judged.effective != Tier::Observe
            && let Some(class) = judged.opaque_class.clone()
        {
            judged.check("opaque_host", class.clone(), "a target that can be told", "opaque", false);
            judged.effective = Tier::Confirm;
            escalation = Some((Reason::EffectFloor, format!("`{class}` leads elsewhere, so a human decides")));
        }
        if matches!(judged.effective, Tier::Auto | Tier::AutoCapped) {
            let reversible = action.compensating_command.is_some();
            let value = action.compensating_command.clone().unwrap_or_else(|| "none".to_owned());
            judged.check("reversibility", "compensating_command", "registered", value, reversible);
            if !reversible {
                judged.effective = Tier::Confirm;
                let detail = "nothing reverses this action, so a human decides".to_owned();
                escalation = Some((Reason::NoCompensatingCommand, detail));
            }
        }
        if action.requires_external_authorization {
            self.defer(judged, &mut escalation)?;
            if self.approved() && self.ratified() && judged.effective == Tier::AutoCapped && escalation.is_none() {
                // Ratified, and no human is needed: it runs like every approved action (AADP §3.2).
                judged.effective = Tier::Auto;
            }
        }
        Ok(escalation)
    }

    /// The mandate authority has the say (AADP §11.5): a standing denial denies whatever was ratified before it, else
    /// each request waits for it.
    fn defer(&self, judged: &mut Judged, escalation: &mut Option<(Reason, String)>) -> Result<(), String> {
        let authority = self.policy.and_then(|policy| policy.document().mandate_authority.as_ref());
        let mandate = self.meta.mandates.get(&self.request.action_type);
        let denied = mandate.is_some_and(|mandate| mandate.denied && mandate.authority.as_ref() == authority);
        let ratified = self.approved() && self.approval.ratified;
        let (value, result) = match (denied, ratified) {
            (true, _) => ("denied", CheckResult::Fail),
            (false, true) => ("ratified", CheckResult::Pass),
            // What escalated before gives the reason; this comes on top of it.
            (false, false) if judged.effective == Tier::Confirm => ("pending", CheckResult::Unresolved),
            (false, false) => ("pending", CheckResult::Fail),
        };
        judged.step("external_authorization", "mandate", "authorised", value, result);
        if denied {
            return Err("the mandate authority denies this action type".to_owned());
        }
        if ratified {
            return Ok(());
        }
        judged.terms.authority = true;
        if judged.effective < Tier::Confirm {
            judged.effective = Tier::Confirm;
            judged.terms.human = false;
            *escalation = Some((Reason::ExternalAuthorization, "the mandate authority must ratify this".to_owned()));
        }
        Ok(())
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
                let condition = "an amount that can be resolved";
                judged.step("cost_unknown", budget.clone(), condition, "none", CheckResult::Unresolved);
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
                let (condition, value) = (format!("at most {}", object.limit), object.consumed.to_string());
                judged.check(reason.as_str(), object.name.clone(), condition, value, false);
                judged.budget = (self.request.protocol >= Protocol::V02).then_some(object);
                Ok(judged.deny(reason, detail))
            }
        }
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
