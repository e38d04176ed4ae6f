//! Exports of the evidence: one golden file for every verifier, every change of one byte, what a tamperer would do, and
//! a hundred thousand entries.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails, panics"
)]

mod bytes;
mod desk;
mod golden;
mod mixed;
mod restored;
mod story;
mod tampering;
