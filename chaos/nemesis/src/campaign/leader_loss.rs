//! Leader loss: the leader is killed, and the time is taken until a decide succeeds again, with default timeouts.
//! Absent on purpose: help. Nobody is told who led; clients ask the nodes that are left.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Place;
use crate::doors::Doors;
use crate::journal::Journal;
use crate::load;
use crate::requests;
use crate::run::Run;
use crate::secrets;
use crate::summary::Summary;

/// Clients at each node that is left, each with one decide at a time.
const PROBES: u64 = 2;

/// Between two probes of one client.
const EVERY: Duration = Duration::from_millis(5);

/// What is promised.
pub const PROMISED: Duration = Duration::from_secs(2);

/// Kills `count` leaders.
pub async fn run(place: &Place, count: u64) -> anyhow::Result<Summary> {
    let mut plan = place.plan("leader-loss");
    plan.pace.switch_every = None;
    let mut run = Run::start(plan).await?;
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(once(&mut run).await?);
    }
    times.sort_unstable();
    let at = |per_cent: usize| times.get((times.len() * per_cent / 100).min(times.len().saturating_sub(1))).copied();
    for (name, value) in [("median_ms", at(50)), ("p90_ms", at(90)), ("worst_ms", times.last().copied())] {
        run.figure(name, value.unwrap_or_default());
    }
    let late = times.iter().filter(|time| **time > PROMISED).count();
    if late > 0 {
        run.failures.push(format!(
            "{late} of {count} times decides took more than {} ms to succeed again",
            PROMISED.as_millis()
        ));
    }
    run.finish().await
}

/// Kills the leader of a cluster that is well; how long no decide succeeded.
async fn once(run: &mut Run) -> anyhow::Result<Duration> {
    let leader = run.leader().await?;
    // Anywhere between two heartbeats, and after the others have caught up.
    let settled = Duration::from_millis(600 + run.dice.below(300));
    tokio::time::sleep(settled).await;
    let left: Vec<u64> = run.cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let doors = Doors::new(run.cluster.folder(), Duration::from_secs(3))?;
    for id in &left {
        // A connection to each, as clients have.
        run.cluster.view(*id).await;
    }
    let bar = run.timeline.begin("kill -9 of the leader", leader);
    run.cluster.kill(leader)?;
    let killed = Instant::now();
    let mut probes = JoinSet::new();
    for node in left.iter().flat_map(|id| (0..PROBES).map(|_| *id)) {
        probes.spawn(probe(doors.clone(), Arc::clone(&run.journal), node));
    }
    let first = tokio::time::timeout(Duration::from_secs(30), probes.join_next()).await;
    let took = killed.elapsed();
    probes.shutdown().await;
    if first.is_err() {
        run.failures.push(format!("no decide succeeded for 30 s after leader {leader} was killed"));
    }
    run.cluster.spawn(leader, &[])?;
    run.cluster.serves(leader, Duration::from_secs(20)).await;
    run.timeline.end(bar);
    Ok(took)
}

/// Asks one node until a decide succeeds: each with an id of its own, tried once.
async fn probe(doors: Doors, journal: Arc<Journal>, node: u64) {
    let token = secrets::token(secrets::CLIENTS_MAX - 1);
    loop {
        let body = requests::decide("nobody.knows", &json!({}), None);
        journal.decide_sent(&body);
        if load::ask(&doors, &journal, &token, node, &body).await.is_some() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}
