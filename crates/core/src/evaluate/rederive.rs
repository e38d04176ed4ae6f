//! Re-derivation (AADP §14.1): every entry again from what came before it, with the same judgement that made it, and a
//! comparison of what must be equal. Offline: nothing but the entries is needed.
//! Absent on purpose: the chain and the tree, which say that the entries are the recorded ones; this says that they are
//! the right ones.

use std::sync::Arc;

use super::approvals::{self, request_of};
use super::decide::decide_request;
use super::expire::{expiry, transition};
use super::{Keys, Recorder, control};
use crate::event::{
    ApprovalRefused, ApprovalState, ApprovalTransition, Body, BudgetKind, Decided, Draw, Entry, Event, ExecResult,
    PolicyChange, PolicyStep, ReportRefused, ReservationEnded,
};
use crate::evidence;
use crate::fold::fold;
use crate::head::SignedHead;
use crate::ids::{ApprovalId, Entropy, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use crate::merkle;
use crate::op::{Answer, Reject};
use crate::policy::PolicySet;
use crate::redact;
use crate::reply::{Obligation, Reason, Verdict};
use crate::request::Outcome;
use crate::state::{
    ApprovalRecord, Counter, CounterKey, MemState, MerkleKey, Meta, Overlay, PermitRecord, PermitStatus, PolicyRecord,
    Read, ReadError, RequestRecord, Tree,
};

/// What deriving one entry again came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rederived {
    /// A verdict, reproduced.
    Verdict,
    /// Another fact that follows from what came before it.
    Fact,
    /// A decision that read what only a digest is kept of.
    Redacted {
        /// Which paths.
        paths: Vec<String>,
    },
}

/// The first thing about an entry that does not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which entry.
    pub index: EvidenceIndex,
    /// Which field of it.
    pub field: String,
    /// What the entry says.
    pub recorded: String,
    /// What follows from the entries before it.
    pub derived: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, field, recorded, derived } = self;
        write!(f, "entry `{index}`: `{field}` is {recorded} in the record and {derived} when derived again")
    }
}

impl std::error::Error for Difference {}

/// The state that the entries so far add up to.
#[derive(Debug, Default)]
pub struct Rederivation {
    records: Records,
}

impl Rederivation {
    /// Derives the next entry again, compares, and takes it.
    pub fn step(&mut self, entry: Entry, bytes: Vec<u8>) -> Result<Rederived, Difference> {
        let found = Check { records: &self.records, entry: &entry }.derive()?;
        let permit_id = permit_digest(&entry.body).map(stand_in);
        let index = entry.index;
        let event = Event::of(bytes, entry, permit_id);
        let mut overlay = Overlay::new(&self.records);
        fold(&mut overlay, &event).map_err(|error| difference(index, "state", "readable", error))?;
        let changes = overlay.into_changes();
        self.records.0.write(changes);
        Ok(found)
    }

    /// The state so far.
    pub fn state(&self) -> &MemState {
        &self.records.0
    }
}

/// Derives all entries of an export again, in order.
pub fn rederive<'e>(entries: impl IntoIterator<Item = &'e [u8]>) -> Result<Vec<Rederived>, Difference> {
    let mut walk = Rederivation::default();
    entries
        .into_iter()
        .map(|bytes| {
            let next = walk.records.0.meta.next_index;
            let entry = evidence::decode(bytes).map_err(|error| difference(next, "entry", "unreadable", error))?;
            walk.step(entry, bytes.to_vec())
        })
        .collect()
}

fn difference(
    index: EvidenceIndex,
    field: &str,
    recorded: impl std::fmt::Display,
    derived: impl std::fmt::Display,
) -> Difference {
    Difference { index, field: field.to_owned(), recorded: recorded.to_string(), derived: derived.to_string() }
}

/// Evidence shows a permit's digest only; the digest stands in for the permit.
fn stand_in(digest: Hash) -> PermitId {
    PermitId::new(format!("digest:{digest}"))
}

fn permit_digest(body: &Body) -> Option<Hash> {
    match body {
        Body::ExecIntent(decided) => decided.permit_digest,
        Body::ExecResult(result) => Some(result.permit_digest),
        Body::ReservationExpired(ended) | Body::ReservationReleased(ended) => Some(ended.permit_digest),
        _ => None,
    }
}

struct Check<'a> {
    records: &'a Records,
    entry: &'a Entry,
}

