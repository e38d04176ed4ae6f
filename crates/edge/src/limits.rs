//! Every bound of the doors, each with its reason. Bounds of messages are the core's.

use std::time::Duration;

/// Decides and reports in work at once. Each holds at most one body, so this bounds the memory of a burst; what is
/// over it is told to come back instead of waiting in a queue that nobody sees.
pub const DECIDE_IN_FLIGHT_MAX: usize = 4096;

/// All other calls in work at once: a lane of its own, so that the kill switch answers while decides are refused
/// (AADP §16).
pub const ADMIN_IN_FLIGHT_MAX: usize = 256;

/// Calls in work at once on one gRPC stream: enough to fill a batch, too few for one client to hold the whole lane.
pub const STREAM_IN_FLIGHT_MAX: usize = 256;

/// Evidence tails and exports open at once: each reads pages for as long as its client stays.
pub const TAILS_MAX: usize = 64;

/// Entries that a tail reads at a time: an entry may be as large as a request.
pub const TAIL_PAGE: u32 = 64;

/// Entries that an export reads at a time; the core ends a page of large ones before.
pub const EXPORT_PAGE: u32 = PAGE_MAX;

/// Pages that an export reads ahead of this node to find the last entry: a node further behind than this ends its
/// exports where it stopped looking.
pub const CATCH_UP_PAGES_MAX: usize = 64;

/// Enforcement points that watch their permits on one node: each holds a place in the channel of notices and, while a
/// switch is engaged, the names of its own open permits.
pub const WATCHERS_MAX: usize = 4096;

/// How long what a switch covers is kept for watchers that hear of it late: its memory is that of all open permits.
pub const SCAN_KEPT: Duration = Duration::from_secs(10);

/// How often a watcher asks whether its node still hears a leader; twice without, and the watch ends: a node that is
/// cut off tells nothing, and its silence must not be taken for good news.
pub const WATCH_POLL: Duration = Duration::from_secs(1);

/// How often a watched health is asked.
pub const HEALTH_POLL: Duration = Duration::from_secs(1);

/// Connections of one door.
pub const CONNECTIONS_MAX: usize = 8192;

/// Streams of one HTTP/2 connection.
pub const H2_STREAMS_MAX: u32 = 1024;

/// How long a client may take over its TLS handshake, and then until it is clear which HTTP it speaks.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long a client may take over a body.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);

/// How long a call waits for the decision point. Beyond it the answer is `unknown`.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// An HTTP/2 connection that is silent this long is asked whether it still lives.
pub const H2_PING_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to say so.
pub const H2_PING_WITHIN: Duration = Duration::from_secs(20);

/// How long calls in work may take after the door was told to close.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(25);

/// What is read and thrown away of a body that is too large, so that its sender gets to read the answer.
pub const DISCARD_BYTES_MAX: usize = 4 << 20;

/// Largest body of an operator call: a few labels.
pub const ADMIN_BODY_BYTES_MAX: usize = 64 << 10;

/// Largest gRPC message: a decide whose text is over 1 MiB still gets a verdict, as it does over HTTP.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Longest page of a listing.
pub const PAGE_MAX: u32 = 1000;

/// Page where the caller names no limit.
pub const PAGE_DEFAULT: u32 = 100;

/// Bytes of policy mistakes in gRPC metadata: clients bound their header lists, commonly at 8 KiB.
pub const MISTAKES_METADATA_BYTES_MAX: usize = 4 << 10;

/// Shortest bearer token: 16 characters of base64 are 96 bits.
pub const TOKEN_CHARS_MIN: usize = 16;

/// Longest bearer token.
pub const TOKEN_CHARS_MAX: usize = 4096;

/// Longest name of a principal.
pub const PRINCIPAL_BYTES_MAX: usize = 255;

/// How long an HTTP/1 connection may sit between requests, and a client over one request head: longer than common
/// clients keep idle connections busy, short enough that slow ones cannot hold every place.
pub const H1_HEAD_WITHIN: Duration = Duration::from_secs(60);

/// Longest path of a Unix socket: the kernel's field has 108 bytes on Linux, 104 on macOS and BSD; the last is zero.
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Connections that wait to be accepted on a Unix socket, as many as on a TCP door.
pub const SOCKET_BACKLOG: u32 = 1024;

/// Pause after a failed accept (no file descriptor left): the cause needs time, not attempts.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
