//! The log's database. INVARIANT (order): one write-ahead log, written in the order of the calls, so a sync covers
//! everything before it.
//! Absent on purpose: a cache beside the memtable.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use placet_replica::bytes::Bytes;
use placet_replica::ports::{Log, LogKey};
use rocksdb::{DB, Direction, IteratorMode, ReadOptions, WriteBatch, WriteOptions};

use crate::inspect::{Inspected, Staged, cut, damaged, inspect, rocksdb_failed};
use crate::keys::{ENTRY, SMALL, behind, key, number};
use crate::mark::{self, Keeper, Mark};
use crate::record::{frame, is_bare, unframe};
use crate::tuning::Tuning;
use crate::{FolderLock, OpenError, REPAIR, io_error};

const PURGED: &[u8] = b"purged_index";

/// Below which index entries may have no checksum: they are older than it. Framed itself.
const FORMAT: &[u8] = b"format";

/// The number of the last write, in every write: RocksDB's own sequence numbers are noted ahead of the data by a flush,
/// so they do not tell what is there.
const SERIAL: &[u8] = b"serial";

/// The log on RocksDB.
#[derive(Debug)]
pub struct RocksLog {
    db: DB,
    path: PathBuf,
    fsync: bool,
    /// Everything up to this index may be tombstones: iterators start behind it.
    purged: AtomicU64,
    /// Which entries there are: from, and below.
    present: Mutex<Range<u64>>,
    /// Locked while a write is made, so that numbers are in the order of writes.
    writes: Mutex<Writes>,
    /// Truncations, so that a reader knows whether one ran beside it.
    truncations: AtomicU64,
    /// Entries below this index may be older than their checksums.
    bare_below: u64,
    keeper: Arc<Keeper>,
    _lock: Arc<FolderLock>,
}

#[derive(Debug)]
struct Writes {
    /// The number of the last one.
    last: u64,
    /// What is committed, until the next write brings it along: it changes with every batch, and a write of its own
    /// would be a third of the work.
    committed: Option<Vec<u8>>,
    /// A write or a sync failed: after that nothing is written any more.
    failed: bool,
}

/// A log that was found good and has made no promise yet.
pub(crate) struct Opened {
    db: DB,
    path: PathBuf,
    fsync: bool,
}

fn entry_key(index: u64) -> Vec<u8> {
    key(&[&[ENTRY], &index.to_be_bytes()])
}

fn small_key(name: &[u8]) -> Vec<u8> {
    key(&[&[SMALL], name])
}

fn name(of: LogKey) -> &'static [u8] {
    match of {
        LogKey::Vote => b"vote",
        LogKey::Committed => b"committed",
        LogKey::LastPurged => b"last_purged",
        LogKey::Recovery => b"recovery",
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a key of the log has no index")
}

const SMALL_VALUES: [&[u8]; 6] = [b"vote", b"committed", b"last_purged", b"recovery", PURGED, SERIAL];

impl RocksLog {
    /// Opens the database if it holds everything that was synced; a tail that never was is cut.
    pub(crate) fn open(path: &Path, tuning: &Tuning, known: Option<Mark>) -> Result<Opened, OpenError> {
        let mark = known.unwrap_or_default();
        let mut options = tuning.log();
        let inspected = inspect(path, mark.log, |copy, _| peek(copy, tuning, false))?;
        judge(path, &inspected, known, tuning)?;
        if let Some(fault) = &inspected.fault {
            cut(&inspected, fault).map_err(|source| OpenError::Folder { path: path.to_owned(), source })?;
        }
        options.create_if_missing(inspected.fresh);
        let db = DB::open(&options, path).map_err(|source| rocksdb_failed(path, source))?;
        let last = serial_in(&db).map_err(|error| damaged(path, error.to_string()))?;
        if last < mark.synced {
            return Err(damaged(path, ends_early(last, mark.synced)));
        }
        // Before the mark is made anew.
        let format = db.get(small_key(FORMAT)).map_err(|source| rocksdb_failed(path, source))?;
        if format.is_some() && known.is_none() {
            return Err(damaged(&path.with_file_name(mark::NAME), "it is missing, so nobody knows what was synced"));
        }
        Ok(Opened { db, path: path.to_owned(), fsync: tuning.fsync })
    }

    /// Writes a batch under the next number, and returns it.
    fn write(&self, mut batch: WriteBatch, durable: bool) -> io::Result<u64> {
        let mut options = WriteOptions::default();
        options.set_sync(durable && self.fsync);
        let key = small_key(SERIAL);
        let mut writes = self.writes.lock();
        let next = writes.last.saturating_add(1);
        batch.put(&key, frame(&key, &next.to_be_bytes()));
        if let Some(committed) = writes.committed.take() {
            let key = small_key(name(LogKey::Committed));
            batch.put(&key, frame(&key, &committed));
        }
        let written = self.db.write_opt(batch, &options);
        writes.failed |= written.is_err();
        written.map_err(io_error)?;
        writes.last = next;
        Ok(next)
    }

