//! Every bound of the enforcement point's SDK, each with its reason.

use std::time::Duration;

/// Longest wait for a connection. A decision waits for it, and another node may be near.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for one answer where the builder names none: longer than a cluster needs to elect a leader, so that
/// the node's own answer (`unavailable`, `unknown`) arrives.
pub const ATTEMPT_WITHIN_DEFAULT: Duration = Duration::from_secs(5);

/// Longest wait for a decision, over all attempts, where the builder names none.
pub const DECIDE_WITHIN_DEFAULT: Duration = Duration::from_secs(20);

/// Attempts for one decision where the builder names none: with the backoff below, about four seconds of refused
/// connections, which a change of leader fits into.
pub const ATTEMPTS_DEFAULT: u32 = 8;

/// Most attempts that a builder may ask for; each is a request on a cluster that may be struggling.
pub const ATTEMPTS_MAX: u32 = 64;

/// Pause after the first failed attempt; it doubles.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(50);

/// Longest pause between two attempts for one decision: the caller waits.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Longest pause between two deliveries of one report: nobody waits, and a cluster that comes back should not meet
/// all of its enforcement points at once.
pub const DELIVERY_BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long an act may take where the builder names nothing and no `execute_within` is nearer.
pub const SINK_WITHIN_DEFAULT: Duration = Duration::from_secs(60);

/// How much before `execute_within` an act is cut off, so that its report arrives while the permit is still open. At
/// most a quarter of the time that is left.
pub const REPORT_MARGIN: Duration = Duration::from_millis(500);

/// How long one obligation handler may take.
pub const OBLIGATION_WITHIN: Duration = Duration::from_secs(10);

/// Most endpoints of one enforcement point; a cluster has fewer nodes.
pub const ENDPOINTS_MAX: usize = 64;

/// Largest answer that is read, in bytes. The largest is the list for `fail_static`.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Most obligations of one permit; more is not an answer that this crate understands.
pub const OBLIGATIONS_MAX: usize = 64;

/// Longest text of a report (`error`), in bytes: evidence should name a cause, not hold a log.
pub const ERROR_BYTES_MAX: usize = 2048;

/// Largest payload of a report, in bytes. It is synced to disk twice and then lives in the evidence for ever.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Longest boundary name, vendor obligation type or idempotency key that is looked at, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Acts whose report is not delivered yet. The bound refuses new acts, it never drops a report.
pub const OUTBOX_ITEMS_MAX: usize = 10_000;

/// Size of the outbox file at which it is rewritten, when less than half of it is still owed.
pub const OUTBOX_COMPACT_BYTES: u64 = 1 << 20;

/// Size of what is not delivered at which new acts are refused.
pub const OUTBOX_BYTES_MAX: u64 = 64 << 20;

/// Largest outbox file: what is owed, what the acts that go on may still add, and what is not compacted yet. It is read
/// into memory at the start.
pub const OUTBOX_FILE_BYTES_MAX: u64 = 1 << 30;

/// Records that one sync of the outbox may carry.
pub const OUTBOX_GROUP_MAX: usize = 256;

/// Reports that are on their way at the same time.
pub const DELIVERIES_MAX: usize = 16;

/// Locally decided acts in one delivery.
pub const LOCAL_BATCH_MAX: usize = 100;

/// Largest body of one delivery of locally decided acts: what a decision point reads (AADP §18.1), with some room.
pub const LOCAL_BATCH_BYTES_MAX: usize = 900 << 10;

/// Permits remembered after they were begun, so that a repeated answer cannot run an action twice. Twice the items, so
/// that none that is still in the outbox is forgotten.
pub const RECENT_PERMITS_MAX: usize = 2 * OUTBOX_ITEMS_MAX;

/// Request ids of callers that were acted under and are remembered, also over restarts, so that none is acted under
/// twice: weeks of retries, and some megabytes. Ids that this crate makes are never repeated, and not remembered.
pub const RECENT_REQUESTS_MAX: usize = 100_000;

/// About what one of them takes in the outbox file, in bytes.
pub const CLAIM_BYTES: u64 = 70;

/// Action types on the list for `fail_static`; about what an answer of its largest size holds.
pub const STATIC_ACTIONS_MAX: usize = 4096;

/// Longest age that a list for `fail_static` may be given: a month. A longer outage needs an operator.
pub const STATIC_AGE_MAX: Duration = Duration::from_secs(31 * 86_400);

/// Shortest pause between two refreshes of the list for `fail_static`.
pub const STATIC_REFRESH_MIN: Duration = Duration::from_millis(200);

/// Longest pause between two refreshes of the list for `fail_static`.
pub const STATIC_REFRESH_MAX: Duration = Duration::from_secs(300);
