//! The state: which generation is the one, checkpoints of it, and its replacement by a snapshot.
//! Absent on purpose: what the records mean.
//!
//! A snapshot is installed as a new generation beside the old one: hard links and copies, synced, opened; then the
//! pointer file is replaced by a rename. A crash before the rename leaves the old state, after it the new one; whatever
//! is not pointed at is removed on opening.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, RequestId};
use placet_core::policy::PolicySet;
use placet_core::search::Summary;
use placet_core::state::{
    ApprovalRecord, Changes, Counter, CounterKey, List, MerkleKey, Meta, PermitRecord, PolicyRecord, Read, ReadError,
    RequestRecord,
};
use placet_replica::ports::{CopiedState, State};
use rocksdb::checkpoint::Checkpoint;

use crate::inspect::{cut, damaged, inspect, rocksdb_failed};
use crate::keys::{self, Family, OPEN, RECORD, after, behind, key};
use crate::mark::{Keeper, Manifest, Mark};
use crate::pointer;
use crate::records::{Generation, open_read_only, read_error};
use crate::scan::check_all;
use crate::tuning::Tuning;
use crate::{FolderLock, OpenError, io_error};

/// Most records in one page, whatever is asked for: one listing must not fill the memory of a node.
const PAGE_MAX: usize = 10_000;

/// The state on RocksDB.
#[derive(Debug)]
pub struct RocksState {
    folder: PathBuf,
    tuning: Tuning,
    current: RwLock<(u64, Arc<Generation>)>,
    /// None for a copy, which is nobody's data folder.
    owner: Option<Owner>,
}

/// Who a state belongs to: the data folder that it is in.
#[derive(Debug)]
struct Owner {
    keeper: Arc<Keeper>,
    _lock: Arc<FolderLock>,
}

pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl RocksState {
    pub(crate) fn open(
        folder: &Path,
        tuning: Tuning,
        mark: Mark,
        keeper: Arc<Keeper>,
        lock: Arc<FolderLock>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let number = pointer::current(folder, mark.generation)?;
        let path = folder.join(number.to_string());
        let known = if mark.generation == number { mark.state } else { Manifest::default() };
        let inspected = inspect(&path, known, |copy, whole| open_read_only(copy, &tuning, whole))?;
        if let Some(fault) = &inspected.fault {
            let tail = inspected.wals.last().is_some_and(|(_, last)| *last == fault.file);
            if tail {
                // The log is the truth: what is cut here is applied again from there, or the log refuses.
                cut(&inspected, fault).map_err(failed)?;
            } else if !fault.seen_by_rocksdb {
                return Err(damaged(&fault.file, format!("at byte {} it {}", fault.offset, fault.what)));
            }
        }
        let opened = Generation::open(&path, &tuning, inspected.fresh);
        let generation = opened.map_err(|source| rocksdb_failed(&path, source))?;
        let generation = generation.load().map_err(|error| damaged(&path, error.to_string()))?;
        keeper.marker.state_is(number, &path).map_err(failed)?;
        pointer::remove_others(folder, number).map_err(failed)?;
        let current = RwLock::new((number, Arc::new(generation)));
        Ok(Self { folder: folder.to_owned(), tuning, current, owner: Some(Owner { keeper, _lock: lock }) })
    }

    /// A copy, to read.
    pub(crate) fn open_copy(folder: &Path, tuning: Tuning) -> io::Result<Self> {
        let generation = Generation::open_read_only(folder, &tuning).map_err(io_error)?.load()?;
        Ok(Self { folder: folder.to_owned(), tuning, current: RwLock::new((0, Arc::new(generation))), owner: None })
    }

    fn generation(&self) -> Arc<Generation> {
        self.current.read().1.clone()
    }

    fn install_generation(&self, from: &Path) -> io::Result<()> {
        let unowned = || io::Error::new(io::ErrorKind::Unsupported, "a copy is not replaced");
        let owner = self.owner.as_ref().ok_or_else(unowned)?;
        let number = self.current.read().0.saturating_add(1);
        let path = self.folder.join(number.to_string());
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        copy_database(from, &path)?;
        sync_dir(&self.folder)?;
        let generation = Arc::new(Generation::open(&path, &self.tuning, false).map_err(io_error)?.load()?);
        // Copies of before had write-ahead logs: what was in one must be found after a crash.
        generation.flush()?;
        placet_replica::crash::point("during_snapshot_install");
        pointer::point_to(&self.folder, number)?;
        owner.keeper.marker.state_is(number, &path)?;
        let (old_number, old) = std::mem::replace(&mut *self.current.write(), (number, generation));
        // Readers that still hold the old generation keep its files open; the names may go.
        drop(old);
        let old_path = self.folder.join(old_number.to_string());
        if let Err(error) = fs::remove_dir_all(&old_path) {
            tracing::warn!(%error, path = %old_path.display(), "an old state stays on disk until the next start");
        }
        Ok(())
    }
}