    fn entries(&self, range: Range<u64>) -> ReadOptions {
        let mut options = ReadOptions::default();
        let first = range.start.max(self.purged.load(Ordering::Acquire));
        options.set_verify_checksums(true);
        options.set_iterate_lower_bound(entry_key(first));
        options.set_iterate_upper_bound(entry_key(range.end));
        options
    }
}

/// Opens a copy for reading.
pub(crate) fn peek(copy: &Path, tuning: &Tuning, whole: bool) -> Result<DB, rocksdb::Error> {
    let mut options = tuning.log();
    options.set_track_and_verify_wals_in_manifest(whole);
    DB::open_for_read_only(&options, copy, false)
}

/// Whether what is there may be all that was promised. Without a fault only opening the database tells.
pub(crate) fn judge(path: &Path, inspected: &Inspected, known: Option<Mark>, tuning: &Tuning) -> Result<(), OpenError> {
    let synced = known.map_or(0, |mark| mark.synced);
    if inspected.fresh && synced > 0 {
        return Err(damaged(path, "the log is gone"));
    }
    let Some(fault) = &inspected.fault else { return Ok(()) };
    let at = format!("at byte {} it {}", fault.offset, fault.what);
    if known.is_none() {
        // Before there was a mark nobody noted what was synced: then only a torn end of the last file is a tear.
        let tail = inspected.wals.last().is_some_and(|(_, last)| *last == fault.file);
        let torn = tail && fault.what.starts_with("ends inside");
        return if torn { Ok(()) } else { Err(damaged(&fault.file, at)) };
    }
    let failed = |source| OpenError::Folder { path: path.to_owned(), source };
    let staged = Staged::cut(path, inspected, fault).map_err(failed)?;
    let db = peek(&staged.0, tuning, true).map_err(|error| damaged(&fault.file, format!("{at}; {error}")))?;
    let left = serial_in(&db).map_err(|error| damaged(&fault.file, format!("{at}; {error}")))?;
    if left < synced {
        let what = format!("{at}, behind write {left}, and the log was synced up to write {synced}");
        return Err(damaged(&fault.file, what));
    }
    Ok(())
}

/// The number of the last write.
pub(crate) fn serial_in(db: &DB) -> io::Result<u64> {
    let Some(stored) = db.get(small_key(SERIAL)).map_err(io_error)? else { return Ok(0) };
    let value = unframe(&small_key(SERIAL), Bytes::from(stored))?;
    number_of(&value).ok_or_else(malformed)
}

/// Below which index entries may have no checksum, and whether that was ever noted.
pub(crate) fn bare_below(db: &DB) -> io::Result<(u64, bool)> {
    let Some(stored) = db.get(small_key(FORMAT)).map_err(io_error)? else { return Ok((u64::MAX, false)) };
    let value = unframe(&small_key(FORMAT), Bytes::from(stored))?;
    number_of(&value).map(|below| (below, true)).ok_or_else(malformed)
}

/// The small values, by name. Unless the store was `upgraded` they have no checksum yet.
pub(crate) fn small_values(db: &DB, upgraded: bool) -> Vec<(String, io::Result<Vec<u8>>)> {
    let mut found = Vec::new();
    for name in SMALL_VALUES {
        let key = small_key(name);
        let value = match db.get(&key).map_err(io_error) {
            Ok(None) => continue,
            Ok(Some(stored)) if !upgraded && is_bare(&stored) => Ok(stored),
            Ok(Some(stored)) => unframe(&key, Bytes::from(stored)).map(Vec::from),
            Err(error) => Err(error),
        };
        found.push((String::from_utf8_lossy(name).into_owned(), value));
    }
    found
}

/// Reads every entry, past the cache.
pub(crate) fn all_entries() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_verify_checksums(true);
    options.set_iterate_lower_bound(entry_key(0));
    options.set_iterate_upper_bound(behind(key(&[&[ENTRY]])));
    options
}

/// The value of a stored entry, and whether a checksum vouches for it.
pub(crate) fn value_of(index: u64, bare_below: u64, key: &[u8], stored: Bytes) -> io::Result<(Bytes, bool)> {
    if index < bare_below && is_bare(&stored) {
        return Ok((stored, false));
    }
    unframe(key, stored).map(|value| (value, true))
}

