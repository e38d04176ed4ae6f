//! A stream of files as a tar archive (POSIX ustar), so that `curl … | tar x` reads a backup.
//! Absent on purpose: anything but plain files, and files on a disk.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// A part of a stream of files. A file is its name and size, then its bytes; the next file begins after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A file begins.
    File {
        /// Its path in the archive.
        name: String,
        /// How many bytes follow.
        size: u64,
    },
    /// More of it.
    Data(Bytes),
}

/// What the archive is made of.
const BLOCK: usize = 512;

/// Longest path.
const NAME_BYTES_MAX: usize = 100;

/// The largest size that eleven octal digits hold.
const OCTAL_MAX: u64 = 0o777_7777_7777;

/// An archive that cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ArchiveError {
    #[error("`{0}` cannot be a path in the archive")]
    Name(String),
    #[error("more or fewer bytes than `{0}` has")]
    Size(String),
    #[error("what stands before a file is damaged")]
    Header,
    #[error("something else than a plain file")]
    Kind,
    #[error("more behind the end of the archive")]
    Trailing,
}

/// Writes an archive, part by part.
#[derive(Debug, Default)]
pub struct Writer {
    name: String,
    left: u64,
    padding: usize,
}

impl Writer {
    /// The bytes of a part.
    pub fn part(&mut self, part: Part) -> Result<Bytes, ArchiveError> {
        match part {
            Part::File { name, size } => {
                let header = [self.end_file()?, header(&name, size)?].concat();
                self.padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or_default();
                (self.name, self.left) = (name, size);
                Ok(header.into())
            }
            Part::Data(data) => {
                let left = u64::try_from(data.len()).ok().and_then(|length| self.left.checked_sub(length));
                self.left = left.ok_or_else(|| ArchiveError::Size(self.name.clone()))?;
                Ok(data)
            }
        }
    }

    /// The bytes that end the archive.
    pub fn finish(&mut self) -> Result<Bytes, ArchiveError> {
        Ok([self.end_file()?, vec![0; 2 * BLOCK]].concat().into())
    }

    fn end_file(&mut self) -> Result<Vec<u8>, ArchiveError> {
        if self.left > 0 {
            return Err(ArchiveError::Size(self.name.clone()));
        }
        Ok(vec![0; std::mem::take(&mut self.padding)])
    }
}

fn header(name: &str, size: u64) -> Result<Vec<u8>, ArchiveError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !plain {
        return Err(ArchiveError::Name(name.to_owned()));
    }
    let size = if size <= OCTAL_MAX {
        format!("{size:011o}\0").into_bytes()
    } else {
        // As GNU and every reader since: a set bit, then the number itself.
        [&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat()
    };
    let mut head = Vec::with_capacity(BLOCK);
    head.extend(name.as_bytes());
    head.resize(NAME_BYTES_MAX, 0);
    head.extend(b"0000600\0");
    head.extend(b"0000000\0");
    head.extend(b"0000000\0");
    head.extend(size);
    head.extend(b"00000000000\0");
    let mut tail = b"0".to_vec();
    tail.resize(1 + NAME_BYTES_MAX, 0);
    tail.extend(b"ustar\x0000");
    tail.resize(BLOCK - head.len() - 8, 0);
    let sum = checksum(&head, &tail);
    Ok([&head[..], format!("{sum:06o}\0 ").as_bytes(), &tail[..]].concat())
}

/// The sum of a header's bytes, its own place counted as spaces.
fn checksum(before: &[u8], behind: &[u8]) -> u32 {
    let own = 8 * u32::from(b' ');
    before.iter().chain(behind).fold(own, |sum, byte| sum.saturating_add(u32::from(*byte)))
}

/// Reads an archive, in chunks of any size.
#[derive(Debug, Default)]
pub struct Reader {
    waiting: BytesMut,
    name: String,
    left: u64,
    padding: usize,
    ended: bool,
}

impl Reader {
    /// Takes the next chunk and gives the parts that are complete with it.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<Vec<Part>, ArchiveError> {
        self.waiting.extend_from_slice(chunk);
        let mut parts = Vec::new();
        while !self.waiting.is_empty() {
            if self.ended {
                // Two blocks end an archive, and some writers add more of them.
                if self.waiting.iter().any(|byte| *byte != 0) {
                    return Err(ArchiveError::Trailing);
                }
                self.waiting.clear();
            } else if self.left > 0 {
                let some = usize::try_from(self.left).unwrap_or(usize::MAX).min(self.waiting.len());
                self.left -= some as u64;
                parts.push(Part::Data(self.waiting.split_to(some).freeze()));
            } else if self.padding > 0 {
                let some = self.padding.min(self.waiting.len());
                self.padding -= some;
                self.waiting.advance(some);
            } else if self.waiting.len() < BLOCK {
                break;
            } else {
                let block = self.waiting.split_to(BLOCK);
                if block.iter().all(|byte| *byte == 0) {
                    self.ended = true;
                    continue;
                }
                let (name, size) = read_header(&block)?;
                self.padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or_default();
                (self.name, self.left) = (name.clone(), size);
                parts.push(Part::File { name, size });
            }
        }
        Ok(parts)
    }

    /// Whether the archive has come to its end: anything less was cut.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

