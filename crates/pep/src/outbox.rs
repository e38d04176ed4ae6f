//! The durable outbox (AADP §16): every act is on disk before it begins, and its outcome before it counts as done.
//!
//! ```text
//! run ─ begin ─► [thread: one frame, one sync for a group] ─► act ─ end ─► [sync] ─► delivery ─ delivered ─► [sync]
//!                 a process that dies in between leaves `begun` without `ended`: opened again, that is `timeout`
//! ```
//!
//! Absent on purpose: the network (delivery) and dropping; a full outbox refuses new acts instead.
//!
//! INVARIANT (one report): an item leaves the outbox only by an answer of a decision point about it.

mod log;
mod recent;
mod record;
#[cfg(test)]
mod tests;

pub use log::OutboxError;
pub(crate) use log::write_whole;
pub(crate) use record::{Ending, LocalAct, LocalMode, Record, Subject};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use placet_core::request::Outcome;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::limits::{
    CLAIM_BYTES, OUTBOX_BYTES_MAX, OUTBOX_GROUP_MAX, OUTBOX_ITEMS_MAX, RECENT_PERMITS_MAX, RECENT_REQUESTS_MAX,
};
use log::Log;
use recent::Recent;

/// One act, until its report is delivered.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) subject: Subject,
    pub(crate) ending: Option<Ending>,
    pub(crate) bytes: u64,
    /// Delivery: attempts so far, when to try next, whether one is on its way.
    pub(crate) tries: u32,
    pub(crate) next_at: Option<Instant>,
    pub(crate) in_flight: bool,
    /// Endpoints that know no such permit of this sender.
    pub(crate) strangers: u64,
    /// It was refused together with others, so it goes alone.
    pub(crate) alone: bool,
    /// The decision point will not take it, even without its payload. It stays on disk, and is tried at the next start.
    pub(crate) set_aside: bool,
}

/// Items by age; the permits that were begun in this life, and the request ids of callers that were ever acted under
/// here, as far back as memory goes.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) by_key: BTreeMap<u64, Item>,
    /// Acts that were decided here, whether over or not.
    pub(crate) locals: usize,
    /// Nothing is delivered before this: the decision point is away.
    pub(crate) pause_until: Option<Instant>,
    /// Pauses in a row.
    pub(crate) pauses: u32,
    bytes: u64,
    permits: Recent,
    requests: Recent,
}

impl Default for Items {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            locals: 0,
            pause_until: None,
            pauses: 0,
            bytes: 0,
            permits: Recent::new(RECENT_PERMITS_MAX),
            requests: Recent::new(RECENT_REQUESTS_MAX),
        }
    }
}

impl Items {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Claimed { request_id } => {
                self.requests.claim(&request_id);
            }
            Record::Begun { key, subject } => {
                if let Subject::Permit { permit_id, .. } = &subject {
                    self.permits.claim(permit_id);
                }
                self.locals += usize::from(matches!(subject, Subject::Local(_)));
                let bytes = serde_json::to_vec(&subject).map_or(0, |bytes| bytes.len() as u64);
                self.bytes += bytes;
                let item = Item {
                    subject,
                    ending: None,
                    bytes,
                    tries: 0,
                    next_at: None,
                    in_flight: false,
                    strangers: 0,
                    alone: false,
                    set_aside: false,
                };
                self.by_key.insert(key, item);
            }
            Record::Ended { key, ending } => {
                if let Some(item) = self.by_key.get_mut(&key)
                    && item.ending.is_none()
                {
                    let bytes = serde_json::to_vec(&ending).map_or(0, |bytes| bytes.len() as u64);
                    item.bytes += bytes;
                    self.bytes += bytes;
                    item.ending = Some(ending);
                }
            }
            Record::Delivered { key } => {
                if let Some(item) = self.by_key.remove(&key) {
                    self.bytes = self.bytes.saturating_sub(item.bytes);
                    self.locals -= usize::from(matches!(item.subject, Subject::Local(_)));
                }
            }
        }
    }

    /// About how much the records below take.
    fn live_bytes(&self) -> u64 {
        self.bytes + self.requests.len() as u64 * CLAIM_BYTES
    }

    /// The records that make these items again.
    fn records(&self) -> Vec<Record> {
        let claimed = |request_id: &String| Record::Claimed { request_id: request_id.clone() };
        let mut records: Vec<Record> = self.requests.iter().map(claimed).collect();
        for (key, item) in &self.by_key {
            records.push(Record::Begun { key: *key, subject: item.subject.clone() });
            if let Some(ending) = &item.ending {
                records.push(Record::Ended { key: *key, ending: ending.clone() });
            }
        }
        records
    }
}

