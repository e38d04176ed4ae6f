//! `kill -9` of random nodes under load, one after the other, restarted at once.
//! Absent on purpose: waiting for the cluster to be well again before the next.

use std::time::Duration;

use tokio::time::Instant;

use super::Place;
use crate::run::Run;
use crate::summary::Summary;

/// Between two kills.
const EVERY: Duration = Duration::from_millis(1500);

/// Kills `count` nodes.
pub async fn run(place: &Place, count: u64) -> anyhow::Result<Summary> {
    let mut run = Run::start(place.plan("kills")).await?;
    let struck = strike(&mut run, count).await;
    run.finish_after(struck).await
}

/// The kills, in a run that goes on.
pub async fn strike(run: &mut Run, count: u64) -> anyhow::Result<()> {
    let mut next = Instant::now();
    for _ in 0..count {
        next += EVERY;
        let ids = run.cluster.ids();
        let node = run.pick(&ids);
        let fault = run.timeline.begin("kill -9", node);
        run.cluster.kill(node)?;
        if run.dice.one_in(4) {
            // Sometimes it stays away until there is another leader.
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        run.cluster.spawn(node, &[])?;
        run.timeline.end(fault);
        run.restart_ended(false)?;
        let jitter = Duration::from_millis(run.dice.below(500));
        tokio::time::sleep_until(next + jitter).await;
    }
    Ok(())
}
