//! The peer door: what nodes say to each other over gRPC.
//! Absent on purpose: clients; their doors are in `edge`.

pub(crate) mod client;
pub(crate) mod convert;
mod hold;
pub(crate) mod server;
pub(crate) mod transfer;
pub(crate) mod wire;

use std::time::Duration;

/// Largest message between peers: one append carries at most what one bounded read of the log returns, and one entry
/// may alone be larger than that bound.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// HTTP/2 window of one stream: an append in flight must not wait for a window update.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// HTTP/2 window of one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A peer that does not answer a ping for this long is gone, whatever TCP believes.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);
