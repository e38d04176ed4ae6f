//! The doors over real sockets, in front of a decision point that echoes.

mod auth;
mod bodies;
mod client;
mod drain;
mod fake;
mod grpc;
mod house;
mod query;
mod routes;
mod status;
mod streams;
mod tls;
