//! Crash points: places where a debug build can be made to die at once, as by `kill -9`, to show that nothing is lost.
//! Without the feature `crash-points` every call here compiles to nothing; a release build refuses the feature.
//! Absent on purpose: a way to arm a point in a running node. `PLACET_CRASH_AT=after_propose:3` at its start dies the
//! third time that the point is passed.

#[cfg(all(feature = "crash-points", not(debug_assertions)))]
compile_error!("`crash-points` is for tests: a release build must not be able to die on command");

/// Every point, in the order of a decision's life; then snapshots and membership.
pub const POINTS: [&str; 13] = [
    "after_propose",
    "after_append_before_sync",
    "after_commit_before_reply",
    "after_report_commit_before_answer",
    "during_snapshot_build",
    "during_snapshot_send",
    "during_snapshot_receive",
    "during_snapshot_install",
    "after_snapshot_install",
    "during_membership_joint",
    "after_membership_joint",
    "during_membership_uniform",
    "after_membership_uniform",
];

/// Passes a point.
#[inline]
pub fn point(name: &'static str) {
    point_if(name, || true);
}

/// Passes a point if something is so; not even looked at without the feature.
#[inline]
pub fn point_if(name: &'static str, so: impl FnOnce() -> bool) {
    #[cfg(feature = "crash-points")]
    armed::pass(name, so);
    #[cfg(not(feature = "crash-points"))]
    let _ = (name, so);
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The point to die at, and how often it is to be passed until then.
    struct Armed {
        name: String,
        left: AtomicU64,
    }

    fn armed() -> Option<&'static Armed> {
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        let read = || {
            let text = std::env::var("PLACET_CRASH_AT").ok()?;
            let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
            let count = count.parse::<u64>().ok().filter(|count| *count > 0);
            let known = super::POINTS.contains(&name);
            let (true, Some(count)) = (known, count) else {
                tracing::error!(%text, points = ?super::POINTS, "PLACET_CRASH_AT names no crash point");
                std::process::abort();
            };
            Some(Armed { name: name.to_owned(), left: AtomicU64::new(count) })
        };
        ARMED.get_or_init(read).as_ref()
    }

    pub(super) fn pass(name: &'static str, so: impl FnOnce() -> bool) {
        let Some(armed) = armed() else { return };
        if armed.name == name && so() && armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            tracing::error!(name, "crash point");
            std::process::abort();
        }
    }
}
