//! `placet serve`: store, replica and doors joined into a node, and its orderly end.
//!
//! ```text
//! start:  configuration ─► sockets ─► store ─► replica ─► peer door ─► HTTP, gRPC and Unix doors
//! stop:   not ready, leadership handed over ─► `drain_ms` ─► doors drain ─► replica ─► peer door ─► store ─► last spans
//!         a second signal ends all of that at once
//! ```

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use futures::StreamExt;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use placet_core::cluster::{ClusterView, Health, MembershipChange};
use placet_core::ids::EvidenceIndex;
use placet_core::notice::Notice;
use placet_core::op::{Answer, Call, Reject};
use placet_edge::{BackupParts, Edge, Keyring, Pdp, Peers, SocketFile, TlsFiles, check_listen};
use placet_replica::Node;
use reqwest::header::HeaderMap;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::cli::{Serve, exit};
use crate::commands::restore;
use crate::config::{Config, Tls, UnixDoor};
use crate::telemetry::{self, Telemetry};
use crate::{upkeep, webhook};

/// Runs a node until it is told to stop, or has to.
pub async fn serve(command: &Serve, config: Config) -> anyhow::Result<u8> {
    restore::refuse_unfinished(&config.data)?;
    let keyring = Keyring::load(&config.tokens)?;
    let http_tls = load_tls(config.http.tls.as_ref())?;
    let grpc_tls = load_tls(config.grpc.tls.as_ref())?;
    check_listen(config.http.listen, http_tls.is_some())?;
    check_listen(config.grpc.listen, grpc_tls.is_some())?;
    let options = config.options()?;
    // The folder first: a second process on the same data says so, and not that an address is taken.
    let store = placet_store::open(&config.data, &config.store_options(&options, command.unsafe_no_fsync))?;
    let http = bind(config.http.listen, "http").await?;
    let grpc = bind(config.grpc.listen, "grpc").await?;
    let peers = bind(config.peer.listen, "peer").await?;
    let unix = open_socket(config.unix.as_ref()).await?;
    let telemetry = telemetry::install(config.node_id, config.otlp_endpoint.as_deref())?;

    let node = Node::start(options, store.log.clone(), store.state.clone()).await?;
    drop(store);
    let edge = Edge::new(Arc::new(Joined(node.clone())), keyring)
        .with_metrics({
            let metrics = Arc::clone(&telemetry.metrics);
            Arc::new(move || metrics.render())
        })
        .with_trace_parent(Arc::new(adopt_trace));
    let mut upkeep = JoinSet::new();
    upkeep.spawn(upkeep::fold_metrics(Arc::clone(&telemetry.metrics)));
    if config.sign_heads_every_ms > 0 {
        upkeep.spawn(upkeep::sign_heads(node.clone(), Duration::from_millis(config.sign_heads_every_ms)));
    }
    if let Some(webhook) = &config.webhook {
        upkeep.spawn(webhook::sender(node.clone(), webhook)?);
    }
    let (closing, _) = watch::channel(Phase::Serving);
    let mut doors = JoinSet::new();
    {
        let closed = reached(&closing, Phase::Draining);
        let door = edge.clone();
        doors.spawn(async move {
            placet_edge::serve_http(http, door, http_tls.as_ref(), closed).await.context("the http door")
        });
        let (door, closed) = (edge.clone(), reached(&closing, Phase::Draining));
        doors.spawn(async move {
            placet_edge::serve_grpc(grpc, door, grpc_tls.as_ref(), closed).await.context("the grpc door")
        });
        if let Some((socket, known)) = unix {
            let (door, closed) = (edge.clone(), reached(&closing, Phase::Draining));
            doors.spawn(
                async move { placet_edge::serve_unix(socket, known, door, closed).await.context("the unix door") },
            );
        }
    }
    let mut peer_door = JoinSet::new();
    {
        let (node, closed) = (node.clone(), reached(&closing, Phase::Stopping));
        peer_door
            .spawn(async move { placet_replica::serve_peers(&node, peers, closed).await.context("the peer door") });
    }
    if config.peer.tls.is_none() && config.initial_cluster.len() > 1 {
        tracing::warn!("the peer door is plain text: every process of this host can act as any principal through it");
    }
    tracing::info!(node = config.node_id, http = %config.http.listen, grpc = %config.grpc.listen, peer = %config.peer.listen, "serving");
    if let Some(unix) = &config.unix {
        tracing::info!(path = %unix.path.display(), "serving processes of this host");
    }

    // Only now: whoever ends a node that has not started yet waits for nothing.
    let mut signals = Signals::listen()?;
    let why = tokio::select! {
        signal = signals.next() => Stop::Asked(signal),
        () = stdin_closed(command.until_stdin_closes) => Stop::Asked("standard input closed"),
        reason = node.stopped() => Stop::Failed(reason),
        Some(ended) = doors.join_next() => Stop::Failed(ended_early(ended)),
        Some(ended) = peer_door.join_next() => Stop::Failed(ended_early(ended)),
        // What a node does beside serving never ends by itself: a silent end would be noticed by nobody.
        Some(ended) = upkeep.join_next() => Stop::Failed(ended_early(ended.map(|()| Ok(())))),
    };
    let orderly = async {
        if let Stop::Asked(reason) = &why {
            tracing::info!(reason, drain_ms = config.drain_ms, "stopping");
            retire(&node, Duration::from_millis(config.drain_ms)).await;
        }
        closing.send_replace(Phase::Draining);
        while doors.join_next().await.is_some() {}
        node.shutdown().await;
        closing.send_replace(Phase::Stopping);
        let closed = async { while peer_door.join_next().await.is_some() {} };
        if tokio::time::timeout(PEERS_WITHIN, closed).await.is_err() {
            tracing::warn!("peers took too long to hang up; their connections are cut");
            peer_door.shutdown().await;
        }
        upkeep.shutdown().await;
    };
    tokio::select! {
        () = orderly => {}
        // What was answered is on a quorum of disks; this costs callers in flight an answer, and nothing else.
        again = signals.next() => bail!("stopped at once by a second signal, {again}"),
    }
    drop((edge, node));
    flush(telemetry).await;
    match why {
        Stop::Asked(_) => Ok(exit::OK),
        Stop::Failed(reason) => bail!("this node stopped: {reason}"),
    }
}

