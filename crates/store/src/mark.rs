//! What the disk is known to hold: a small file beside the databases, against which they are checked when they are
//! opened. Absent on purpose: an fsync while anybody waits.
//!
//! RocksDB cannot tell a write that a crash tore off from one that was synced and damaged later: both end its log. The
//! mark tells them apart. It holds
//!
//! - the number of the log's last write that was synced, noted after each sync, and
//! - number, length and checksum of each database's MANIFEST, noted once a second when it has grown.
//!
//! A note goes to the page cache at once, where the death of the process cannot reach it, and to the disk within a
//! second, by a thread of its own. So the mark never claims more than the disk holds, and lags behind by a second at
//! most: what is lost with the machine *and* damaged within that second looks like a torn tail.
//!
//! ```text
//! <data>/MARK     two slots, 4 KiB apart, written in turns; the whole one with the higher number counts
//! slot            magic (8) | number (8) | log: write (8), manifest (20) | state: generation (8), manifest (20)
//!                 | CRC-32C of all that
//! manifest        number (8) | length (8) | CRC-32C of so many bytes
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

const MAGIC: &[u8; 8] = b"PLMARK02";
const SLOT_BYTES: u64 = 4096;
const BODY: usize = 72;

/// How long the disk may lag behind the page cache.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) const NAME: &str = "MARK";

/// How far a MANIFEST was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// `0`: never seen.
    pub(crate) number: u64,
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

/// Everything that is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The log is synced up to this write.
    pub(crate) synced: u64,
    pub(crate) log: Manifest,
    /// The generation of the state that `state` is about.
    pub(crate) generation: u64,
    pub(crate) state: Manifest,
}

impl Mark {
    fn encode(&self, number: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [number, self.synced, self.log.number, self.log.length] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.log.crc.to_le_bytes());
        for word in [self.generation, self.state.number, self.state.length] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.state.crc.to_le_bytes());
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let (body, rest) = slot.split_at_checked(BODY)?;
        let sum = u32::from_le_bytes(*rest.first_chunk()?);
        if !body.starts_with(MAGIC) || crc32c::crc32c(body) != sum {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let log = Manifest { number: word(24)?, length: word(32)?, crc: half(40)? };
        let state = Manifest { number: word(52)?, length: word(60)?, crc: half(68)? };
        Some((word(8)?, Self { synced: word(16)?, log, generation: word(44)?, state }))
    }
}

/// What was found where the mark belongs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is no file.
    Nothing,
    /// There is one, and neither slot is whole.
    Damaged,
    /// The mark.
    Whole(Mark),
}

/// Reads the mark of a data folder.
pub(crate) fn read(data: &Path) -> io::Result<(Found, u64)> {
    let bytes = match fs::read(data.join(NAME)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Found::Nothing, 0)),
        Err(error) => return Err(error),
    };
    let second = bytes.get(usize::try_from(SLOT_BYTES).unwrap_or_default()..).unwrap_or_default();
    let best = [Mark::decode(&bytes), Mark::decode(second)].into_iter().flatten().max_by_key(|(number, _)| *number);
    Ok(best.map_or((Found::Damaged, 0), |(number, mark)| (Found::Whole(mark), number)))
}

/// The MANIFEST that `CURRENT` names in the folder of a database.
pub(crate) fn manifest_number(folder: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join("CURRENT"))?;
    let number = text.strip_prefix("MANIFEST-").and_then(|rest| rest.strip_suffix('\n'));
    let number = number.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it does not name a MANIFEST");
    number.and_then(|digits| digits.parse().ok()).ok_or_else(invalid)
}

pub(crate) fn manifest_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("MANIFEST-{number:06}"))
}

/// Checksum of the first `length` bytes of a file; `None` if it is shorter.
pub(crate) fn prefix_crc(path: &Path, length: u64) -> io::Result<Option<u32>> {
    append_crc(&mut File::open(path)?, 0, length)
}

fn append_crc(from: &mut File, mut crc: u32, mut length: u64) -> io::Result<Option<u32>> {
    let mut chunk = vec![0u8; 64 << 10];
    while length > 0 {
        let most = usize::try_from(length).unwrap_or(usize::MAX).min(chunk.len());
        let read = from.read(chunk.get_mut(..most).unwrap_or_default())?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        crc = crc32c::crc32c_append(crc, bytes);
        length = length.saturating_sub(u64::try_from(read).unwrap_or_default());
    }
    Ok(Some(crc))
}

/// A MANIFEST as it is now, and durable: RocksDB appends to it only, so what was read before needs no second look.
fn look(folder: &Path, before: Manifest) -> io::Result<Manifest> {
    match look_once(folder, before) {
        // Replaced by the next one, or the whole folder was, between two steps: the next look finds it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(before),
        found => found,
    }
}

