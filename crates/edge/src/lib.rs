//! The doors of a decision point: HTTP/JSON over TCP and over a Unix socket, and gRPC `placet.v1` (AADP §15). They
//! authenticate, limit, decode, ask, and encode.
//!
//! ```text
//! socket ─► listen (TLS, drain) ─► guard (roles, lanes, metrics) ─► http | grpc ─► Edge::ask ─► Pdp
//! ```
//!
//! Absent on purpose: judgement, consensus and disk. Everything behind a door is the [`Pdp`] trait. Rooms in reading
//! order: [`pdp`], [`roles`], [`auth`], [`peers`], [`reject`], [`edge`], `lanes`, `pulse`, `follow`, [`http`],
//! [`grpc`], [`tls`], [`socket`], [`listen`], [`telemetry`].

mod args;
pub mod auth;
mod backup;
mod covered;
pub mod edge;
mod follow;
pub mod grpc;
mod guard;
pub mod http;
mod lanes;
pub mod limits;
pub mod listen;
mod opening;
pub mod pdp;
pub mod peers;
mod pulse;
pub mod reject;
pub mod roles;
mod shared;
pub mod socket;
pub mod telemetry;
pub mod tls;

pub use auth::{Keyring, KeyringError};
pub use edge::Edge;
pub use listen::{ListenError, ServeError, check_listen, serve_grpc, serve_http, serve_unix};
pub use pdp::{BackupParts, Pdp};
pub use peers::{PeerEntry, Peers, PeersError};
pub use socket::{SocketError, SocketFile, SocketMode};
pub use tls::{Tls, TlsError, TlsFiles};