/// Longest that peers may take to end what they ask of a node whose consensus has stopped.
const PEERS_WITHIN: Duration = Duration::from_secs(5);

/// Between two attempts to hand the leadership over while a node drains.
const HAND_OVER_EVERY: Duration = Duration::from_millis(200);

/// Says "not ready" and hands the leadership over while everything is still answered, so that a balancer has the time to
/// look elsewhere before the doors close.
async fn retire(node: &Node, drain: Duration) {
    let until = tokio::time::Instant::now() + drain;
    node.retire();
    node.step_down().await;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep_until(until.min(tokio::time::Instant::now() + HAND_OVER_EVERY)).await;
        node.step_down().await;
    }
}

enum Stop {
    Asked(&'static str),
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    Draining,
    Stopping,
}

/// The replica, as the doors see it.
struct Joined(Node);

#[async_trait]
impl Pdp for Joined {
    async fn submit(&self, call: Call) -> Result<Answer, Reject> {
        self.0.submit(call).await
    }

    async fn cluster(&self) -> Result<ClusterView, Reject> {
        self.0.cluster()
    }

    async fn health(&self) -> Health {
        self.0.health()
    }

    async fn change_membership(&self, change: MembershipChange) -> Result<ClusterView, Reject> {
        self.0.change_membership(change).await
    }

    async fn backup(&self, local: bool) -> Result<BackupParts, Reject> {
        Ok(self.0.backup(local).await?.boxed())
    }

    async fn evidence_beyond(&self, after: EvidenceIndex) {
        self.0.evidence_beyond(after).await;
    }

    fn notices(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.0.notices()
    }
}

fn load_tls(files: Option<&Tls>) -> anyhow::Result<Option<placet_edge::tls::Tls>> {
    let Some(files) = files else { return Ok(None) };
    let files = TlsFiles { chain: files.cert.clone(), key: files.key.clone(), client_ca: files.client_ca.clone() };
    Ok(Some(files.load()?))
}

async fn bind(address: SocketAddr, door: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("the {door} door cannot listen on {address}"))
}

/// The Unix socket and who may call there, if the configuration has one.
async fn open_socket(door: Option<&UnixDoor>) -> anyhow::Result<Option<(SocketFile, Peers)>> {
    let Some(door) = door else { return Ok(None) };
    let peers = door.peers()?;
    let socket = SocketFile::bind(&door.path, door.socket_mode()?).await.context("the unix door cannot listen")?;
    Ok(Some((socket, peers)))
}

/// A future that ends when `closing` reaches a phase.
fn reached(closing: &watch::Sender<Phase>, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
    let mut seen = closing.subscribe();
    async move {
        // A sender that is gone is a process that ends.
        let _ = seen.wait_for(|now| *now >= phase).await;
    }
}

/// SIGTERM and SIGINT; each of them counts.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

async fn stdin_closed(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let (ended, closed) = tokio::sync::oneshot::channel();
    // A thread of its own: a blocked read must not hold up the runtime's end.
    std::thread::spawn(move || {
        let mut thrown_away = [0u8; 256];
        while std::io::stdin().read(&mut thrown_away).is_ok_and(|read| read > 0) {}
        // Nobody waits any more if the node stops for another reason.
        let _ = ended.send(());
    });
    let _ = closed.await;
}

fn ended_early(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "a part of it ended by itself".to_owned(),
        Ok(Err(error)) => format!("{error:#}"),
        Err(error) => error.to_string(),
    }
}

/// Makes a span the child of the trace that a `traceparent` header names.
fn adopt_trace(span: &tracing::Span, headers: &HeaderMap) {
    struct Headers<'a>(&'a HeaderMap);
    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }
        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(reqwest::header::HeaderName::as_str).collect()
        }
    }
    let parent = TraceContextPropagator::new().extract(&Headers(headers));
    // Without a tracing layer there is nothing to attach to, and nothing is lost.
    let _ = span.set_parent(parent);
}

/// Exporting waits on the network, so it leaves the runtime's threads.
async fn flush(telemetry: Telemetry) {
    if let Err(error) = tokio::task::spawn_blocking(move || telemetry.flush()).await {
        tracing::warn!(%error, "the last spans were not exported");
    }
}
