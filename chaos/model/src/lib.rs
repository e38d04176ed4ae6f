//! Exhaustive exploration of small histories: the real core, its leader and its log in every order that a small world
//! allows, and the properties of architecture §7 in every state.
//! Absent on purpose: network, disk, clock and chance; those are the simulation's. Here nothing is sampled.
//!
//! Rooms in reading order: [`world`] and [`worlds`] (what may happen), [`system`] (one state), [`machine`] (one step),
//! [`subject`] (what is explored), [`explore`] (every step from every state), [`properties`] (what must hold).

pub mod explore;
pub mod identity;
pub mod ledger;
pub mod log;
pub mod machine;
pub mod memory;
pub mod properties;
pub mod snapshot;
pub mod subject;
pub mod system;
pub mod world;
pub mod worlds;
