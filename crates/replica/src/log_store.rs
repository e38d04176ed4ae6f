//! Raft's log and vote over the [`Log`] port, and the one thread that syncs.
//! Absent on purpose: waiting for a disk inside `append`.
//!
//! ```text
//! append ─► unsynced write, readable at once ─► queue ─► sync thread: one sync for all queued ─► callbacks
//! save_vote ─► synced write before it returns, so earlier appends are durable with it
//! ```
//!
//! Raft §5.2, §5.3; the order of writes is INVARIANT (order) of the port.

use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use openraft::alias::VoteOf;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};
use placet_core::planted::{self, Bug};
use placet_wire::peer;
use prost::Message;

use crate::crash;
use crate::network::convert;
use crate::ports::{Log, LogKey};
use crate::recent::Recent;
use crate::retention::LogUse;
use crate::snapshot::Snapshots;
use crate::types::{Entry, LogId, Types, Vote};
use crate::work::Work;

/// Most bytes of entries that one bounded read returns: a few messages to a peer, not the memory of the node.
const READ_BYTES_MAX: usize = 2 << 20;

pub(crate) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads entries and the vote; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogReader {
    log: Arc<dyn Log>,
    recent: Arc<Recent>,
}

/// The log of one node.
#[derive(Debug)]
pub(crate) struct LogStore {
    log: Arc<dyn Log>,
    snapshots: Arc<Snapshots>,
    log_use: Arc<LogUse>,
    recent: Arc<Recent>,
    syncer: Syncer,
}

impl LogStore {
    /// Starts what syncs; it ends with this value.
    pub(crate) fn new(
        log: Arc<dyn Log>,
        snapshots: Arc<Snapshots>,
        log_use: Arc<LogUse>,
        work: &Work,
    ) -> io::Result<Self> {
        let syncer = Syncer::start(log.clone(), work)?;
        Ok(Self { log, snapshots, log_use, recent: Arc::default(), syncer })
    }

    fn log_id_at(&self, key: LogKey) -> io::Result<Option<LogId>> {
        self.log.get(key)?.map(|bytes| decode_log_id(&bytes)).transpose()
    }
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> io::Result<LogId> {
    Ok(convert::log_id_back(&peer::LogId::decode(bytes).map_err(invalid)?))
}

pub(crate) fn read_vote(log: &dyn Log) -> io::Result<Option<Vote>> {
    let Some(bytes) = log.get(LogKey::Vote)? else { return Ok(None) };
    let vote = peer::LeaderVote::decode(bytes.as_slice()).map_err(invalid)?;
    convert::vote_back(Some(vote)).map(Some).map_err(invalid)
}

pub(crate) fn last_log_id(log: &dyn Log) -> io::Result<Option<LogId>> {
    let Some((_, bytes)) = log.last()? else { return Ok(None) };
    Ok(Some(convert::decode_entry(bytes).map_err(invalid)?.log_id))
}

impl LogReader {
    pub(crate) fn new(log: Arc<dyn Log>) -> Self {
        Self { log, recent: Arc::default() }
    }

    /// Entries in `range`, those that are few bytes together.
    pub(crate) fn page(&self, range: std::ops::Range<u64>) -> io::Result<Vec<Entry>> {
        self.entries(range, READ_BYTES_MAX)
    }

    fn entries(&self, range: impl RangeBounds<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.saturating_add(1),
            Bound::Excluded(at) => *at,
            Bound::Unbounded => u64::MAX,
        };
        if start >= end {
            return Ok(Vec::new());
        }
        if let Some(recent) = self.recent.read(&(start..end), bytes_max) {
            return Ok(recent);
        }
        let raw = self.log.read(start..end, bytes_max)?;
        raw.into_iter().map(|(_, bytes)| convert::decode_entry(bytes).map_err(invalid)).collect()
    }
}

