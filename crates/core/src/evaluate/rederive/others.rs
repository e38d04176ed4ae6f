//! Approvals, policies, heads, and what was refused.

use super::{Check, Difference};
use crate::evaluate::expire::transition;
use crate::evaluate::{approvals, restored};
use crate::event::{
    ApprovalRefused, ApprovalState, ApprovalTransition, Body, MalformedRequest, PolicyChange, PolicyStep,
    ReplayMismatch, Restored,
};
use crate::head::SignedHead;
use crate::ids::{Hash, Principal, hex};
use crate::limits::MALFORMED_KEPT_BYTES_MAX;
use crate::merkle;
use crate::policy::PolicySet;
use crate::state::Tree;

impl Check<'_> {
    /// A grant, a denial or a ratification by someone who may not. What was signed to ratify is not on record.
    pub(super) fn refused_attempt(&self, refused: &ApprovalRefused) -> Result<(), Difference> {
        let (state, meta, id) = (self.state, &self.state.meta, &refused.approval_id);
        let Some(approval) = state.approvals.get(id) else {
            return Err(self.differs("approval_id", id, "no approval"));
        };
        self.same("proposal", &refused.proposal, &approval.proposal)?;
        let in_time = self.entry.at < approval.deadline;
        let attempt = refused.attempt.as_str();
        let is_refused = match (attempt, approval.state) {
            ("ratify", ApprovalState::Pending) => in_time && approval.terms.authority && !approval.ratified,
            // Whoever resumes what is granted must be one who may grant it.
            ("grant", ApprovalState::Approved) => {
                let group = approval.terms.group.as_ref();
                let group = group.and_then(|name| self.policy()?.document().approvers.get(name));
                let member = |one: &String| one == self.entry.principal.as_str();
                let outside = group.is_some_and(|group| !group.members.iter().any(member));
                in_time && (approval.proposer == self.entry.principal || outside)
            }
            ("grant" | "deny", _) => {
                let outcome = approvals::resolve(state, meta, self.recorder(meta), id, attempt == "grant", None).ok();
                let body = outcome.and_then(|outcome| outcome.events.into_iter().next()).map(|event| event.entry.body);
                matches!(body, Some(Body::ApprovalRefused(derived)) if derived.attempt == attempt)
            }
            _ => false,
        };
        if is_refused { Ok(()) } else { Err(self.differs("attempt", attempt, "no attempt that is refused on record")) }
    }

    pub(super) fn transition(&self, change: &ApprovalTransition) -> Result<(), Difference> {
        let (state, meta, id) = (self.state, &self.state.meta, &change.approval_id);
        let Some(approval) = state.approvals.get(id) else {
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
                self.again(approvals::ratify(state, meta, recorder, id, approved, signature))
            }
            (to, None) => {
                let grant = to != ApprovalState::Denied;
                self.again(approvals::resolve(state, meta, recorder, id, grant, note))
            }
        }
    }

    pub(super) fn mismatch(&self, mismatch: &ReplayMismatch) -> Result<(), Difference> {
        let Some(record) = self.state.requests.get(&mismatch.request_id) else {
            return Err(self.differs("request_id", &mismatch.request_id, "not decided before"));
        };
        self.same("original", &mismatch.original, &record.index)?;
        let differs = if record.principal == self.entry.principal { "request" } else { "principal" };
        self.same("differs", &mismatch.differs.as_str(), &differs)?;
        // Under a policy that hides, the digest may be that of another form than the one that was compared.
        let redacts = self.policy().is_some_and(|policy| policy.redacts());
        let equal = mismatch.request_digest == record.digest;
        self.same("request_digest.equal", &(equal && differs == "request" && !redacts), &false)
    }

    /// What was kept of a body fits what is said about the whole.
    pub(super) fn malformed(&self, found: &MalformedRequest) -> Result<(), Difference> {
        let request = &found.request;
        if !matches!(found.operation.as_str(), "decide" | "report") {
            return Err(self.differs("operation", &found.operation, "decide or report"));
        }
        if self.policy().is_some_and(|policy| policy.redacts()) {
            let kept = !request.received.is_empty() || !request.received_clipped;
            return self.same("received.kept", &kept, &false);
        }
        if request.received_clipped {
            // Text, or two digits for a byte behind `hex:`.
            let most = MALFORMED_KEPT_BYTES_MAX * 2 + 4;
            let more = request.bytes > u64::try_from(MALFORMED_KEPT_BYTES_MAX).unwrap_or(u64::MAX);
            return self.same("received", &(more && request.received.len() <= most), &true);
        }
        let is_whole =
            |bytes: &[u8]| u64::try_from(bytes.len()) == Ok(request.bytes) && Hash::of(bytes) == request.digest;
        let coded = request.received.strip_prefix("hex:").and_then(unhex);
        let whole = is_whole(request.received.as_bytes()) || coded.is_some_and(|bytes| is_whole(&bytes));
        self.same("received.digest", &whole, &true)
    }

    pub(super) fn head(&self, signed: &SignedHead) -> Result<(), Difference> {
        let meta = &self.state.meta;
        let size = self.entry.index.0.saturating_sub(1);
        self.same("head.size", &signed.head.size, &size)?;
        self.same("head.chain_head", &signed.head.chain_head, &meta.chain_head)?;
        let root = merkle::root(&Tree(self.state), size).map_err(|error| self.differs("head.root", "there", error))?;
        self.same("head.root", &signed.head.root, &root)?;
        self.same("head.signature", &signed.verify(), &true)
    }

    /// A cluster goes on exactly where its backup ended, under a name that it did not have before.
    pub(super) fn restored(&self, found: &Restored) -> Result<(), Difference> {
        let unreadable = |error| self.differs("previous", found.previous, error);
        let derived = restored::body(self.state, &self.state.meta, found.cluster).map_err(unreadable)?;
        self.same("chain_head", &found.chain_head, &derived.chain_head)?;
        self.same("entries", &found.entries, &derived.entries)?;
        self.same("previous", &found.previous, &derived.previous)?;
        self.same("cluster.new", &(found.cluster != found.previous), &true)?;
        self.same("principal", &self.entry.principal, &Principal::system())
    }

    pub(super) fn policy_change(&self, change: &PolicyChange) -> Result<(), Difference> {
        let meta = &self.state.meta;
        let known = self.state.policy_records.get(&change.digest);
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

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    digits.collect::<Option<Vec<u8>>>().filter(|bytes| hex(bytes) == text)
}
