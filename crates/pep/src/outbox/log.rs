//! The outbox file: one line per frame, `<BLAKE3 of the rest> <JSON list of records>`, appended and synced as a whole.
//! Absent on purpose: meaning. What a record does to the items is the parent's.
//!
//! A frame that was being written when the machine stopped is the last one, and was never acknowledged: it is cut off.
//! A frame that is broken and has a whole one behind it is damage: nothing starts on it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_core::ids::Hash;
use thiserror::Error;

use super::Record;
use crate::limits::{OUTBOX_COMPACT_BYTES, OUTBOX_FILE_BYTES_MAX, OUTBOX_GROUP_MAX};

/// Why the outbox cannot take an act. Nothing was done.
#[derive(Clone, Debug, Error)]
pub enum OutboxError {
    /// The file system refused.
    #[error("the outbox cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: Arc<io::Error>,
    },
    /// Another process has it. One outbox serves one enforcement point.
    #[error("the outbox is locked by another process")]
    Locked,
    /// A frame that was acknowledged is broken. An operator must look: reports may be missing from it.
    #[error("the outbox file is damaged in frame {frame}, and whole frames follow")]
    Damaged {
        /// From 1.
        frame: usize,
    },
    /// Too much is not delivered yet.
    #[error("the outbox is full: {items} items, {bytes} bytes")]
    Full {
        /// Acts whose report is not delivered.
        items: usize,
        /// Their size.
        bytes: u64,
    },
    /// The enforcement point is closed.
    #[error("the outbox is closed")]
    Closed,
}

fn io_error(what: &str) -> impl FnOnce(io::Error) -> OutboxError {
    let what = what.to_owned();
    move |source| OutboxError::Io { what, source: Arc::new(source) }
}

/// The open file and its lock, which ends with it.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file: File,
    /// Length of what was acknowledged.
    length: u64,
    /// A sync failed or a cut did: what is on disk is not known, so nothing may rely on it.
    broken: bool,
    /// No smaller than this, so that a full outbox is not rewritten for every frame.
    compact_at: u64,
    _lock: File,
}

