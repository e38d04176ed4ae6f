//! The eight properties of architecture §7, one file each. They see every write to every state, every entry the first
//! time that any node applies it, and everything that clients are told.
//! Absent on purpose: knowledge of how the product keeps them.

mod agreement;
mod conservation;
mod durable_intent;
mod liveness;
mod no_way_round;
mod one_fate;
mod same_answer;
mod single_use;

use placet_core::event::Entry;
use placet_core::op::{Answer, Op, Reject};
use placet_core::state::{Changes, MemState};
use tokio::time::Instant;

use crate::disk::StateContent;

/// What a client did and was told.
#[derive(Clone, Debug)]
pub struct Told {
    /// Who asked.
    pub principal: String,
    /// What.
    pub op: Op,
    /// When it was sent.
    pub sent: Instant,
    /// The answer; `None` when none came: it is unknown what happened.
    pub answer: Option<Result<Answer, Reject>>,
    /// Durable copies of the entry that the answer names, and how many there must be; counted when it left the node.
    pub copies: Option<Copies>,
}

/// On how many disks an entry is.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    /// Durable on so many.
    pub durable: usize,
    /// A quorum.
    pub needed: usize,
}

/// How a run ended, after everything was healed.
#[derive(Debug)]
pub struct End<'a> {
    /// The state with the most entries.
    pub state: &'a MemState,
    /// The states of all members.
    pub states: &'a [(u64, MemState)],
    /// How long after the last fault a decide was answered again.
    pub recovered_ms: Option<u64>,
    /// How long until every node had applied the same.
    pub converged_ms: Option<u64>,
    /// The longest that either may take.
    pub bound_ms: u64,
}

/// One property.
pub trait Property: Send {
    /// Its name in architecture §7.
    fn name(&self) -> &'static str;
    /// An entry, the first time that any node applies it; in order.
    fn entry(&mut self, _entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
    /// A write to the state of a node.
    fn written(&mut self, _node: u64, _state: &StateContent, _changes: &Changes) -> Result<(), String> {
        Ok(())
    }
    /// Something is about to be asked.
    fn asked(&mut self, _op: &Op) {}
    /// Something a client was told, or was not.
    fn told(&mut self, _told: &Told) -> Result<(), String> {
        Ok(())
    }
    /// The end of a run.
    fn end(&mut self, _end: &End<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// All of them.
pub fn all() -> Vec<Box<dyn Property>> {
    vec![
        Box::<agreement::Agreement>::default(),
        Box::<durable_intent::DurableIntent>::default(),
        Box::<conservation::Conservation>::default(),
        Box::<one_fate::OneFate>::default(),
        Box::<single_use::SingleUse>::default(),
        Box::<no_way_round::NoWayRound>::default(),
        Box::<same_answer::SameAnswer>::default(),
        Box::<liveness::Liveness>::default(),
    ]
}
