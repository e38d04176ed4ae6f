//! Speaking to peers: one lazily connected channel per peer for appends, one for everything else.
//! Absent on purpose: retries; Raft has its own, and callers of [`Peers`] decide for themselves.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::ready;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes};
use parking_lot::Mutex;
use placet_core::cluster::MemberAddresses;
use placet_wire::peer;
use placet_wire::peer::peer_client::PeerClient;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::hold::hold_back;
use super::wire::{Dial, Wire};
use super::{CONNECTION_WINDOW_BYTES, KEEPALIVE, MESSAGE_BYTES_MAX, STREAM_WINDOW_BYTES, convert, transfer};
use crate::options::{Options, PeerTls};
use crate::retention::LogUse;
use crate::types::{Snapshot, SnapshotFolder, Types, Vote};
use crate::work::Work;

/// A stream of appends that owes an answer for this long makes no progress. Longer than a slow sync, shorter than a
/// caller's patience.
const STALL: Duration = Duration::from_millis(1500);

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(2);

type Client = PeerClient<Wire>;
type AppendStream<'s> = BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>;

/// Channels to one peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerChannels {
    append: Wire,
    other: Wire,
    /// The last appends did not get there.
    unreached: Arc<AtomicBool>,
}

impl PeerChannels {
    /// Says once that a peer takes no appends: whoever tries does so several times a second.
    fn note_unreached(&self, target: u64, why: &dyn std::fmt::Display) {
        if !self.unreached.swap(true, Ordering::AcqRel) {
            tracing::warn!(target, %why, "a member cannot be reached");
        }
    }

    fn note_reached(&self, target: u64) {
        if self.unreached.load(Ordering::Acquire) && self.unreached.swap(false, Ordering::AcqRel) {
            tracing::info!(target, "a member is reached again");
        }
    }

    fn append_client(&self) -> Client {
        client(self.append.clone())
    }

    /// For everything but appends.
    pub(crate) fn client(&self) -> Client {
        client(self.other.clone())
    }
}

fn client(wire: Wire) -> Client {
    PeerClient::new(wire).max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// The channels of a node, by peer; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    node_id: u64,
    tls: Option<PeerTls>,
    dial: Option<Dial>,
    work: Work,
    log_use: Arc<LogUse>,
    channels: Arc<Mutex<HashMap<u64, (String, PeerChannels)>>>,
}

impl Peers {
    pub(crate) fn new(options: &Options, log_use: Arc<LogUse>) -> Self {
        let (tls, dial, work) = (options.tls.clone(), options.dial.clone(), options.work.clone());
        Self { node_id: options.node_id, tls, dial, work, log_use, channels: Arc::default() }
    }

    /// Channels to `id` at `address`; a changed address replaces them.
    pub(crate) fn channels(&self, id: u64, address: &str) -> Result<PeerChannels, Status> {
        let mut known = self.channels.lock();
        if let Some((at, channels)) = known.get(&id)
            && at == address
        {
            return Ok(channels.clone());
        }
        let (append, other) = (self.open(id, address)?, self.open(id, address)?);
        let channels = PeerChannels { append, other, unreached: Arc::default() };
        known.insert(id, (address.to_owned(), channels.clone()));
        Ok(channels)
    }

    fn open(&self, id: u64, address: &str) -> Result<Wire, Status> {
        if let Some(dial) = &self.dial {
            return Ok(Wire::Dialled(dial.open(id, address)));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let bad = |error: tonic::transport::Error| Status::invalid_argument(format!("peer `{address}`: {error}"));
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(bad)?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            let mut config = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(&tls.ca))
                .identity(Identity::from_pem(&tls.cert, &tls.key));
            if let Some(domain) = &tls.domain {
                config = config.domain_name(domain);
            }
            endpoint = endpoint.tls_config(config).map_err(bad)?;
        }
        Ok(Wire::Tcp(endpoint.connect_lazy()))
    }
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = PeerNetwork;

    async fn new_client(&mut self, target: u64, node: &MemberAddresses) -> PeerNetwork {
        let (work, log_use) = (self.work.clone(), self.log_use.clone());
        PeerNetwork { id: self.node_id, target, work, log_use, channels: self.channels(target, &node.peer) }
    }
}

/// Sees that the log was purged under a stream of appends: what the member needs next is in a snapshot then, and the
/// stream has to end with an error, or Raft would go on sending nothing for ever.
#[derive(Debug, Default)]
struct PurgeWatch {
    behind: bool,
}

impl PurgeWatch {
    /// Whether this request is to be sent. One that carries nothing to a member behind the purge is, once: a heartbeat
    /// looks like it, is a stream of its own, and must reach a member that waits for a snapshot.
    fn goes_on(&mut self, request: &AppendEntriesRequest<Types>, purged_to: u64) -> bool {
        let next = request.prev_log_id.map_or(0, |prev| prev.index.saturating_add(1));
        let behind = request.entries.is_empty() && purged_to > 0 && next <= purged_to;
        !(std::mem::replace(&mut self.behind, behind) && behind)
    }
}

