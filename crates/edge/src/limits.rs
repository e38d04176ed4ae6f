//! Every bound of the doors, each with its reason. Bounds of messages are the core's.

use std::time::Duration;

/// Decides and reports in work at once. Each holds at most one body, so this bounds the memory of a burst; what is
/// over it is told to come back instead of waiting in a queue that nobody sees.
pub const DECIDE_IN_FLIGHT_MAX: usize = 4096;

/// All other calls in work at once: a lane of its own, so that operators are answered while decides are refused
/// (AADP §16). A call counts from when its body was read.
pub const ADMIN_IN_FLIGHT_MAX: usize = 256;

/// Calls of one caller in that lane, with those whose body is still read: what is sent slowly, or searched at length,
/// holds the places of who does it and leaves most of the lane to others.
pub const ADMIN_PER_CALLER_MAX: usize = 64;

/// Kill switches read or set at once: a lane of their own, so that nothing else that operators and auditors do can
/// keep the switch from being thrown.
pub const CONTROL_IN_FLIGHT_MAX: usize = 64;

/// Those of one caller, with those whose body is still read.
pub const CONTROL_PER_CALLER_MAX: usize = 16;

/// Calls in work at once on one gRPC stream: enough to fill a batch. A client with many streams is bounded by
/// [`STREAMS_SHARE`].
pub const STREAM_IN_FLIGHT_MAX: usize = 256;

/// The part of the lane of decides that all streams together may hold, one in so many: calls on streams wait for their
/// place where others are refused, so without a bound they would take every place that becomes free.
pub const STREAMS_SHARE: usize = 2;

/// Evidence tails and exports open at once: each reads pages for as long as its client stays.
pub const TAILS_MAX: usize = 64;

/// Entries that a tail or an export reads at first: an entry may be as large as a request.
pub const TAIL_PAGE: u32 = 64;

/// Bytes that a page of a tail or an export should have, by the size of the entries before: this much waits in memory
/// for each client, and must be taken within [`TAKEN_WITHIN`].
pub const TAIL_PAGE_BYTES: usize = 1 << 20;

/// How long a client of a tail or an export may take over one page: 17 KiB/s are enough. Who stops reading gives its
/// place to others.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Enforcement points that watch their permits on one node: each holds a place in the channel of notices and, while a
/// switch is engaged, the names of its own open permits.
pub const WATCHERS_MAX: usize = 4096;

/// How long it may take to find what a switch covers; beyond it, watchers are told that they were not told. A hundred
/// thousand permits are a hundred pages.
pub const SCAN_WITHIN: Duration = Duration::from_secs(10);

/// How long what a switch covers is kept for watchers that hear of it late: its memory is that of all open permits.
/// Longer than a scan, so that nobody begins one again.
pub const SCAN_KEPT: Duration = Duration::from_secs(20);

/// How often a node with watchers makes sure that it is up to date.
pub const WATCH_POLL: Duration = Duration::from_secs(1);

/// How long that may take: longer than an election, and than a busy leader's read.
pub const PULSE_WITHIN: Duration = Duration::from_secs(2);

/// Failures in a row that end all watches: a node that is cut off or behind tells nothing, and its silence must not be
/// taken for good news. One may be an election.
pub const PULSES_FAILED_MAX: u32 = 2;

/// Between two looks at what this node has applied, where waiting for it returns early.
pub const APPLIED_POLL: Duration = Duration::from_millis(10);

/// How often a watched health is asked, once for all who watch.
pub const HEALTH_POLL: Duration = Duration::from_secs(1);

/// Healths watched at once: no token is needed for it. Whoever finds no place asks `Check`, which is not counted.
pub const HEALTH_WATCHES_MAX: usize = 1024;

/// Reflection streams open at once: no token is needed for one, and a few people with tools open them.
pub const REFLECTIONS_MAX: usize = 64;

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

/// How long one gRPC call that is no stream may take with its body, which arrives out of the door's sight.
pub const CALL_WITHIN: Duration = Duration::from_secs(60);

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
