//! The codec of log records: a batch of events as the bytes of one Raft entry, with a format version.
//! Absent on purpose: judging what the bytes say (the applier does), choosing the format (the leader does, by what every
//! member reads) and migration of old formats: an old version is read for ever, by code of its own. Golden bytes of each
//! released version stand in `tests/golden/`.
//!
//! ```text
//! format 1   the records one after the other
//! format 2   the records packed together with LZ4: the entries of a batch have most of their text in common
//! ```

use bytes::Bytes;
use placet_core::event::Event;
use placet_core::evidence::EvidenceError;
use placet_core::ids::{EvidenceIndex, Hash, PermitId};
use prost::Message;
use thiserror::Error;

use crate::peer;

/// The newest version that this program reads and writes.
pub const NEWEST: u32 = 2;

/// The oldest version that this program reads and writes.
pub const OLDEST: u32 = 1;

/// A block of LZ4 cannot grow more than this: a length that says more is spoilt, and must cost no memory.
const LZ4_RATIO_MAX: usize = 255;

/// The events of one batch, with the state that they were evaluated on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The term in which the batch was evaluated.
    pub term: u64,
    /// The position of the first event in the evidence.
    pub base: EvidenceIndex,
    /// The evidence hash after the last event.
    pub chain_head: Hash,
    /// The events, in order.
    pub events: Vec<Event>,
}

/// Why bytes are not a batch.
#[derive(Debug, Error)]
pub enum LogError {
    /// They are not the protobuf message.
    #[error("a log record is not a batch")]
    Undecodable {
        /// What the decoder found.
        source: prost::DecodeError,
    },
    /// A newer program wrote them.
    #[error(
        "a log record has format {found}, this program knows up to {NEWEST}: a newer version wrote it; start that one"
    )]
    UnknownFormat {
        /// What the record says.
        found: u32,
    },
    /// The chain head is not a hash.
    #[error("a log record has a chain head of {found} bytes instead of 32")]
    ChainHead {
        /// Its length.
        found: usize,
    },
    /// The packed records cannot be unpacked.
    #[error("the packed records of a log record are damaged: {detail}")]
    Packed {
        /// What the decoder found.
        detail: String,
    },
    /// A record is not an evidence entry.
    #[error("a log record holds an entry that cannot be read")]
    Entry {
        /// What the decoder found.
        source: EvidenceError,
    },
}

/// The bytes of a batch in `format`, from [`OLDEST`] to [`NEWEST`]; another one is taken for the nearest of these.
pub fn encode(format: u32, batch: &Batch) -> Bytes {
    let records = batch.events.iter().map(|event| peer::Record {
        entry: event.bytes.clone(),
        permit_id: event.permit_id.as_ref().map(|id| id.as_str().to_owned()),
    });
    let mut encoded = peer::Batch {
        format: format.clamp(OLDEST, NEWEST),
        term: batch.term,
        base: batch.base.0,
        chain_head: Bytes::copy_from_slice(&batch.chain_head.0),
        records: records.collect(),
        packed: Bytes::new(),
    };
    if encoded.format > 1 {
        let records = peer::Records { records: std::mem::take(&mut encoded.records) };
        encoded.packed = lz4_flex::block::compress_prepend_size(&records.encode_to_vec()).into();
    }
    Bytes::from(encoded.encode_to_vec())
}

/// Reads a batch of any version that was ever released.
pub fn decode(bytes: Bytes) -> Result<Batch, LogError> {
    let mut batch = peer::Batch::decode(bytes).map_err(|source| LogError::Undecodable { source })?;
    let records = match batch.format {
        1 => std::mem::take(&mut batch.records),
        2 => unpack(&batch.packed)?,
        found => return Err(LogError::UnknownFormat { found }),
    };
    batch_of(&batch, records)
}

fn unpack(packed: &[u8]) -> Result<Vec<peer::Record>, LogError> {
    let damaged = |detail: String| LogError::Packed { detail };
    let (size, block) = lz4_flex::block::uncompressed_size(packed).map_err(|error| damaged(error.to_string()))?;
    if size / LZ4_RATIO_MAX > block.len() {
        return Err(damaged(format!("{} bytes cannot hold {size}", block.len())));
    }
    let records = lz4_flex::block::decompress(block, size).map_err(|error| damaged(error.to_string()))?;
    if records.len() != size {
        return Err(damaged(format!("{} bytes instead of {size}", records.len())));
    }
    let records = peer::Records::decode(Bytes::from(records)).map_err(|source| LogError::Undecodable { source })?;
    Ok(records.records)
}

