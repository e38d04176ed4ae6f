//! Bugs that the simulation plants to prove that it would find them. Without the feature `planted` nothing can be planted
//! and every question is answered `false` at compile time; with it, a build without debug assertions is refused.
//! Absent on purpose: any other way to switch the product's checks off.

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` is for tests: it may not be in a build without debug assertions");

use std::str::FromStr;
#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Replies leave when their batch is proposed.
    ReplyBeforeCommit = 1,
    /// A batch of an earlier leadership is proposed in a later one, and applied.
    NoFencing,
    /// An installed snapshot forgets the request ids.
    DedupNotInSnapshot,
    /// A permit that has its result expires all the same.
    DoubleExpiry,
    /// A used approval stays granted.
    ApprovalNotConsumed,
    /// A decide does not see the newest word about the kill switch.
    KillSwitchStale,
    /// A report gives its amounts back twice.
    BudgetReleasedTwice,
    /// Appends are acknowledged without a sync.
    FsyncSkipped,
    /// The leader's clock is taken as it is.
    ClockNotClamped,
    /// Neither checksums nor the chain are compared.
    ChainNotChecked,
    /// A vote is not on disk when it is given.
    VoteNotDurable,
    /// A request id that is in flight is judged again.
    DedupWithoutInFlight,
}

impl Bug {
    /// Every one.
    pub const ALL: [Self; 12] = [
        Self::ReplyBeforeCommit,
        Self::NoFencing,
        Self::DedupNotInSnapshot,
        Self::DoubleExpiry,
        Self::ApprovalNotConsumed,
        Self::KillSwitchStale,
        Self::BudgetReleasedTwice,
        Self::FsyncSkipped,
        Self::ClockNotClamped,
        Self::ChainNotChecked,
        Self::VoteNotDurable,
        Self::DedupWithoutInFlight,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplyBeforeCommit => "reply-before-commit",
            Self::NoFencing => "no-fencing",
            Self::DedupNotInSnapshot => "dedup-not-in-snapshot",
            Self::DoubleExpiry => "double-expiry",
            Self::ApprovalNotConsumed => "approval-not-consumed",
            Self::KillSwitchStale => "kill-switch-stale",
            Self::BudgetReleasedTwice => "budget-released-twice",
            Self::FsyncSkipped => "fsync-skipped",
            Self::ClockNotClamped => "clock-not-clamped",
            Self::ChainNotChecked => "chain-not-checked",
            Self::VoteNotDurable => "vote-not-durable",
            Self::DedupWithoutInFlight => "dedup-without-in-flight",
        }
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|bug| bug.name() == name).ok_or_else(|| format!("not a bug; known: {}", known()))
    }
}

#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process.
#[cfg(feature = "planted")]
pub fn plant(bug: Bug) {
    PLANTED.store(bug as u8, Ordering::SeqCst);
}

/// Whether a bug is planted.
#[cfg(not(feature = "planted"))]
pub const fn on(_: Bug) -> bool {
    false
}

/// Whether a bug is planted.
#[cfg(feature = "planted")]
pub fn on(bug: Bug) -> bool {
    PLANTED.load(Ordering::SeqCst) == bug as u8
}