impl Log {
    /// Opens the file and returns its records in order.
    pub(super) fn open(folder: &Path) -> Result<(Self, Vec<Record>), OutboxError> {
        make_folder(folder).map_err(io_error("make its folder"))?;
        let lock = private(&folder.join("lock"), false).map_err(io_error("open its lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OutboxError::Locked),
            Err(TryLockError::Error(error)) => return Err(io_error("take its lock")(error)),
        }
        let mut file = private(&folder.join("outbox"), false).map_err(io_error("be opened"))?;
        let length = file.metadata().map_err(io_error("be measured"))?.len();
        if length > OUTBOX_FILE_BYTES_MAX {
            return Err(io_error("be read: it is too large")(io::ErrorKind::FileTooLarge.into()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("be read"))?;
        let (records, whole) = frames(&bytes)?;
        if whole < length {
            tracing::warn!(bytes = length - whole, "the outbox ends in a frame that was never whole; it is cut off");
            file.set_len(whole).map_err(io_error("be cut"))?;
            file.sync_all().map_err(io_error("be synced"))?;
        }
        file.seek(SeekFrom::Start(whole)).map_err(io_error("be read"))?;
        sync_folder(folder).map_err(io_error("be synced"))?;
        let log = Self {
            folder: folder.to_owned(),
            file,
            length: whole,
            broken: false,
            compact_at: OUTBOX_COMPACT_BYTES,
            _lock: lock,
        };
        Ok((log, records))
    }

    /// Appends one frame and syncs it. After an error the file is as it was before, or the log is broken for good.
    pub(super) fn append(&mut self, records: &[Record]) -> Result<(), OutboxError> {
        if records.is_empty() {
            return Ok(());
        }
        if self.broken {
            return Err(io_error("be trusted after a failed sync")(io::ErrorKind::Other.into()));
        }
        let frame = frame(records).map_err(io_error("write a record"))?;
        if self.length + frame.len() as u64 > OUTBOX_FILE_BYTES_MAX {
            return Err(io_error("grow")(io::ErrorKind::FileTooLarge.into()));
        }
        if let Err(error) = self.file.write_all(&frame) {
            let cut = self.file.set_len(self.length).and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
            self.broken = cut.is_err();
            return Err(io_error("be written")(error));
        }
        if let Err(error) = self.file.sync_data() {
            self.broken = true;
            return Err(io_error("be synced")(error));
        }
        self.length += frame.len() as u64;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn take_no_more(&mut self) {
        self.file = File::open(self.folder.join("outbox")).unwrap();
    }

    /// Whether the file should be rewritten, when `live` bytes of it are still owed.
    pub(super) fn is_due(&self, live: u64) -> bool {
        !self.broken && self.length > self.compact_at && self.length / 2 > live
    }

    /// Puts a file with only these records in place of the old one, in one step.
    pub(super) fn rewrite(&mut self, records: &[Record]) -> Result<(), OutboxError> {
        self.compact_at = self.length.saturating_mul(2).max(OUTBOX_COMPACT_BYTES);
        let new = self.folder.join("outbox.new");
        let mut file = private(&new, true).map_err(io_error("be rewritten"))?;
        let mut length = 0;
        for group in records.chunks(OUTBOX_GROUP_MAX) {
            let frame = frame(group).map_err(io_error("write a record"))?;
            file.write_all(&frame).map_err(io_error("be rewritten"))?;
            length += frame.len() as u64;
        }
        file.sync_all().map_err(io_error("be synced"))?;
        fs::rename(&new, self.folder.join("outbox")).map_err(io_error("be replaced"))?;
        (self.file, self.length) = (file, length);
        self.compact_at = length.saturating_mul(2).max(OUTBOX_COMPACT_BYTES);
        if let Err(error) = sync_folder(&self.folder) {
            self.broken = true;
            return Err(io_error("be synced")(error));
        }
        Ok(())
    }
}

fn frame(records: &[Record]) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(records)?;
    let mut frame = Hash::of(&json).to_string().into_bytes();
    frame.push(b' ');
    frame.extend_from_slice(&json);
    frame.push(b'\n');
    Ok(frame)
}

/// The records of all whole frames, and where the last of them ends.
fn frames(bytes: &[u8]) -> Result<(Vec<Record>, u64), OutboxError> {
    let (mut records, mut whole) = (Vec::new(), 0usize);
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(mut found) = unframe(line) else {
            // Its own line end may be what is broken, so a whole frame may begin anywhere behind it.
            let mut behind = bytes.get(whole.saturating_add(1)..).unwrap_or_default();
            while let Some((_, rest)) = behind.split_first() {
                let frame = || behind.split_inclusive(|byte| *byte == b'\n').next().and_then(unframe);
                if looks_framed(behind) && frame().is_some() {
                    return Err(OutboxError::Damaged { frame: at + 1 });
                }
                behind = rest;
            }
            break;
        };
        records.append(&mut found);
        whole += line.len();
    }
    Ok((records, whole as u64))
}

/// The cheap part of reading a frame.
fn looks_framed(bytes: &[u8]) -> bool {
    bytes.get(64..66) == Some(b" [") && bytes.iter().take(64).all(u8::is_ascii_hexdigit)
}

fn unframe(line: &[u8]) -> Option<Vec<Record>> {
    let line = line.strip_suffix(b"\n")?;
    let (hash, json) = line.split_at_checked(64)?;
    let json = json.strip_prefix(b" ")?;
    let hash = Hash::parse(std::str::from_utf8(hash).ok()?)?;
    if hash != Hash::of(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// Permits are capabilities: the file is for this user alone.
fn private(path: &Path, anew: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(anew);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Writes a small file as a whole or not at all.
pub(crate) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = private(&new, true)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever byte a write stops at, what was acknowledged before is read, and nothing else.
    #[test]
    fn a_file_cut_anywhere_reads_as_its_whole_frames() {
        let groups: Vec<Vec<Record>> =
            (0..4).map(|n| (0..=n).map(|key| Record::Delivered { key: 10 * n + key }).collect()).collect();
        let frames_of: Vec<Vec<u8>> = groups.iter().map(|group| frame(group).unwrap()).collect();
        let bytes = frames_of.concat();
        for cut in 0..=bytes.len() {
            let mut whole = 0;
            let mut expected = Vec::new();
            for (group, frame) in groups.iter().zip(&frames_of) {
                if whole + frame.len() <= cut {
                    whole += frame.len();
                    expected.extend(group.clone());
                } else {
                    break;
                }
            }
            let (records, end) = frames(&bytes[..cut]).unwrap();
            assert_eq!((records, end), (expected, whole as u64), "cut at {cut}");
        }
    }

    /// Whatever byte of an acknowledged frame is changed, it is noticed.
    #[test]
    fn a_changed_byte_is_never_read() {
        let first = frame(&[Record::Delivered { key: 1 }]).unwrap();
        let second = frame(&[Record::Delivered { key: 2 }]).unwrap();
        for at in 0..first.len() {
            let mut bytes = [first.clone(), second.clone()].concat();
            bytes[at] ^= 0x04;
            assert!(matches!(frames(&bytes), Err(OutboxError::Damaged { .. })), "byte {at}");
        }
    }
}
