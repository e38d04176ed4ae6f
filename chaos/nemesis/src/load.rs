//! The load: clients that ask, act and report, some of which die between the phases and come back; and an operator
//! with the kill switch.
//! Absent on purpose: patience with wrong answers. What no correct cluster says goes into the journal as an oddity.

mod flows;
mod operator;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::doors::{Doors, Said, text};
use crate::journal::{Answered, Journal, Told, position};
use crate::requests;
use crate::secrets;

pub use operator::set_switch;

/// How much load there is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub clients: usize,
    /// Between two flows of one client.
    pub pause: Duration,
    /// Between two episodes of the kill switch; none without.
    pub switch_every: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { clients: 6, pause: Duration::from_millis(60), switch_every: Some(Duration::from_secs(5)) }
    }
}

/// How long one attempt may take before the client asks elsewhere.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Between two attempts at one call.
const BACKOFF: Duration = Duration::from_millis(30);

/// How long a client goes on after the run ended, for an answer that it waits for.
const LAST_ANSWERS: Duration = Duration::from_secs(40);

/// Held by whoever engages the kill switch, until its release: the cluster has one switch, and a release by somebody
/// else would make later permits right.
pub type Hand = Arc<tokio::sync::Mutex<()>>;

/// What one client works with.
#[derive(Debug)]
struct Client {
    token: String,
    doors: Doors,
    journal: Arc<Journal>,
    dice: Dice,
    nodes: Arc<RwLock<Vec<u64>>>,
    stop: Arc<AtomicBool>,
    switch: Hand,
    pause: Duration,
    /// Bodies that were answered, to be asked again.
    past: Vec<Value>,
    /// Permits whose client died after the act: when it comes back, it reports them.
    journaled: Vec<(Instant, String)>,
}

/// The running load.
#[derive(Debug)]
pub struct Load {
    nodes: Arc<RwLock<Vec<u64>>>,
    stop: Arc<AtomicBool>,
    switch: Hand,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients against `nodes`.
    pub fn start(
        folder: &Path,
        journal: &Arc<Journal>,
        nodes: &[u64],
        pace: Pace,
        dice: &mut Dice,
    ) -> anyhow::Result<Self> {
        let nodes = Arc::new(RwLock::new(nodes.to_vec()));
        let stop = Arc::new(AtomicBool::new(false));
        let switch = Hand::default();
        let mut tasks = Vec::new();
        let client = |number: usize, seed: u64| {
            anyhow::Ok(Client {
                token: secrets::token(number),
                doors: Doors::new(folder, PATIENCE)?,
                journal: Arc::clone(journal),
                dice: Dice::new(seed),
                nodes: Arc::clone(&nodes),
                stop: Arc::clone(&stop),
                switch: Arc::clone(&switch),
                pause: pace.pause,
                past: Vec::new(),
                journaled: Vec::new(),
            })
        };
        for number in 0..pace.clients.min(secrets::CLIENTS_MAX) {
            tasks.push(tokio::spawn(client(number, dice.below(u64::MAX))?.run()));
        }
        if let Some(every) = pace.switch_every {
            tasks.push(tokio::spawn(client(0, dice.below(u64::MAX))?.operate(every)));
        }
        Ok(Self { nodes, stop, switch, tasks })
    }

    /// Whom the clients ask from now on.
    pub fn ask(&self, nodes: &[u64]) {
        *self.nodes.write() = nodes.to_vec();
    }

    /// The kill switch, for a campaign that sets it itself.
    pub fn switch(&self) -> Hand {
        Arc::clone(&self.switch)
    }

    /// Ends the load: clients finish what they wait for.
    pub async fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + LAST_ANSWERS + Duration::from_secs(10);
        for task in self.tasks {
            tokio::time::timeout_at(deadline, task).await??;
        }
        Ok(())
    }
}

impl Client {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn node(&mut self) -> u64 {
        let nodes = self.nodes.read().clone();
        self.dice.pick(&nodes).copied().unwrap_or(1)
    }

    async fn run(mut self) {
        while !self.stopped() {
            let begun = Instant::now();
            self.come_back().await;
            self.flow().await;
            tokio::time::sleep(self.pause.saturating_sub(begun.elapsed() / 4)).await;
        }
    }

    /// Asks until there is an answer: the same body, any node. `None` when the run ended before.
    async fn decide(&mut self, body: &Value) -> Option<Answered> {
        self.journal.decide_sent(body);
        let mut ended = None;
        loop {
            if let Some(answered) = self.decide_once(body).await {
                self.past.push(body.clone());
                return Some(answered);
            }
            if self.stopped() && *ended.get_or_insert_with(Instant::now) + LAST_ANSWERS < Instant::now() {
                self.journal.odd(format!("request {} had no answer from a healed cluster", text(body, "request_id")));
                return None;
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// One attempt at any node.
    async fn decide_once(&mut self, body: &Value) -> Option<Answered> {
        let node = self.node();
        ask(&self.doors, &self.journal, &self.token, node, body).await
    }

    /// Reports until there is an answer.
    async fn report(&mut self, permit: &str, outcome: &str, no_effect: bool) {
        let body = requests::report(permit, outcome, no_effect);
        let mut ended = None;
        loop {
            let (node, sent) = (self.node(), self.journal.now());
            let said = self.doors.call(node, "POST", "/v1/report", &self.token, Some(&body)).await;
            self.journal.attempt(sent, matches!(said, Said::Answer(..)));
            match said {
                Said::Answer(200, body) => {
                    let told = if body.get("accepted").and_then(Value::as_bool) == Some(true) {
                        Told::Accepted { evidence: position(text(&body, "evidence_id")) }
                    } else {
                        Told::Refused { reason: text(&body, "reason").to_owned() }
                    };
                    self.journal.reported(permit, sent, told);
                    return;
                }
                Said::Answer(status, body) => {
                    self.journal.odd(format!("a report was answered {status}: {body}"));
                    return;
                }
                Said::Unknown => self.journal.reported(permit, sent, Told::Unknown),
                Said::Nothing => {}
            }
            if self.stopped() && *ended.get_or_insert_with(Instant::now) + LAST_ANSWERS < Instant::now() {
                return;
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }
}

/// One attempt of a decide at one node, noted in the journal.
pub async fn ask(doors: &Doors, journal: &Journal, token: &str, node: u64, body: &Value) -> Option<Answered> {
    let (request, sent) = (text(body, "request_id"), journal.now());
    // A client that stops waiting in the middle of this leaves something that may have happened.
    let mut unknown = MaybeHappened { journal, request, armed: true };
    let said = doors.call(node, "POST", "/v1/decide", token, Some(body)).await;
    journal.attempt(sent, matches!(said, Said::Answer(..)));
    unknown.armed = matches!(said, Said::Unknown);
    match said {
        Said::Answer(200, body) => Some(journal.decide_answered(node, request, &body)),
        Said::Answer(status, body) => {
            journal.odd(format!("a decide was answered {status} by node {node}: {body}"));
            None
        }
        Said::Unknown | Said::Nothing => None,
    }
}

struct MaybeHappened<'a> {
    journal: &'a Journal,
    request: &'a str,
    armed: bool,
}

impl Drop for MaybeHappened<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.journal.decide_unknown(self.request);
        }
    }
}
