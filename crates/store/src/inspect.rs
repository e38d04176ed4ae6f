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
use crate::wal::{self, Fault};

/// What was found.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// There is no database yet.
    pub(crate) fresh: bool,
    /// Where the write-ahead logs end early, if they do.
    pub(crate) fault: Option<Fault>,
    /// The files that RocksDB would read, oldest first.
    pub(crate) wals: Vec<(u64, PathBuf)>,
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
    let failed = |source| OpenError::Folder { path: path.clone(), source };
    if let Some(fault) = wal::hidden_fault(&path).map_err(failed)? {
        return Err(damaged(&path, format!("at byte {} it {}", fault.offset, fault.what)));
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

/// Looks at the database in `folder`. `open` opens a copy of it for reading, and demands the write-ahead logs that its
/// tables rely on only if it is told so.
pub(crate) fn inspect(
    folder: &Path,
    known: Manifest,
    open: impl FnOnce(&Path, bool) -> Result<DB, rocksdb::Error>,
) -> Result<Inspected, OpenError> {
    if is_fresh(folder, known)? {
        return Ok(Inspected { fresh: true, fault: None, wals: Vec::new() });
    }
    check_manifest(folder, known)?;
    let failed = |source| OpenError::Folder { path: folder.to_owned(), source };
    let mut wals = wal::files(folder).map_err(failed)?;
    let mut fault = wal::first_fault(&wals).map_err(failed)?;
    if fault.is_some() {
        // It may lie in a file that is not needed any more. The tables know; RocksDB must not read the files yet.
        let staged = Staged::new(folder, &[]).map_err(failed)?;
        let db = open(&staged.0, false).map_err(|source| rocksdb_failed(folder, source))?;
        let keep = db.property_int_value("rocksdb.min-log-number-to-keep");
        let keep = keep.map_err(|source| rocksdb_failed(folder, source))?.unwrap_or_default();
        wals.retain(|(number, _)| *number >= keep);
        fault = wal::first_fault(&wals).map_err(failed)?;
    }
    Ok(Inspected { fresh: false, fault, wals })
}

/// A copy of a database beside it, for a look: tables are linked; gone with this value.
#[derive(Debug)]
pub(crate) struct Staged(pub(crate) PathBuf);

impl Staged {
    /// With so many bytes of these write-ahead logs and no others.
    fn new(folder: &Path, wals: &[(&Path, u64)]) -> io::Result<Self> {
        let staged = Self(folder.with_extension("peek"));
        if staged.0.exists() {
            fs::remove_dir_all(&staged.0)?;
        }
        fs::create_dir(&staged.0)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(name) = path.file_name() else { continue };
            let target = staged.0.join(name);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("log") => {}
                Some("sst") if fs::hard_link(&path, &target).is_ok() => {}
                _ if path.is_file() => {
                    fs::copy(&path, &target)?;
                }
                _ => {}
            }
        }
        for (path, length) in wals {
            let Some(name) = path.file_name() else { continue };
            let mut part = io::Read::take(fs::File::open(path)?, *length);
            io::copy(&mut part, &mut fs::File::create(staged.0.join(name))?)?;
        }
        Ok(staged)
    }

    /// As a database would be that is cut at a fault.
    pub(crate) fn cut(folder: &Path, inspected: &Inspected, fault: &Fault) -> io::Result<Self> {
        let before = inspected.wals.iter().take_while(|(_, path)| *path != fault.file);
        let mut parts = before.map(|(_, path)| (path.as_path(), u64::MAX)).collect::<Vec<_>>();
        parts.push((&fault.file, fault.offset));
        Self::new(folder, &parts)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a copy that was made for a look stays on disk");
        }
    }
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
