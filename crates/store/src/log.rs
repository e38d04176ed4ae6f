//! The log's database. INVARIANT (order): one write-ahead log, written in the order of the calls, so a sync covers
//! everything before it.
//! Absent on purpose: a cache beside the memtable.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use placet_replica::bytes::Bytes;
use placet_replica::ports::{Log, LogKey};
use rocksdb::{DB, Direction, IteratorMode, ReadOptions, WriteBatch, WriteOptions};

use crate::keys::{ENTRY, SMALL, behind, key, number};
use crate::tuning::Tuning;
use crate::{FolderLock, OpenError, io_error};

const PURGED: &[u8] = b"purged_index";

/// The log on RocksDB.
#[derive(Debug)]
pub struct RocksLog {
    db: DB,
    fsync: bool,
    /// Everything up to this index may be tombstones: iterators start behind it.
    purged: AtomicU64,
    _lock: Arc<FolderLock>,
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

impl RocksLog {
    pub(crate) fn open(path: &Path, tuning: &Tuning, lock: Arc<FolderLock>) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Database { path: path.to_owned(), source };
        let db = DB::open(&tuning.log(), path).map_err(failed)?;
        let purged = db.get(small_key(PURGED)).map_err(failed)?;
        let purged = purged.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        Ok(Self { db, fsync: tuning.fsync, purged: AtomicU64::new(purged), _lock: lock })
    }

    fn unsynced() -> WriteOptions {
        WriteOptions::default()
    }

    fn entries(&self, range: Range<u64>) -> ReadOptions {
        let mut options = ReadOptions::default();
        let first = range.start.max(self.purged.load(Ordering::Acquire));
        options.set_iterate_lower_bound(entry_key(first));
        options.set_iterate_upper_bound(entry_key(range.end));
        options
    }
}

impl Log for RocksLog {
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        entries.iter().for_each(|(index, bytes)| batch.put(entry_key(*index), bytes));
        self.db.write_opt(batch, &Self::unsynced()).map_err(io_error)
    }

    fn sync(&self) -> io::Result<()> {
        if self.fsync { self.db.flush_wal(true).map_err(io_error) } else { Ok(()) }
    }

    fn truncate_from(&self, index: u64) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(entry_key(index), behind(key(&[&[ENTRY]])));
        self.db.write_opt(batch, &Self::unsynced()).map_err(io_error)
    }

    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(entry_key(0), entry_key(index.saturating_add(1)));
        batch.put(small_key(name(LogKey::LastPurged)), last_purged);
        batch.put(small_key(PURGED), index.to_be_bytes());
        self.db.write_opt(batch, &Self::unsynced()).map_err(io_error)?;
        self.purged.fetch_max(index, Ordering::AcqRel);
        Ok(())
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let from = entry_key(range.start);
        let iterator = self.db.iterator_opt(IteratorMode::From(&from, Direction::Forward), self.entries(range));
        let (mut found, mut size) = (Vec::new(), 0usize);
        for item in iterator {
            let (at, value) = item.map_err(io_error)?;
            size = size.saturating_add(value.len());
            if size > bytes_max && !found.is_empty() {
                break;
            }
            found.push((number(&at, 1).ok_or_else(malformed)?, Bytes::from(value)));
        }
        Ok(found)
    }

    fn last(&self) -> io::Result<Option<(u64, Bytes)>> {
        let Some(item) = self.db.iterator_opt(IteratorMode::End, self.entries(0..u64::MAX)).next() else {
            return Ok(None);
        };
        let (at, value) = item.map_err(io_error)?;
        Ok(Some((number(&at, 1).ok_or_else(malformed)?, Bytes::from(value))))
    }

    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(durable && self.fsync);
        self.db.put_opt(small_key(name(key)), value, &options).map_err(io_error)
    }

    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>> {
        self.db.get(small_key(name(key))).map_err(io_error)
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
