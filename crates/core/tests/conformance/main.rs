//! AADP §23 on the decision core: every case a test named by its number, over the fixture of §23.1.
//! Cases in which a cluster can matter run again over HTTP, in the workspace's `tests/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails, panics"
)]

mod approvals;
mod budgets;
mod edges;
mod evidence;
mod features;
mod fixture;
mod groups;
mod idempotency;
mod later_revisions;
mod messages;
mod ordering;
mod properties;
mod queue;
mod random;
mod redaction;
mod rederivation;
mod rederivation_facts;
mod rederivation_hidden;
mod resumption;
mod switches;
mod undo;
mod vocabulary;
