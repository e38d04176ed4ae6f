//! Whole clusters in one process from one seed: the real core, replica and consensus over a simulated clock, network and
//! disk, used by clients that retry and die, and broken on purpose. Eight properties are checked after every step.
//!
//! ```text
//! entropy, clock ─► world: nodes (life, disk, network) ◄─ clients
//!                     ▲          │ every write, every answer
//!                   faults       ▼
//!                            properties ─► a violation names its seed
//! ```
//!
//! Absent on purpose: doors, RocksDB and processes; `chaos/nemesis` has the real ones.

pub mod batch;
pub mod clients;
pub mod clock;
pub mod disk;
pub mod entropy;
pub mod faults;
pub mod life;
pub mod network;
pub mod policy;
pub mod properties;
pub mod run;
pub mod trace;
pub mod world;