impl RaftLogReader<Types> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend,
    {
        self.entries(range, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let found = self.entries(start..end, READ_BYTES_MAX)?;
        // INVARIANT (order): what is sent follows what the peer has. A purge may have run beside the reader; Raft takes
        // whatever comes for the next entry, so it gets nothing, and the peer's stream ends for it.
        Ok(if found.first().is_some_and(|first| first.log_id.index == start) { found } else { Vec::new() })
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        read_vote(self.log.as_ref())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let last_purged_log_id = self.log_id_at(LogKey::LastPurged)?;
        let last_log_id = last_log_id(self.log.as_ref())?.or(last_purged_log_id);
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader { log: self.log.clone(), recent: self.recent.clone() }
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> io::Result<()> {
        let durable = !planted::on(Bug::VoteNotDurable);
        self.log.put(LogKey::Vote, &convert::vote(vote).encode_to_vec(), durable)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        // Not durable by itself: the next append brings it along, and until then a restart only re-learns it.
        let Some(committed) = committed else { return Ok(()) };
        self.log.put(LogKey::Committed, &convert::log_id(&committed).encode_to_vec(), false)
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        self.log_id_at(LogKey::Committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = <Types as RaftTypeConfig>::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut changes = Changes::default();
        let entries = entries.into_iter().inspect(|entry| changes.note(entry)).collect::<Vec<_>>();
        let encoded = entries.iter().map(|entry| (entry.log_id.index, convert::encode_entry(entry)));
        let encoded = encoded.collect::<Vec<_>>();
        self.log.append(&encoded)?;
        self.recent.appended(entries);
        if let Some((last, _)) = encoded.last() {
            let bytes = encoded.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
            self.log_use.appended(*last, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        crash::point("after_append_before_sync");
        changes.pass();
        self.syncer.request(callback)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let first = last_log_id.map_or(0, |id| id.index.saturating_add(1));
        self.recent.truncated(first);
        self.log.truncate_from(first)
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        // INVARIANT (purge): the log is the truth after a crash, so nothing leaves it that the state could still need.
        self.snapshots.ensure_durable(log_id.index)?;
        self.recent.purged(log_id.index);
        self.log.purge_to(log_id.index, &convert::log_id(&log_id).encode_to_vec())?;
        self.log_use.purged(log_id.index);
        Ok(())
    }
}

/// Which kinds of configuration an append holds, for the crash points.
#[derive(Default)]
struct Changes {
    joint: bool,
    uniform: bool,
}

impl Changes {
    fn note(&mut self, entry: &Entry) {
        if let EntryPayload::Membership(membership) = &entry.payload {
            let joint = membership.get_joint_config().len() > 1;
            self.joint |= joint;
            self.uniform |= !joint;
        }
    }

    fn pass(self) {
        crash::point_if("during_membership_joint", || self.joint);
        crash::point_if("during_membership_uniform", || self.uniform);
    }
}

/// Who syncs the log, once for all appends that wait: a thread, or a task in simulated time.
#[derive(Debug)]
enum Syncer {
    Thread { queue: Option<mpsc::Sender<IOFlushed<Types>>>, thread: Option<JoinHandle<()>> },
    Task(tokio::sync::mpsc::UnboundedSender<IOFlushed<Types>>),
}

impl Syncer {
    fn start(log: Arc<dyn Log>, work: &Work) -> io::Result<Self> {
        if work.is_simulated() {
            let (queue, waiting) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(sync_in_simulated_time(log, work.clone(), waiting));
            return Ok(Self::Task(queue));
        }
        let (queue, waiting) = mpsc::channel();
        let thread = std::thread::Builder::new().name("placet-log-sync".to_owned()).spawn(move || {
            sync_until_closed(log.as_ref(), &waiting);
        })?;
        Ok(Self::Thread { queue: Some(queue), thread: Some(thread) })
    }

    fn request(&self, callback: IOFlushed<Types>) -> io::Result<()> {
        // Bounded by Raft: it has only so many appends under way.
        let sent = match self {
            Self::Thread { queue, .. } => queue.as_ref().is_some_and(|queue| queue.send(callback).is_ok()),
            Self::Task(queue) => queue.send(callback).is_ok(),
        };
        if sent { Ok(()) } else { Err(io::Error::other("what syncs the log has stopped")) }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let Self::Thread { queue, thread } = self else { return };
        *queue = None;
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the log's sync thread panicked");
        }
    }
}

fn sync_until_closed(log: &dyn Log, waiting: &mpsc::Receiver<IOFlushed<Types>>) {
    while let Ok(first) = waiting.recv() {
        let mut callbacks = vec![first];
        callbacks.extend(waiting.try_iter());
        sync_once(log, callbacks);
    }
}

async fn sync_in_simulated_time(
    log: Arc<dyn Log>,
    work: Work,
    mut waiting: tokio::sync::mpsc::UnboundedReceiver<IOFlushed<Types>>,
) {
    while let Some(first) = waiting.recv().await {
        let mut callbacks = vec![first];
        while let Ok(next) = waiting.try_recv() {
            callbacks.push(next);
        }
        work.pause().await;
        sync_once(log.as_ref(), callbacks);
    }
}

fn sync_once(log: &dyn Log, callbacks: Vec<IOFlushed<Types>>) {
    let begun = Instant::now();
    let result = if planted::on(Bug::FsyncSkipped) { Ok(()) } else { log.sync() };
    metrics::histogram!("placet_log_sync_seconds").record(begun.elapsed());
    metrics::histogram!("placet_log_sync_appends").record(callbacks.len() as f64);
    if let Err(error) = &result {
        tracing::error!(%error, "the log could not be synced; this node stops");
    }
    for callback in callbacks {
        // A failed sync may have lost any of the writes before it: none of them is reported as durable.
        callback.io_completed(match &result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
    }
}
