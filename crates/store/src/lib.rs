//! Log and state on RocksDB, behind the ports of the replica.
//! Absent on purpose: Raft, and a way to change or delete evidence. The only crate that links RocksDB.
//!
//! ```text
//! <data>/LOCK                       held while a process uses the folder
//! <data>/log/                       one database: entries, vote, small values; synced when the replica says so
//! <data>/state/CURRENT              which generation of the state is the one
//! <data>/state/<generation>/        one database, a column family for each kind of record; without a write-ahead
//!                                   log: after a crash Raft's log is applied again from where it stands
//! <data>/MARK                       what the disk is known to hold, see `mark`
//! <data>/rocksdb/                   what RocksDB writes about itself
//! ```
//!
//! The log's sync never waits for the state's writes: that is why there are two databases. Every key begins with the
//! domain, so that several can share a database later. Architecture §3; spec AADP §14.1.

mod inspect;
mod keys;
mod log;
mod mark;
mod pointer;
mod record;
mod records;
mod scan;
mod state;
mod tuning;
mod wal;

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::mark::{Found, Keeper};

pub use log::RocksLog;
pub use scan::{Finding, ScanReport, scan};
pub use state::RocksState;

/// What to do about damage.
pub const REPAIR: &str = "nothing was changed; `placet repair --config FILE` shows all of what is damaged, and with \
     `--from-peers` it moves the data aside, so that this node comes back empty and catches up from the other members";

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Leave out every sync, for tests. What was promised may be lost with the machine.
    pub unsafe_no_fsync: bool,
    /// Memory for what is read from disk: blocks, indexes and filters, of both databases together.
    pub block_cache_bytes: usize,
    /// Memory for records of the state that are not on disk yet. When it is full all of them are written there, and as
    /// much again is used meanwhile; after a crash as much is applied again from the log.
    pub write_buffer_bytes: usize,
    /// What the replica keeps the log below, if it does: the log's write buffer is a part of that.
    pub log_bytes_max: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { unsafe_no_fsync: false, block_cache_bytes: 32 << 20, write_buffer_bytes: 64 << 20, log_bytes_max: None }
    }
}

/// A store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("data folder `{0}` is in use by another process")]
    InUse(PathBuf),
    /// The folder cannot be used.
    #[error("data folder `{path}` cannot be used")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is on disk is not what was written.
    #[error("`{path}` is damaged: {what}; {REPAIR}")]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// How it shows.
        what: String,
    },
    /// A database does not open.
    #[error("the database in `{path}` cannot be opened")]
    Database {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rocksdb::Error,
    },
}

/// The storage of one node.
#[derive(Clone, Debug)]
pub struct Store {
    /// The log.
    pub log: Arc<RocksLog>,
    /// The state.
    pub state: Arc<RocksState>,
    /// Where the replica keeps its snapshots: on the same file system, so that they can be hard links.
    pub snapshot_dir: PathBuf,
}

/// Keeps other processes out for as long as any part of the store lives.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

/// Makes a folder for this user alone, if there is none: log and state hold permits and what agents wrote.
pub fn private_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes a data folder for this process.
fn lock(data: &Path) -> Result<Arc<FolderLock>, OpenError> {
    let folder = |source| OpenError::Folder { path: data.to_owned(), source };
    let file = File::options().create(true).write(true).truncate(false).open(data.join("LOCK")).map_err(folder)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(data.to_owned()),
        TryLockError::Error(source) => folder(source),
    })?;
    Ok(Arc::new(FolderLock { _file: file }))
}

/// Opens the store in `data`, or makes a new one.
pub fn open(data: &Path, options: &StoreOptions) -> Result<Store, OpenError> {
    let folder = |source| OpenError::Folder { path: data.to_owned(), source };
    private_folder(data).map_err(folder)?;
    let lock = lock(data)?;
    let own_logs = data.join("rocksdb");
    std::fs::create_dir_all(&own_logs).map_err(folder)?;
    let tuning = tuning::Tuning::new(options, own_logs);
    let (found, number) = mark::read(data).map_err(folder)?;
    let known = match found {
        Found::Whole(mark) => Some(mark),
        Found::Nothing => None,
        Found::Damaged => {
            let what = "neither of its two slots is whole, so nobody knows what was synced".to_owned();
            return Err(OpenError::Damaged { path: data.join(mark::NAME), what });
        }
    };
    let log_folder = data.join("log");
    let opened = RocksLog::open(&log_folder, &tuning, known)?;
    // Before the first promise of this start, and only once the log was found good.
    let keeper = Arc::new(Keeper::open(data, &log_folder, known.unwrap_or_default(), number).map_err(folder)?);
    let log = opened.keep(keeper.clone(), lock.clone())?;
    let state = RocksState::open(&data.join("state"), tuning, known.unwrap_or_default(), keeper, lock)?;
    Ok(Store { log, state: Arc::new(state), snapshot_dir: data.join("snapshots") })
}

/// Opens a copy of a state, such as a backup's, to read; nothing in its folder changes. What RocksDB writes about itself
/// goes to `own_logs`.
pub fn open_copy(state: &Path, own_logs: &Path) -> io::Result<RocksState> {
    let tuning = tuning::Tuning::new(&StoreOptions::default(), own_logs.to_owned());
    RocksState::open_copy(state, tuning)
}

pub(crate) fn io_error(error: rocksdb::Error) -> io::Error {
    let kind = match error.kind() {
        rocksdb::ErrorKind::Corruption => io::ErrorKind::InvalidData,
        _ if error.as_ref().contains("No space left on device") => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
