//! The network between nodes: their real gRPC messages, carried frame by frame in simulated time.
//!
//! Frames of one call arrive in order, as on a connection; calls overtake each other. Links are cut in one direction or
//! both, lose a connection's frames without a word, are slow, or deliver a stale copy of what Raft said long ago.
//! Absent on purpose: bytes below HTTP/2, whose job is to make a connection of packets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use placet_replica::{Dial, PeerService, PeerWire};
use placet_wire::peer::peer_server::PeerServer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tower::Service;

use crate::entropy::Rng;
use crate::life::Life;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Frame = http_body::Frame<Bytes>;
type Request = http::Request<Body>;
type Response = http::Response<Body>;
type Outgoing = mpsc::Sender<Result<Frame, tonic::Status>>;

/// A connection over a cut or silent link is given up after this, as keep-alive pings do it.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Frames on their way in one direction of one call.
const WINDOW: usize = 64;

/// Frames of a call that a stale copy repeats at most.
const STALE_FRAMES: usize = 8;

/// What the network is like.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// A frame takes at least this many milliseconds.
    pub least_ms: u64,
    /// And at most this many.
    pub most_ms: u64,
    /// Calls of a thousand whose frames vanish.
    pub lost: u64,
    /// Calls of a thousand that are heard a second time, later.
    pub doubled: u64,
}

impl Weather {
    /// Nothing happens.
    pub const CALM: Self = Self { least_ms: 0, most_ms: 2, lost: 0, doubled: 0 };
}

/// The network of one run; cheap to clone.
#[derive(Clone)]
pub struct Net(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Counts changes of the links, so that who waits for one looks again.
    changes: watch::Sender<u64>,
}

struct State {
    rng: Rng,
    doors: BTreeMap<u64, (Life, PeerServer<PeerService>)>,
    cuts: BTreeSet<(u64, u64)>,
    weather: Weather,
    frames: u64,
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: u64,
    to: u64,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    /// Calm and whole.
    pub fn new(rng: Rng) -> Self {
        let state = State { rng, doors: BTreeMap::new(), cuts: BTreeSet::new(), weather: Weather::CALM, frames: 0 };
        Self(Arc::new(Inner { state: Mutex::new(state), changes: watch::Sender::new(0) }))
    }

    /// Puts a node behind its address.
    pub fn open_door(&self, life: Life, service: PeerServer<PeerService>) {
        self.0.state.lock().doors.insert(life.node(), (life, service));
    }

    /// The way from a node to its peers.
    pub fn dial(&self, life: Life) -> Dial {
        let net = self.clone();
        Dial::new(move |to, _address| {
            let (net, life) = (net.clone(), life.clone());
            PeerWire::new(tower::service_fn(move |request: Request| net.clone().call(life.clone(), to, request)))
        })
    }

    /// Sets what the network is like.
    pub fn set_weather(&self, weather: Weather) {
        self.0.state.lock().weather = weather;
    }

    /// Cuts one direction.
    pub fn cut(&self, from: u64, to: u64) {
        self.0.state.lock().cuts.insert((from, to));
        self.note_change();
    }

    /// Makes every link whole.
    pub fn heal(&self) {
        self.0.state.lock().cuts.clear();
        self.note_change();
    }

    /// Frames that arrived.
    pub fn frames(&self) -> u64 {
        self.0.state.lock().frames
    }

    fn note_change(&self) {
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    fn is_cut(&self, link: Link) -> bool {
        self.0.state.lock().cuts.contains(&(link.from, link.to))
    }

    fn latency(&self) -> Duration {
        let mut state = self.0.state.lock();
        let Weather { least_ms, most_ms, .. } = state.weather;
        state.rng.millis(least_ms, most_ms)
    }

    /// Waits until `link` is whole. `false` when that takes longer than a connection lives.
    async fn whole(&self, link: Link) -> bool {
        let mut changes = self.0.changes.subscribe();
        let deadline = Instant::now() + KEEPALIVE;
        while self.is_cut(link) {
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return false;
            }
        }
        true
    }

    fn door(&self, id: u64) -> Option<(Life, PeerServer<PeerService>)> {
        self.0.state.lock().doors.get(&id).filter(|(life, _)| life.alive()).cloned()
    }

