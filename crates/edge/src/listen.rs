//! Sockets: accept, TLS, HTTP/1.1 and HTTP/2, and a drain with a deadline. All doors are served by this loop.
//! Absent on purpose: routes.
//! INVARIANT (private channel): what is not TLS is not reachable from another host (AADP §15.1).

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::util::MapRequest;

use crate::edge::Edge;
use crate::limits::{
    ACCEPT_PAUSE, CONNECTIONS_MAX, DRAIN_WITHIN, H1_HEAD_WITHIN, H2_PING_EVERY, H2_PING_WITHIN, H2_STREAMS_MAX,
};
use crate::opening::{self, Opened};
use crate::peers::{Peer, Peers};
use crate::socket::SocketFile;
use crate::telemetry::Connected;
use crate::tls::Tls;
use crate::{grpc, http};

/// Why a door must not open.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenError {
    /// Tokens and decisions would cross a network in the clear.
    #[error("`{addr}` is reachable from other hosts and has no TLS; configure certificates, or listen on loopback")]
    PlainText {
        /// Where.
        addr: SocketAddr,
    },
}

/// Why a door closed by itself.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It must not open.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The listener has no address.
    #[error("the listener is not usable")]
    Listener(#[source] io::Error),
}

/// Refuses plain text on an address that other hosts can reach.
pub fn check_listen(addr: SocketAddr, tls: bool) -> Result<(), ListenError> {
    if tls || addr.ip().to_canonical().is_loopback() { Ok(()) } else { Err(ListenError::PlainText { addr }) }
}

/// Serves the HTTP/JSON door until `shutdown`, then drains.
pub async fn serve_http(
    listener: TcpListener,
    edge: Edge,
    tls: Option<&Tls>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (closing, drain) = watch::channel(false);
    let tls = tls.map(|tls| tls.for_protocols(&["h2", "http/1.1"]).into());
    let door = Door { tls, ..Door::new("http", &edge, http::router(edge.clone(), drain.clone()), drain) };
    serve(Listener::tcp(listener, &door)?, door, closing, shutdown).await
}

/// Serves the HTTP/JSON door on a Unix socket until `shutdown`, then drains. Callers are who the kernel says they are,
/// by the table of `peers`; the file is removed as soon as no new connection is taken.
pub async fn serve_unix(
    socket: SocketFile,
    peers: Peers,
    edge: Edge,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (closing, drain) = watch::channel(false);
    let door = Door::new("unix", &edge, http::router(edge.clone(), drain.clone()), drain);
    serve(Listener::Unix(socket, Arc::new(peers)), door, closing, shutdown).await
}

/// Serves the gRPC door until `shutdown`, then drains.
pub async fn serve_grpc(
    listener: TcpListener,
    edge: Edge,
    tls: Option<&Tls>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (closing, drain) = watch::channel(false);
    let tls = tls.map(|tls| tls.for_protocols(&["h2"]).into());
    let router = grpc::router(edge.clone(), drain.clone());
    let door = Door { tls, h2_only: true, ..Door::new("grpc", &edge, router, drain) };
    serve(Listener::tcp(listener, &door)?, door, closing, shutdown).await
}

/// What a door listens on.
enum Listener {
    Tcp(TcpListener),
    Unix(SocketFile, Arc<Peers>),
}

/// A connection that was taken.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream, Arc<Peers>),
}

impl Listener {
    fn tcp(listener: TcpListener, door: &Door) -> Result<Self, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        check_listen(addr, door.tls.is_some())?;
        Ok(Self::Tcp(listener))
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
            Self::Unix(socket, peers) => socket.accept().await.map(|stream| Stream::Unix(stream, Arc::clone(peers))),
        }
    }
}

#[derive(Clone)]
struct Door {
    name: &'static str,
    router: Router,
    tls: Option<TlsAcceptor>,
    h2_only: bool,
    /// How long a client may take to begin.
    head_within: Duration,
    drain: watch::Receiver<bool>,
}

async fn serve(
    listener: Listener,
    door: Door,
    closing: watch::Sender<bool>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed, so there is always a place in the end.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (place, accepted) = accepted => match accepted {
                Ok(stream) => {
                    let door = door.clone();
                    connections.spawn(async move {
                        let _place = place;
                        door.attend(stream).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, door = door.name, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(true);
    let drained = timeout(DRAIN_WITHIN, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(door = door.name, left = connections.len(), "the drain took too long; connections are cut");
        connections.shutdown().await;
    }
    Ok(())
}

/// Returns when the door is to close.
pub(crate) async fn told(mut drain: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = drain.wait_for(|closing| *closing).await;
}

impl Door {
    fn new(name: &'static str, edge: &Edge, router: Router, drain: watch::Receiver<bool>) -> Self {
        Self { name, router, tls: None, h2_only: false, head_within: edge.head_within(), drain }
    }

    async fn attend(self, stream: Stream) {
        let _connected = Connected::new(self.name);
        match stream {
            Stream::Tcp(stream) => self.attend_tcp(stream).await,
            Stream::Unix(stream, peers) => self.attend_unix(stream, &peers).await,
        }
    }

    async fn attend_unix(self, stream: UnixStream, peers: &Peers) {
        let peer = match stream.peer_cred() {
            Ok(process) => peers.recognize(process.uid(), process.gid()),
            Err(error) => return tracing::debug!(%error, door = self.name, "a peer has no credentials"),
        };
        self.attend_opened(stream, Some(peer)).await;
    }

    async fn attend_tcp(self, stream: TcpStream) {
        // Answers are small and awaited: waiting to fill a segment only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            return self.attend_opened(stream, None).await;
        };
        match timeout(self.head_within, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.attend_opened(stream, None).await,
            Ok(Err(error)) => tracing::debug!(%error, door = self.name, "a TLS handshake failed"),
            Err(_) => tracing::debug!(door = self.name, "a TLS handshake took too long"),
        }
    }

    /// Goes on with a client that shows in time, and before the door is told to close, which HTTP it speaks.
    async fn attend_opened(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, peer: Option<Peer>) {
        let opened = tokio::select! {
            () = told(self.drain.clone()) => return,
            opened = timeout(self.head_within, opening::open(stream)) => opened,
        };
        match opened {
            Ok(Ok(Some(Opened { http2, stream }))) if http2 || !self.h2_only => {
                self.drive(stream, http2, peer).await;
            }
            Ok(Ok(Some(_))) => tracing::debug!(door = self.name, "a client does not speak HTTP/2"),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, door = self.name, "a connection ended before it began"),
            Err(_) => tracing::debug!(door = self.name, "a client took too long to begin"),
        }
    }

    async fn drive(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static, http2: bool, peer: Option<Peer>) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(H1_HEAD_WITHIN);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(H2_STREAMS_MAX)
            .keep_alive_interval(H2_PING_EVERY)
            .keep_alive_timeout(H2_PING_WITHIN);
        let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
        let service = MapRequest::new(self.router, move |mut request: Request<Incoming>| {
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            request
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = told(self.drain) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, door = self.name, "a connection ended badly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_host() {
        for (addr, plain) in [
            ("127.0.0.1:8080", true),
            ("127.9.9.9:1", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:8080", false),
            ("[::]:8080", false),
            ("10.0.0.7:8080", false),
            ("[2001:db8::1]:80", false),
        ] {
            let addr: SocketAddr = addr.parse().unwrap();
            assert_eq!(check_listen(addr, false).is_ok(), plain, "{addr}");
            assert!(check_listen(addr, true).is_ok(), "{addr}");
        }
    }
}
