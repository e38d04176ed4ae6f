//! The decision core of Placet: policy, evaluation, folding and evidence, as functions of their arguments.
//!
//! ```text
//! evaluate(state, call, at, entropy) -> answer + events      judges; reads state, writes nothing
//! fold(state, event)                                         adds one fact to state; total
//! ```
//!
//! Absent on purpose: IO, async, clocks, randomness and binary floats. The same log gives the same bytes on every
//! node. Rooms in reading order: [`request`], [`policy`], [`state`], [`evaluate`], [`event`], [`fold`],
//! [`evidence`], [`merkle`], [`head`], [`export`], [`redact`], [`op`].

pub mod backup;
pub mod cluster;
pub mod evaluate;
pub mod event;
pub mod evidence;
pub mod exact;
pub mod export;
pub mod fold;
pub mod head;
pub mod ids;
pub mod json;
pub mod limits;
pub mod merkle;
pub mod notice;
pub mod op;
pub mod planted;
pub mod policy;
pub mod query;
pub mod redact;
pub mod reply;
pub mod request;
pub mod search;
pub mod stamp;
pub mod state;
pub mod trace;