impl Check<'_> {
    fn derive(&self) -> Result<Rederived, Difference> {
        let meta = &self.records.0.meta;
        self.same("index", &self.entry.index, &meta.next_index)?;
        self.same("prev", &self.entry.prev, &meta.chain_head)?;
        if self.entry.at < meta.last_stamp {
            return Err(self.differs("at", self.entry.at, format!("not before {}", meta.last_stamp)));
        }
        self.release_is_followed()?;
        match &self.entry.body {
            Body::PolicyChange(change) => self.policy_change(change)?,
            body => {
                self.same_debug("policy", &self.entry.policy, &meta.active_policy)?;
                match body {
                    Body::Decision(decided) | Body::ExecIntent(decided) => return self.decided(decided),
                    Body::ExecResult(result) => self.result(result)?,
                    Body::ReservationReleased(ended) => self.released(ended)?,
                    Body::ReservationExpired(ended) => self.expired(ended)?,
                    Body::ApprovalTransition(change) => self.transition(change)?,
                    Body::KillSwitch(set) => {
                        let (note, scope) = (set.note.as_deref(), set.scope.as_ref());
                        let recorder = self.recorder(meta);
                        self.again(control::set_kill_switch(meta, recorder, set.engaged, &set.origin, note, scope))?;
                    }
                    Body::MandateSet(set) => {
                        self.again(control::set_mandate(self.records, meta, self.recorder(meta), set))?;
                    }
                    Body::HeadSigned(signed) => self.head(signed)?,
                    Body::ReportRefused(refused) => self.refused_report(refused)?,
                    Body::ApprovalRefused(refused) => self.refused_attempt(refused)?,
                    Body::Notified(delivered) => {
                        self.again(control::notified(meta, self.recorder(meta), delivered.up_to))?;
                    }
                    _ => {}
                }
            }
        }
        Ok(Rederived::Fact)
    }

    fn recorder<'m>(&'m self, meta: &Meta) -> Recorder<'m> {
        Recorder::new(meta, &self.entry.principal, self.entry.at)
    }

    fn differs(&self, field: &str, recorded: impl std::fmt::Display, derived: impl std::fmt::Display) -> Difference {
        difference(self.entry.index, field, recorded, derived)
    }

    fn same<T: PartialEq + std::fmt::Display>(&self, field: &str, recorded: &T, derived: &T) -> Result<(), Difference> {
        if recorded == derived { Ok(()) } else { Err(self.differs(field, recorded, derived)) }
    }

    fn same_debug<T: PartialEq + std::fmt::Debug>(
        &self,
        field: &str,
        recorded: &T,
        derived: &T,
    ) -> Result<(), Difference> {
        if recorded == derived {
            return Ok(());
        }
        Err(self.differs(field, format_args!("{recorded:?}"), format_args!("{derived:?}")))
    }

    /// The same call must record the same fact.
    fn again(&self, outcome: Result<super::Outcome, Reject>) -> Result<(), Difference> {
        let outcome = outcome.map_err(|reject| self.differs("body", self.entry.body.kind(), reject.detail()))?;
        let body = outcome.events.first().map(|event| &event.entry.body);
        self.same_debug("body", &Some(&self.entry.body), &body)
    }

    fn permit(&self, digest: Hash, intent: EvidenceIndex) -> Result<PermitRecord, Difference> {
        let found = self.records.0.permits.get(&stand_in(digest));
        let permit = found.ok_or_else(|| self.differs("permit_digest", digest, "no permit"))?;
        self.same("intent", &intent, &permit.index)?;
        Ok(permit.clone())
    }

    fn decided(&self, recorded: &Decided) -> Result<Rederived, Difference> {
        let meta = &self.records.0.meta;
        let unreadable = || self.differs("params", "unreadable", "a JSON object");
        let request = request_of(self.entry.protocol, recorded).ok_or_else(unreadable)?;
        if let Some(paths) = self.unreadable(recorded)? {
            // The verdict depends on what is gone; who asked for what does not.
            let fresh = !self.records.0.requests.contains_key(&recorded.request_id);
            self.same("request_id.fresh", &fresh, &true)?;
            self.same_debug("request_digest", &recorded.request_digest, &request.digest(&request.params_canonical()))?;
            return Ok(Rederived::Redacted { paths });
        }
        let keys = Keys { from_record: true, ..Keys::default() };
        let (recorder, resumed_by) = (self.recorder(meta), recorded.resumed_by.clone());
        let derived = decide_request(self.records, meta, recorder, request, Entropy::default(), &keys, resumed_by);
        let outcome = derived.map_err(|reject| self.differs("verdict", recorded.verdict.as_str(), reject.detail()))?;
        let (Answer::Decide(_), Some(Body::Decision(derived) | Body::ExecIntent(derived))) =
            (&outcome.answer, outcome.events.first().map(|event| &event.entry.body))
        else {
            return Err(self.differs("request_id", &recorded.request_id, "decided before"));
        };
        self.compare(recorded, derived)?;
        Ok(Rederived::Verdict)
    }

    fn compare(&self, recorded: &Decided, derived: &Decided) -> Result<(), Difference> {
        self.same("verdict", &recorded.verdict.as_str(), &derived.verdict.as_str())?;
        self.same("reason", &recorded.reason.as_str(), &derived.reason.as_str())?;
        self.same("nominal_tier", &u8::from(recorded.nominal_tier), &u8::from(derived.nominal_tier))?;
        self.same("effective_tier", &u8::from(recorded.effective_tier), &u8::from(derived.effective_tier))?;
        self.same_debug("request_digest", &recorded.request_digest, &derived.request_digest)?;
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
        let trace = |decided: &Decided| -> Vec<_> {
            decided.trace.iter().map(|check| (check.check.clone(), check.rule.clone(), check.result)).collect()
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

    /// The redacted paths that a rule of the policy reads; `None` when none does. Only what the policy hides can be
    /// hidden.
    fn unreadable(&self, recorded: &Decided) -> Result<Option<Vec<String>>, Difference> {
        let policy = self.entry.policy.as_ref().and_then(|digest| self.records.0.policies.get(digest));
        let hidden = policy.map(|policy| redact::paths_of(policy, recorded.action_type.as_str())).unwrap_or_default();
        if let Some(path) = recorded.redacted.iter().find(|path| !hidden.contains(path)) {
            return Err(self.differs("redacted", path, "nothing that the policy hides"));
        }
        let action = policy.and_then(|policy| policy.document().actions.get(recorded.action_type.as_str()));
        let Some(action) = action else { return Ok(None) };
        let paths: Vec<String> =
            recorded.redacted.iter().filter(|path| redact::is_judged(action, path)).cloned().collect();
        Ok((!paths.is_empty()).then_some(paths))
    }

    fn result(&self, result: &ExecResult) -> Result<(), Difference> {
        let permit = self.permit(result.permit_digest, result.intent)?;
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
    fn release_before(&self) -> Option<ReservationEnded> {
        let before = EvidenceIndex(self.entry.index.0.saturating_sub(1));
        let entry = evidence::decode(self.records.0.entries.get(&before)?).ok()?;
        if let Body::ReservationReleased(ended) = entry.body { Some(ended) } else { None }
    }

    /// A release and its result are one log entry: nothing stands between them.
    fn release_is_followed(&self) -> Result<(), Difference> {
        let Some(release) = self.release_before() else { return Ok(()) };
        if matches!(&self.entry.body, Body::ExecResult(result) if result.intent == release.intent) {
            return Ok(());
        }
        Err(self.differs("body", self.entry.body.kind(), format!("the result of intent `{}`", release.intent)))
    }

    fn released(&self, ended: &ReservationEnded) -> Result<(), Difference> {
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

    fn refused_report(&self, refused: &ReportRefused) -> Result<(), Difference> {
        let permit = self.records.0.permits.get(&stand_in(refused.permit_digest));
        self.same_debug("intent", &refused.intent, &permit.map(|permit| permit.index))?;
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

    /// A grant or a denial by someone who may not; what was signed to ratify is not on record.
    fn refused_attempt(&self, refused: &ApprovalRefused) -> Result<(), Difference> {
        let id = &refused.approval_id;
        let Some(approval) = self.records.0.approvals.get(id) else {
            return Err(self.differs("approval_id", id, "no approval"));
        };
        self.same("proposal", &refused.proposal, &approval.proposal)?;
        if refused.attempt == "ratify" || approval.state != ApprovalState::Pending {
            return Ok(());
        }
        let meta = &self.records.0.meta;
        let grant = refused.attempt == "grant";
        self.again(approvals::resolve(self.records, meta, self.recorder(meta), id, grant, None))
    }

    fn expired(&self, ended: &ReservationEnded) -> Result<(), Difference> {
        let permit = self.permit(ended.permit_digest, ended.intent)?;
        self.of_permit(ended, &permit)?;
        self.same("reason", &ended.reason.as_str(), &"expired")?;
        if permit.deadline > self.entry.at {
            return Err(self.differs("at", self.entry.at, format!("{} or later", permit.deadline)));
        }
        let policy = self.entry.policy.as_ref().and_then(|digest| self.records.0.policies.get(digest));
        let Body::ReservationExpired(derived) =
            expiry(&stand_in(ended.permit_digest), &permit, policy.map(Arc::as_ref))
        else {
            return Ok(());
        };
        self.same_debug("released", &ended.released, &derived.released)
    }

    fn transition(&self, change: &ApprovalTransition) -> Result<(), Difference> {
        let (records, meta, id) = (self.records, &self.records.0.meta, &change.approval_id);
        let Some(approval) = records.0.approvals.get(id) else {
            return Err(self.differs("approval_id", id, "no approval"));
        };
        let recorder = self.recorder(meta);
        let note = change.note.as_deref();
        match (change.to, &change.signature) {
            (ApprovalState::Expired, _) => {
                let open = matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved);
                self.same("open", &true, &open)?;
                self.same("due", &true, &(approval.deadline <= self.entry.at))?;
                let derived = Body::ApprovalTransition(transition(approval, ApprovalState::Expired, None));
                self.same_debug("body", &&self.entry.body, &&derived)
            }
            (to, Some(signature)) => {
                let approved = to != ApprovalState::Denied;
                self.again(approvals::ratify(records, meta, recorder, id, approved, signature))
            }
            (to, None) => {
                let grant = to != ApprovalState::Denied;
                self.again(approvals::resolve(records, meta, recorder, id, grant, note))
            }
        }
    }

    fn head(&self, signed: &SignedHead) -> Result<(), Difference> {
        let meta = &self.records.0.meta;
        let size = self.entry.index.0.saturating_sub(1);
        self.same("head.size", &signed.head.size, &size)?;
        self.same("head.chain_head", &signed.head.chain_head, &meta.chain_head)?;
        let root =
            merkle::root(&Tree(self.records), size).map_err(|error| self.differs("head.root", "there", error))?;
        self.same("head.root", &signed.head.root, &root)?;
        self.same("head.signature", &signed.verify(), &true)
    }

    fn policy_change(&self, change: &PolicyChange) -> Result<(), Difference> {
        let meta = &self.records.0.meta;
        let known = self.records.0.policy_records.get(&change.digest);
        let activated = change.step == PolicyStep::Activated;
        let in_force = if activated { Some(&change.digest) } else { meta.active_policy.as_ref() };
        self.same_debug("policy", &self.entry.policy.as_ref(), &in_force)?;
        let previous = meta.active_policy.as_ref().filter(|_| activated);
        self.same_debug("previous", &change.previous.as_ref(), &previous)?;
        match (&change.document, known) {
            (Some(document), None) if change.step != PolicyStep::Dropped => {
                let policy =
                    PolicySet::from_canonical(document).map_err(|error| self.differs("document", "a policy", error))?;
                self.same("digest", &change.digest, policy.digest())
            }
            (None, Some(record)) if change.step != PolicyStep::Dropped || !record.used => Ok(()),
            _ => Err(self.differs("step", format!("{:?}", change.step), "another life of this policy")),
        }
    }
}

/// Records in memory, where a permit is found by its identifier, too.
#[derive(Debug, Default)]
struct Records(MemState);

impl Read for Records {
    fn meta(&self) -> Result<Meta, ReadError> {
        self.0.meta()
    }
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        self.0.request(id)
    }
    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        match self.0.permit(id)? {
            Some(permit) => Ok(Some(permit)),
            None => self.0.permit(&stand_in(id.digest())),
        }
    }
    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        self.0.approval(id)
    }
    fn counter(&self, key: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.0.counter(key)
    }
    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.0.policy(digest)
    }
    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        self.0.policy_record(digest)
    }
    fn merkle(&self, node: MerkleKey) -> Result<Option<Hash>, ReadError> {
        self.0.merkle(node)
    }
    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.0.entry(index)
    }
}