fn batch_of(batch: &peer::Batch, records: Vec<peer::Record>) -> Result<Batch, LogError> {
    let found = batch.chain_head.len();
    let chain_head = <[u8; 32]>::try_from(batch.chain_head.as_ref()).map_err(|_| LogError::ChainHead { found })?;
    let events = records.into_iter().map(|record| {
        Event::decode(record.entry, record.permit_id.map(PermitId::new)).map_err(|source| LogError::Entry { source })
    });
    Ok(Batch {
        term: batch.term,
        base: EvidenceIndex(batch.base),
        chain_head: Hash(chain_head),
        events: events.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use placet_core::event::{Body, Entry, KillSwitchSet};
    use placet_core::ids::Principal;
    use placet_core::reply::Protocol;
    use placet_core::stamp::Stamp;

    use super::*;

    const GOLDEN_V1: &[u8] = include_bytes!("../../../tests/golden/log-batch-v1.bin");
    const GOLDEN_V2: &[u8] = include_bytes!("../../../tests/golden/log-batch-v2.bin");

    fn sample() -> Batch {
        let mut head = Hash::GENESIS;
        let events = (7..9).map(|index| {
            let entry = Entry {
                at: Stamp(1_786_957_200_000),
                body: Body::KillSwitch(KillSwitchSet {
                    engaged: index == 7,
                    lift: None,
                    note: None,
                    origin: "drill".to_owned(),
                    scope: None,
                }),
                index: EvidenceIndex(index),
                policy: None,
                prev: head,
                principal: Principal::new("ops:maria"),
                protocol: Protocol::LATEST,
                v: placet_core::evidence::ENTRY_VERSION,
            };
            let event = Event::new(entry, (index == 8).then(|| PermitId::from_random([0xab; 16])));
            head = event.hash;
            event
        });
        let events: Vec<_> = events.collect();
        Batch { term: 3, base: EvidenceIndex(7), chain_head: head, events }
    }

    #[test]
    fn version_one_reads_as_it_was_written() {
        assert_eq!(decode(Bytes::from_static(GOLDEN_V1)).unwrap(), sample());
    }

    #[test]
    fn version_one_is_still_written_so() {
        let batch = sample();
        let bytes = encode(1, &batch);
        assert_eq!(bytes, GOLDEN_V1);
    }

    /// The packer may find a shorter way one day, so what is golden is the reading.
    #[test]
    fn version_two_reads_as_it_was_written() {
        assert_eq!(decode(Bytes::from_static(GOLDEN_V2)).unwrap(), sample());
    }

    #[test]
    fn version_two_is_shorter_and_comes_back() {
        let batch = sample();
        let bytes = encode(2, &batch);
        assert!(bytes.len() < GOLDEN_V1.len(), "{} bytes", bytes.len());
        assert_eq!(decode(bytes).unwrap(), batch);
    }

    #[test]
    fn a_format_of_another_program_is_never_written() {
        let batch = sample();
        for (asked, written) in [(0, OLDEST), (NEWEST + 1, NEWEST)] {
            let bytes = encode(asked, &batch);
            assert_eq!(peer::Batch::decode(bytes).unwrap().format, written);
        }
    }

    /// Goal: no damage to packed records is read as records, and a spoilt length costs no memory.
    #[test]
    fn damaged_packed_records_are_refused() {
        let batch = peer::Batch::decode(Bytes::from_static(GOLDEN_V2)).unwrap();
        let with = |packed: Vec<u8>| {
            let bytes = peer::Batch { packed: Bytes::from(packed), ..batch.clone() }.encode_to_vec();
            decode(Bytes::from(bytes))
        };
        let whole = batch.packed.to_vec();
        let mut huge = whole.clone();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut longer = whole.clone();
        longer[0] = longer[0].wrapping_add(1);
        for packed in [Vec::new(), whole[..3].to_vec(), whole[..whole.len() - 1].to_vec(), huge, longer] {
            assert!(matches!(with(packed), Err(LogError::Packed { .. } | LogError::Undecodable { .. })));
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            // The chain is what tells of text that was changed; here nothing may panic.
            let _ = with(flipped);
        }
    }

    #[test]
    fn what_is_not_a_batch_is_refused() {
        let newer = peer::Batch { format: NEWEST + 1, ..Default::default() }.encode_to_vec();
        let headless = peer::Batch { format: 1, ..Default::default() }.encode_to_vec();
        let record = peer::Record { entry: Bytes::from_static(b"{}"), permit_id: None };
        let head = Bytes::from_static(&[0; 32]);
        let garbled =
            peer::Batch { format: 1, chain_head: head, records: vec![record], ..Default::default() }.encode_to_vec();
        assert!(matches!(decode(Bytes::from(newer)), Err(LogError::UnknownFormat { found }) if found == NEWEST + 1));
        assert!(matches!(decode(Bytes::from(headless)), Err(LogError::ChainHead { found: 0 })));
        assert!(matches!(decode(Bytes::from(garbled)), Err(LogError::Entry { .. })));
        assert!(matches!(decode(Bytes::from_static(b"\xff\xff")), Err(LogError::Undecodable { .. })));
    }
}
