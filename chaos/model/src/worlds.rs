//! The worlds that are explored: small ones, each about one thing, and one with a little of everything.

mod approvals;
mod budgets;
mod everything;
mod failover;
mod switches;
mod undo;
mod windows;

use crate::world::World;

/// All of them.
pub fn all() -> Vec<World> {
    vec![
        budgets::world(),
        windows::world(),
        approvals::world(),
        approvals::in_flight(),
        switches::world(),
        undo::world(),
        failover::world(),
        everything::world(),
    ]
}

/// One by name.
pub fn named(name: &str) -> Option<World> {
    all().into_iter().find(|world| world.name == name)
}