impl Opened {
    /// Reads what is kept in memory, and writes values of before checksums anew.
    pub(crate) fn keep(self, keeper: Arc<Keeper>, lock: Arc<FolderLock>) -> Result<Arc<RocksLog>, OpenError> {
        let Self { db, path, fsync } = self;
        let failed = |source| OpenError::Database { path: path.clone(), source };
        let format = db.get(small_key(FORMAT)).map_err(failed)?;
        let serial = serial_in(&db).map_err(|error| damaged(&path, error.to_string()))?;
        let mut log = RocksLog {
            db,
            path: path.clone(),
            fsync,
            purged: AtomicU64::new(0),
            present: Mutex::new(0..0),
            writes: Mutex::new(Writes { last: serial, committed: None, failed: false }),
            truncations: AtomicU64::new(0),
            bare_below: 0,
            keeper,
            _lock: lock,
        };
        let unreadable = |source: io::Error| damaged(&path, source.to_string());
        match format {
            Some(stored) => {
                let value = log.small(FORMAT, stored).map_err(unreadable)?;
                log.bare_below = number_of(&value).ok_or_else(|| damaged(&path, "its format cannot be read"))?;
            }
            None => log.frame_old_values().map_err(unreadable)?,
        }
        let purged = log.read_small(PURGED).map_err(unreadable)?.and_then(|value| number_of(&value));
        log.purged = AtomicU64::new(purged.unwrap_or_default());
        let last = log.edge(IteratorMode::End).map_err(unreadable)?;
        let first = log.edge(IteratorMode::Start).map_err(unreadable)?;
        if let (Some(first), Some(last)) = (first, last) {
            let expected = purged.map_or(first.min(1), |purged| purged.saturating_add(1));
            if first != expected {
                return Err(damaged(&path, format!("the log begins with record {first}, not with {expected}")));
            }
            *log.present.get_mut() = first..last.saturating_add(1);
        }
        Ok(Arc::new(log))
    }
}

