//! The form in which the log keeps a value: a checksum over where it lies and what it says.
//! Absent on purpose: what the value means.
//!
//! ```text
//! C5 | version 01 | CRC-32C of version, key and value, little-endian | value
//! ```
//!
//! The key is covered, so a good record at the wrong place is found as well. RocksDB's own checksums end where a value
//! is handed out, and begin only when it is handed in; this one is checked by whoever acts on the value.
//!
//! Before version 1 there was no frame. Nothing that was stored then begins with `C5`: an entry begins with `0A`, a
//! position or vote with `08`, `10` or `18`, a standing with `"` or `{`.

use std::io;

use placet_replica::bytes::Bytes;

const MAGIC: u8 = 0xc5;
const VERSION: u8 = 1;

/// Bytes before the value.
const HEADER: usize = 6;

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[VERSION]), key), value)
}

/// Frames a value for its place.
pub(crate) fn frame(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEADER.saturating_add(value.len()));
    framed.extend_from_slice(&[MAGIC, VERSION]);
    framed.extend_from_slice(&checksum(key, value).to_le_bytes());
    framed.extend_from_slice(value);
    framed
}

/// Whether this was written before values were framed.
pub(crate) fn is_bare(stored: &[u8]) -> bool {
    stored.first() != Some(&MAGIC)
}

/// The value of a framed one, without copying it; or what is wrong with it.
pub(crate) fn unframe(key: &[u8], stored: Bytes) -> io::Result<Bytes> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let header: Option<[u8; HEADER]> = stored.get(..HEADER).and_then(|header| header.try_into().ok());
    match header {
        Some([MAGIC, VERSION, sum @ ..]) => {
            let value = stored.slice(HEADER..);
            let (found, written) = (checksum(key, &value), u32::from_le_bytes(sum));
            if found == written {
                Ok(value)
            } else {
                Err(wrong(format!("its checksum is {found:08x} and was {written:08x} when it was written")))
            }
        }
        Some([MAGIC, version, ..]) => Err(wrong(format!("its form {version} is not one that this version reads"))),
        _ => Err(wrong("it has no checksum, and every record at this place has one".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every damaged bit, every cut and every wrong place is found.
    #[test]
    fn a_framed_value_is_whole_or_refused() {
        let framed = frame(b"key", b"what was written");
        assert_eq!(unframe(b"key", Bytes::from(framed.clone())).unwrap(), "what was written");
        assert!(unframe(b"kex", Bytes::from(framed.clone())).unwrap_err().to_string().contains("checksum"));
        for bit in 0..framed.len() * 8 {
            let mut damaged = framed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unframe(b"key", Bytes::from(damaged)).is_err(), "bit {bit}");
        }
        for len in 0..framed.len() {
            assert!(unframe(b"key", Bytes::from(framed[..len].to_vec())).is_err(), "cut to {len}");
        }
    }

    /// Goal: the form stays readable for ever.
    #[test]
    fn golden_bytes_of_version_1() {
        let golden = [0xc5, 1, 0x2a, 0x90, 0xd3, 0x02, b'v', b'o', b't', b'e'];
        assert_eq!(frame(b"default\0mvote", b"vote"), golden);
    }
}
