//! Re-derivation (AADP §14.1): every entry again from what came before it, with the same judgement that made it, and a
//! comparison of what must be equal. Offline: nothing but the entries is needed.
//! Absent on purpose: the chain and the tree, which say that the entries are the recorded ones; this says that they are
//! the right ones. Text for humans is not compared either: it may be worded anew, and the record stays as right.

mod assumed;
mod covered;
mod decided;
mod others;
mod reports;
mod seen;

use super::{Keys, Recorder, control};
use crate::event::{Body, Entry, Event};
use crate::evidence;
use crate::fold::fold;
use crate::ids::{EvidenceIndex, Hash, PermitId};
use crate::op::Reject;
use crate::state::{MemState, Meta, Overlay, PermitRecord};

/// What deriving one entry again came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rederived {
    /// A verdict, reproduced.
    Verdict,
    /// Another fact that follows from what came before it.
    Fact,
    /// A decision that read what only a digest is kept of. What the hidden value decided is taken as recorded; all else
    /// was reproduced.
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
#[derive(Clone, Debug, Default)]
pub struct Rederivation {
    state: MemState,
    /// The entry before the next one.
    before: Option<Entry>,
}

impl Rederivation {
    /// Derives the next entry again, compares, and takes it.
    pub fn step(&mut self, entry: Entry, bytes: Vec<u8>) -> Result<Rederived, Difference> {
        let found = Check { state: &self.state, before: self.before.as_ref(), entry: &entry }.derive()?;
        let permit_id = permit_digest(&entry.body).map(stand_in);
        let index = entry.index;
        let event = Event::of(bytes.into(), entry, permit_id);
        let mut overlay = Overlay::new(&self.state);
        fold(&mut overlay, &event).map_err(|error| difference(index, "state", "readable", error))?;
        let changes = overlay.into_changes();
        self.state.write(changes);
        self.before = Some(event.entry);
        Ok(found)
    }

    /// The state so far.
    pub fn state(&self) -> &MemState {
        &self.state
    }
}

/// Derives all entries of an export again, in order.
pub fn rederive<'e>(entries: impl IntoIterator<Item = &'e [u8]>) -> Result<Vec<Rederived>, Difference> {
    let mut walk = Rederivation::default();
    entries
        .into_iter()
        .map(|bytes| {
            let next = walk.state.meta.next_index;
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

/// Evidence shows a permit's digest only; the digest stands in for the permit. A client that names one finds nothing:
/// see [`seen::Seen`].
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

/// One entry, and everything before it.
struct Check<'a> {
    state: &'a MemState,
    before: Option<&'a Entry>,
    entry: &'a Entry,
}

impl Check<'_> {
    fn derive(&self) -> Result<Rederived, Difference> {
        let meta = &self.state.meta;
        self.same("index", &self.entry.index, &meta.next_index)?;
        self.same("prev", &self.entry.prev, &meta.chain_head)?;
        if self.entry.at < meta.last_stamp {
            return Err(self.differs("at", self.entry.at, format!("not before {}", meta.last_stamp)));
        }
        self.follows()?;
        if !matches!(self.entry.body, Body::PolicyChange(_)) {
            self.same_debug("policy", &self.entry.policy, &meta.active_policy)?;
        }
        match &self.entry.body {
            Body::Decision(decided) | Body::ExecIntent(decided) => return self.decided(decided),
            Body::PolicyChange(change) => self.policy_change(change)?,
            Body::ExecResult(result) => self.result(result)?,
            Body::ReservationReleased(ended) => self.released(ended)?,
            Body::ReservationExpired(ended) => self.expired(ended)?,
            Body::ApprovalTransition(change) => self.transition(change)?,
            Body::ApprovalRefused(refused) => self.refused_attempt(refused)?,
            Body::ReportRefused(refused) => self.refused_report(refused)?,
            Body::ReportNoted(noted) => self.noted(noted)?,
            Body::LocalDecision(local) => self.local(local)?,
            Body::ReplayMismatch(mismatch) => self.mismatch(mismatch)?,
            Body::MalformedRequest(found) => self.malformed(found)?,
            Body::HeadSigned(signed) => self.head(signed)?,
            Body::KillSwitch(set) => {
                let (note, scope) = (set.note.as_deref(), set.scope.as_ref());
                let recorder = self.recorder(meta);
                self.again(control::set_kill_switch(meta, recorder, set.engaged, &set.origin, note, scope))?;
            }
            Body::MandateSet(set) => self.again(control::set_mandate(self.state, meta, self.recorder(meta), set))?,
            Body::Notified(delivered) => {
                self.again(control::notified(meta, self.recorder(meta), delivered.up_to))?;
            }
            Body::Restored(restored) => self.restored(restored)?,
        }
        Ok(Rederived::Fact)
    }

    fn recorder<'m>(&'m self, meta: &Meta) -> Recorder<'m> {
        Recorder::new(meta, &self.entry.principal, self.entry.at)
    }

    /// What was hidden is hidden already.
    fn keys() -> Keys {
        Keys { from_record: true, ..Keys::default() }
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

    /// The same call must record the same fact. What a caller wrote, the fact repeats.
    fn again(&self, outcome: Result<super::Outcome, Reject>) -> Result<(), Difference> {
        let outcome = outcome.map_err(|reject| self.differs("body", self.entry.body.kind(), reject.detail()))?;
        let body = outcome.events.first().map(|event| &event.entry.body);
        self.same_debug("body", &Some(&self.entry.body), &body)
    }

    fn permit(&self, digest: Hash, intent: EvidenceIndex) -> Result<PermitRecord, Difference> {
        let found = self.state.permits.get(&stand_in(digest));
        let permit = found.ok_or_else(|| self.differs("permit_digest", digest, "no permit"))?;
        self.same("intent", &intent, &permit.index)?;
        Ok(permit.clone())
    }
}
