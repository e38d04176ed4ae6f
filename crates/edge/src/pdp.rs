//! What a door sees of a decision point.
//! Absent on purpose: how it decides, where it keeps anything, and which node leads.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use placet_core::cluster::{ClusterView, Health, MembershipChange};
use placet_core::ids::EvidenceIndex;
use placet_core::notice::Notice;
use placet_core::op::{Answer, Call, Reject};
use placet_wire::archive::Part;
use tokio::sync::broadcast;

/// The files of a backup, the manifest last.
pub type BackupParts = BoxStream<'static, io::Result<Part>>;

/// A decision point. Any node answers any call; where it must, it asks the leader.
///
/// Futures may be dropped at any time (clients leave): what was proposed by then goes on without them.
#[async_trait]
pub trait Pdp: Send + Sync + 'static {
    /// Carries out one operation of an authenticated principal whose role was checked.
    async fn submit(&self, call: Call) -> Result<Answer, Reject>;

    /// The cluster as this node sees it.
    async fn cluster(&self) -> Result<ClusterView, Reject>;

    /// Whether this node can serve. Cheap: asked by probes.
    async fn health(&self) -> Health;

    /// Changes the members, and answers when the change is committed.
    async fn change_membership(&self, change: MembershipChange) -> Result<ClusterView, Reject>;

    /// Everything that a cluster needs to live again, as this node has it. Without `local`, all that was answered before
    /// this call is in it.
    async fn backup(&self, local: bool) -> Result<BackupParts, Reject>;

    /// Returns when there may be evidence behind `after`; may return early, but not at once for ever.
    async fn evidence_beyond(&self, after: EvidenceIndex);

    /// What is told from now on, as this node applies it. Who falls behind is told so, and looks for itself.
    fn notices(&self) -> broadcast::Receiver<Arc<Notice>>;
}
