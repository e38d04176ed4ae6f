//! A founding member from a backup: its state is the backup's, its log begins anew.
//! Absent on purpose: the files of the backup, which a store has taken over before this, and the cluster's new name, which
//! the first leader draws.
//!
//! ```text
//! every founder: state of the backup at log (1, 1), membership: the founders     restore, offline, the same on each
//! founders meet: all restored, none started, one chain head ─► begin             bootstrap
//! first leader:  evidence entry `restored`, with a random name                   decider
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use placet_core::cluster::MemberAddresses;
use placet_core::state::Changes;
use placet_wire::peer;
use prost::Message;

use crate::bootstrap::Standing;
use crate::log_store::{invalid, last_log_id, read_vote};
use crate::network::convert;
use crate::ports::{Log, LogKey, State};
use crate::snapshot::position_of;
use crate::types::{LogId, Membership, Position, StoredMembership, Vote};

/// The term and the index that a restored log begins behind: as if one founding entry had been purged.
const FIRST: u64 = 1;

fn first() -> LogId {
    convert::log_id_back(&peer::LogId { term: FIRST, index: FIRST })
}

/// Makes an empty log and a state that was just copied from a backup those of a founding member.
pub fn begin_anew(log: &dyn Log, state: &dyn State, founders: &BTreeMap<u64, MemberAddresses>) -> io::Result<()> {
    let Some((smallest, _)) = founders.first_key_value() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a restored cluster has founding members"));
    };
    if read_vote(log)?.is_some() || last_log_id(log)?.is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the log is not empty"));
    }
    let voters = BTreeSet::from_iter(founders.keys().copied());
    let membership = Membership::new(vec![voters], founders.clone()).map_err(|error| invalid(error.to_string()))?;
    let position = Position { applied: Some(first()), membership: StoredMembership::new(Some(first()), membership) };
    let mut meta = state.meta().map_err(invalid)?;
    meta.restoring = true;
    state.apply(Changes { meta: Some(meta), ..Changes::default() }, &convert::encode_position(&position))?;
    state.flush()?;
    let standing = serde_json::to_vec(&Standing::Collecting).map_err(invalid)?;
    log.put(LogKey::Recovery, &standing, false)?;
    log.purge_to(FIRST, &convert::log_id(&first()).encode_to_vec())?;
    // Durable, and everything before it with it.
    let vote = Vote::new_committed(FIRST, *smallest);
    log.put(LogKey::Vote, &convert::vote(&vote).encode_to_vec(), true)
}

/// Whether this node was restored and has done nothing since: no vote, no entry of its own.
pub(crate) fn untouched(log: &dyn Log, state: &dyn State) -> io::Result<bool> {
    if !state.meta().map_err(invalid)?.restoring {
        return Ok(false);
    }
    let vote = read_vote(log)?;
    let at_first = position_of(state.position()?)?.applied == Some(first());
    Ok(at_first && vote.is_some_and(|vote| vote.leader_id.term == FIRST) && last_log_id(log)?.is_none())
}
