//! Runs the decision core under Raft: the leader evaluates calls and proposes facts, every node folds them.
//!
//! ```text
//! Node::submit ─► Decider (leader) ─► Raft: log and fsync on a quorum ─► Applier (every node) ─► answers
//!       └─ another node leads: Forward over the peer door
//! ```
//!
//! Absent on purpose: judgement (`core` does it), disks (a store implements [`ports`]) and doors for clients. The
//! only crate that names openraft. Architecture §1 and §3; rooms in reading order: [`options`], [`ports`], `types`,
//! `decider`, `state_machine`, `log_store`, `snapshot`, `network`, `bootstrap`, `watch`, `node`.

pub mod backup;
mod bootstrap;
#[doc(hidden)]
pub mod conformance;
#[doc(hidden)]
pub mod crash;
mod decider;
mod fuse;
mod judged;
mod log_store;
mod network;
mod node;
pub mod options;
pub mod ports;
mod recent;
pub mod restore;
mod retention;
mod snapshot;
mod space;
mod state_machine;
mod types;
mod watch;
mod work;

pub use bootstrap::{check_state_reaches_log, forget, members_in};
pub use network::server::{PeerService, serve_peers};
pub use network::wire::{Dial, PeerWire};
pub use node::{Node, StartError};
pub use options::{Clock, Options, PeerTls};
pub use space::DiskSpace;
pub use work::Work;

/// The program's version: every crate has the workspace's.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The bytes of the ports, so that a store needs no other version of them.
pub use bytes;
