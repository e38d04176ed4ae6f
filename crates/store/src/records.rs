//! One generation of the state: an open database, read and written as records.
//! Absent on purpose: update and delete of evidence. INVARIANT (append only): an entry is written once; the same bytes
//! again change nothing, other bytes are an error.
//!
//! Records are JSON. The types are made for it (exact decimals are strings, members may be absent), so a field that a
//! later version adds reads as absent in old records, which no positional format offers.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use placet_core::event::{ApprovalState, Body};
use placet_core::evidence;
use placet_core::ids::{EvidenceIndex, PolicyDigest};
use placet_core::policy::PolicySet;
use placet_core::search::{Marks, OpenRun, RUN, run_of};
use placet_core::state::{ApprovalRecord, Changes, Meta, PermitRecord, PermitStatus, PolicyRecord, ReadError};
use rocksdb::{ColumnFamily, DB, Direction, FlushOptions, IteratorMode, ReadOptions, WriteBatch, WriteOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::io_error;
use crate::keys::{self, Family, OPEN, RECORD, key};
use crate::tuning::Tuning;

/// Parsed policies kept: the one in force, the ones before it that replays and listings name.
const POLICIES_KEPT: usize = 8;

/// Entries that are checked when a state is opened: what the last crash can have touched, in some milliseconds.
const CHAIN_CHECKED: u64 = 256;

const META: &[u8] = b"meta";
const POSITION: &[u8] = b"position";

type KeyValue = (Box<[u8]>, Box<[u8]>);

#[derive(Debug)]
pub(crate) struct Generation {
    db: DB,
    /// Read for every call; only [`Generation::apply`] changes it.
    meta: Mutex<Meta>,
    policies: Mutex<VecDeque<(PolicyDigest, Arc<PolicySet>)>>,
    /// What the entries say that have no summary yet.
    open_run: Mutex<OpenRun>,
}

fn broken(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

pub(crate) fn read_error(error: impl std::fmt::Display) -> ReadError {
    ReadError(error.to_string())
}

impl Generation {
    /// Opens a database, or makes one.
    pub(crate) fn open(path: &Path, tuning: &Tuning, create: bool) -> Result<Self, rocksdb::Error> {
        let mut options = tuning.state();
        options.create_if_missing(create);
        Ok(Self::of(DB::open_cf_descriptors(&options, path, tuning.families(&Family::ALL))?))
    }

    /// Opens a copy without changing it.
    pub(crate) fn open_read_only(path: &Path, tuning: &Tuning) -> Result<Self, rocksdb::Error> {
        Ok(Self::of(open_read_only(path, tuning, true)?))
    }

    fn of(db: DB) -> Self {
        Self { db, meta: Mutex::default(), policies: Mutex::default(), open_run: Mutex::default() }
    }

    pub(crate) fn read_meta(&self) -> io::Result<Meta> {
        Ok(self.json(Family::Meta, &key(&[META]))?.unwrap_or_default())
    }

    /// Everything of one kind.
    pub(crate) fn iterator(&self, family: Family, options: ReadOptions) -> io::Result<rocksdb::DBIterator<'_>> {
        Ok(self.db.iterator_cf_opt(self.family(family)?, options, IteratorMode::Start))
    }

    /// Reads what is kept in memory and checks that the chain ends where it says.
    pub(crate) fn load(self) -> io::Result<Self> {
        let meta = self.read_meta()?;
        if meta.next_index > EvidenceIndex(1) {
            self.check_chain(&meta)?;
        }
        *self.open_run.lock() = self.read_open_run(meta.next_index)?;
        *self.meta.lock() = meta;
        Ok(self)
    }

    /// What the entries before `next` say that are in a run which is not complete.
    fn read_open_run(&self, next: EvidenceIndex) -> io::Result<OpenRun> {
        let mut open = OpenRun::default();
        let first = run_of(next).saturating_mul(RUN).saturating_add(1);
        for index in (first..next.0).map(EvidenceIndex) {
            let bytes = self.entry(index)?.ok_or_else(|| broken(format!("evidence entry `{index}` is missing")))?;
            open.push(index, &Marks::of(&evidence::decode(&bytes).map_err(broken)?));
        }
        Ok(open)
    }

    /// Whether this database has a family.
    pub(crate) fn has(&self, family: Family) -> bool {
        self.db.cf_handle(family.name()).is_some()
    }

    /// The last entries, backwards: each has the hash that the next one, or the state, says it has.
    fn check_chain(&self, meta: &Meta) -> io::Result<()> {
        let mut expected = meta.chain_head;
        for back in 1..=CHAIN_CHECKED {
            let Some(index) = meta.next_index.0.checked_sub(back).filter(|index| *index > 0) else { break };
            let index = EvidenceIndex(index);
            let bytes = self.entry(index)?.ok_or_else(|| broken(format!("evidence entry `{index}` is missing")))?;
            let found = evidence::hash(&bytes);
            if found != expected {
                return Err(broken(format!("entry `{index}` has hash {found}, and what follows it says {expected}")));
            }
            expected = evidence::decode(&bytes).map_err(broken)?.prev;
        }
        Ok(())
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    fn family(&self, family: Family) -> io::Result<&ColumnFamily> {
        self.db.cf_handle(family.name()).ok_or_else(|| broken(format!("column family `{}` is missing", family.name())))
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.db.get_cf(self.family(family)?, key).map_err(io_error)
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, family: Family, key: &[u8]) -> io::Result<Option<T>> {
        let Some(bytes) = self.db.get_pinned_cf(self.family(family)?, key).map_err(io_error)? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(broken)
    }

    /// Keys and values from `from` on, below `end`, at most `limit`.
    pub(crate) fn page(&self, family: Family, from: &[u8], end: Vec<u8>, limit: usize) -> io::Result<Vec<KeyValue>> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mode = IteratorMode::From(from, Direction::Forward);
        let iterator = self.db.iterator_cf_opt(self.family(family)?, options, mode);
        iterator.take(limit).map(|item| item.map_err(io_error)).collect()
    }

    /// Makes everything durable that was applied before this call.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let families = Family::ALL.iter().map(|family| self.family(*family)).collect::<io::Result<Vec<_>>>()?;
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.db.flush_cfs_opt(&families, &options).map_err(io_error)
    }

    pub(crate) fn meta(&self) -> Meta {
        self.meta.lock().clone()
    }

    pub(crate) fn position(&self) -> io::Result<Option<Vec<u8>>> {
        self.get(Family::Meta, &key(&[POSITION]))
    }

    pub(crate) fn entry(&self, index: EvidenceIndex) -> io::Result<Option<Vec<u8>>> {
        self.get(Family::Evidence, &key(&[&index.0.to_be_bytes()]))
    }

    pub(crate) fn policy(&self, digest: &PolicyDigest) -> io::Result<Option<Arc<PolicySet>>> {
        if let Some((_, policy)) = self.policies.lock().iter().find(|(kept, _)| kept == digest) {
            return Ok(Some(policy.clone()));
        }
        let Some(text) = self.policy_text(digest)? else { return Ok(None) };
        let policy = Arc::new(PolicySet::from_canonical(&text).map_err(broken)?);
        self.keep(digest.clone(), policy.clone());
        Ok(Some(policy))
    }

    /// The canonical document. A version that could not compile it kept none; its entry has it all the same.
    fn policy_text(&self, digest: &PolicyDigest) -> io::Result<Option<String>> {
        let digest = digest.as_str().as_bytes();
        if let Some(text) = self.get(Family::Policies, &key(&[digest]))? {
            return String::from_utf8(text).map(Some).map_err(broken);
        }
        let record: Option<PolicyRecord> = self.json(Family::Policies, &key(&[&[RECORD], digest]))?;
        let Some(record) = record else { return Ok(None) };
        let Some(bytes) = self.entry(record.index)? else { return Ok(None) };
        match evidence::decode(&bytes).map_err(broken)?.body {
            Body::PolicyChange(change) => Ok(change.document),
            _ => Ok(None),
        }
    }

    fn keep(&self, digest: PolicyDigest, policy: Arc<PolicySet>) {
        let mut kept = self.policies.lock();
        kept.push_front((digest, policy));
        kept.truncate(POLICIES_KEPT);
    }

    /// Writes changes and position in one step, to memory: what a crash takes is applied again from Raft's log.
    pub(crate) fn apply(&self, changes: Changes, position: &[u8]) -> io::Result<()> {
        let mut batch = Batch::new(self)?;
        batch.entries(&changes)?;
        for (id, record) in &changes.requests {
            batch.put(Family::Requests, &key(&[id.as_str().as_bytes()]), record)?;
        }
        for (id, record) in &changes.permits {
            batch.permit(id.as_str().as_bytes(), record)?;
        }
        for record in changes.approvals.values() {
            batch.approval(record)?;
        }
        for (of, counter) in &changes.counters {
            batch.put(Family::Budgets, &keys::counter(of), counter)?;
        }
        for (digest, policy) in &changes.policies {
            batch.put_raw(Family::Policies, &key(&[digest.as_str().as_bytes()]), policy.canonical().as_bytes());
        }
        for (digest, record) in &changes.policy_records {
            batch.policy_record(digest.as_str().as_bytes(), record.as_ref())?;
        }
        for ((level, index), hash) in &changes.merkle {
            batch.put_raw(Family::Merkle, &key(&[&[*level], &index.to_be_bytes()]), &hash.0);
        }
        // Kept in step with what is written: a write that fails stops the node.
        let (next, mut open) = (self.meta().next_index, self.open_run.lock());
        for (index, marks) in changes.marks.iter().filter(|(index, _)| *index >= next) {
            if let Some((run, summary)) = open.push(*index, marks) {
                batch.put_raw(Family::Search, &key(&[&run.to_be_bytes()]), summary.as_bytes());
            }
        }
        drop(open);
        if let Some(meta) = &changes.meta {
            batch.put(Family::Meta, &key(&[META]), meta)?;
        }
        batch.put_raw(Family::Meta, &key(&[POSITION]), position);
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch.batch, &options).map_err(io_error)?;
        if let Some(meta) = changes.meta {
            *self.meta.lock() = meta;
        }
        changes.policies.into_iter().for_each(|(digest, policy)| self.keep(digest, policy));
        for (digest, _) in changes.policy_records.iter().filter(|(_, record)| record.is_none()) {
            self.policies.lock().retain(|(kept, _)| kept != digest);
        }
        Ok(())
    }
}