impl RocksLog {
    /// Gives the small values their checksums, and notes which entries have none.
    fn frame_old_values(&mut self) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        for name in SMALL_VALUES {
            if let Some(stored) = self.db.get(small_key(name)).map_err(io_error)?.filter(|stored| is_bare(stored)) {
                batch.put(small_key(name), frame(&small_key(name), &stored));
            }
        }
        self.bare_below = self.edge(IteratorMode::End)?.map_or(0, |last| last.saturating_add(1));
        batch.put(small_key(FORMAT), frame(&small_key(FORMAT), &self.bare_below.to_be_bytes()));
        self.write(batch, false)?;
        self.sync()
    }

    fn edge(&self, from: IteratorMode<'_>) -> io::Result<Option<u64>> {
        let Some(item) = self.db.iterator_opt(from, self.entries(0..u64::MAX)).next() else { return Ok(None) };
        let (at, _) = item.map_err(io_error)?;
        number(&at, 1).map(Some).ok_or_else(malformed)
    }

    fn small(&self, name: &[u8], stored: Vec<u8>) -> io::Result<Vec<u8>> {
        let value = unframe(&small_key(name), Bytes::from(stored));
        value.map(Vec::from).map_err(|error| self.wrong(&format!("`{}`", String::from_utf8_lossy(name)), &error))
    }

    fn read_small(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let stored = self.db.get(small_key(name)).map_err(io_error)?;
        stored.map(|stored| self.small(name, stored)).transpose()
    }

    /// The value of a stored entry.
    fn entry(&self, index: u64, key: &[u8], stored: Box<[u8]>) -> io::Result<Bytes> {
        let value = value_of(index, self.bare_below, key, Bytes::from(stored));
        value.map(|(value, _)| value).map_err(|error| self.wrong(&format!("record {index}"), &error))
    }

    fn wrong(&self, which: &str, what: &dyn std::fmt::Display) -> io::Error {
        let text = format!("{which} of the log in `{}` is damaged: {what}; {REPAIR}", self.path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// Refuses what a reader found if a record is missing in it. A short answer is none of those: the log may have
    /// been truncated meanwhile.
    fn check_whole(&self, asked: &Range<u64>, found: &[(u64, Bytes)], present: Range<u64>) -> io::Result<()> {
        let mut expected = asked.start.max(self.present.lock().start).max(present.start);
        for (index, _) in found {
            if *index > expected {
                return Err(self.wrong(&format!("record {expected}"), &"it is missing"));
            }
            expected = index.saturating_add(1);
        }
        if found.is_empty() && expected < asked.end.min(present.end) {
            return Err(self.wrong(&format!("record {expected}"), &"it is missing"));
        }
        Ok(())
    }
}

impl Log for RocksLog {
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        let (Some((first, _)), Some((last, _))) = (entries.first(), entries.last()) else { return Ok(()) };
        let mut batch = WriteBatch::default();
        for (index, bytes) in entries {
            let key = entry_key(*index);
            batch.put(&key, frame(&key, bytes));
        }
        self.write(batch, false)?;
        let mut present = self.present.lock();
        let start = if present.is_empty() { *first } else { present.start.min(*first) };
        *present = start..present.end.max(last.saturating_add(1));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if !self.fsync {
            return Ok(());
        }
        let up_to = self.writes.lock().last;
        let synced = self.db.flush_wal(true);
        self.writes.lock().failed |= synced.is_err();
        synced.map_err(io_error)?;
        self.keeper.marker.synced(up_to)
    }

    fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.truncations.fetch_add(1, Ordering::AcqRel);
        let mut batch = WriteBatch::default();
        batch.delete_range(entry_key(index), behind(key(&[&[ENTRY]])));
        {
            let mut present = self.present.lock();
            present.end = present.end.min(index);
        }
        self.write(batch, false).map(drop)
    }

    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(entry_key(0), entry_key(index.saturating_add(1)));
        let name = small_key(name(LogKey::LastPurged));
        batch.put(&name, frame(&name, last_purged));
        batch.put(small_key(PURGED), frame(&small_key(PURGED), &index.to_be_bytes()));
        {
            // Before they go, so that no reader takes them for lost.
            let mut present = self.present.lock();
            present.start = present.start.max(index.saturating_add(1));
            present.end = present.end.max(present.start);
        }
        self.write(batch, false)?;
        self.purged.fetch_max(index, Ordering::AcqRel);
        Ok(())
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let (present, truncations) = (self.present.lock().clone(), self.truncations.load(Ordering::Acquire));
        let from = entry_key(range.start);
        let options = self.entries(range.clone());
        let iterator = self.db.iterator_opt(IteratorMode::From(&from, Direction::Forward), options);
        let (mut found, mut size) = (Vec::new(), 0usize);
        for item in iterator {
            let (at, stored) = item.map_err(io_error)?;
            size = size.saturating_add(stored.len());
            if size > bytes_max && !found.is_empty() {
                break;
            }
            let index = number(&at, 1).ok_or_else(malformed)?;
            found.push((index, self.entry(index, &at, stored)?));
        }
        if truncations == self.truncations.load(Ordering::Acquire) {
            self.check_whole(&range, &found, present)?;
        }
        Ok(found)
    }

    fn last(&self) -> io::Result<Option<(u64, Bytes)>> {
        let Some(item) = self.db.iterator_opt(IteratorMode::End, self.entries(0..u64::MAX)).next() else {
            return Ok(None);
        };
        let (at, stored) = item.map_err(io_error)?;
        let index = number(&at, 1).ok_or_else(malformed)?;
        Ok(Some((index, self.entry(index, &at, stored)?)))
    }

    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()> {
        if matches!(key, LogKey::Committed) && !durable {
            self.writes.lock().committed = Some(value.to_vec());
            return Ok(());
        }
        if matches!(key, LogKey::Committed) {
            self.writes.lock().committed = None;
        }
        let at = small_key(name(key));
        let mut batch = WriteBatch::default();
        batch.put(&at, frame(&at, value));
        let number = self.write(batch, durable)?;
        // A synced write is durable with all before it.
        if durable && self.fsync { self.keeper.marker.synced(number) } else { Ok(()) }
    }

    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>> {
        if matches!(key, LogKey::Committed)
            && let Some(held) = &self.writes.lock().committed
        {
            return Ok(Some(held.clone()));
        }
        self.read_small(name(key))
    }

    fn size(&self) -> io::Result<u64> {
        // By the tables' own indexes: opening the database wrote what was in the write-ahead log into one.
        let first = self.purged.load(Ordering::Acquire).saturating_add(1);
        let range = Range { start: entry_key(first), end: behind(key(&[&[ENTRY]])) };
        Ok(self.db.get_approximate_sizes(&[rocksdb::Range::new(&range.start, &range.end)]).iter().sum())
    }

    fn durable(&self) -> bool {
        self.fsync
    }
}

impl Drop for RocksLog {
    fn drop(&mut self) {
        let writes = self.writes.get_mut();
        if writes.committed.is_some()
            && !writes.failed
            && let Err(error) = self.write(WriteBatch::default(), false)
        {
            tracing::warn!(%error, "what is committed could not be noted; the next start learns it anew");
        }
    }
}

fn number_of(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn ends_early(last: u64, synced: u64) -> String {
    format!("the log ends with write {last}, and was synced up to write {synced}")
}