    async fn call(self, from: Life, to: u64, request: Request) -> Result<Response, BoxError> {
        let (there, back) = (Link { from: from.node(), to }, Link { from: to, to: from.node() });
        if !from.count() {
            return std::future::pending().await;
        }
        sleep(self.latency()).await;
        if !self.whole(there).await {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let Some((life, mut door)) = self.door(to) else {
            sleep(self.latency()).await;
            return Err(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        };
        let (lost, doubled) = {
            let mut state = self.0.state.lock();
            let Weather { lost, doubled, .. } = state.weather;
            (state.rng.chance(lost), state.rng.chance(doubled))
        };
        let (parts, body) = request.into_parts();
        // Only Raft's own messages may be heard twice: nothing repeats a call of a client on a connection.
        let raft = ["/Append", "/Vote", "/PreVote"].iter().any(|name| parts.uri.path().ends_with(name));
        let stale = (doubled && raft).then(|| Arc::new(Mutex::new(Vec::new())));
        let arriving = self.carry(body, there, from.clone(), life.clone(), lost, stale.clone());
        if let Some(frames) = stale {
            tokio::spawn(self.clone().repeat(to, copy_of(&parts), frames));
        }
        let (answer, answered) = oneshot::channel();
        let (net, caller) = (self.clone(), from.clone());
        tokio::spawn(async move {
            let Ok(response) = door.call(http::Request::from_parts(parts, arriving)).await;
            let (head, body) = response.into_parts();
            if !life.count() || lost {
                // Held, so that the caller hears nothing, until it gives up.
                sleep(KEEPALIVE).await;
                return;
            }
            sleep(net.latency()).await;
            if net.whole(back).await {
                let leaving = net.carry(body, back, life, caller, false, None);
                // Nobody waits any more.
                let _ = answer.send(http::Response::from_parts(head, leaving));
            }
        });
        answered.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset).into())
    }

    /// A body that arrives at the other end of `link`.
    fn carry(
        &self,
        mut body: Body,
        link: Link,
        from: Life,
        to: Life,
        lost: bool,
        copy: Option<Arc<Mutex<Vec<Bytes>>>>,
    ) -> Body {
        let (sent, mut arriving) = mpsc::channel::<(Instant, Option<Frame>)>(WINDOW);
        let (out, received) = mpsc::channel(1);
        let net = self.clone();
        let (sender, gone) = (from, out.clone());
        tokio::spawn(async move {
            let mut at = Instant::now();
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = gone.closed() => return,
                    () = sender.ended() => return,
                };
                let Ok(frame) = frame.transpose() else { return };
                // A frame of a life that is over was never sent.
                if !sender.count() {
                    return;
                }
                if let (Some(kept), Some(bytes)) = (&copy, frame.as_ref().and_then(|frame| frame.data_ref())) {
                    let mut kept = kept.lock();
                    if kept.len() < STALE_FRAMES {
                        kept.push(bytes.clone());
                    }
                }
                at = at.max(Instant::now() + net.latency());
                let last = frame.is_none();
                if sent.send((at, frame)).await.is_err() || last {
                    return;
                }
            }
        });
        let net = self.clone();
        tokio::spawn(async move { net.deliver(link, to, lost, &mut arriving, out).await });
        Body::new(StreamBody::new(
            Box::pin(ReceiverStream::new(received)) as Pin<Box<dyn futures::Stream<Item = _> + Send>>
        ))
    }

    async fn deliver(
        &self,
        link: Link,
        to: Life,
        lost: bool,
        arriving: &mut mpsc::Receiver<(Instant, Option<Frame>)>,
        out: Outgoing,
    ) {
        while let Some((at, frame)) = arriving.recv().await {
            sleep_until(at).await;
            if lost {
                sleep(KEEPALIVE).await;
                break;
            }
            if !self.whole(link).await || !to.alive() {
                break;
            }
            let Some(frame) = frame else { return };
            self.0.state.lock().frames += 1;
            if out.send(Ok(frame)).await.is_err() {
                return;
            }
        }
        // Without its end the body is one that broke.
        let _ = out.send(Err(tonic::Status::unavailable("the connection was reset"))).await;
    }

    /// Says again, later, what was said: what lay in a buffer somewhere.
    async fn repeat(self, to: u64, head: Request, frames: Arc<Mutex<Vec<Bytes>>>) {
        let wait = self.0.state.lock().rng.millis(5, 3000);
        sleep(wait).await;
        let frames = std::mem::take(&mut *frames.lock());
        let Some((_, mut door)) = self.door(to) else { return };
        let stream = futures::stream::iter(frames.into_iter().map(|bytes| Ok::<_, tonic::Status>(Frame::data(bytes))));
        let request = head.map(|_| Body::new(StreamBody::new(stream)));
        let Ok(response) = door.call(request).await;
        let mut answers = response.into_body().into_data_stream();
        while answers.next().await.is_some() {}
    }
}

fn copy_of(parts: &http::request::Parts) -> Request {
    let mut copy = http::Request::new(Body::empty());
    *copy.method_mut() = parts.method.clone();
    *copy.uri_mut() = parts.uri.clone();
    *copy.version_mut() = parts.version;
    *copy.headers_mut() = parts.headers.clone();
    copy
}
