//! Reads RocksDB's write-ahead logs, and its MANIFEST, which has the same records, as they lie on disk, before RocksDB does.
//! Absent on purpose: what the batches change, and writing.
//!
//! RocksDB stops at the first damaged record and drops all behind it, whether or not that was ever synced; and a header
//! that was overwritten with zeros makes it skip the rest of a block and go on. So this reads the same bytes first and
//! checks what RocksDB does not: that the sequence numbers of the batches have no gap, within a file and between files.
//!
//! ```text
//! file    blocks of 32 KiB; a record does not cross a block, a batch may: FIRST MIDDLE* LAST
//! record  masked CRC-32C (4) of type and data | length (2) | type (1) | data
//! batch   sequence number of its first change (8) | number of changes (4) | changes
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Types from here on may be skipped by a reader that does not know them.
const IGNORABLE: u8 = 0x80;

/// What is wrong at one place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Which file.
    pub(crate) file: PathBuf,
    /// Where the batch begins that is not whole, or not the next.
    pub(crate) offset: u64,
    /// What is wrong, as a phrase.
    pub(crate) what: String,
    /// Whether RocksDB notices by itself, and ends there.
    pub(crate) seen_by_rocksdb: bool,
}

/// The write-ahead logs in a folder, by number.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let Some(number) = number
            && path.extension().is_some_and(|extension| extension == "log")
        {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads files in order, up to the first place that is not as it was written.
pub(crate) fn first_fault(files: &[(u64, PathBuf)]) -> io::Result<Option<Fault>> {
    let mut last = None;
    for (_, path) in files {
        let mut reader = Reader::open(path)?;
        if let Some((offset, what, seen_by_rocksdb)) = reader.batches(&mut last)? {
            return Ok(Some(Fault { file: path.clone(), offset, what, seen_by_rocksdb }));
        }
    }
    Ok(None)
}

/// What RocksDB would not notice in a MANIFEST: it would skip a part of it, or read one place for ever.
pub(crate) fn hidden_fault(manifest: &Path) -> io::Result<Option<Fault>> {
    let mut reader = Reader::open(manifest)?;
    loop {
        match reader.batch()? {
            Ok(Some(_)) => {}
            Ok(None) | Err((_, _, true)) => return Ok(None),
            Err((offset, what, seen_by_rocksdb)) => {
                return Ok(Some(Fault { file: manifest.to_owned(), offset, what, seen_by_rocksdb }));
            }
        }
    }
}

struct Reader {
    file: File,
    block: Vec<u8>,
    /// Where the next record begins in the block.
    at: usize,
    /// Where the block begins in the file.
    offset: u64,
}

/// What the next bytes are.
enum Next {
    Record(u8, Vec<u8>),
    /// Nothing but zeros up to the end, or nothing at all.
    End,
    Bad(String, bool),
}

/// A batch and where it begins in its file.
type Batch = (u64, Vec<u8>);

type Broken = (u64, String, bool);

impl Reader {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, block: Vec::new(), at: 0, offset: 0 })
    }

    fn position(&self) -> u64 {
        self.offset.saturating_add(u64::try_from(self.at).unwrap_or(u64::MAX))
    }

    /// The next block; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.offset = self.offset.saturating_add(u64::try_from(self.block.len()).unwrap_or_default());
        self.at = 0;
        self.block.clear();
        let mut block = std::mem::take(&mut self.block);
        let read = (&mut self.file).take(u64::try_from(BLOCK).unwrap_or_default()).read_to_end(&mut block)?;
        self.block = block;
        Ok(read > 0)
    }

    /// Follows the sequence numbers from `last` on.
    fn batches(&mut self, last: &mut Option<u64>) -> io::Result<Option<Broken>> {
        loop {
            let (begins, batch) = match self.batch()? {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(broken) => return Ok(Some(broken)),
            };
            let number = |range| batch.get::<std::ops::Range<usize>>(range);
            let first = number(0..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            let count = number(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
            let (Some(first), Some(count)) = (first, count) else {
                return Ok(Some((begins, "holds a batch without a header".to_owned(), true)));
            };
            if count == 0 {
                continue;
            }
            if let Some(last) = *last
                && first != last.saturating_add(1)
            {
                let what = format!("goes on with change {first} after change {last}");
                return Ok(Some((begins, what, false)));
            }
            *last = Some(first.saturating_add(u64::from(count)).saturating_sub(1));
        }
    }

    /// A whole batch and where it begins, none at the end; or what is wrong.
    fn batch(&mut self) -> io::Result<Result<Option<Batch>, Broken>> {
        let mut open: Option<Batch> = None;
        loop {
            let (record, at) = self.record()?;
            let begins = open.as_ref().map_or(at, |(begins, _)| *begins);
            let broken = |what: &str| Ok(Err((begins, what.to_owned(), true)));
            match (record, open.take()) {
                (Next::Bad(what, seen), _) => return Ok(Err((begins, what, seen))),
                (Next::End, None) => return Ok(Ok(None)),
                (Next::End, Some(_)) => return broken("ends inside a batch"),
                (Next::Record(FULL, data), None) => return Ok(Ok(Some((begins, data)))),
                (Next::Record(FIRST, data), None) => open = Some((begins, data)),
                (Next::Record(MIDDLE, data), Some((begins, mut all))) => {
                    all.extend_from_slice(&data);
                    open = Some((begins, all));
                }
                (Next::Record(LAST, data), Some((begins, mut all))) => {
                    all.extend_from_slice(&data);
                    return Ok(Ok(Some((begins, all))));
                }
                (Next::Record(kind, _), still) if kind >= IGNORABLE && !is_recycled(kind) => open = still,
                (Next::Record(FULL | FIRST | MIDDLE | LAST, _), _) => {
                    return broken("holds a part of a batch where another batch belongs");
                }
                (Next::Record(kind, _), _) => {
                    return Ok(Err((begins, format!("holds a record of the unknown kind {kind}"), !is_recycled(kind))));
                }
            }
        }
    }

    fn record(&mut self) -> io::Result<(Next, u64)> {
        loop {
            let left = self.block.len().saturating_sub(self.at);
            // The rest of a block that is too short for a header is filled with zeros.
            if left < HEADER && self.block.len() == BLOCK || self.block.is_empty() {
                if !self.fill()? {
                    return Ok((Next::End, self.position()));
                }
                continue;
            }
            let at = self.position();
            if left == 0 {
                return Ok((Next::End, at));
            }
            return Ok((self.record_in_block()?, at));
        }
    }

    fn record_in_block(&mut self) -> io::Result<Next> {
        let rest = self.block.get(self.at..).unwrap_or_default();
        let short = || Next::Bad("ends inside a record".to_owned(), true);
        let Some((header, data)) = rest.split_first_chunk::<HEADER>() else {
            return if rest.iter().all(|byte| *byte == 0) { Ok(Next::End) } else { Ok(short()) };
        };
        let [c0, c1, c2, c3, l0, l1, kind] = *header;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        if kind == 0 && len == 0 {
            let zeros = rest.iter().all(|byte| *byte == 0) && self.rest_is_zero()?;
            let what = "holds zeros where a record belongs, and data behind them".to_owned();
            return Ok(if zeros { Next::End } else { Next::Bad(what, false) });
        }
        if is_recycled(kind) {
            // Before its checksum, as RocksDB does it.
            return Ok(Next::Bad("holds a record of a recycled log".to_owned(), false));
        }
        let Some(data) = data.get(..len) else {
            let what = if self.block.len() < BLOCK { return Ok(short()) } else { "holds a record of a wrong length" };
            return Ok(Next::Bad(what.to_owned(), true));
        };
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), data);
        if sum != unmask(u32::from_le_bytes([c0, c1, c2, c3])) {
            return Ok(Next::Bad("holds a record that fails its checksum".to_owned(), true));
        }
        let data = data.to_vec();
        self.at = self.at.saturating_add(HEADER).saturating_add(len);
        Ok(Next::Record(kind, data))
    }

    fn rest_is_zero(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0u8; BLOCK];
        loop {
            let read = self.file.read(&mut chunk)?;
            if read == 0 {
                return Ok(true);
            }
            if chunk.iter().take(read).any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
}

/// The kinds of records in logs whose files are used again, which these never are.
fn is_recycled(kind: u8) -> bool {
    matches!(kind, 5..=8 | 11 | 131)
}

/// RocksDB masks its checksums, so that one over data that holds checksums stays useful.
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}
