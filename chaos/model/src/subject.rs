//! What is explored: the core, behind the few places in which a replica touches it.
//! Absent on purpose: a second implementation of anything. Every method does what the product does; a test that plants
//! a mistake overrides one of them.

use std::fmt::Debug;
use std::sync::Arc;

use placet_core::evaluate::{self, Due, Keys, Outcome};
use placet_core::event::Event;
use placet_core::fold;
use placet_core::ids::Entropy;
use placet_core::op::{Call, Reject};
use placet_core::stamp::Stamp;
use placet_core::state::{Changes, Overlay, Read, ReadError};

use crate::log::{self, Applied, Batch};
use crate::snapshot::Snapshot;

/// Where something is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Into state* of the leader, as soon as it is judged.
    Decider,
    /// Into the state of the leader, when it is committed.
    Leader,
    /// Into the state of the other node.
    Follower,
}

/// A decision point under exploration. Every method is a function of its arguments.
pub trait Subject: Debug {
    /// What a node that begins to lead takes as state*.
    fn take(&self, applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        applied.clone()
    }

    /// What judgement reads, of state* (applied and in flight) and of what is applied.
    fn sees(&self, star: &Arc<Snapshot>, _applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        star.clone()
    }

    /// Judges one call.
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        evaluate::evaluate(state, call, at, entropy, &Keys::default())
    }

    /// The event that ends something with a deadline, if it is to end.
    fn expire(&self, state: &Snapshot, due: &Due, at: Stamp) -> Result<Option<Event>, ReadError> {
        evaluate::expire(state, due, at)
    }

    /// Folds one event.
    fn fold(&self, overlay: &mut Overlay<&Snapshot>, event: &Event, _role: Role) -> Result<(), ReadError> {
        fold::fold(overlay, event)
    }

    /// What folding wrote, before it is kept.
    fn written(&self, _base: &Snapshot, _events: &[&Event], _role: Role, _changes: &mut Changes) {}

    /// The stamp of what is judged now, by the leader's clock and the time of the last entry.
    fn stamp(&self, clock: Stamp, last: Stamp) -> Stamp {
        clock.max(last)
    }

    /// Whether a committed batch is folded.
    fn admit(&self, state: &dyn Read, entry_term: u64, batch: &Batch) -> Result<Applied, String> {
        log::admit(state, entry_term, batch)
    }

    /// Whether an answer waits until what it shows is committed: its own facts, or those of a call before.
    fn waits_for_commit(&self, _own_facts: bool) -> bool {
        true
    }
}

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core;

impl Subject for Core {}
