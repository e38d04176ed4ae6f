//! A database before it is opened for writing: whether what it lost, if anything, was never promised.
//! Absent on purpose: changing anything. The caller cuts what may be cut.
//!
//! RocksDB trusts its files more than a node may: without `CURRENT` it makes a new, empty database over the old one; a
//! MANIFEST that lost its end is an older database; and write-ahead logs end where they are first damaged (`wal`). Each
//! of these is compared with the mark here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rocksdb::DB;

use crate::OpenError;
use crate::mark::{self, Manifest};
use crate::wal::{self, Fault, Scan};

/// What was found.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// There is no database yet.
    pub(crate) fresh: bool,
    /// Where the write-ahead logs end early, if they do.
    pub(crate) fault: Option<Fault>,
    /// The files that RocksDB would read, oldest first.
    pub(crate) wals: Vec<(u64, PathBuf)>,
    /// The last change that would be left; `None` if only opening tells.
    pub(crate) last: Option<u64>,
}

pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what: what.into() }
}

/// What RocksDB says about damage, or about another failure.
pub(crate) fn rocksdb_failed(path: &Path, source: rocksdb::Error) -> OpenError {
    let text = source.to_string();
    let missing = text.contains("No such file or directory");
    match source.kind() {
        rocksdb::ErrorKind::Corruption | rocksdb::ErrorKind::NotFound => damaged(path, text),
        _ if missing => damaged(path, text),
        _ => OpenError::Database { path: path.to_owned(), source },
    }
}

fn has_data(path: &Path) -> io::Result<bool> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    Ok(match extension {
        Some("sst") => true,
        Some("log") => fs::metadata(path)?.len() > 0,
        _ => false,
    })
}

/// Whether nothing was ever written here.
fn is_fresh(folder: &Path, known: Manifest) -> Result<bool, OpenError> {
    let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
    if folder.join("CURRENT").exists() {
        return Ok(false);
    }
    let mut used = known.number > 0;
    if folder.exists() {
        for entry in fs::read_dir(folder).map_err(failed)? {
            used |= has_data(&entry.map_err(failed)?.path()).map_err(failed)?;
        }
    }
    if used {
        Err(damaged(&folder.join("CURRENT"), "it is missing, and the database beside it is not new"))
    } else {
        Ok(true)
    }
}

/// Compares the MANIFEST with what was seen of it.
fn check_manifest(folder: &Path, known: Manifest) -> Result<(), OpenError> {
    let current = folder.join("CURRENT");
    let number = mark::manifest_number(folder).map_err(|error| damaged(&current, error.to_string()))?;
    let path = mark::manifest_path(folder, number);
    if number < known.number {
        return Err(damaged(
            &current,
            format!("it names MANIFEST-{number:06}, and MANIFEST-{:06} was in use", known.number),
        ));
    }
    if !path.exists() {
        return Err(damaged(&path, "it is missing"));
    }
    if number > known.number {
        return Ok(());
    }
    match mark::prefix_crc(&path, known.length) {
        Ok(None) => Err(damaged(&path, format!("it is shorter than the {} bytes that it had", known.length))),
        Ok(Some(crc)) if crc != known.crc => {
            Err(damaged(&path, format!("its first {} bytes are not the ones that were written", known.length)))
        }
        Ok(Some(_)) => Ok(()),
        Err(source) => Err(OpenError::Folder { path, source }),
    }
}

/// Looks at the database in `folder`. `open` opens it for reading.
pub(crate) fn inspect(
    folder: &Path,
    known: Manifest,
    open: impl FnOnce() -> Result<DB, rocksdb::Error>,
) -> Result<Inspected, OpenError> {
    if is_fresh(folder, known)? {
        return Ok(Inspected { fresh: true, fault: None, wals: Vec::new(), last: None });
    }
    check_manifest(folder, known)?;
    let (keep, last) = {
        let db = open().map_err(|source| rocksdb_failed(folder, source))?;
        let keep = db.property_int_value("rocksdb.min-log-number-to-keep");
        let keep = keep.map_err(|source| rocksdb_failed(folder, source))?.unwrap_or_default();
        (keep, db.latest_sequence_number())
    };
    let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
    let mut wals = wal::files(folder).map_err(failed)?;
    wals.retain(|(number, _)| *number >= keep);
    let Scan { last: scanned, fault, .. } = wal::scan(&wals).map_err(failed)?;
    // Where RocksDB does not see the fault, it read beyond it.
    let last = match &fault {
        None => Some(last),
        Some(fault) => scanned.or(fault.seen_by_rocksdb.then_some(last)),
    };
    Ok(Inspected { fresh: false, fault, wals, last })
}

/// Cuts the write-ahead logs at a fault, for a database of which nothing behind it was promised.
pub(crate) fn cut(inspected: &Inspected, fault: &Fault) -> io::Result<()> {
    let mut behind = inspected.wals.iter().skip_while(|(_, path)| *path != fault.file);
    for (_, path) in behind.by_ref() {
        let file = fs::File::options().write(true).open(path)?;
        let (length, keep) = (file.metadata()?.len(), if *path == fault.file { fault.offset } else { 0 });
        tracing::warn!(
            file = %path.display(), from = keep, to = length, what = fault.what,
            "the end of a write-ahead log was torn before it was synced, and is cut"
        );
        file.set_len(keep)?;
        file.sync_all()?;
    }
    Ok(())
}
