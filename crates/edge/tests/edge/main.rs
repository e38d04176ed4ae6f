//! The doors over real sockets, in front of a decision point that echoes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that cannot go on fails its test")]

mod auth;
mod bodies;
mod client;
mod drain;
mod evidence;
mod fake;
mod grpc;
mod house;
mod opening;
mod query;
mod routes;
mod status;
mod streams;
mod tls;
mod unix;
mod watch;
