//! Placet from outside: node processes, real disks and sockets, HTTP, gRPC from another language, and the CLI.

mod clients;
mod cli;
mod conformance;
mod failover;
mod harness;
mod membership;
mod tls;