/// Opens the database of a state without changing it; `whole`: all write-ahead logs that its tables rely on are there.
pub(crate) fn open_read_only(path: &Path, tuning: &Tuning, whole: bool) -> Result<DB, rocksdb::Error> {
    let mut options = tuning.state();
    options.set_track_and_verify_wals_in_manifest(whole);
    // A copy of a version before lacks the families that came later, and nothing may be made in it.
    let there = DB::list_cf(&options, path)?;
    let known = Family::ALL.into_iter().filter(|family| there.iter().any(|name| name == family.name()));
    DB::open_cf_descriptors_read_only(&options, path, tuning.families(&known.collect::<Vec<_>>()), false)
}

/// One write to the database in the making. What it is made of is looked up and allocated once.
struct Batch<'g> {
    generation: &'g Generation,
    families: [&'g ColumnFamily; Family::ALL.len()],
    batch: WriteBatch,
    value: Vec<u8>,
}

impl<'g> Batch<'g> {
    fn new(generation: &'g Generation) -> io::Result<Self> {
        let mut families = [generation.family(Family::Meta)?; Family::ALL.len()];
        for (place, family) in families.iter_mut().zip(Family::ALL) {
            *place = generation.family(family)?;
        }
        Ok(Self { generation, families, batch: WriteBatch::default(), value: Vec::new() })
    }

