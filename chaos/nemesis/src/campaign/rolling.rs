//! A rolling restart: every node in turn is asked to end, and started again when it is gone, under load.
//! Absent on purpose: draining clients first. They retry with the same request id, and nothing else.

use std::time::Duration;

use super::Place;
use crate::run::Run;
use crate::summary::Summary;

/// How long a node may take to hand over, drain and end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// How many entries a node may lack before the next one is restarted: what is on its way under load.
const LAG: u64 = 5;

/// Restarts all nodes `rounds` times.
pub async fn run(place: &Place, rounds: u64) -> anyhow::Result<Summary> {
    let mut plan = place.plan("rolling");
    plan.pace.switch_every = None;
    let mut run = Run::start(plan).await?;
    for _ in 0..rounds {
        strike(&mut run).await?;
    }
    waits(&mut run);
    run.finish().await
}

/// How long a client that retried had to wait at most.
pub(super) fn waits(run: &mut Run) {
    let (mut longest, mut retried) = (0, 0u64);
    run.journal.read(|known| {
        for request in known.requests.values() {
            let waited = request.answers.first().map_or(0, |answer| answer.at.saturating_sub(request.first_sent));
            longest = longest.max(waited);
            retried += u64::from(request.maybe && !request.answers.is_empty());
        }
    });
    run.figure("longest_wait_ms", Duration::from_micros(longest));
    run.figures.insert("answered_after_a_lost_answer".to_owned(), retried);
}

/// One round.
pub async fn strike(run: &mut Run) -> anyhow::Result<()> {
    for node in run.cluster.ids() {
        restart(run, node).await?;
    }
    Ok(())
}

/// One node, as an operator does it.
pub(super) async fn restart(run: &mut Run, node: u64) -> anyhow::Result<()> {
    let bar = run.timeline.begin("SIGTERM", node);
    if let Err(error) = run.cluster.terminate(node, ENDS_WITHIN).await {
        run.failures.push(format!("{error:#}"));
    }
    run.cluster.spawn(node, &[])?;
    let serves = run.cluster.serves(node, Duration::from_secs(30)).await;
    run.timeline.end(bar);
    if !serves {
        run.failures.push(format!("node {node} does not serve after its restart:\n{}", run.cluster.log_tail(node, 8)));
    }
    run.restart_ended(false)?;
    // An operator looks before the next node.
    if let Err(error) = run.cluster.caught_up(node, LAG, ENDS_WITHIN).await {
        run.failures.push(format!("{error:#}"));
    }
    Ok(())
}
