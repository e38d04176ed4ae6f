//! Placet from outside: node processes, real disks and sockets, HTTP, gRPC from another language, and the CLI.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails, panics"
)]

mod backup;
mod cli;
mod clients;
mod conformance;
mod doctor;
mod drain;
mod enforcement;
mod failover;
mod harness;
mod membership;
mod operators;
mod redaction;
mod retention;
mod storage;
mod tls;
mod verifier;
mod webhook;