/// How much is in an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxStatus {
    /// Acts that go on.
    pub acting: usize,
    /// Reports of permits, and notes on other decisions, on their way.
    pub reports: usize,
    /// Acts that were decided here and are not delivered.
    pub local: usize,
    /// What the decision point will not take; `tracing` said why. Tried again at the next start.
    pub set_aside: usize,
}

impl OutboxStatus {
    /// Whether everything that is over was delivered.
    pub fn is_delivered(&self) -> bool {
        self.reports == 0 && self.local == 0
    }
}

/// What the thread is told.
#[derive(Debug)]
enum Command {
    Change(Change),
    Close,
}

/// Changes of one frame, and who waits for it to be on disk.
struct Change {
    records: Vec<Record>,
    done: oneshot::Sender<Result<(), OutboxError>>,
}

/// The answer of the disk.
pub(crate) struct Ack(oneshot::Receiver<Result<(), OutboxError>>);

impl Ack {
    pub(crate) async fn wait(self) -> Result<(), OutboxError> {
        self.0.await.unwrap_or(Err(OutboxError::Closed))
    }
}

/// Room for one act. Dropped, the room is free again.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handle that runs and deliveries share.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    items: Arc<Mutex<Items>>,
    /// Bounded by the items: each is changed at most three times.
    commands: mpsc::UnboundedSender<Command>,
    changed: watch::Sender<()>,
    next_key: Arc<AtomicU64>,
    reserved: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Opens, or makes, the outbox in `folder`. What was begun there and never ended becomes `timeout`: the act may
    /// have happened, and is never done again. The second value ends when the outbox is closed and unlocked.
    pub(crate) fn open(folder: &Path) -> Result<(Self, thread::JoinHandle<()>), OutboxError> {
        let (mut log, records) = Log::open(folder)?;
        let mut items = Items::default();
        let mut last = 0;
        for record in records {
            if let Record::Begun { key, .. } = &record {
                last = last.max(*key);
            }
            items.apply(record);
        }
        let interrupted: Vec<Record> = items
            .by_key
            .iter()
            .filter(|(_, item)| item.ending.is_none())
            .map(|(key, _)| Record::Ended {
                key: *key,
                ending: Ending::new(Outcome::Timeout, "the enforcement point stopped before it knew the outcome"),
            })
            .collect();
        if !interrupted.is_empty() {
            tracing::warn!(acts = interrupted.len(), "acts were interrupted; their outcome is reported as unknown");
            log.append(&interrupted)?;
            interrupted.into_iter().for_each(|record| items.apply(record));
        }
        Self::start(log, items, last)
    }

    fn start(log: Log, items: Items, last: u64) -> Result<(Self, thread::JoinHandle<()>), OutboxError> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let outbox = Self {
            items: Arc::new(Mutex::new(items)),
            commands,
            changed: watch::Sender::new(()),
            next_key: Arc::new(AtomicU64::new(last + 1)),
            reserved: Arc::default(),
        };
        let (items, changed) = (outbox.items.clone(), outbox.changed.clone());
        let thread = thread::Builder::new()
            .name("placet-outbox".to_owned())
            .spawn(move || write_all(log, receiver, &items, &changed))
            .map_err(|source| OutboxError::Io { what: "start its thread".to_owned(), source: Arc::new(source) })?;
        Ok((outbox, thread))
    }

    /// Room for one more act, before anyone is asked about it.
    pub(crate) fn reserve(&self) -> Result<Slot, OutboxError> {
        let (items, bytes) = {
            let items = self.items();
            (items.by_key.len(), items.bytes)
        };
        let slot = Slot(self.reserved.clone());
        let reserved = self.reserved.fetch_add(1, Ordering::Relaxed);
        if self.commands.is_closed() {
            return Err(OutboxError::Closed);
        }
        if items.saturating_add(reserved) >= OUTBOX_ITEMS_MAX || bytes >= OUTBOX_BYTES_MAX {
            return Err(OutboxError::Full { items, bytes });
        }
        Ok(slot)
    }

    /// Whether this permit was never begun here; from now on it was.
    pub(crate) fn claim(&self, permit_id: &str) -> bool {
        self.items().permits.claim(permit_id)
    }

    /// Whether nothing was done under this request id of a caller here; from now on something was. It is on disk with
    /// what begins under it, or with [`Self::write_claim`].
    pub(crate) fn claim_request(&self, request_id: &str) -> bool {
        self.items().requests.claim(request_id)
    }

    /// Whether something was done under this request id of a caller here.
    pub(crate) fn is_claimed(&self, request_id: &str) -> bool {
        self.items().requests.holds(request_id)
    }

    /// A claim for what is done elsewhere.
    pub(crate) fn write_claim(&self, request_id: &str) -> Ack {
        self.change(vec![Record::Claimed { request_id: request_id.to_owned() }])
    }

    /// An act is about to begin, under a claim if the request id is a caller's. It may only begin when the disk has
    /// acknowledged this.
    pub(crate) fn begin(&self, subject: Subject, claim: Option<&str>) -> (u64, Ack) {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let claim = claim.map(|request_id| Record::Claimed { request_id: request_id.to_owned() });
        (key, self.change(claim.into_iter().chain([Record::Begun { key, subject }]).collect()))
    }

    /// An act is over.
    pub(crate) fn end(&self, key: u64, ending: Ending) -> Ack {
        self.change(vec![Record::Ended { key, ending }])
    }

    /// Something that never began.
    pub(crate) fn record(&self, subject: Subject, ending: Ending) -> Ack {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        self.change(vec![Record::Begun { key, subject }, Record::Ended { key, ending }])
    }

    /// A decision point has these.
    pub(crate) fn delivered(&self, keys: &[u64]) -> Ack {
        self.change(keys.iter().map(|key| Record::Delivered { key: *key }).collect())
    }

    /// Waits until everything that was said before is on disk and among the items.
    pub(crate) fn settle(&self) -> Ack {
        self.change(Vec::new())
    }

    fn change(&self, records: Vec<Record>) -> Ack {
        let (done, ack) = oneshot::channel();
        // A closed outbox drops the sender, which the waiting side sees.
        let _ = self.commands.send(Command::Change(Change { records, done }));
        Ack(ack)
    }

    /// Ends the thread and with it the lock; what comes later is refused.
    pub(crate) fn close(&self) {
        let _ = self.commands.send(Command::Close);
    }

    pub(crate) fn items(&self) -> MutexGuard<'_, Items> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everyone who waits that something about the items changed.
    pub(crate) fn touch(&self) {
        self.changed.send_replace(());
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn status(&self) -> OutboxStatus {
        let mut status = OutboxStatus::default();
        for item in self.items().by_key.values() {
            let count = match (&item.ending, &item.subject) {
                (None, _) => &mut status.acting,
                _ if item.set_aside => &mut status.set_aside,
                (Some(_), Subject::Local(_)) => &mut status.local,
                (Some(_), _) => &mut status.reports,
            };
            *count += 1;
        }
        status
    }
}