/// Raft's view of one peer.
#[derive(Debug)]
pub(crate) struct PeerNetwork {
    id: u64,
    target: u64,
    work: Work,
    log_use: Arc<LogUse>,
    channels: Result<PeerChannels, Status>,
}

/// Whether a peer provably did not receive a call: nothing listened there.
pub(crate) fn never_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        source = error.source();
    }
    false
}

fn rpc_error(status: &Status) -> RPCError<Types> {
    match status.code() {
        // `Unreachable` backs off, `NetworkError` is retried at once.
        Code::Unavailable | Code::Unimplemented | Code::InvalidArgument | Code::FailedPrecondition => {
            RPCError::Unreachable(Unreachable::new(status))
        }
        _ => RPCError::Network(NetworkError::new(status)),
    }
}

fn no_longer_held() -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string("the log no longer holds what this member needs next"))
}

fn bad_message(error: convert::ConvertError) -> RPCError<Types> {
    RPCError::Network(NetworkError::new(&error))
}

impl PeerNetwork {
    fn channels(&self) -> Result<&PeerChannels, RPCError<Types>> {
        self.channels.as_ref().map_err(rpc_error)
    }

    fn timeout(&self, action: RPCTypes, timeout: Duration) -> RPCError<Types> {
        RPCError::Timeout(Timeout { action, id: self.id, target: self.target, timeout })
    }

    async fn call<T>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RPCError<Types>> {
        let limit = option.soft_ttl();
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(|status| rpc_error(&status)),
            Err(_) => Err(self.timeout(action, limit)),
        }
    }

    async fn open_append<'s, S>(&'s mut self, input: S, option: RPCOption) -> Result<AppendStream<'s>, RPCError<Types>>
    where
        S: futures::Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let limit = option.soft_ttl().max(STALL);
        let sent = Arc::new(AtomicU64::new(0));
        let counter = sent.clone();
        let outrun = Arc::new(AtomicBool::new(false));
        let (log_use, found, mut purge) = (self.log_use.clone(), outrun.clone(), PurgeWatch::default());
        let outbound = input.take_while(move |request| {
            let goes_on = purge.goes_on(request, log_use.purged_to());
            found.fetch_or(!goes_on, Ordering::AcqRel);
            ready(goes_on)
        });
        let mut outbound = outbound.map(move |request| {
            counter.fetch_add(1, Ordering::AcqRel);
            convert::append_request(&request)
        });
        // Raft's pause between two attempts is in this stream. A connection that does not come up never asks it, so it is
        // asked first: else the next attempt is made at once, and the one after that.
        let Some(first) = outbound.next().await else { return Ok(futures::stream::empty().boxed()) };
        let outbound = futures::stream::iter([first]).chain(outbound);
        let channels = self.channels()?;
        let mut client = channels.append_client();
        let opened = tokio::time::timeout(limit, client.append(Request::new(outbound))).await;
        let inbound = match opened {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                channels.note_unreached(self.target, &status);
                return Err(rpc_error(&status));
            }
            Err(_) => {
                channels.note_unreached(self.target, &"no answer in time");
                return Err(self.timeout(RPCTypes::AppendEntries, limit));
            }
        };
        let this: &'s Self = self;
        let answers = futures::stream::unfold((Some(inbound), 0u64), move |(inbound, received)| {
            let (sent, outrun) = (sent.clone(), outrun.clone());
            async move {
                let mut inbound = inbound?;
                loop {
                    let owed = sent.load(Ordering::Acquire) > received;
                    return match tokio::time::timeout(limit, inbound.message()).await {
                        Ok(Ok(Some(answer))) => {
                            channels.note_reached(this.target);
                            let answer = convert::append_response_back(answer).map_err(bad_message);
                            Some((answer, (Some(inbound), received + 1)))
                        }
                        Ok(Ok(None)) if outrun.load(Ordering::Acquire) => {
                            Some((Err(no_longer_held()), (None, received)))
                        }
                        Ok(Ok(None)) => None,
                        Ok(Err(status)) => {
                            channels.note_unreached(this.target, &status);
                            Some((Err(rpc_error(&status)), (None, received)))
                        }
                        Err(_) if owed => {
                            channels.note_unreached(this.target, &"no answer in time");
                            Some((Err(this.timeout(RPCTypes::AppendEntries, limit)), (None, received)))
                        }
                        // Nothing was asked, so silence is right.
                        Err(_) => continue,
                    };
                }
            }
        });
        Ok(answers.boxed())
    }
}

