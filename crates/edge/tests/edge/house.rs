//! Both doors on loopback, port chosen by the system, with one token per role.

use std::net::SocketAddr;
use std::sync::Arc;

use placet_core::cluster::HealthStatus;
use placet_edge::roles::Role;
use placet_edge::{Edge, Keyring, ServeError, Tls, serve_grpc, serve_http};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::fake::Fake;

pub(crate) struct House {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) fake: Arc<Fake>,
    pub(crate) edge: Edge,
    stop: watch::Sender<bool>,
    doors: Vec<JoinHandle<Result<(), ServeError>>>,
}

pub(crate) fn token(role: Role) -> String {
    format!("a-token-to-{}-0123456789", role.as_str())
}

pub(crate) const ALL: &str = "a-token-for-everything-0123456789";

pub(crate) fn keyring() -> Keyring {
    let mut entries: Vec<String> = Role::ALL
        .into_iter()
        .map(|role| {
            let word = role.as_str();
            format!(r#"{{"principal":"{word}r","roles":["{word}"],"token":"{}"}}"#, token(role))
        })
        .collect();
    let digest = placet_core::ids::Hash::of(ALL.as_bytes());
    entries.push(format!(
        r#"{{"principal":"root","roles":["decide","approve","operate","policy","audit"],"token_blake3":"{digest}"}}"#
    ));
    Keyring::parse(&format!("[{}]", entries.join(","))).unwrap()
}

impl House {
    pub(crate) async fn open() -> Self {
        Self::with(None, |edge| edge).await
    }

    pub(crate) async fn with(tls: Option<Tls>, change: impl FnOnce(Edge) -> Edge) -> Self {
        let fake = Arc::new(Fake::default());
        let edge = change(Edge::new(fake.clone(), keyring()).with_metrics(Arc::new(|| "placet_up 1\n".to_owned())));
        let (http, grpc) = (bind().await, bind().await);
        let addresses = (http.local_addr().unwrap(), grpc.local_addr().unwrap());
        let stop = watch::Sender::new(false);
        let mut doors = Vec::new();
        let (at, said, secured) = (edge.clone(), stopped(&stop), tls.clone());
        doors.push(tokio::spawn(async move { serve_http(http, at, secured.as_ref(), said).await }));
        let (at, said) = (edge.clone(), stopped(&stop));
        doors.push(tokio::spawn(async move { serve_grpc(grpc, at, tls.as_ref(), said).await }));
        Self { http: addresses.0, grpc: addresses.1, fake, edge, stop, doors }
    }

    /// Tells both doors to close.
    pub(crate) fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until both are closed.
    pub(crate) async fn closed(self) {
        for door in self.doors {
            door.await.unwrap().unwrap();
        }
    }

    pub(crate) fn sick(&self) {
        *self.fake.status.lock().unwrap() = HealthStatus::NoLeader;
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn stopped(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + use<> {
    let mut said = stop.subscribe();
    async move {
        let _ = said.wait_for(|stop| *stop).await;
    }
}
