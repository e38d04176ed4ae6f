//! The first entry of a restored cluster's own life, and what names a cluster.
//! Absent on purpose: the restoring itself, which is files.

use super::Recorder;
use crate::event::{Body, Event, Restored};
use crate::evidence;
use crate::ids::{EvidenceIndex, Hash, Principal};
use crate::reply::Protocol;
use crate::stamp::Stamp;
use crate::state::{Meta, Read, ReadError};

/// The entry that a restored cluster records before anything else; `None` in every other. `cluster` is random.
///
/// INVARIANT (one identity): two clusters that come from one backup differ in this entry, so no head of one is a head of
/// the other, and no statement for one is for the other.
pub fn restored(state: &impl Read, at: Stamp, cluster: Hash) -> Result<Option<Event>, ReadError> {
    let meta = state.meta()?;
    if !meta.restoring {
        return Ok(None);
    }
    let system = Principal::system();
    let mut recorder = Recorder::new(&meta, &system, at);
    recorder.record(Protocol::LATEST, Body::Restored(body(state, &meta, cluster)?), None);
    Ok(recorder.events.pop())
}

/// What `restored` says after the entries of `state`.
pub(super) fn body(state: &impl Read, meta: &Meta, cluster: Hash) -> Result<Restored, ReadError> {
    Ok(Restored {
        chain_head: meta.chain_head,
        cluster,
        entries: meta.next_index.0.saturating_sub(1),
        previous: cluster_id(state, meta)?.unwrap_or(Hash::GENESIS),
    })
}

/// What names a cluster: the hash of its first entry; once it was restored, what the newest restoration drew. `None`
/// before there is anything to name.
pub fn cluster_id(state: &impl Read, meta: &Meta) -> Result<Option<Hash>, ReadError> {
    if meta.cluster.is_some() {
        return Ok(meta.cluster);
    }
    Ok(state.entry(EvidenceIndex(1))?.map(|bytes| evidence::hash(&bytes)))
}
