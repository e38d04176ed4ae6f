//! One run: a cluster is founded, used and broken; then everything is healed, and it has to be well again.

use std::time::Duration;

use placet_core::op::{Answer, Op};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::clients::{self, Client};
use crate::faults;
use crate::policy::POLICY;
use crate::properties::End;
use crate::trace::Trace;
use crate::world::{Violation, World};

/// How long after the last fault a decide must be answered, and all nodes agree.
const BOUND: Duration = Duration::from_secs(30);

/// How long a cluster may take to be founded.
const FOUNDING: Duration = Duration::from_secs(20);

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first property that did not hold.
    pub violation: Option<Violation>,
    /// One number over the whole trace.
    pub digest: u64,
    /// Entries of evidence at the end.
    pub entries: u64,
    /// Intents among them.
    pub permits: u64,
    /// Lives of nodes that ended.
    pub crashes: u64,
    /// Frames that nodes exchanged.
    pub frames: u64,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
    /// Until a decide was answered after the last fault.
    pub recovered_ms: Option<u64>,
}

/// Runs one seed with faults for `faulty_ms` of simulated time.
pub async fn run(seed: u64, faulty_ms: u64, trace: Trace) -> anyhow::Result<Outcome> {
    let world = World::new(seed, trace)?;
    world.note(|| format!("seed {seed}: {:?}", world.tuning()));
    world.ids().into_iter().for_each(|id| world.keep_running(id));
    let (done, finished) = watch::channel(false);
    let root = Client::new(&world, "ops:root", finished.clone());
    let (mut recovered, mut converged) = (None, None);
    if found(&world, &root).await {
        let mut everyone = clients::start(&world, 4, &done);
        let faults = tokio::spawn(faults::play(world.clone(), finished));
        wait_unless_violated(&world, Duration::from_millis(faulty_ms)).await;
        faults.abort();
        faults::end(&world);
        if world.violation().is_none() {
            recovered = recover(&world, &root).await;
            done.send_replace(true);
            while everyone.join_next().await.is_some() {}
            set_switch_off(&world, &root).await;
            converged = converge(&world).await;
        }
        everyone.abort_all();
    } else {
        world.violate("liveness", "a cluster on a whole network was not founded");
    }
    Ok(conclude(&world, recovered, converged))
}

fn conclude(world: &World, recovered_ms: Option<u64>, converged_ms: Option<u64>) -> Outcome {
    let (state, states) = (world.longest_state(), world.states_of_members());
    if world.violation().is_none() {
        let bound_ms = u64::try_from(BOUND.as_millis()).unwrap_or(u64::MAX);
        world.conclude(&End { state: &state, states: &states, recovered_ms, converged_ms, bound_ms });
    }
    world.note(|| format!("recovered {recovered_ms:?}, converged {converged_ms:?}, {} entries", state.entries.len()));
    Outcome {
        violation: world.violation(),
        digest: world.trace().digest(),
        entries: state.entries.len() as u64,
        permits: state.permits.len() as u64,
        crashes: world.lives().saturating_sub(world.ids().len() as u64),
        frames: world.net().frames(),
        simulated_ms: world.elapsed_ms(),
        recovered_ms,
    }
}

async fn wait_unless_violated(world: &World, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && world.violation().is_none() {
        sleep(Duration::from_millis(50)).await;
    }
}

async fn found(world: &World, root: &Client) -> bool {
    let until = Instant::now() + FOUNDING;
    while Instant::now() < until && world.violation().is_none() {
        let op = Op::PublishPolicy { document: POLICY.to_owned(), expect: None, activate: true };
        match root.call(op).await {
            Some(Ok(Answer::PolicyPublished(_))) => return true,
            Some(Err(reject)) if reject.code() == "policy_mistakes" => {
                world.violate("harness", &format!("{reject:?}"));
                return false;
            }
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    false
}

/// Milliseconds until a decide is answered.
async fn recover(world: &World, root: &Client) -> Option<u64> {
    let begun = Instant::now();
    for attempt in 0.. {
        if begun.elapsed() > BOUND || world.violation().is_some() {
            return None;
        }
        let body = format!(
            r#"{{"protocol":"aadp/0.2","request_id":"ffffffff-0000-4000-8000-{attempt:012x}","action_type":"act",
            "params":{{}},"source":"llm","rationale":"well again","created_at":"2026-08-17T09:00:00Z"}}"#
        );
        if let Some(Ok(Answer::Decide(_))) = root.call(Op::Decide(body.into_bytes())).await {
            return Some(millis_since(begun));
        }
        sleep(Duration::from_millis(50)).await;
    }
    None
}

async fn set_switch_off(world: &World, root: &Client) {
    let begun = Instant::now();
    while begun.elapsed() < BOUND && world.violation().is_none() {
        let op = Op::SetKillSwitch { engaged: false, origin: "simulation".to_owned(), note: None, scope: None };
        if let Some(Ok(Answer::KillSwitch(_))) = root.call(op).await {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Milliseconds until all nodes have applied the same and nothing is open any more.
async fn converge(world: &World) -> Option<u64> {
    let begun = Instant::now();
    while begun.elapsed() < BOUND && world.violation().is_none() {
        if world.agrees() {
            return Some(millis_since(begun));
        }
        sleep(Duration::from_millis(50)).await;
    }
    world.describe();
    None
}

fn millis_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
