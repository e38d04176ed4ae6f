//! What must hold at every instant: one file for each property, and each names the section that states it.
//! Absent on purpose: liveness (§7.8). A search over orders without time has no "in the end"; the simulation heals and
//! demands it.

mod agreement;
mod conservation;
mod durable_intent;
mod evidence;
mod kill_switch;
mod one_fate;
mod one_reversal;
mod open_work;
mod same_answer;
mod single_use;

pub use agreement::Agreement;
pub use conservation::Conservation;
pub use durable_intent::DurableIntent;
pub use evidence::{Auditor, Evidence};
pub use kill_switch::NoWayRound;
pub use one_fate::OneFate;
pub use one_reversal::OneReversal;
pub use open_work::OpenWork;
pub use same_answer::SameAnswer;
pub use single_use::SingleUse;

use std::sync::Arc;

use crate::log::History;
use crate::snapshot::Snapshot;
use crate::system::{News, System};
use crate::world::World;

/// The evidence, which is checked for a whole log at once.
pub const EVIDENCE: Evidence = Evidence;

/// All of them.
pub const ALL: &[&dyn Property] = &[
    &DurableIntent,
    &Conservation,
    &OneFate,
    &SingleUse,
    &NoWayRound,
    &SameAnswer,
    &Agreement,
    &OneReversal,
    &OpenWork,
    &EVIDENCE,
];

/// A committed log, and the state that an Applier made of it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The world.
    pub world: &'a World,
    /// The log.
    pub history: &'a Arc<History>,
    /// The state.
    pub applied: &'a Arc<Snapshot>,
}

/// Something that must hold. An error says in words what does not.
pub trait Property: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Where it is stated.
    fn stated(&self) -> &'static str;

    /// Holds for each committed log, by the facts in it alone.
    fn of_log(&self, _view: &View<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Holds in each state.
    fn of_state(&self, _world: &World, _system: &System, _news: &News) -> Result<(), String> {
        Ok(())
    }

    /// Holds for each answer that leaves.
    fn of_answers(&self, _world: &World, _system: &System, _news: &News) -> Result<(), String> {
        Ok(())
    }
}