fn look_once(folder: &Path, before: Manifest) -> io::Result<Manifest> {
    let number = manifest_number(folder)?;
    let mut file = File::open(manifest_path(folder, number))?;
    let length = file.metadata()?.len();
    let known = if before.number == number && before.length <= length { before } else { Manifest::default() };
    if known.number == number && known.length == length {
        return Ok(known);
    }
    file.sync_data()?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(known.length))?;
    let crc = append_crc(&mut file, known.crc, length.saturating_sub(known.length))?;
    crc.map(|crc| Manifest { number, length, crc }).ok_or_else(|| io::Error::other("the MANIFEST shrank"))
}

#[derive(Debug)]
struct Now {
    mark: Mark,
    number: u64,
    /// Written and not yet on the disk.
    dirty: bool,
    log: PathBuf,
    state: Option<PathBuf>,
}

/// The mark of an open store.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
    now: Mutex<Now>,
    failed: OnceLock<String>,
}

impl Marker {
    fn write(&self, now: &mut Now) -> io::Result<()> {
        now.number = now.number.saturating_add(1);
        now.dirty = true;
        let at = (now.number % 2).saturating_mul(SLOT_BYTES);
        self.file.write_all_at(&now.mark.encode(now.number), at)
    }

    /// Notes that everything up to a write of the log is on disk.
    pub(crate) fn synced(&self, up_to: u64) -> io::Result<()> {
        if let Some(reason) = self.failed.get() {
            return Err(io::Error::other(reason.clone()));
        }
        let mut now = self.now.lock();
        if up_to <= now.mark.synced {
            return Ok(());
        }
        now.mark.synced = up_to;
        self.write(&mut now)
    }

    /// Notes that another generation of the state is the one; durable on return.
    pub(crate) fn state_is(&self, generation: u64, folder: &Path) -> io::Result<()> {
        let manifest = look(folder, Manifest::default())?;
        let mut now = self.now.lock();
        now.state = Some(folder.to_owned());
        now.mark.generation = generation;
        now.mark.state = manifest;
        self.write(&mut now)?;
        drop(now);
        self.flush()
    }

    /// Notes how far the MANIFESTs have come, and makes the mark durable.
    fn flush(&self) -> io::Result<()> {
        let (before, log, state) = {
            let now = self.now.lock();
            (now.mark, now.log.clone(), now.state.clone())
        };
        let log_manifest = look(&log, before.log)?;
        let state_manifest = state.as_deref().map(|folder| look(folder, before.state)).transpose()?;
        let mut now = self.now.lock();
        let mut next = Mark { log: log_manifest, ..now.mark };
        if let Some(manifest) = state_manifest
            && now.mark.generation == before.generation
        {
            next.state = manifest;
        }
        if next != now.mark {
            now.mark = next;
            self.write(&mut now)?;
        }
        if !std::mem::take(&mut now.dirty) {
            return Ok(());
        }
        drop(now);
        self.file.sync_data()
    }
}

/// Keeps the mark durable for as long as the store is open.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) marker: Arc<Marker>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Opens the file, or makes it, around `mark`.
    pub(crate) fn open(data: &Path, log: &Path, mark: Mark, number: u64) -> io::Result<Self> {
        let path = data.join(NAME);
        let file = File::options().create(true).write(true).truncate(false).open(&path)?;
        if file.metadata()?.len() < SLOT_BYTES.saturating_mul(2) {
            // Both slots have their blocks from here on: a full disk does not stop a note.
            file.write_all_at(&vec![0; usize::try_from(SLOT_BYTES).unwrap_or_default() * 2], 0)?;
            file.sync_all()?;
            File::open(data)?.sync_all()?;
        }
        let now = Now { mark, number, dirty: true, log: log.to_owned(), state: None };
        let marker = Arc::new(Marker { file, now: Mutex::new(now), failed: OnceLock::new() });
        {
            let mut now = marker.now.lock();
            marker.write(&mut now)?;
        }
        marker.flush()?;
        let (stop, stopped) = mpsc::channel();
        let kept = marker.clone();
        let thread = std::thread::Builder::new().name("placet-mark".to_owned()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(error) = kept.flush() {
                    tracing::error!(%error, "the mark of what is on disk could not be kept; the log stops");
                    kept.failed.get_or_init(|| format!("the mark of what is on disk could not be kept: {error}"));
                }
            }
        })?;
        Ok(Self { marker, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps the mark panicked");
        }
        if self.marker.failed.get().is_none()
            && let Err(error) = self.marker.flush()
        {
            tracing::warn!(%error, "the mark of what is on disk is not the latest");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the form stays readable, and a slot that is not whole does not count.
    #[test]
    fn a_mark_comes_back_or_is_refused() {
        let log = Manifest { number: 5, length: 600, crc: 7 };
        let state = Manifest { number: 8, length: 900, crc: 10 };
        let mark = Mark { synced: 4, log, generation: 11, state };
        let slot = mark.encode(3);
        assert_eq!(slot.len(), BODY + 4);
        assert_eq!(Mark::decode(&slot), Some((3, mark)));
        for bit in 0..slot.len() * 8 {
            let mut damaged = slot.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Mark::decode(&slot[..slot.len() - 1]), None);
    }
}