fn read_header(block: &[u8]) -> Result<(String, u64), ArchiveError> {
    let field = |from: usize, length: usize| block.get(from..from + length).ok_or(ArchiveError::Header);
    let octal = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?.trim_matches(['\0', ' ']);
        u64::from_str_radix(text, 8).ok()
    };
    let sum = u64::from(checksum(field(0, 148)?, field(156, BLOCK - 156)?));
    if octal(field(148, 8)?) != Some(sum) {
        return Err(ArchiveError::Header);
    }
    if field(156, 1)? != b"0" {
        return Err(ArchiveError::Kind);
    }
    let name = field(0, NAME_BYTES_MAX)?.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8(name.to_vec()).map_err(|_| ArchiveError::Header)?;
    let size = field(124, 12)?;
    let size = match size.split_first_chunk::<4>() {
        Some(([0x80, 0, 0, 0], number)) => number.try_into().ok().map(u64::from_be_bytes),
        _ => octal(size),
    };
    // A size beyond any file would only overflow what counts it.
    let size = size.filter(|size| *size <= u64::MAX >> 1);
    Ok((name, size.ok_or(ArchiveError::Header)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let (mut writer, mut out) = (Writer::default(), Vec::new());
        for (name, data) in files {
            let size = data.len() as u64;
            out.extend(writer.part(Part::File { name: (*name).to_owned(), size }).unwrap());
            for chunk in data.chunks(300) {
                out.extend(writer.part(Part::Data(Bytes::copy_from_slice(chunk))).unwrap());
            }
        }
        out.extend(writer.finish().unwrap());
        out
    }

    type Files = Vec<(String, Vec<u8>)>;

    fn read(bytes: &[u8], chunk: usize) -> Result<(Files, bool), ArchiveError> {
        let (mut reader, mut files) = (Reader::default(), Vec::<(String, Vec<u8>)>::new());
        for chunk in bytes.chunks(chunk) {
            for part in reader.feed(chunk)? {
                match part {
                    Part::File { name, .. } => files.push((name, Vec::new())),
                    Part::Data(data) => files.last_mut().unwrap().1.extend(data),
                }
            }
        }
        Ok((files, reader.ended()))
    }

    fn files() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("state/000012.sst", (0..2000u32).map(|n| (n % 251) as u8).collect()),
            ("state/empty", Vec::new()),
            ("state/block", vec![7; 512]),
            ("manifest.json", b"{}\n".to_vec()),
        ]
    }

    #[test]
    fn files_survive_in_chunks_of_any_size() {
        let bytes = archive(&files());
        assert_eq!(bytes.len() % 512, 0);
        let want: Vec<_> = files().into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
        for chunk in [1, 7, 511, 512, 513, 100_000] {
            assert_eq!(read(&bytes, chunk).unwrap(), (want.clone(), true));
        }
        let cut = bytes.len() - 1024;
        for at in [0, 1, 600, cut - 1, cut] {
            assert!(read(&bytes[..at], 512).map_or(true, |(_, ended)| !ended), "cut at {at}");
        }
        assert_eq!(read(&[&bytes[..], b"x"].concat(), 512), Err(ArchiveError::Trailing));
    }

    /// Goal: every reader of tar takes what is written here.
    #[test]
    fn tar_reads_it() {
        let folder = std::env::temp_dir().join(format!("placet-archive-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("backup.tar"), archive(&files())).unwrap();
        let tar = std::process::Command::new("tar").args(["-xf", "backup.tar"]).current_dir(&folder).output().unwrap();
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        for (name, data) in files() {
            assert_eq!(std::fs::read(folder.join(name)).unwrap(), data, "{name}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn sizes_of_any_length_are_written() {
        for size in [0, 1, OCTAL_MAX, OCTAL_MAX + 1, 1 << 40] {
            assert_eq!(read_header(&header("a", size).unwrap()), Ok(("a".to_owned(), size)));
        }
        assert!(header("", 1).is_err() && header(&"a".repeat(101), 1).is_err() && header("ä", 1).is_err());
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let bytes = archive(&files());
        let mut changed = bytes.clone();
        changed[3] ^= 1;
        assert_eq!(read(&changed, 512), Err(ArchiveError::Header));
        let mut writer = Writer::default();
        writer.part(Part::File { name: "a".to_owned(), size: 3 }).unwrap();
        assert_eq!(writer.part(Part::Data(Bytes::from_static(b"abcd"))), Err(ArchiveError::Size("a".to_owned())));
        assert!(writer.finish().is_err());
    }
}
