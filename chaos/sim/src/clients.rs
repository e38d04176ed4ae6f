//! Who uses the cluster: agents that decide, act and report, people who approve, an operator at the switch, a reader.
//! A call without an answer is unknown, never absent: whoever made it asks again with the same request id.

mod agent;
mod people;

use std::time::Duration;

use parking_lot::Mutex;
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Reject};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::entropy::Rng;
use crate::properties::Told;
use crate::world::World;

/// The longest that a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Somebody who can call.
pub struct Client {
    world: World,
    principal: String,
    rng: Mutex<Rng>,
    /// Set when clients should come to an end.
    done: watch::Receiver<bool>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.principal)
    }
}

impl Client {
    /// A client by its principal.
    pub fn new(world: &World, principal: &str, done: watch::Receiver<bool>) -> Self {
        let rng = Mutex::new(Rng::new(world.seed(), principal));
        Self { world: world.clone(), principal: principal.to_owned(), rng, done }
    }

    fn chance(&self, of_thousand: u64) -> bool {
        self.rng.lock().chance(of_thousand)
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        self.rng.lock().within(from, to)
    }

    /// Waits for a while. `false` when it is time to end.
    async fn pause(&self, from_ms: u64, to_ms: u64) -> bool {
        let wait = self.rng.lock().millis(from_ms, to_ms);
        sleep(wait).await;
        !*self.done.borrow()
    }

    /// Asks some node. `None` when no answer came.
    pub async fn call(&self, op: Op) -> Option<Result<Answer, Reject>> {
        let ids = self.world.ids();
        let id = *self.rng.lock().pick(&ids)?;
        self.call_at(id, op).await
    }

    /// Asks one node.
    async fn call_at(&self, id: u64, op: Op) -> Option<Result<Answer, Reject>> {
        let sent = Instant::now();
        self.world.ask(&op);
        let (there, back) = {
            let mut rng = self.rng.lock();
            (rng.millis(0, 3), rng.millis(0, 3))
        };
        sleep(there).await;
        let Some((life, node)) = self.world.running(id) else {
            return Some(Err(Reject::Unavailable { detail: "nobody listens".to_owned() }));
        };
        let (answered, answer) = oneshot::channel();
        let call = Call { principal: Principal::new(self.principal.as_str()), op: op.clone() };
        let (world, alive) = (self.world.clone(), life.clone());
        // The node goes on when this client stops to wait.
        tokio::spawn(async move {
            let answer = node.submit(call).await;
            if alive.alive() {
                let copies = answer.as_ref().ok().and_then(|answer| world.copies(answer, id));
                // Nobody waits any more.
                let _ = answered.send((answer, copies));
            }
        });
        let arrived = tokio::time::timeout(PATIENCE, answer).await.ok().and_then(Result::ok);
        sleep(back).await;
        let (answer, copies) = arrived.map_or((None, None), |(answer, copies)| (Some(answer), copies));
        self.world.note(|| format!("{} {} at node {id}: {}", self.principal, op.name(), brief(answer.as_ref())));
        self.world.tell(&Told { principal: self.principal.clone(), op, sent, answer: answer.clone(), copies });
        answer
    }
}

fn brief(answer: Option<&Result<Answer, Reject>>) -> String {
    match answer {
        None => "no answer".to_owned(),
        Some(Ok(Answer::Decide(reply))) => format!("{} {}", reply.verdict.as_str(), reply.evidence_id),
        Some(Ok(Answer::Report(reply))) => format!("accepted {} {}", reply.accepted, reply.evidence_id),
        Some(Ok(_)) => "answered".to_owned(),
        Some(Err(reject)) => format!("{}: {}", reject.code(), reject.detail()),
    }
}

/// Whether a call may have happened although it has no good answer.
fn unknown(answer: Option<&Result<Answer, Reject>>) -> bool {
    matches!(answer, None | Some(Err(Reject::Unknown { .. } | Reject::Internal { .. })))
}

/// Starts everyone.
pub fn start(world: &World, agents: u64, done: &watch::Sender<bool>) -> tokio::task::JoinSet<()> {
    let mut everyone = tokio::task::JoinSet::new();
    for number in 1..=agents {
        everyone.spawn(agent::live(Client::new(world, &format!("agent:{number}"), done.subscribe()), number));
    }
    for name in crate::policy::BOARD {
        everyone.spawn(people::approve(Client::new(world, name, done.subscribe())));
    }
    everyone.spawn(people::operate(Client::new(world, "ops:switch", done.subscribe())));
    everyone.spawn(people::read(Client::new(world, "audit:reader", done.subscribe())));
    everyone
}
