//! Everything: the short run that belongs to the tests, and the long one of random faults.
//! Absent on purpose: a fixed order in the long run.

use std::time::Duration;

use super::faults::{self, SMALL_DISK, SMALL_DISK_MEGABYTES};
use super::{Place, crash_points, cut_off, kills, rolling};
use crate::run::{Plan, Run};
use crate::summary::Summary;

/// One of each fault, each crash point once, a few kills and a rolling restart, in some minutes.
pub async fn short(place: &Place) -> anyhow::Result<Summary> {
    let mut plan = with_everything(place.plan("short"));
    plan.shape.binary = place.crashing.clone();
    let mut run = Run::start(plan).await?;
    let struck = one_of_each(&mut run).await;
    run.finish_after(struck).await
}

async fn one_of_each(run: &mut Run) -> anyhow::Result<()> {
    kills::strike(run, 4).await?;
    if run.means.packet_filter {
        cut_off::strike(run).await?;
    }
    for kind in faults::ALL {
        fault(run, kind).await?;
    }
    rolling::strike(run).await?;
    crash_points::strike(run, 1).await
}

/// Random faults for `minutes`.
pub async fn long(place: &Place, minutes: u64) -> anyhow::Result<Summary> {
    let mut run = Run::start(with_everything(place.plan("mixed"))).await?;
    let struck = at_random(&mut run, Duration::from_secs(60 * minutes)).await;
    run.finish_after(struck).await
}

async fn at_random(run: &mut Run, time: Duration) -> anyhow::Result<()> {
    while run.elapsed() < time {
        match run.dice.below(12) {
            0 if run.means.packet_filter => cut_off::strike(run).await?,
            1 => rolling::strike(run).await?,
            2..=4 => kills::strike(run, 5).await?,
            _ => {
                if let Some(kind) = run.dice.pick(&faults::ALL).copied() {
                    fault(run, kind).await?;
                }
            }
        }
    }
    Ok(())
}

async fn fault(run: &mut Run, kind: faults::Kind) -> anyhow::Result<()> {
    if let Err(error) = faults::strike(run, kind).await {
        run.failures.push(format!("{kind:?}: {error:#}"));
    }
    // What the fault did to a process is judged where the fault is; whoever is down comes back here.
    run.restart_ended(true)?;
    if let Err(error) = run.leader().await {
        run.failures.push(format!("liveness after {kind:?}: {error:#}"));
    }
    Ok(())
}

fn with_everything(plan: Plan) -> Plan {
    let mut plan = plan;
    plan.shape.relayed = true;
    plan.shape.snapshots = Some(crash_points::SNAPSHOTS);
    plan.preload = true;
    plan.small_disks = [(SMALL_DISK, SMALL_DISK_MEGABYTES)].into();
    plan
}
