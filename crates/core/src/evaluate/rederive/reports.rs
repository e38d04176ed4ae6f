//! Reports, and what else ends a permit; local decisions, which can be reports of permits whose answer was lost.

use std::sync::Arc;

use super::{Check, Difference, permit_digest, stand_in};
use crate::evaluate::expire::expiry;
use crate::evaluate::local_key;
use crate::event::{
    Body, BudgetKind, Draw, Entry, ExecResult, LocalDecision, ReportNoted, ReportRefused, ReservationEnded,
};
use crate::ids::PermitId;
use crate::json;
use crate::reply::Reason;
use crate::request::Outcome;
use crate::state::{PermitRecord, PermitStatus};

impl Check<'_> {
    pub(super) fn result(&self, result: &ExecResult) -> Result<(), Difference> {
        let permit = self.permit(result.permit_digest, result.intent)?;
        self.report_is_covered(result.payload.as_deref(), result.error.as_deref(), Some(&permit.action_type))?;
        self.same("principal", &self.entry.principal, &permit.principal)?;
        self.same("action_type", &result.action_type, &permit.action_type)?;
        self.same("request_id", &result.request_id, &permit.request_id)?;
        let failed = result.outcome == Outcome::Failure;
        self.same("no_effect", &(result.no_effect && !failed), &false)?;
        self.same("no_effect_ignored", &(result.no_effect_ignored && failed), &false)?;
        if permit.deadline <= self.entry.at {
            return Err(self.differs("at", self.entry.at, format!("before {}", permit.deadline)));
        }
        let gives_back = result.outcome == Outcome::NotAttempted || result.no_effect;
        let holds_value = permit.draws.iter().any(|draw| draw.kind == BudgetKind::Value);
        let expected = match permit.status {
            // The release stands right before its result.
            PermitStatus::Released => self.release_before().is_some_and(|release| {
                let reason = if result.no_effect { "no_effect" } else { "not_attempted" };
                release.intent == result.intent && release.reason == reason && gives_back
            }),
            PermitStatus::Held => !(gives_back && holds_value),
            PermitStatus::Settled | PermitStatus::Expired => false,
        };
        let success = match result.outcome {
            Outcome::Success => Some(true),
            Outcome::Failure => Some(false),
            Outcome::Timeout | Outcome::NotAttempted => None,
        };
        self.same_debug("success", &result.success, &success)?;
        if expected {
            return Ok(());
        }
        Err(self.differs("outcome", format!("{:?}", result.outcome), format!("a permit that is {:?}", permit.status)))
    }

    /// The release that stands right before this entry.
    fn release_before(&self) -> Option<&ReservationEnded> {
        match &self.before?.body {
            Body::ReservationReleased(ended) => Some(ended),
            _ => None,
        }
    }

    /// A release and its result are one log entry, and so are a local decision and the end of the permit that it was
    /// for: nothing stands between them.
    pub(super) fn follows(&self) -> Result<(), Difference> {
        let Some(before) = self.before else { return Ok(()) };
        match &before.body {
            Body::ReservationReleased(release) if !matches!(&self.entry.body, Body::ExecResult(result) if result.intent == release.intent) =>
            {
                let derived = format!("the result of intent `{}`", release.intent);
                Err(self.differs("body", self.entry.body.kind(), derived))
            }
            Body::LocalDecision(local) => match self.owed(before, local) {
                Some(permit_id) if !self.ends(before, permit_id) => {
                    let derived = format!("the end of the permit of request `{}`", local.request_id);
                    Err(self.differs("body", self.entry.body.kind(), derived))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The permit that was given under the request id of a local decision and has no report.
    fn owed(&self, entry: &Entry, local: &LocalDecision) -> Option<&PermitId> {
        let record = self.state.requests.get(&local.request_id).filter(|record| record.principal == entry.principal)?;
        let permit_id = record.permit_id.as_ref()?;
        let status = self.state.permits.get(permit_id)?.status;
        matches!(status, PermitStatus::Held | PermitStatus::Expired).then_some(permit_id)
    }

    fn ends(&self, local: &Entry, permit_id: &PermitId) -> bool {
        let digest = match &self.entry.body {
            Body::ReportRefused(refused) => Some(refused.permit_digest),
            Body::ExecIntent(_) => None,
            body => permit_digest(body),
        };
        let together = self.entry.principal == local.principal && self.entry.at == local.at;
        together && digest.is_some_and(|digest| stand_in(digest) == *permit_id)
    }

    pub(super) fn local(&self, local: &LocalDecision) -> Result<(), Difference> {
        self.local_is_covered(local)?;
        if self.state.requests.contains_key(&local_key(local, &self.entry.principal)) {
            return Err(self.differs("request_id", &local.request_id, "delivered before"));
        }
        let params = json::parse_record(local.params.as_bytes()).map(|params| json::canonical(&params));
        self.same("params.canonical", &params.is_ok_and(|params| params == local.params), &true)
    }

    pub(super) fn noted(&self, noted: &ReportNoted) -> Result<(), Difference> {
        self.report_is_covered(noted.payload.as_deref(), noted.error.as_deref(), None)?;
        let record = self.state.requests.get(&noted.request_id);
        let record = record.filter(|record| record.principal == self.entry.principal);
        self.same_debug("decision", &noted.decision, &record.map(|record| record.index))?;
        // A permit is reported by its identifier.
        self.same("permit", &false, &record.is_some_and(|record| record.permit_id.is_some()))
    }

    pub(super) fn released(&self, ended: &ReservationEnded) -> Result<(), Difference> {
        let permit = self.permit(ended.permit_digest, ended.intent)?;
        self.of_permit(ended, &permit)?;
        self.same("principal", &self.entry.principal, &permit.principal)?;
        if permit.deadline <= self.entry.at {
            return Err(self.differs("at", self.entry.at, format!("before {}", permit.deadline)));
        }
        let value: Vec<Draw> = permit.draws.into_iter().filter(|draw| draw.kind == BudgetKind::Value).collect();
        self.same("released.any", &ended.released.is_empty(), &false)?;
        self.same_debug("released", &ended.released, &value)
    }

    fn of_permit(&self, ended: &ReservationEnded, permit: &PermitRecord) -> Result<(), Difference> {
        self.same_debug("status", &PermitStatus::Held, &permit.status)?;
        self.same("action_type", &ended.action_type, &permit.action_type)?;
        self.same("request_id", &ended.request_id, &permit.request_id)?;
        // The first entries of this kind do not name the owner.
        self.same("owner", ended.owner.as_ref().unwrap_or(&permit.principal), &permit.principal)
    }

    pub(super) fn refused_report(&self, refused: &ReportRefused) -> Result<(), Difference> {
        let permit = self.state.permits.get(&stand_in(refused.permit_digest));
        self.same_debug("intent", &refused.intent, &permit.map(|permit| permit.index))?;
        // A report that names its request is hidden before anything is known about it.
        let known = permit.filter(|_| refused.reason != Reason::Malformed).map(|permit| &permit.action_type);
        self.report_is_covered(refused.payload.as_deref(), refused.error.as_deref(), known)?;
        let owned = permit.filter(|permit| permit.principal == self.entry.principal);
        let reason = match owned.map(|permit| permit.status) {
            // A report that names the request of a permit.
            _ if refused.reason == Reason::Malformed && owned.is_some() => Reason::Malformed,
            None => Reason::SenderMismatch,
            Some(PermitStatus::Expired) => Reason::Expired,
            Some(PermitStatus::Settled | PermitStatus::Released) => Reason::AlreadyReported,
            Some(PermitStatus::Held) => return Err(self.differs("reason", refused.reason.as_str(), "an open permit")),
        };
        self.same("reason", &refused.reason.as_str(), &reason.as_str())?;
        let reconcile = reason == Reason::Expired && refused.outcome != Outcome::NotAttempted;
        self.same("reconcile", &refused.reconcile, &reconcile)
    }

    pub(super) fn expired(&self, ended: &ReservationEnded) -> Result<(), Difference> {
        let permit = self.permit(ended.permit_digest, ended.intent)?;
        self.of_permit(ended, &permit)?;
        self.same("reason", &ended.reason.as_str(), &"expired")?;
        if permit.deadline > self.entry.at {
            return Err(self.differs("at", self.entry.at, format!("{} or later", permit.deadline)));
        }
        let Body::ReservationExpired(derived) =
            expiry(&stand_in(ended.permit_digest), &permit, self.policy().map(Arc::as_ref))
        else {
            return Ok(());
        };
        self.same_debug("released", &ended.released, &derived.released)
    }
}
