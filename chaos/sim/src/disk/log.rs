//! A log's disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use placet_core::planted::{self, Bug};
use placet_replica::ports::{Log, LogKey};

use super::DiskFaults;
use crate::entropy::Rng;
use crate::life::Life;

/// Entries and small values.
#[derive(Clone, Debug, Default)]
pub struct LogContent {
    /// By index.
    pub entries: BTreeMap<u64, Bytes>,
    /// Entries that rotted after they were written, as they are now.
    rotten: BTreeMap<u64, Bytes>,
    small: HashMap<LogKey, Vec<u8>>,
}

/// One write.
#[derive(Clone, Debug)]
enum Write {
    Entry(u64, Bytes),
    Truncate(u64),
    Purge(u64, Vec<u8>),
    Small(LogKey, Vec<u8>),
}

impl LogContent {
    /// An entry as it was written; like the real store, the disk knows by a checksum what it wrote.
    fn whole(&self, index: u64, bytes: &Bytes) -> io::Result<Bytes> {
        match self.rotten.get(&index) {
            None => Ok(bytes.clone()),
            Some(rotten) if planted::on(Bug::ChainNotChecked) => Ok(rotten.clone()),
            Some(_) => {
                let what = format!("entry {index} of the simulated log is not as it was written");
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
    }

    fn take(&mut self, write: Write) {
        match &write {
            Write::Entry(index, _) => drop(self.rotten.remove(index)),
            Write::Truncate(from) => drop(self.rotten.split_off(from)),
            Write::Purge(to, _) => self.rotten = self.rotten.split_off(&to.saturating_add(1)),
            Write::Small(..) => {}
        }
        match write {
            Write::Entry(index, bytes) => drop(self.entries.insert(index, bytes)),
            Write::Truncate(from) => drop(self.entries.split_off(&from)),
            Write::Purge(to, last) => {
                self.entries = self.entries.split_off(&to.saturating_add(1));
                self.small.insert(LogKey::LastPurged, last);
            }
            Write::Small(key, value) => drop(self.small.insert(key, value)),
        }
    }
}

/// What is on the disk, and what only seems to be.
#[derive(Debug, Default)]
pub struct LogDisk {
    now: LogContent,
    /// What no crash takes away.
    pub durable: LogContent,
    /// In the order of the calls. A unit is the writes of one call, which another disk may have made one by one.
    pending: Vec<Write>,
}

impl LogDisk {
    fn write(&mut self, write: Write) {
        self.now.take(write.clone());
        self.pending.push(write);
    }

    fn sync(&mut self) {
        for write in self.pending.drain(..) {
            self.durable.take(write);
        }
    }

    /// Keeps a first part of what was not synced.
    pub fn crash(&mut self, rng: &mut Rng) {
        let kept = usize::try_from(rng.below(self.pending.len() as u64 + 1)).unwrap_or_default();
        self.pending.truncate(kept);
        self.sync();
        self.now = self.durable.clone();
    }

    /// A process ended and its machine did not: everything that was written is there.
    pub fn outlive(&mut self) {
        self.sync();
        self.now = self.durable.clone();
    }

    /// Whether an entry rotted that is still there.
    pub fn is_rotten(&self) -> bool {
        !self.durable.rotten.is_empty() || !self.now.rotten.is_empty()
    }

    /// Turns one bit of one durable entry. `false` when there is none.
    pub fn flip(&mut self, rng: &mut Rng) -> bool {
        let indexes: Vec<u64> = self.durable.entries.keys().copied().collect();
        let Some(index) = rng.pick(&indexes) else { return false };
        let mut bytes = self.durable.entries[index].to_vec();
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap_or_default();
        let Some(byte) = bytes.get_mut(at) else { return false };
        *byte ^= 1 << rng.below(8);
        self.durable.rotten.insert(*index, Bytes::from(bytes));
        self.now = self.durable.clone();
        true
    }
}

/// The log of one life.
#[derive(Debug)]
pub struct SimLog {
    disk: Arc<Mutex<LogDisk>>,
    faults: DiskFaults,
    life: Life,
    /// A sync failed: like the real store, it takes no writes any more.
    failed: AtomicBool,
}

impl SimLog {
    /// A log on `disk`.
    pub fn new(disk: Arc<Mutex<LogDisk>>, faults: DiskFaults, life: Life) -> Self {
        Self { disk, faults, life, failed: AtomicBool::new(false) }
    }

    fn ensure_no_failure(&self) -> io::Result<()> {
        let failed = self.failed.load(Ordering::SeqCst);
        if failed { Err(io::Error::other("an earlier sync of the simulated disk failed")) } else { Ok(()) }
    }

    fn ensure_writable(&self) -> io::Result<()> {
        self.ensure_no_failure()?;
        if self.faults.full.load(Ordering::SeqCst) {
            self.life.allow_stop();
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on the simulated disk"));
        }
        Ok(())
    }
}

impl Log for SimLog {
    fn append(&self, entries: &[(u64, Bytes)]) -> io::Result<()> {
        self.ensure_writable()?;
        // One operation for each entry, so that a crash can cut the write.
        for (index, bytes) in entries {
            self.life.operate()?;
            self.disk.lock().write(Write::Entry(*index, bytes.clone()));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.ensure_no_failure()?;
        self.life.operate()?;
        if self.faults.sync_fails.swap(false, Ordering::SeqCst) {
            self.life.allow_stop();
            self.failed.store(true, Ordering::SeqCst);
            // The pages are marked clean and gone: no later sync brings them back.
            self.disk.lock().pending.clear();
            return Err(io::Error::other("the simulated disk could not sync"));
        }
        self.disk.lock().sync();
        Ok(())
    }

    fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.ensure_no_failure()?;
        self.life.operate()?;
        self.disk.lock().write(Write::Truncate(index));
        Ok(())
    }

    fn purge_to(&self, index: u64, last_purged: &[u8]) -> io::Result<()> {
        self.ensure_no_failure()?;
        self.life.operate()?;
        self.disk.lock().write(Write::Purge(index, last_purged.to_vec()));
        Ok(())
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        self.life.operate()?;
        let disk = self.disk.lock();
        let (mut found, mut size) = (Vec::new(), 0usize);
        for (index, bytes) in disk.now.entries.range(range) {
            size = size.saturating_add(bytes.len());
            if size > bytes_max && !found.is_empty() {
                break;
            }
            found.push((*index, disk.now.whole(*index, bytes)?));
        }
        Ok(found)
    }

    fn last(&self) -> io::Result<Option<(u64, Bytes)>> {
        self.life.operate()?;
        let disk = self.disk.lock();
        let last = disk.now.entries.last_key_value();
        last.map(|(index, bytes)| Ok((*index, disk.now.whole(*index, bytes)?))).transpose()
    }

    fn put(&self, key: LogKey, value: &[u8], durable: bool) -> io::Result<()> {
        self.ensure_writable()?;
        self.life.operate()?;
        self.disk.lock().write(Write::Small(key, value.to_vec()));
        if durable { self.sync() } else { Ok(()) }
    }

    fn get(&self, key: LogKey) -> io::Result<Option<Vec<u8>>> {
        self.life.operate()?;
        Ok(self.disk.lock().now.small.get(&key).cloned())
    }

    fn durable(&self) -> bool {
        true
    }
}
