//! The codec of log records: a batch of events as the bytes of one Raft entry, with a format version.
//! Absent on purpose: judging what the bytes say (the applier does) and migration of old formats: an old version is
//! read for ever, by code of its own. Golden bytes of each released version stand in `tests/golden/`.

use bytes::Bytes;
use placet_core::event::Event;
use placet_core::evidence::EvidenceError;
use placet_core::ids::{EvidenceIndex, Hash, PermitId};
use prost::Message;
use thiserror::Error;

use crate::peer;

/// The version that this program writes.
pub const FORMAT: u32 = 1;

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
    #[error("a log record has format {found}, this program knows up to {FORMAT}")]
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
    /// A record is not an evidence entry.
    #[error("a log record holds an entry that cannot be read")]
    Entry {
        /// What the decoder found.
        source: EvidenceError,
    },
}

/// The bytes of a batch.
pub fn encode(term: u64, base: EvidenceIndex, chain_head: Hash, events: &[Event]) -> Bytes {
    let records = events.iter().map(|event| peer::Record {
        entry: Bytes::copy_from_slice(&event.bytes),
        permit_id: event.permit_id.as_ref().map(|id| id.as_str().to_owned()),
    });
    let batch = peer::Batch {
        format: FORMAT,
        term,
        base: base.0,
        chain_head: Bytes::copy_from_slice(&chain_head.0),
        records: records.collect(),
    };
    Bytes::from(batch.encode_to_vec())
}

/// Reads a batch of any version that was ever released.
pub fn decode(bytes: Bytes) -> Result<Batch, LogError> {
    let batch = peer::Batch::decode(bytes).map_err(|source| LogError::Undecodable { source })?;
    match batch.format {
        1 => decode_v1(batch),
        found => Err(LogError::UnknownFormat { found }),
    }
}

fn decode_v1(batch: peer::Batch) -> Result<Batch, LogError> {
    let found = batch.chain_head.len();
    let chain_head = <[u8; 32]>::try_from(batch.chain_head.as_ref()).map_err(|_| LogError::ChainHead { found })?;
    let events = batch.records.into_iter().map(|record| {
        Event::decode(record.entry.to_vec(), record.permit_id.map(PermitId::new))
            .map_err(|source| LogError::Entry { source })
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
        let bytes = encode(batch.term, batch.base, batch.chain_head, &batch.events);
        assert_eq!(bytes, GOLDEN_V1);
    }

    #[test]
    fn what_is_not_a_batch_is_refused() {
        let newer = peer::Batch { format: 2, ..Default::default() }.encode_to_vec();
        let headless = peer::Batch { format: 1, ..Default::default() }.encode_to_vec();
        let record = peer::Record { entry: Bytes::from_static(b"{}"), permit_id: None };
        let head = Bytes::from_static(&[0; 32]);
        let garbled =
            peer::Batch { format: 1, chain_head: head, records: vec![record], ..Default::default() }.encode_to_vec();
        assert!(matches!(decode(Bytes::from(newer)), Err(LogError::UnknownFormat { found: 2 })));
        assert!(matches!(decode(Bytes::from(headless)), Err(LogError::ChainHead { found: 0 })));
        assert!(matches!(decode(Bytes::from(garbled)), Err(LogError::Entry { .. })));
        assert!(matches!(decode(Bytes::from_static(b"\xff\xff")), Err(LogError::Undecodable { .. })));
    }
}