/// The thread: groups what is waiting into one frame and one sync.
fn write_all(
    mut log: Log,
    mut commands: mpsc::UnboundedReceiver<Command>,
    items: &Mutex<Items>,
    changed: &watch::Sender<()>,
) {
    let mut closing = false;
    while !closing && let Some(Command::Change(first)) = commands.blocking_recv() {
        let mut records = first.records.len();
        let mut group = vec![first];
        while records < OUTBOX_GROUP_MAX
            && let Ok(next) = commands.try_recv()
        {
            match next {
                Command::Change(change) => {
                    records += change.records.len();
                    group.push(change);
                }
                Command::Close => {
                    closing = true;
                    break;
                }
            }
        }
        let frame: Vec<Record> = group.iter().flat_map(|change| change.records.iter().cloned()).collect();
        let written = log.append(&frame);
        if let Err(error) = &written {
            tracing::error!(%error, "the outbox could not be written; no new act begins until it can");
        }
        let live = {
            let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
            for change in &group {
                // What is over is delivered even if the disk did not take it; what would begin does not.
                let begins = matches!(change.records.as_slice(), [.., Record::Begun { .. } | Record::Claimed { .. }]);
                if written.is_ok() || !begins {
                    change.records.iter().cloned().for_each(|record| items.apply(record));
                } else if let Some(Record::Claimed { request_id }) = change.records.first() {
                    items.requests.forget(request_id);
                }
            }
            log.is_due(items.live_bytes()).then(|| items.records())
        };
        for change in group {
            let _ = change.done.send(written.clone());
        }
        changed.send_replace(());
        if let Some(records) = live
            && let Err(error) = log.rewrite(&records)
        {
            tracing::warn!(%error, "the outbox could not be made smaller; it goes on as it is");
        }
    }
}
