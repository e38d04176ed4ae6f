//! The peer door's service, and a way to serve it.
//! Absent on purpose: authentication beyond the channel. Whoever reaches this door is a peer: give it mutual TLS or a
//! network of its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures::future::ready;
use futures::{Stream, StreamExt};
use placet_core::cluster::MembershipChange;
use placet_core::op::{Call, Reject};
use placet_wire::peer;
use placet_wire::peer::peer_server::{Peer, PeerServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::convert::{self, ConvertError};
use super::{CONNECTION_WINDOW_BYTES, KEEPALIVE, MESSAGE_BYTES_MAX, STREAM_WINDOW_BYTES, transfer};
use crate::bootstrap;
use crate::node::{Failure, Inner, Node};
use crate::options::PeerTls;

type Answer<T> = Result<Response<T>, Status>;

/// Answers peers; made by [`Node::peer_service`].
#[derive(Clone, Debug)]
pub struct PeerService {
    inner: Arc<Inner>,
}

impl PeerService {
    pub(crate) fn new(inner: Arc<Inner>) -> PeerServer<Self> {
        PeerServer::new(Self { inner })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn vote_request(&self, request: Request<peer::VoteRequest>, pre: bool) -> Answer<peer::VoteResponse> {
        self.inner.gate.admit_vote()?;
        let request = convert::vote_request_back(request.into_inner()).map_err(malformed)?;
        let answer = if pre { self.inner.raft.pre_vote(request).await } else { self.inner.raft.vote(request).await };
        Ok(Response::new(convert::vote_response(&answer.map_err(stopped)?)))
    }
}

/// Serves the peer door on `listener` until `stop`.
pub async fn serve_peers(
    node: &Node,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let mut server = Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    if let Some(tls) = node.peer_tls() {
        server = server.tls_config(server_tls(tls))?;
    }
    // With incoming connections of our own, nodelay is ours to set too.
    let incoming = TcpListenerStream::new(listener)
        .map(|connection| connection.and_then(|socket| socket.set_nodelay(true).map(|()| socket)));
    server.add_service(node.peer_service()).serve_with_incoming_shutdown(incoming, stop).await
}

fn server_tls(tls: &PeerTls) -> ServerTlsConfig {
    ServerTlsConfig::new()
        .identity(Identity::from_pem(&tls.cert, &tls.key))
        .client_ca_root(Certificate::from_pem(&tls.ca))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn malformed(error: ConvertError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn stopped(error: impl ToString) -> Status {
    Status::unavailable(error.to_string())
}

fn failed(error: io::Error) -> Status {
    Status::internal(error.to_string())
}

#[tonic::async_trait]
impl Peer for PeerService {
    type AppendStream = Pin<Box<dyn Stream<Item = Result<peer::AppendResponse, Status>> + Send>>;

    async fn append(&self, request: Request<Streaming<peer::AppendRequest>>) -> Answer<Self::AppendStream> {
        let gate = self.inner.gate.clone();
        gate.admit_leader(u64::MAX)?;
        // A request that is malformed or not admitted ends the stream: the leader opens another.
        let input = request.into_inner().map(move |request| {
            let request = convert::append_request_back(request.ok()?);
            let request =
                request.inspect_err(|error| tracing::warn!(%error, "a leader's entries were refused")).ok()?;
            gate.admit_leader(request.vote.leader_id.term).ok()?;
            Some(request)
        });
        let input = input.take_while(|request| ready(request.is_some())).filter_map(ready);
        let answers = self.inner.raft.stream_append(input.boxed());
        let answers = answers.map(|answer| match answer {
            Ok(answer) => Ok(convert::append_response(&answer)),
            Err(fatal) => Err(stopped(fatal)),
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn vote(&self, request: Request<peer::VoteRequest>) -> Answer<peer::VoteResponse> {
        self.vote_request(request, false).await
    }

    async fn pre_vote(&self, request: Request<peer::VoteRequest>) -> Answer<peer::VoteResponse> {
        self.vote_request(request, true).await
    }

    async fn transfer_leader(
        &self,
        request: Request<peer::TransferLeaderRequest>,
    ) -> Answer<peer::TransferLeaderResponse> {
        self.inner.gate.admit_vote()?;
        let request = convert::transfer_request_back(request.into_inner()).map_err(malformed)?;
        let answer = self.inner.raft.handle_transfer_leader(request).await.map_err(stopped)?;
        Ok(Response::new(peer::TransferLeaderResponse { refused: answer.err().map(|error| error.to_string()) }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<peer::SnapshotPart>>,
    ) -> Answer<peer::SnapshotResponse> {
        let gate = self.inner.gate.clone();
        let admit = move |vote: &crate::types::Vote| gate.admit_leader(vote.leader_id.term);
        let parts = request.into_inner();
        let installed = transfer::receive(&self.inner.raft, self.inner.snapshots.clone(), parts, admit).await?;
        Ok(Response::new(peer::SnapshotResponse { vote: Some(convert::vote(&installed.vote)) }))
    }

    async fn forward(&self, request: Request<peer::ForwardRequest>) -> Answer<peer::ForwardResponse> {
        let call: Call = serde_json::from_slice(&request.into_inner().call)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let result = match self.inner.submit_here(call).await {
            Err(Failure::NotLeader { .. }) => None,
            Err(Failure::Final(reject)) => Some(Err(reject)),
            Ok(answer) => Some(Ok(answer)),
        };
        forwarded(result.as_ref())
    }

    async fn change_membership(&self, request: Request<peer::ForwardRequest>) -> Answer<peer::ForwardResponse> {
        let change: MembershipChange = serde_json::from_slice(&request.into_inner().call)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let result = match self.inner.change_membership_here(change).await {
            Err(Failure::NotLeader { .. }) => None,
            Err(Failure::Final(reject)) => Some(Err(reject)),
            Ok(view) => Some(Ok(view)),
        };
        forwarded(result.as_ref())
    }

    async fn status(&self, _request: Request<peer::StatusRequest>) -> Answer<peer::StatusResponse> {
        bootstrap::status(&self.inner).map(Response::new).map_err(failed)
    }

    async fn begin(&self, request: Request<peer::BeginRequest>) -> Answer<peer::BeginResponse> {
        let from = request.into_inner().from;
        let founder = self.inner.options.initial_cluster.first_key_value().is_some_and(|(id, _)| *id == from);
        let accepted = founder && self.inner.gate.begin().map_err(failed)?;
        Ok(Response::new(peer::BeginResponse { accepted }))
    }
}

fn forwarded<T: serde::Serialize>(result: Option<&Result<T, Reject>>) -> Answer<peer::ForwardResponse> {
    let encoded = result.map(serde_json::to_vec).transpose();
    let bytes = encoded.map_err(|error| Status::internal(error.to_string()))?;
    Ok(Response::new(peer::ForwardResponse { result: bytes.map(Into::into) }))
}
