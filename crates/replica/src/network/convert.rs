//! Raft's types to and from protobuf. Absent on purpose: decisions; a message that lacks a part is refused.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use placet_core::cluster::MemberAddresses;
use placet_wire::peer;
use prost::Message;
use thiserror::Error;

use crate::types::{Blob, Entry, LogId, Membership, Position, StoredMembership, Types, Vote};

/// A message of a peer, or a value of the log, that is not one.
#[derive(Debug, Error)]
pub(crate) enum ConvertError {
    /// A part that must be there is not.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// The bytes are no message.
    #[error("not the message that belongs here")]
    Undecodable(#[from] prost::DecodeError),
    /// The voters and the members do not fit together.
    #[error("a membership that cannot be: {0}")]
    Membership(String),
    /// Entries that do not follow what is before them.
    #[error("entries that do not follow one another")]
    Gap,
}

type Result<T> = std::result::Result<T, ConvertError>;

fn need<T>(value: Option<T>, name: &'static str) -> Result<T> {
    value.ok_or(ConvertError::Missing(name))
}

pub(crate) fn log_id(id: &LogId) -> peer::LogId {
    peer::LogId { term: id.leader_id.term, index: id.index }
}

pub(crate) fn log_id_back(id: &peer::LogId) -> LogId {
    LogId::new_term_index(id.term, id.index)
}

pub(crate) fn vote(vote: &Vote) -> peer::LeaderVote {
    peer::LeaderVote { term: vote.leader_id.term, node_id: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn vote_back(vote: Option<peer::LeaderVote>) -> Result<Vote> {
    let vote = need(vote, "vote")?;
    let uncommitted = Vote::new(vote.term, vote.node_id);
    Ok(Vote { committed: vote.committed, ..uncommitted })
}

fn membership(membership: &Membership) -> peer::Membership {
    let configs = membership.get_joint_config().iter().map(|ids| peer::Voters { ids: ids.iter().copied().collect() });
    let members = membership
        .nodes()
        .map(|(id, at)| (*id, peer::Member { peer: at.peer.clone(), http: at.http.clone(), grpc: at.grpc.clone() }));
    peer::Membership { configs: configs.collect(), members: members.collect() }
}

fn membership_back(membership: peer::Membership) -> Result<Membership> {
    let configs = membership.configs.into_iter().map(|voters| voters.ids.into_iter().collect::<BTreeSet<u64>>());
    let members = membership
        .members
        .into_iter()
        .map(|(id, at)| (id, MemberAddresses { peer: at.peer, http: at.http, grpc: at.grpc }));
    Membership::new(configs.collect(), members.collect::<BTreeMap<_, _>>())
        .map_err(|error| ConvertError::Membership(error.to_string()))
}

pub(crate) fn stored_membership(stored: &StoredMembership) -> peer::StoredMembership {
    peer::StoredMembership {
        log_id: stored.log_id().as_ref().map(log_id),
        membership: Some(membership(stored.membership())),
    }
}

pub(crate) fn stored_membership_back(stored: Option<peer::StoredMembership>) -> Result<StoredMembership> {
    let stored = need(stored, "membership")?;
    let log_id = stored.log_id.as_ref().map(log_id_back);
    Ok(StoredMembership::new(log_id, membership_back(need(stored.membership, "membership")?)?))
}

pub(crate) fn position(position: &Position) -> peer::Position {
    peer::Position {
        applied: position.applied.as_ref().map(log_id),
        membership: Some(stored_membership(&position.membership)),
    }
}

pub(crate) fn position_back(position: peer::Position) -> Result<Position> {
    Ok(Position {
        applied: position.applied.as_ref().map(log_id_back),
        membership: stored_membership_back(position.membership)?,
    })
}

pub(crate) fn encode_position(value: &Position) -> Vec<u8> {
    position(value).encode_to_vec()
}

pub(crate) fn decode_position(bytes: &[u8]) -> Result<Position> {
    position_back(peer::Position::decode(bytes)?)
}

pub(crate) fn entry(entry: &Entry) -> peer::Entry {
    let payload = match &entry.payload {
        EntryPayload::Blank => peer::entry::Payload::Blank(peer::Blank {}),
        EntryPayload::Normal(Blob(bytes)) => peer::entry::Payload::Batch(bytes.clone()),
        EntryPayload::Membership(config) => peer::entry::Payload::Membership(membership(config)),
    };
    peer::Entry { log_id: Some(log_id(&entry.log_id)), payload: Some(payload) }
}

pub(crate) fn entry_back(entry: peer::Entry) -> Result<Entry> {
    let log_id = log_id_back(&need(entry.log_id, "log_id")?);
    let payload = match need(entry.payload, "payload")? {
        peer::entry::Payload::Blank(_) => EntryPayload::Blank,
        peer::entry::Payload::Batch(bytes) => EntryPayload::Normal(Blob(bytes)),
        peer::entry::Payload::Membership(config) => EntryPayload::Membership(membership_back(config)?),
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn encode_entry(value: &Entry) -> Bytes {
    Bytes::from(entry(value).encode_to_vec())
}

pub(crate) fn decode_entry(bytes: Bytes) -> Result<Entry> {
    entry_back(peer::Entry::decode(bytes)?)
}

pub(crate) fn append_request(request: &AppendEntriesRequest<Types>) -> peer::AppendRequest {
    peer::AppendRequest {
        vote: Some(vote(&request.vote)),
        prev: request.prev_log_id.as_ref().map(log_id),
        entries: request.entries.iter().map(entry).collect(),
        committed: request.leader_commit.as_ref().map(log_id),
    }
}

pub(crate) fn append_request_back(request: peer::AppendRequest) -> Result<AppendEntriesRequest<Types>> {
    let prev_log_id = request.prev.as_ref().map(log_id_back);
    let entries = request.entries.into_iter().map(entry_back).collect::<Result<Vec<_>>>()?;
    // INVARIANT (order): a log has no hole, so nothing is taken that would make one.
    let mut last = prev_log_id.map(|prev| prev.index);
    for entry in &entries {
        let next = last.map_or(Some(0), |last| last.checked_add(1));
        if next != Some(entry.log_id.index) {
            return Err(ConvertError::Gap);
        }
        last = next;
    }
    Ok(AppendEntriesRequest {
        vote: vote_back(request.vote)?,
        prev_log_id,
        entries,
        leader_commit: request.committed.as_ref().map(log_id_back),
    })
}

pub(crate) fn append_response(result: &StreamAppendResult<Types>) -> peer::AppendResponse {
    use peer::append_response::Result as Answer;
    let result = match result {
        Ok(matched) => Answer::Matched(peer::Matched { log_id: matched.as_ref().map(log_id) }),
        Err(StreamAppendError::Conflict(at)) => Answer::Conflict(log_id(at)),
        Err(StreamAppendError::HigherVote(higher)) => Answer::HigherVote(vote(higher)),
    };
    peer::AppendResponse { result: Some(result) }
}

pub(crate) fn append_response_back(response: peer::AppendResponse) -> Result<StreamAppendResult<Types>> {
    use peer::append_response::Result as Answer;
    Ok(match need(response.result, "result")? {
        Answer::Matched(matched) => Ok(matched.log_id.as_ref().map(log_id_back)),
        Answer::Conflict(at) => Err(StreamAppendError::Conflict(log_id_back(&at))),
        Answer::HigherVote(higher) => Err(StreamAppendError::HigherVote(vote_back(Some(higher))?)),
    })
}

pub(crate) fn vote_request(request: &VoteRequest<Types>) -> peer::VoteRequest {
    peer::VoteRequest {
        vote: Some(vote(&request.vote)),
        last: request.last_log_id.as_ref().map(log_id),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_back(request: peer::VoteRequest) -> Result<VoteRequest<Types>> {
    let mut back = VoteRequest::new(vote_back(request.vote)?, request.last.as_ref().map(log_id_back));
    back.leadership_transfer = request.leadership_transfer;
    Ok(back)
}

pub(crate) fn vote_response(response: &VoteResponse<Types>) -> peer::VoteResponse {
    peer::VoteResponse {
        vote: Some(vote(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(log_id),
    }
}

pub(crate) fn vote_response_back(response: peer::VoteResponse) -> Result<VoteResponse<Types>> {
    let last = response.last.as_ref().map(log_id_back);
    Ok(VoteResponse::new(vote_back(response.vote)?, last, response.granted))
}

pub(crate) fn transfer_request(request: &TransferLeaderRequest<Types>) -> peer::TransferLeaderRequest {
    peer::TransferLeaderRequest {
        from: Some(vote(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(log_id),
    }
}

pub(crate) fn transfer_request_back(request: peer::TransferLeaderRequest) -> Result<TransferLeaderRequest<Types>> {
    let last = request.last.as_ref().map(log_id_back);
    Ok(TransferLeaderRequest::new(vote_back(request.from)?, request.to, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(prev: Option<u64>, indexes: &[u64]) -> peer::AppendRequest {
        let entry =
            |index: &u64| entry(&Entry { log_id: LogId::new_term_index(1, *index), payload: EntryPayload::Blank });
        peer::AppendRequest {
            vote: Some(vote(&Vote::new(1, 1))),
            prev: prev.map(|index| log_id(&LogId::new_term_index(1, index))),
            entries: indexes.iter().map(entry).collect(),
            committed: None,
        }
    }

    /// Goal: a leader that sends what does not follow leaves no hole in this log.
    #[test]
    fn entries_that_do_not_follow_are_refused() {
        for (prev, indexes) in [(None, &[0, 1][..]), (Some(4), &[5, 6, 7]), (Some(4), &[])] {
            assert!(append_request_back(request(prev, indexes)).is_ok(), "{prev:?} {indexes:?}");
        }
        let gaps: [(Option<u64>, &[u64]); 7] = [
            (None, &[1]),
            (Some(1), &[283]),
            (Some(4), &[5, 7]),
            (Some(4), &[4]),
            (Some(4), &[6, 5]),
            (Some(u64::MAX), &[0]),
            (Some(u64::MAX - 1), &[u64::MAX, 0]),
        ];
        for (prev, indexes) in gaps {
            let refused = append_request_back(request(prev, indexes));
            assert!(matches!(refused, Err(ConvertError::Gap)), "{prev:?} {indexes:?}");
        }
    }
}
