//! What carries calls to one peer: a TCP channel, or whatever the options dial.
//! Absent on purpose: what is said (`client`, `server`).

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::transport::Channel;
use tower::Service;
use tower::util::BoxCloneSyncService;

type BoxError = Box<dyn Error + Send + Sync>;
type Request = http::Request<Body>;
type Response = http::Response<Body>;

/// A way to one peer that is not TCP: takes the gRPC calls of this node as HTTP requests.
pub type PeerWire = BoxCloneSyncService<Request, Response, BoxError>;

/// Opens ways to peers by id and address, instead of TCP: for simulation.
#[derive(Clone)]
pub struct Dial(Arc<Open>);

type Open = dyn Fn(u64, &str) -> PeerWire + Send + Sync;

impl Dial {
    /// `open` is called with the id and the address of a peer; it must not block.
    pub fn new(open: impl Fn(u64, &str) -> PeerWire + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(&self, id: u64, address: &str) -> PeerWire {
        (self.0)(id, address)
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// The way to one peer.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    Tcp(Channel),
    Dialled(PeerWire),
}

impl Service<Request> for Wire {
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Tcp(channel) => channel.poll_ready(context).map_err(Into::into),
            Self::Dialled(wire) => wire.poll_ready(context),
        }
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self {
            Self::Tcp(channel) => {
                let answer = channel.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
            Self::Dialled(wire) => wire.call(request),
        }
    }
}
