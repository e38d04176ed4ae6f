//! Every bound of the decision core, each with its reason. Bounds of doors and of consensus live in their crates.

/// Largest body of one message, in bytes (AADP §18.1).
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// Deepest nesting of received JSON (AADP §18.1); the parser recurses, so this also bounds its stack.
pub const JSON_DEPTH_MAX: usize = 64;

/// Most digits in a JSON number token (AADP §18.1).
pub const NUMBER_DIGITS_MAX: usize = 64;

/// Largest magnitude of a JSON number's exponent (AADP §18.1).
pub const NUMBER_EXPONENT_MAX: i32 = 64;

/// Longest action type, in octets (AADP §3.1).
pub const ACTION_TYPE_BYTES_MAX: usize = 255;

/// Longest opaque string member (`session_id`, `parent_id`, `approval_ref`): identifiers, not documents.
pub const OPAQUE_BYTES_MAX: usize = 1024;

/// How much of an unparseable body its evidence entry keeps, beside the digest of the whole. Enough to see what a
/// client sent; small enough that a stream of rubbish does not fill the log at the rate of its own size.
pub const MALFORMED_KEPT_BYTES_MAX: usize = 16 << 10;

/// Buckets of one rolling window: more buckets are finer, fewer are cheaper to add up.
pub const ROLLING_BUCKETS: i64 = 64;

/// Live counters of one budget that has one counter per principal or session. The bound refuses, it never evicts:
/// a counter that is forgotten is a budget that starts again.
pub const SCOPED_COUNTERS_MAX: u64 = 100_000;

/// Largest policy document, in bytes.
pub const POLICY_BYTES_MAX: usize = 1 << 20;

/// Mistakes reported for one policy document before the loader stops looking.
pub const POLICY_MISTAKES_MAX: usize = 100;

/// Longest label of a kill-switch operation or of an approver's note.
pub const LABEL_BYTES_MAX: usize = 1024;

/// Reservation deadline where the policy names none, in milliseconds.
pub const EXECUTE_WITHIN_MS_DEFAULT: i64 = 600_000;

/// Approval time to live where the policy names none, in milliseconds (AADP §11.2).
pub const APPROVAL_TTL_MS_DEFAULT: i64 = 3_600_000;

/// Undo window where the policy names none, in milliseconds (AADP §8.1).
pub const UNDO_WINDOW_MS_DEFAULT: i64 = 900_000;

/// Longest argument that a pattern is run over. Patterns run where every decision waits.
pub const MATCHED_BYTES_MAX: usize = 4 << 10;

/// Largest compiled pattern, in bytes: it bounds the work for one byte of text.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 18;

/// Evidence and approvals of one page, in bytes; one record more may exceed it. A page travels between nodes whole.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// Scoped kill switches that are engaged at once: each is checked for every decision.
pub const SCOPED_SWITCHES_MAX: usize = 256;

/// Action types about which the mandate authority has a standing word: all of them are in memory on every node.
pub const MANDATES_MAX: usize = 4096;

/// Proposals of one principal for one action type that may wait for a human at once, where the policy names no other
/// number: more than anyone reads, few enough that a flood stops early (AADP case 134).
pub const PENDING_PER_PRINCIPAL_DEFAULT: u64 = 1000;

/// Members of one group of approvers.
pub const GROUP_MEMBERS_MAX: usize = 256;

/// Local decisions of one delivery: what an enforcement point sends at once, with room.
pub const LOCAL_DECISIONS_MAX: usize = 128;

/// Entries that one page of a search looks at, matching or not.
pub const SEARCHED_ENTRIES_MAX: usize = 4096;

/// Runs of entries that one page of a search passes by their summaries: two million entries, eight megabytes.
pub const SEARCHED_RUNS_MAX: usize = 8192;

/// Paths of one action type that are redacted.
pub const REDACTED_PATHS_MAX: usize = 64;

/// Longest URL that is canonicalised (AADP §19). Browsers and servers stop near here; canonicalising is where every
/// decision waits.
pub const URL_BYTES_MAX: usize = 8 << 10;

/// Entries that are verified again before a head over them is signed, back from the newest: a head is signed more often
/// than this, and signing happens where every decision waits.
pub const REVERIFIED_ENTRIES_MAX: usize = 4096;
