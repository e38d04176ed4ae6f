//! A rolling upgrade: nodes of the version before become this one, one after the other, under load. Newer log records are
//! written once every member reads them, and not before.
//! Absent on purpose: the way back, which is closed from then on.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{Place, rolling};
use crate::cluster::Cluster;
use crate::run::Run;
use crate::summary::Summary;

/// Load on each mixture of versions.
const MIXED_FOR: Duration = Duration::from_secs(5);

/// How long it may take until the leader has heard what the last node reads now, and has written a record.
const RAISED_WITHIN: Duration = Duration::from_secs(15);

/// What a leader logs when it begins to write another format.
const WRITES: &str = "log records are written in this format from here on";

/// Upgrades all nodes from the program `from`.
pub async fn run(place: &Place, from: PathBuf) -> anyhow::Result<Summary> {
    let mut plan = place.plan("upgrade");
    plan.pace.switch_every = None;
    plan.begins_with = Some(from);
    let mut run = Run::start(plan).await?;
    let struck = strike(&mut run).await;
    rolling::waits(&mut run);
    run.finish_after(struck).await
}

async fn strike(run: &mut Run) -> anyhow::Result<()> {
    tokio::time::sleep(MIXED_FOR).await;
    for node in run.cluster.ids() {
        if writes_newer(&run.cluster) {
            run.failures.push(format!("newer log records were written before node {node} read them"));
        }
        run.cluster.run_program(node, None);
        rolling::restart(run, node).await?;
        // The one that could write what the others do not read is to lead them.
        run.cluster.transfer(node, RAISED_WITHIN).await?;
        tokio::time::sleep(MIXED_FOR).await;
    }
    let deadline = Instant::now() + RAISED_WITHIN;
    while !writes_newer(&run.cluster) {
        anyhow::ensure!(Instant::now() < deadline, "all nodes are upgraded, and no newer log record is written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Under the newer format, too, every node ends and comes back.
    rolling::strike(run).await
}

/// Whether any leader began to write records that the version before does not read.
fn writes_newer(cluster: &Cluster) -> bool {
    let read = |id| std::fs::read_to_string(cluster.log_path(id)).unwrap_or_default();
    cluster.ids().into_iter().any(|id| read(id).lines().any(|line| line.contains(WRITES)))
}
