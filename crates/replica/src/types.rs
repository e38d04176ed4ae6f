//! The types that Raft is instantiated with, and the position of a state in its log.
//! Absent on purpose: behaviour.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf};
use placet_core::cluster::MemberAddresses;

/// One leader per term: the term alone tells who evaluated a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl openraft::RaftTypeConfig for Types {
    type D = Blob;
    type R = Applied;
    type NodeId = u64;
    type Node = MemberAddresses;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Self::D, Self::NodeId, Self::Node>;
    type Entry = openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = openraft::impls::OneshotResponder<Self, T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type Raft = openraft::Raft<Types, crate::state_machine::Applier>;
pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Vote = VoteOf<Types>;
pub(crate) type Entry = EntryOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, MemberAddresses>;
pub(crate) type StoredMembership = StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<Types>;
pub(crate) type Snapshot = SnapshotOf<Types, SnapshotFolder>;

/// An encoded batch.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob(pub Bytes);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What became of an entry when it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Its events are in the state.
    Folded,
    /// It was evaluated on another state than it met: without effect, on every node.
    Fenced,
}

/// How far a state has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

impl Position {
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }
}

/// The folder of one snapshot: `state/` and its position. Removed with its last handle, once it is obsolete.
#[derive(Clone, Debug)]
pub struct SnapshotFolder(Arc<Folder>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    obsolete: AtomicBool,
}

impl SnapshotFolder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(Arc::new(Folder { path, obsolete: AtomicBool::new(false) }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path.join("state")
    }

    pub(crate) fn downgrade(&self) -> WeakFolder {
        WeakFolder(Arc::downgrade(&self.0))
    }

    pub(crate) fn retire(&self) {
        self.0.obsolete.store(true, Ordering::Release);
    }
}

/// Knows whether a folder is still held, without holding it.
#[derive(Clone, Debug)]
pub(crate) struct WeakFolder(Weak<Folder>);

impl WeakFolder {
    pub(crate) fn in_use(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A received folder was moved away when it was installed.
        if self.obsolete.load(Ordering::Acquire)
            && self.path.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "an obsolete snapshot stays on disk");
        }
    }
}
