//! Decisions: judged again on what was recorded, and compared.

use super::seen::Seen;
use super::{Check, Difference, Rederived, stand_in};
use crate::evaluate::decide::decide_request;
use crate::event::{ApprovalRefStatus, Body, Decided};
use crate::evidence;
use crate::ids::{Entropy, EvidenceIndex, Hash, PermitId};
use crate::json;
use crate::op::Answer;
use crate::reply::{Obligation, Reason, Verdict};
use crate::request::{DecideRequest, Source};
use crate::state::ApprovalRecord;

impl Check<'_> {
    pub(super) fn decided(&self, recorded: &Decided) -> Result<Rederived, Difference> {
        let unreadable = || self.differs("params", "unreadable", "a JSON object");
        let request = DecideRequest::of_record(self.entry.protocol, recorded).ok_or_else(unreadable)?;
        self.decision_is_covered(recorded, &request)?;
        self.is_new(recorded)?;
        let canonical = request.params_canonical();
        self.same_debug("request_digest", &recorded.request_digest, &request.digest(&canonical))?;
        self.resumed(recorded)?;
        let (mut paths, policy, judged) = match self.assumed(recorded, &request)? {
            Some(assumed) => (assumed.paths, Some(assumed.policy), Some(assumed.request)),
            None => (Vec::new(), None, None),
        };
        let canonicals =
            Canonicals { recorded: &canonical, judged: judged.as_ref().map(DecideRequest::params_canonical) };
        let parent = request.parent_id.clone();
        let seen = Seen {
            state: self.state,
            named: parent.as_deref(),
            policy,
            approval: self.approval_as_recorded(recorded, &canonicals, &mut paths),
            entry: self.original_as_recorded(recorded, &canonicals, &mut paths),
        };
        let (meta, keys) = (&self.state.meta, Self::keys());
        let (recorder, resumed_by) = (self.recorder(meta), recorded.resumed_by.clone());
        let request = judged.unwrap_or(request);
        let derived = decide_request(&seen, meta, recorder, request, Entropy::default(), &keys, resumed_by);
        let outcome = derived.map_err(|reject| self.differs("verdict", recorded.verdict.as_str(), reject.detail()))?;
        let (Answer::Decide(_), Some(Body::Decision(derived) | Body::ExecIntent(derived))) =
            (&outcome.answer, outcome.events.first().map(|event| &event.entry.body))
        else {
            return Err(self.differs("request_id", &recorded.request_id, "decided before"));
        };
        self.compare(recorded, derived)?;
        Ok(if paths.is_empty() { Rederived::Verdict } else { Rederived::Redacted { paths } })
    }

    /// One request id, one decision; a capability is issued once.
    fn is_new(&self, recorded: &Decided) -> Result<(), Difference> {
        if self.state.requests.contains_key(&recorded.request_id) {
            return Err(self.differs("request_id", &recorded.request_id, "decided before"));
        }
        if let Some(digest) =
            recorded.permit_digest.filter(|digest| self.state.permits.contains_key(&stand_in(*digest)))
        {
            return Err(self.differs("permit_digest", digest, "issued before"));
        }
        match recorded.approval_id.as_ref().filter(|id| self.state.approvals.contains_key(id)) {
            Some(id) => Err(self.differs("approval_id", id, "opened before")),
            None => Ok(()),
        }
    }

    /// An approver who resumes a proposal may decide it, is not its proposer, and changes nothing of it.
    fn resumed(&self, recorded: &Decided) -> Result<(), Difference> {
        let Some(approver) = &recorded.resumed_by else { return Ok(()) };
        let refused = |derived: &str| Err(self.differs("resumed_by", approver, derived));
        let approval = recorded.approval_ref.as_ref().and_then(|id| self.state.approvals.get(id));
        let Some(approval) = approval else { return refused("an approval") };
        if *approver == approval.proposer || self.entry.principal != approval.proposer {
            return refused("another than the proposer, in the proposer's name");
        }
        if let Some(name) = &approval.terms.group {
            let group = self.policy().and_then(|policy| policy.document().approvers.get(name));
            if !group.is_some_and(|group| group.members.iter().any(|member| member == approver.as_str())) {
                return refused("a member of the group that decides");
            }
        }
        let proposal = self.state.entries.get(&approval.proposal).and_then(|bytes| evidence::decode(bytes).ok());
        let Some(Body::Decision(proposed)) = proposal.map(|entry| entry.body) else { return refused("a proposal") };
        let asked = |decided: &Decided| {
            let text = recorded.redacted.is_empty().then(|| (decided.params.clone(), decided.rationale.clone()));
            let names = (decided.session_id.clone(), decided.parent_id.clone(), decided.presented_audience.clone());
            (text, names, decided.action_type.clone(), decided.source, decided.cost_eur, decided.created_at)
        };
        self.same_debug("resumed", &asked(recorded), &asked(&proposed))
    }

    fn compare(&self, recorded: &Decided, derived: &Decided) -> Result<(), Difference> {
        self.same("verdict", &recorded.verdict.as_str(), &derived.verdict.as_str())?;
        self.same("reason", &recorded.reason.as_str(), &derived.reason.as_str())?;
        self.same("nominal_tier", &u8::from(recorded.nominal_tier), &u8::from(derived.nominal_tier))?;
        self.same("effective_tier", &u8::from(recorded.effective_tier), &u8::from(derived.effective_tier))?;
        self.same_debug("cost", &recorded.cost, &derived.cost)?;
        self.same_debug("draws", &recorded.draws, &derived.draws)?;
        self.same_debug("budget", &recorded.budget, &derived.budget)?;
        self.same_debug("effects", &recorded.effects, &derived.effects)?;
        self.same_debug("malformed_kind", &recorded.malformed_kind, &derived.malformed_kind)?;
        self.same_debug("opaque_class", &recorded.opaque_class, &derived.opaque_class)?;
        self.same_debug("deadline", &recorded.deadline, &derived.deadline)?;
        self.same_debug("approval_deadline", &recorded.approval_deadline, &derived.approval_deadline)?;
        self.same_debug("approval_terms", &recorded.approval_terms, &derived.approval_terms)?;
        self.same_debug("approval_ref_status", &recorded.approval_ref_status, &derived.approval_ref_status)?;
        self.same_debug("resumes", &recorded.resumes, &derived.resumes)?;
        self.same_debug("undo_of", &recorded.undo_of, &derived.undo_of)?;
        self.same_debug("undo_until", &recorded.undo_until, &derived.undo_until)?;
        self.same("permit", &recorded.permit_digest.is_some(), &derived.permit_digest.is_some())?;
        self.same("approval", &recorded.approval_id.is_some(), &derived.approval_id.is_some())?;
        // Values are left out: they may be hidden. What is no trace is told in the reader's words.
        let trace = |decided: &Decided| -> Result<Vec<_>, String> {
            let checks = decided.trace.checks().map_err(|error| error.to_string())?;
            Ok(checks.into_iter().map(|check| (check.check, check.rule, check.result)).collect())
        };
        self.same_debug("trace", &trace(recorded), &trace(derived))?;
        let of_permit = |obligation: &Obligation| obligation.kind == "idempotency_key";
        let expected: Vec<Obligation> = derived
            .obligations
            .iter()
            .cloned()
            .map(|one| match recorded.permit_digest.filter(|_| of_permit(&one)) {
                Some(digest) => Obligation { value: Some(digest.to_string()), ..one },
                None => one,
            })
            .collect();
        self.same_debug("obligations", &recorded.obligations, &expected)?;
        let kind = if recorded.verdict == Verdict::Permit { "exec_intent" } else { "decision" };
        self.same("body", &self.entry.body.kind(), &kind)
    }

    /// The presented approval, where only the record knows whether its arguments are those of the request: they were
    /// compared in clear, and other paths are hidden now than then.
    fn approval_as_recorded(
        &self,
        recorded: &Decided,
        canonicals: &Canonicals<'_>,
        paths: &mut Vec<String>,
    ) -> Option<ApprovalRecord> {
        let approval = self.state.approvals.get(recorded.approval_ref.as_ref()?)?;
        let equal = match other_paths(&approval.redacted, &recorded.redacted) {
            Some(other) => {
                let status = recorded.approval_ref_status;
                let equal = matches!(status, ApprovalRefStatus::Honored | ApprovalRefStatus::PrincipalMismatch);
                if equal || status == ApprovalRefStatus::ActionMismatch {
                    paths.extend(other);
                }
                equal
            }
            None if canonicals.judged.is_none() => return None,
            None => approval.params_digest == Hash::of(canonicals.recorded.as_bytes()),
        };
        let params_digest = if equal { Hash::of(canonicals.judged().as_bytes()) } else { Hash::GENESIS };
        Some(ApprovalRecord { params_digest, ..approval.clone() })
    }

    /// The same for the intent that an undo names.
    fn original_as_recorded(
        &self,
        recorded: &Decided,
        canonicals: &Canonicals<'_>,
        paths: &mut Vec<String>,
    ) -> Option<(EvidenceIndex, Vec<u8>)> {
        let parent = recorded.parent_id.as_deref().filter(|_| recorded.source == Source::Undo)?;
        let index = match EvidenceIndex::parse(parent) {
            Some(index) => index,
            None => self.state.permits.get(&stand_in(PermitId::new(parent).digest()))?.index,
        };
        let mut entry = evidence::decode(self.state.entries.get(&index)?).ok()?;
        let Body::ExecIntent(original) = &mut entry.body else { return None };
        let equal = match other_paths(&original.redacted, &recorded.redacted) {
            Some(other) => {
                if recorded.undo_of.is_some() || recorded.reason == Reason::UndoRefused {
                    paths.extend(other);
                }
                recorded.undo_of.is_some()
            }
            None if canonicals.judged.is_none() => return None,
            None => json::parse_record(original.params.as_bytes())
                .is_ok_and(|params| json::canonical(&params) == canonicals.recorded),
        };
        original.params = if equal { canonicals.judged().to_owned() } else { "null".to_owned() };
        Some((index, evidence::encode(&entry)))
    }
}

/// The arguments as they were recorded, and as they are judged where those are others.
struct Canonicals<'a> {
    recorded: &'a str,
    judged: Option<String>,
}

impl Canonicals<'_> {
    fn judged(&self) -> &str {
        self.judged.as_deref().unwrap_or(self.recorded)
    }
}

/// The paths of arguments that one record hides and the other shows; `None` where they hide the same ones.
fn other_paths(before: &[String], now: &[String]) -> Option<Vec<String>> {
    let of_params = |paths: &[String]| -> Vec<String> {
        paths.iter().filter(|path| path.starts_with("params.")).cloned().collect()
    };
    let (before, now) = (of_params(before), of_params(now));
    if before == now {
        return None;
    }
    let all = before.iter().chain(&now);
    Some(all.filter(|path| !(before.contains(path) && now.contains(path))).cloned().collect())
}
