//! The Applier: folds committed batches into the state, on every node alike.
//! Absent on purpose: judgement. A batch that was evaluated on another state than it meets is fenced: it has no effect
//! here, and by the same arithmetic on no other node.
//!
//! INVARIANT (agreement): all nodes that applied index i have the same chain head at i. A difference stops the node.
//! Architecture §1.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use placet_core::event::Event;
use placet_core::evidence;
use placet_core::fold::fold;
use placet_core::ids::EvidenceIndex;
use placet_core::notice::{Fact, Notice};
use placet_core::planted::{self, Bug};
use placet_core::search::Marks;
use placet_core::state::{Changes, Overlay, Read};
use placet_wire::log;
use tokio::sync::{broadcast, watch};

use crate::crash;
use crate::judged::Judged;
use crate::log_store::invalid;
use crate::network::convert;
use crate::ports::{Log, Records, State};
use crate::snapshot::{Builder, Snapshots, position_of};
use crate::types::{
    Applied, Blob, Entry, LogId, Position, Snapshot, SnapshotFolder, SnapshotMeta, StoredMembership, Types,
};

/// Events in one write to the state: enough to spread its cost, few enough that the task does not hold a thread of
/// the runtime for more than some milliseconds.
const GROUP_EVENTS_MAX: usize = 512;

/// Fenced batches in a row that one leader can cause: those it had in flight when the first was refused, with room.
pub(crate) const FENCED_RUN_MAX: u32 = 1024;

/// How far this node has applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The term of the last applied entry.
    pub(crate) term: u64,
    /// Its index.
    pub(crate) index: u64,
    /// The position of the next evidence entry.
    pub(crate) next: EvidenceIndex,
}

/// Why a node stopped for good, in words for a human; set once.
pub(crate) type FatalReason = Arc<OnceLock<String>>;

/// The state machine of one node.
#[derive(Debug)]
pub(crate) struct Applier {
    records: Records,
    log: Arc<dyn Log>,
    snapshots: Arc<Snapshots>,
    position: Position,
    progress: watch::Sender<Progress>,
    notices: broadcast::Sender<Arc<Notice>>,
    judged: Arc<Judged>,
    fatal: FatalReason,
    /// Batches fenced one after the other.
    fenced: u32,
}

/// What goes with entries when they are written: who hears of them, and what searches know of them.
#[derive(Default)]
struct Waiting {
    responders: Vec<(ApplyResponder<Types>, Applied)>,
    notices: Vec<Notice>,
    /// For the store's summaries, of the entries to be written.
    marks: Vec<(EvidenceIndex, Marks)>,
}

impl Applier {
    pub(crate) fn open(
        state: Arc<dyn State>,
        log: Arc<dyn Log>,
        snapshots: Arc<Snapshots>,
        notices: broadcast::Sender<Arc<Notice>>,
        fatal: FatalReason,
    ) -> io::Result<Self> {
        let position = position_of(state.position()?)?;
        let applier = Self {
            records: Records(state),
            log,
            snapshots,
            position,
            progress: watch::Sender::new(Progress::default()),
            notices,
            judged: Arc::default(),
            fatal,
            fenced: 0,
        };
        applier.publish()?;
        Ok(applier)
    }

    /// Takes what was judged on this node from there.
    pub(crate) fn knowing(self, judged: Arc<Judged>) -> Self {
        Self { judged, ..self }
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The batch that a log record is.
    fn batch(&self, bytes: Bytes) -> io::Result<log::Batch> {
        let Some(judged) = self.judged.take(&bytes) else { return log::decode(bytes).map_err(invalid) };
        // What the Decider holds and what the log says are the same thing, or other nodes apply something else.
        debug_assert_eq!(log::decode(bytes).ok().as_ref(), Some(&judged));
        Ok(judged)
    }

    fn publish(&self) -> io::Result<()> {
        let next = self.records.meta().map_err(invalid)?.next_index;
        let (term, index) = self.position.applied.map_or((0, 0), |id| (id.leader_id.term, id.index));
        self.progress.send_replace(Progress { term, index, next });
        Ok(())
    }

    /// Applies entries that nobody waits for.
    pub(crate) async fn replay(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        self.apply_all(futures::stream::iter(entries.into_iter().map(|entry| Ok((entry, None))))).await
    }

    async fn apply_all<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let mut overlay = Overlay::new(self.records.clone());
        let mut waiting = Waiting::default();
        let mut events = 0;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let applied = match entry.payload {
                EntryPayload::Normal(Blob(bytes)) => {
                    let batch = self.batch(bytes)?;
                    events += batch.events.len();
                    let applied = fold_batch(&mut overlay, &entry.log_id, &batch)?;
                    self.count_fences(applied, &entry.log_id)?;
                    if applied == Applied::Folded {
                        let marks = |event: &Event| (event.entry.index, Marks::of(&event.entry));
                        waiting.marks.extend(batch.events.iter().map(marks));
                    }
                    if applied == Applied::Folded && self.notices.receiver_count() > 0 {
                        waiting.notices.extend(batch.events.iter().filter_map(Notice::of));
                    }
                    applied
                }
                EntryPayload::Membership(membership) => {
                    let joint = membership.get_joint_config().len() > 1;
                    crash::point_if("after_membership_joint", || joint);
                    crash::point_if("after_membership_uniform", || !joint);
                    self.position.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Applied::Folded
                }
                EntryPayload::Blank => Applied::Folded,
            };
            self.position.applied = Some(entry.log_id);
            waiting.responders.extend(responder.map(|responder| (responder, applied)));
            if events >= GROUP_EVENTS_MAX {
                let full = std::mem::replace(&mut overlay, Overlay::new(self.records.clone()));
                self.write(full, std::mem::take(&mut waiting))?;
                events = 0;
                tokio::task::yield_now().await;
            }
        }
        self.write(overlay, waiting)
    }

    fn write(&mut self, overlay: Overlay<Records>, waiting: Waiting) -> io::Result<()> {
        let begun = std::time::Instant::now();
        let changes = Changes { marks: waiting.marks, ..overlay.into_changes() };
        self.records.0.apply(changes, &convert::encode_position(&self.position))?;
        metrics::histogram!("placet_apply_write_seconds").record(begun.elapsed());
        self.publish()?;
        for (responder, applied) in waiting.responders {
            responder.send(applied);
        }
        for notice in waiting.notices {
            // Nobody listens any more: the evidence is what counts.
            let _ = self.notices.send(Arc::new(notice));
        }
        Ok(())
    }

    /// A leader begins anew after its first fenced batch, so a long run of them shows that it is this node that stands
    /// somewhere else.
    fn count_fences(&mut self, applied: Applied, at: &LogId) -> io::Result<()> {
        self.fenced = if applied == Applied::Fenced { self.fenced.saturating_add(1) } else { 0 };
        if self.fenced < FENCED_RUN_MAX {
            return Ok(());
        }
        let next = self.records.meta().map_err(invalid)?.next_index;
        Err(invalid(format!("{} batches up to log {at} do not follow this node's state before `{next}`", self.fenced)))
    }

    fn note_fatal(&self, error: io::Error) -> io::Error {
        tracing::error!(%error, "applying the log failed; this node stops");
        self.fatal.get_or_init(|| error.to_string());
        error
    }
}