    #[expect(clippy::indexing_slicing, reason = "one for each family, in the order of `Family::ALL`")]
    fn family(&self, family: Family) -> &'g ColumnFamily {
        self.families[family as usize]
    }

    fn put_raw(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.batch.put_cf(self.family(family), key, value);
    }

    fn put(&mut self, family: Family, key: &[u8], value: &impl Serialize) -> io::Result<()> {
        self.value.clear();
        serde_json::to_writer(&mut self.value, value).map_err(broken)?;
        self.batch.put_cf(self.family(family), key, &self.value);
        Ok(())
    }

    fn delete(&mut self, family: Family, key: &[u8]) {
        self.batch.delete_cf(self.family(family), key);
    }

    fn entries(&mut self, changes: &Changes) -> io::Result<()> {
        let mut next = self.generation.meta().next_index;
        for (index, bytes) in &changes.entries {
            if *index < next {
                if self.generation.entry(*index)?.as_deref() != Some(&**bytes) {
                    return Err(broken(format!("evidence entry `{index}` exists and is never changed")));
                }
                continue;
            }
            if *index > next {
                return Err(broken(format!("evidence entry `{index}` would leave a gap after `{next}`")));
            }
            self.put_raw(Family::Evidence, &key(&[&index.0.to_be_bytes()]), bytes);
            next = next.next();
        }
        Ok(())
    }

    fn permit(&mut self, id: &[u8], record: &PermitRecord) -> io::Result<()> {
        let index = key(&[&[OPEN], &record.index.0.to_be_bytes()]);
        match record.status {
            PermitStatus::Held => self.put_raw(Family::Permits, &index, id),
            PermitStatus::Settled | PermitStatus::Released | PermitStatus::Expired => {
                self.delete(Family::Permits, &index);
            }
        }
        self.put(Family::Permits, &key(&[&[RECORD], id]), record)
    }

    /// A record, or the end of a policy that nothing ever used.
    fn policy_record(&mut self, digest: &[u8], record: Option<&PolicyRecord>) -> io::Result<()> {
        let at = key(&[&[RECORD], digest]);
        match record {
            Some(record) => self.put(Family::Policies, &at, record),
            None => {
                self.delete(Family::Policies, &at);
                self.delete(Family::Policies, &key(&[digest]));
                Ok(())
            }
        }
    }

    fn approval(&mut self, record: &ApprovalRecord) -> io::Result<()> {
        let id = record.approval_id.as_str().as_bytes();
        let index = key(&[&[OPEN], id]);
        match record.state {
            ApprovalState::Pending | ApprovalState::Approved => self.put_raw(Family::Approvals, &index, b""),
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Consumed => {
                self.delete(Family::Approvals, &index);
            }
        }
        self.put(Family::Approvals, &key(&[&[RECORD], id]), record)
    }
}