/// Table files never change, so they are linked; everything else is copied, because the new owner writes to it.
fn copy_database(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let table = path.extension().is_some_and(|extension| extension == "sst");
        if !table || fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    sync_dir(to)
}

impl State for RocksState {
    fn apply(&self, changes: Changes, position: &[u8]) -> io::Result<()> {
        self.generation().apply(changes, position)
    }

    fn position(&self) -> io::Result<Option<Vec<u8>>> {
        self.generation().position()
    }

    fn flush(&self) -> io::Result<()> {
        self.generation().flush()
    }

    fn checkpoint(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        let generation = self.generation();
        let checkpoint = Checkpoint::new(generation.db()).map_err(io_error)?;
        checkpoint.create_checkpoint(folder).map_err(io_error)?;
        // Applying went on meanwhile: only the copy knows where it stands.
        self.peek(folder)
    }

    fn verify(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        let copy = Generation::open_read_only(folder, &self.tuning).map_err(io_error)?;
        let mut first = None;
        // All of it: what arrived whole may have been damaged where it came from.
        check_all(&copy, &mut |what| first = first.take().or(Some(what)));
        match first {
            None => copy.load()?.position(),
            Some(what) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the copy is damaged: {what}"))),
        }
    }

    fn peek(&self, folder: &Path) -> io::Result<Option<Vec<u8>>> {
        Generation::open_read_only(folder, &self.tuning).map_err(io_error)?.load()?.position()
    }

    fn read_copy(&self, folder: &Path) -> io::Result<Box<dyn CopiedState>> {
        Ok(Box::new(Self::open_copy(folder, self.tuning.clone())?))
    }

    fn install(&self, folder: &Path) -> io::Result<()> {
        self.install_generation(folder)
    }
}

impl CopiedState for RocksState {
    fn position(&self) -> io::Result<Option<Vec<u8>>> {
        self.generation().position()
    }
}

impl Read for RocksState {
    fn meta(&self) -> Result<Meta, ReadError> {
        Ok(self.generation().meta())
    }

    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ReadError> {
        let key = key(&[id.as_str().as_bytes()]);
        self.generation().json(Family::Requests, &key).map_err(read_error)
    }

    fn permit(&self, id: &PermitId) -> Result<Option<PermitRecord>, ReadError> {
        let key = key(&[&[RECORD], id.as_str().as_bytes()]);
        self.generation().json(Family::Permits, &key).map_err(read_error)
    }

    fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>, ReadError> {
        let key = key(&[&[RECORD], id.as_str().as_bytes()]);
        self.generation().json(Family::Approvals, &key).map_err(read_error)
    }

    fn counter(&self, of: &CounterKey) -> Result<Option<Counter>, ReadError> {
        self.generation().json(Family::Budgets, &keys::counter(of)).map_err(read_error)
    }

    fn policy(&self, digest: &PolicyDigest) -> Result<Option<Arc<PolicySet>>, ReadError> {
        self.generation().policy(digest).map_err(read_error)
    }

    fn policy_record(&self, digest: &PolicyDigest) -> Result<Option<PolicyRecord>, ReadError> {
        let key = key(&[&[RECORD], digest.as_str().as_bytes()]);
        self.generation().json(Family::Policies, &key).map_err(read_error)
    }

    fn merkle(&self, (level, index): MerkleKey) -> Result<Option<Hash>, ReadError> {
        let found = self.generation().get(Family::Merkle, &key(&[&[level], &index.to_be_bytes()]));
        let Some(bytes) = found.map_err(read_error)? else { return Ok(None) };
        let hash = <[u8; 32]>::try_from(bytes).map_err(|_| read_error("a node of the tree is not a hash"))?;
        Ok(Some(Hash(hash)))
    }

    fn entry(&self, index: EvidenceIndex) -> Result<Option<Vec<u8>>, ReadError> {
        self.generation().entry(index).map_err(read_error)
    }
}

