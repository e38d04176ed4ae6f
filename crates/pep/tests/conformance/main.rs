//! AADP §23.8, §23.9 and §23.9a on the enforcement point: every case a test named by its number, against the decision
//! core behind a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails, panics"
)]

mod crash;
mod hygiene;
mod local;
mod modes;
mod obligations;
mod outbox;
mod outcomes;
mod reads;
mod repeats;
mod resumptions;
mod retries;
mod support;
mod tls;