impl RaftNetworkV2<Types> for PeerNetwork {
    type SnapshotData = SnapshotFolder;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let mut answers = self.open_append(futures::stream::iter([request]), option).await?;
        match answers.next().await {
            Some(Ok(Ok(matched))) if matched == last => Ok(AppendEntriesResponse::Success),
            Some(Ok(Ok(matched))) => Ok(AppendEntriesResponse::PartialSuccess(matched)),
            Some(Ok(Err(StreamAppendError::Conflict(_)))) => Ok(AppendEntriesResponse::Conflict),
            Some(Ok(Err(StreamAppendError::HigherVote(vote)))) => Ok(AppendEntriesResponse::HigherVote(vote)),
            Some(Err(error)) => Err(error),
            None => Err(RPCError::Network(NetworkError::from_string("the peer closed the stream without an answer"))),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendStream<'s>, RPCError<Types>>>
    where
        S: futures::Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(self.open_append(Box::pin(hold_back(input)), option))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let mut client = self.channels()?.client();
        let answer = self.call(RPCTypes::Vote, &option, client.vote(convert::vote_request(&request))).await?;
        convert::vote_response_back(answer).map_err(bad_message)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let mut client = self.channels()?.client();
        let answer = self.call(RPCTypes::Vote, &option, client.pre_vote(convert::vote_request(&request))).await?;
        convert::vote_response_back(answer).map_err(bad_message)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut client = self.channels()?.client();
        let limit = option.soft_ttl();
        let parts = transfer::send(&vote, snapshot, self.work.clone());
        let sending = tokio::time::timeout(limit, client.install_snapshot(Request::new(parts)));
        let answer = tokio::select! {
            answer = sending => answer.map_err(|_| self.timeout(RPCTypes::InstallSnapshot, limit))?,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        let answer = answer.map_err(|status| rpc_error(&status))?.into_inner();
        Ok(SnapshotResponse::new(convert::vote_back(answer.vote).map_err(bad_message)?))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<openraft::raft::TransferLeaderResponse<Types>, RPCError<Types>> {
        let mut client = self.channels()?.client();
        let call = client.transfer_leader(convert::transfer_request(&request));
        let answer: peer::TransferLeaderResponse = self.call(RPCTypes::TransferLeader, &option, call).await?;
        match answer.refused {
            None => Ok(Ok(())),
            Some(detail) => Err(RPCError::Network(NetworkError::from_string(detail))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Blob, Entry, LogId};

    fn request(prev: u64, entries: u64) -> AppendEntriesRequest<Types> {
        let entry = |index| Entry {
            log_id: LogId::new_term_index(1, index),
            payload: openraft::EntryPayload::Normal(Blob(bytes::Bytes::new())),
        };
        AppendEntriesRequest {
            vote: Vote::new(1, 1),
            prev_log_id: Some(LogId::new_term_index(1, prev)),
            entries: (prev + 1..=prev + entries).map(entry).collect(),
            leader_commit: None,
        }
    }

    /// Goal: Raft's pause between two attempts is kept at a node that is down: the stream of requests, which holds it, is
    /// asked before the connection is.
    #[tokio::test]
    async fn attempts_at_a_node_that_is_down_are_paced() {
        let options = Options::new(1, std::path::PathBuf::new());
        let mut peers = Peers::new(&options, LogUse::none());
        // Nothing listens there: the port was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let addresses = MemberAddresses { peer: free.to_string(), http: String::new(), grpc: String::new() };
        let mut network = peers.new_client(2, &addresses).await;
        const PAUSE: Duration = Duration::from_millis(100);
        let begun = std::time::Instant::now();
        for _ in 0..3 {
            let paced = futures::stream::once(async {
                tokio::time::sleep(PAUSE).await;
                request(1, 1)
            });
            let option = RPCOption::new(Duration::from_secs(1));
            let opened = network.stream_append(Box::pin(paced), option).await;
            assert!(matches!(opened.err(), Some(RPCError::Unreachable(_))));
        }
        assert!(begun.elapsed() >= PAUSE * 3, "{:?}", begun.elapsed());
    }

    /// Goal: a heartbeat reaches a member that waits for a snapshot; a stream whose log was purged ends.
    #[test]
    fn a_stream_ends_when_its_log_is_purged_and_a_heartbeat_does_not() {
        assert!(PurgeWatch::default().goes_on(&request(1, 0), 282), "a heartbeat");
        let mut stream = PurgeWatch::default();
        assert!(stream.goes_on(&request(1, 3), 0));
        assert!(stream.goes_on(&request(4, 3), 5), "what was read before the purge still follows");
        assert!(stream.goes_on(&request(7, 0), 9));
        assert!(!stream.goes_on(&request(7, 0), 9), "nothing comes any more");
        let mut well = PurgeWatch::default();
        assert!((0..3).all(|_| well.goes_on(&request(9, 0), 9)), "commits go to a member that has all");
        assert!((0..3).all(|_| well.goes_on(&request(0, 0), 0)), "nothing was purged");
    }
}
