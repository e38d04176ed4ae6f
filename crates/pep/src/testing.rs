//! A decision point in this process, for tests of programs that enforce: the real decision core behind a real socket,
//! and switches for everything that can go wrong on the way.
//! Absent on purpose: durability, consensus, roles and approvers; that is the server's. Feature `testing`.

mod door;
mod judge;
mod scene;

pub use scene::{EXAMPLE_POLICIES, Scene};

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use placet_core::policy::Document;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use judge::Judge;

/// The bearer token that a [`LocalPdp`] accepts.
const TOKEN: &str = "token-of-the-local-decision-point";

/// What goes wrong with one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing happens; this answer is given.
    Answer {
        /// HTTP status.
        status: u16,
        /// Body, as it is.
        body: String,
    },
    /// It happens, and the answer is lost on the way.
    LoseAnswer,
    /// It happens, and the answer waits until the caller has given up.
    Hang,
}

type Rewrite = Box<dyn Fn(&mut Value) + Send + Sync>;

/// What the doors share.
#[derive(Default)]
struct Shared {
    judge: Judge,
    /// By path: one fault for each coming call.
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// By path: the bodies that arrived, also those that met a fault.
    received: BTreeMap<String, Vec<Value>>,
    rewrite: Option<Rewrite>,
}

/// A running decision point. Dropped, it is gone.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> std::io::Result<()> {
/// use placet_pep::testing::LocalPdp;
///
/// let mut pdp = LocalPdp::start("policies: [{ action_type: read.status, tier: 0 }]").await?;
/// assert!(pdp.url().starts_with("http://127.0.0.1:"));
/// pdp.stop().await;
/// pdp.resume().await?;
/// # Ok(())
/// # }
/// ```
pub struct LocalPdp {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    stop: watch::Sender<bool>,
    doors: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for LocalPdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPdp").field("address", &self.address).finish_non_exhaustive()
    }
}

impl LocalPdp {
    /// Starts one under a policy document in YAML, on a port that the system chooses.
    pub async fn start(policies: &str) -> io::Result<Self> {
        Self::start_edited(policies, |_| ()).await
    }

    /// Starts one under a document that is changed past the loader, for what the loader refuses.
    pub async fn start_edited(policies: &str, edit: impl FnOnce(&mut Document)) -> io::Result<Self> {
        let judge = Judge::under(policies, edit).map_err(io::Error::other)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut pdp = Self {
            address: listener.local_addr()?,
            shared: Arc::new(Mutex::new(Shared { judge, ..Shared::default() })),
            stop: watch::Sender::new(false),
            doors: Vec::new(),
        };
        pdp.doors.push(door::open(listener, Some(TOKEN), pdp.shared.clone(), pdp.stop.subscribe()));
        Ok(pdp)
    }

    /// Also serves on a Unix socket, where the process is the identity: a call with a token is refused, as the server
    /// does.
    #[cfg(unix)]
    pub fn listen_on_socket(&mut self, path: &Path) -> io::Result<()> {
        let listener = tokio::net::UnixListener::bind(path)?;
        self.doors.push(door::open(listener, None, self.shared.clone(), self.stop.subscribe()));
        Ok(())
    }

    /// An endpoint for the builder.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bearer token for the builder.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Closes all doors and connections. What it knows stays.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        for door in self.doors.drain(..) {
            let _ = door.await;
        }
    }

    /// Opens the door again on the same port.
    pub async fn resume(&mut self) -> io::Result<()> {
        self.stop.send_replace(false);
        let listener = TcpListener::bind(self.address).await?;
        self.doors.push(door::open(listener, Some(TOKEN), self.shared.clone(), self.stop.subscribe()));
        Ok(())
    }

    /// The next call of `path` (such as `/v1/decide`) meets this fault; several are met in order.
    pub fn fault(&self, path: &str, fault: Fault) {
        self.shared().faults.entry(path.to_owned()).or_default().push_back(fault);
    }

    /// No coming call meets a fault.
    pub fn clear_faults(&self) {
        self.shared().faults.clear();
    }

    /// Changes every decide answer on its way out.
    pub fn rewrite_decisions(&self, rewrite: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.shared().rewrite = Some(Box::new(rewrite));
    }

    /// Engages or releases the kill switch.
    pub fn set_kill_switch(&self, engaged: bool) {
        self.shared().judge.set_kill_switch(engaged);
    }

    /// Grants an approval and resumes its proposal at once, as an approver would; returns the id of the new request,
    /// for [`crate::Action::resumed`].
    pub fn approve(&self, approval_id: &str) -> io::Result<String> {
        self.shared().judge.approve(approval_id).map_err(io::Error::other)
    }

    /// The bodies that arrived at `path`, in order, also those that met a fault.
    pub fn received(&self, path: &str) -> Vec<Value> {
        self.shared().received.get(path).cloned().unwrap_or_default()
    }

    /// The outcomes that became results of permits, in order.
    pub fn results(&self) -> Vec<String> {
        self.shared().judge.results()
    }

    /// All evidence entries, in order.
    pub fn evidence(&self) -> Vec<Value> {
        self.shared().judge.evidence()
    }

    /// The acts that were decided without it, in the order in which it took them.
    pub fn local_acts(&self) -> Vec<Value> {
        self.shared().judge.local_acts().to_vec()
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

impl Drop for LocalPdp {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