/// Folds one batch, or fences it.
fn fold_batch(overlay: &mut Overlay<Records>, at: &LogId, batch: &log::Batch) -> io::Result<Applied> {
    let meta = overlay.meta().map_err(invalid)?;
    if !planted::on(Bug::NoFencing) && (batch.term != at.leader_id.term || batch.base != meta.next_index) {
        check_prefix(overlay, at, batch)?;
        tracing::warn!(%at, term = batch.term, base = %batch.base, next = %meta.next_index, "a batch was fenced");
        metrics::counter!("placet_batches_fenced_total").increment(1);
        return Ok(Applied::Fenced);
    }
    let (mut next, mut head) = (meta.next_index, meta.chain_head);
    let checked = !planted::on(Bug::ChainNotChecked);
    for event in &batch.events {
        if checked && (event.entry.index != next || event.entry.prev != head) {
            return Err(diverged(at, event, &next.to_string(), &head.to_string()));
        }
        next = next.next();
        head = event.hash;
        // A panic here would leave a living process with a dead node, so it becomes an error that stops it.
        catch_unwind(AssertUnwindSafe(|| fold(overlay, event)))
            .map_err(|_| invalid(format!("folding `{}` panicked", event.entry.index)))?
            .map_err(invalid)?;
    }
    if checked && head != batch.chain_head {
        let text = format!("chain head at log {at} is {head} here and {} in the log", batch.chain_head);
        return Err(invalid(text));
    }
    Ok(Applied::Folded)
}

/// A batch that is fenced because it was judged on an older state must have been judged on an older state of ours.
fn check_prefix(overlay: &Overlay<Records>, at: &LogId, batch: &log::Batch) -> io::Result<()> {
    let Some(first) = batch.events.first() else { return Ok(()) };
    let Some(before) = batch.base.0.checked_sub(1).map(EvidenceIndex) else { return Ok(()) };
    match overlay.entry(before).map_err(invalid)? {
        Some(bytes) if evidence::hash(&bytes) != first.entry.prev => {
            Err(diverged(at, first, &batch.base.to_string(), &evidence::hash(&bytes).to_string()))
        }
        _ => Ok(()),
    }
}

fn diverged(at: &LogId, event: &Event, next: &str, head: &str) -> io::Error {
    let entry = &event.entry;
    invalid(format!(
        "entry `{}` at log {at} follows chain head {}, this node stands before `{next}` with chain head {head}",
        entry.index, entry.prev
    ))
}

impl RaftStateMachine<Types> for Applier {
    type SnapshotData = SnapshotFolder;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.position.applied, self.position.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        self.apply_all(entries).await.map_err(|error| self.note_fatal(error))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(self.snapshots.clone())
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, snapshot: SnapshotFolder) -> io::Result<()> {
        let (snapshots, log) = (self.snapshots.clone(), self.log.clone());
        let work = snapshots.work().clone();
        let installing = work.run(move || {
            // A conflicting tail of the log was truncated before this; it must not come back behind a newer state.
            log.sync()?;
            snapshots.install(&snapshot)
        });
        let installed = installing.await.flatten();
        self.position = installed.map_err(|error| self.note_fatal(error))?;
        self.publish()?;
        let index = EvidenceIndex(self.progress.borrow().next.0.saturating_sub(1));
        // Nobody listens: nobody missed anything.
        let _ = self.notices.send(Arc::new(Notice { index, fact: Fact::Missed }));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.snapshots.current())
    }
}