impl List for RocksState {
    fn open_permits(
        &self,
        after_index: Option<EvidenceIndex>,
        limit: usize,
    ) -> Result<Vec<(PermitId, PermitRecord)>, ReadError> {
        let generation = self.generation();
        let prefix = key(&[&[OPEN]]);
        let from = after_index.map_or_else(|| prefix.clone(), |index| after(key(&[&[OPEN], &index.0.to_be_bytes()])));
        let page = generation.page(Family::Permits, &from, behind(prefix), limit.min(PAGE_MAX)).map_err(read_error)?;
        let mut permits = Vec::with_capacity(page.len());
        for (_, id) in page {
            let id = PermitId::new(String::from_utf8_lossy(&id));
            // Closed between the two reads: no longer open, so not listed.
            if let Some(record) = self.permit(&id)? {
                permits.push((id, record));
            }
        }
        Ok(permits)
    }

    fn open_approvals(&self, after_id: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        let generation = self.generation();
        let prefix = key(&[&[OPEN]]);
        let from = after_id.map_or_else(|| prefix.clone(), |id| after(key(&[&[OPEN], id.as_str().as_bytes()])));
        let page = generation.page(Family::Approvals, &from, behind(prefix), limit.min(PAGE_MAX));
        let mut approvals = Vec::new();
        for (at, _) in page.map_err(read_error)? {
            let id = ApprovalId::new(String::from_utf8_lossy(keys::rest(&at, 1).unwrap_or_default()));
            approvals.extend(self.approval(&id)?);
        }
        Ok(approvals)
    }

    fn approvals(&self, after_id: Option<&ApprovalId>, limit: usize) -> Result<Vec<ApprovalRecord>, ReadError> {
        let prefix = key(&[&[RECORD]]);
        let from = after_id.map_or_else(|| prefix.clone(), |id| after(key(&[&[RECORD], id.as_str().as_bytes()])));
        let page = self.generation().page(Family::Approvals, &from, behind(prefix), limit.min(PAGE_MAX));
        page.map_err(read_error)?.iter().map(|(_, value)| serde_json::from_slice(value).map_err(read_error)).collect()
    }

    fn counters(&self, after_key: Option<&CounterKey>, limit: usize) -> Result<Vec<(CounterKey, Counter)>, ReadError> {
        let prefix = key(&[]);
        let from = after_key.map_or_else(|| prefix.clone(), |of| after(keys::counter(of)));
        let page = self.generation().page(Family::Budgets, &from, behind(prefix), limit.min(PAGE_MAX));
        let counters = page.map_err(read_error)?.into_iter().map(|(at, value)| {
            let of = keys::counter_back(&at).ok_or_else(|| read_error("a counter's key cannot be read"))?;
            Ok((of, serde_json::from_slice(&value).map_err(read_error)?))
        });
        counters.collect()
    }

    fn policies(
        &self,
        after_digest: Option<&PolicyDigest>,
        limit: usize,
    ) -> Result<Vec<(PolicyDigest, PolicyRecord)>, ReadError> {
        let prefix = key(&[&[RECORD]]);
        let from =
            after_digest.map_or_else(|| prefix.clone(), |digest| after(key(&[&[RECORD], digest.as_str().as_bytes()])));
        let page = self.generation().page(Family::Policies, &from, behind(prefix), limit.min(PAGE_MAX));
        let policies = page.map_err(read_error)?.into_iter().map(|(at, value)| {
            let digest = PolicyDigest::new(String::from_utf8_lossy(keys::rest(&at, 1).unwrap_or_default()));
            Ok((digest, serde_json::from_slice(&value).map_err(read_error)?))
        });
        policies.collect()
    }

    fn entries(&self, after_index: EvidenceIndex, limit: usize) -> Result<Vec<(EvidenceIndex, Vec<u8>)>, ReadError> {
        let from = key(&[&after_index.next().0.to_be_bytes()]);
        let page = self.generation().page(Family::Evidence, &from, behind(key(&[])), limit.min(PAGE_MAX));
        let entries = page.map_err(read_error)?.into_iter().map(|(at, value)| {
            let index = keys::number(&at, 0).ok_or_else(|| read_error("an entry's key cannot be read"))?;
            Ok((EvidenceIndex(index), value.into_vec()))
        });
        entries.collect()
    }

    fn summaries(&self, from_run: u64, limit: usize) -> Result<Vec<(u64, Summary)>, ReadError> {
        let generation = self.generation();
        if !generation.has(Family::Search) {
            return Ok(Vec::new());
        }
        let from = key(&[&from_run.to_be_bytes()]);
        let page = generation.page(Family::Search, &from, behind(key(&[])), limit.min(PAGE_MAX)).map_err(read_error)?;
        let summaries = page.into_iter().map(|(at, value)| {
            let run = keys::number(&at, 0).ok_or_else(|| read_error("a summary's key cannot be read"))?;
            Ok((run, Summary::from_bytes(&value).ok_or_else(|| read_error("a summary of entries cannot be read"))?))
        });
        summaries.collect()
    }
}
