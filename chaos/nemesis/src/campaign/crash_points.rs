//! Crash points between the phases: a node that dies where the most can go wrong, at each point in turn.
//! Absent on purpose: the two deaths of an enforcement point (after the reply and before the act, after the act and
//! before the report): clients of every run die there all the time, and the summary counts them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tokio::time::Instant;

use super::Place;
use crate::cluster::Cluster;
use crate::doors::Said;
use crate::run::Run;
use crate::secrets::OPERATE;
use crate::summary::Summary;

/// How a point is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The node leads, and the load does the rest.
    Leads,
    /// Any node, and the load does the rest.
    Works,
    /// The node leads while another comes back far behind.
    Sends,
    /// The node itself comes back far behind.
    Receives,
    /// The members change.
    Changes,
}

/// Every point of `crates/replica/src/crash.rs`, how it is reached, and how often it may be passed before the crash.
const POINTS: [(&str, Way, u64); 13] = [
    ("after_propose", Way::Leads, 20),
    ("after_append_before_sync", Way::Works, 20),
    ("after_commit_before_reply", Way::Leads, 20),
    ("after_report_commit_before_answer", Way::Leads, 10),
    ("during_snapshot_build", Way::Works, 2),
    ("during_snapshot_send", Way::Sends, 3),
    ("during_snapshot_receive", Way::Receives, 3),
    ("during_snapshot_install", Way::Receives, 1),
    ("after_snapshot_install", Way::Receives, 1),
    ("during_membership_joint", Way::Changes, 1),
    ("after_membership_joint", Way::Changes, 1),
    ("during_membership_uniform", Way::Changes, 1),
    ("after_membership_uniform", Way::Changes, 1),
];

/// The node that is made a voter and removed again.
const GUEST: u64 = 4;

/// How often a death is tried for.
const TRIES: u64 = 3;

/// How long a point may take to be reached.
const REACHED_WITHIN: Duration = Duration::from_secs(25);

/// SIGABRT.
const ABORTED: i32 = 6;

/// Snapshots so frequent that a node that was away for seconds needs one, and a log that is kept long enough that it
/// needs no second one when it has installed the first.
pub const SNAPSHOTS: (u64, u64) = (60, 100);

/// How often a cluster dies at each point before the next begins with nothing. The whole state is copied every
/// [`SNAPSHOTS`] entries: in one long run that takes longer and longer, until nobody catches up any more.
const EACH_IN_ONE: u64 = 2;

/// Dies `each` times at every point, in one cluster after the other; a summary for each of them.
pub async fn run(place: &Place, each: u64) -> anyhow::Result<Vec<Summary>> {
    let folder = |number: usize| place.out.join(format!("crash-points-{number}"));
    // A longer campaign before this one left more of them.
    for number in (1..).take_while(|number| folder(*number).exists()) {
        std::fs::remove_dir_all(folder(number))?;
    }
    let mut summaries = Vec::new();
    let mut left = each;
    while left > 0 {
        let now = left.min(EACH_IN_ONE);
        left -= now;
        let mut plan = place.plan("crash-points");
        plan.out = folder(summaries.len() + 1);
        plan.seed = plan.seed.wrapping_add(summaries.len() as u64);
        plan.shape.binary = place.crashing.clone();
        plan.shape.snapshots = Some(SNAPSHOTS);
        let mut run = Run::start(plan).await?;
        let struck = strike(&mut run, now).await;
        summaries.push(run.finish_after(struck).await?);
    }
    Ok(summaries)
}

/// The crashes, in a run that goes on: round by round, so that one that breaks off was everywhere.
pub async fn strike(run: &mut Run, each: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut missed = 0;
    for _ in 0..each {
        for (point, way, passes) in POINTS {
            let mut tried = 0;
            while let Err(error) = once(run, point, way, passes).await {
                let passed_by = error.downcast_ref::<Missed>().map(|missed| missed.node);
                // Nobody but the armed node has a reason to end, and that one only here.
                if let Some(node) = passed_by {
                    run.cluster.kill(node)?;
                }
                run.restart_ended(passed_by.is_none())?;
                // Whoever is still armed must not die later, in the middle of something else.
                run.cluster.founders().into_iter().try_for_each(|id| run.cluster.kill(id))?;
                tried += 1;
                missed += u64::from(passed_by.is_some());
                if passed_by.is_none() || tried == TRIES {
                    run.failures.push(format!("{point}: {error:#}"));
                    break;
                }
                run.restart_ended(true)?;
                run.leader().await.context("after a crash that did not come about")?;
            }
            run.restart_ended(false)?;
            if way == Way::Changes {
                // Only a cluster whose change of members is complete hands the leadership over.
                let founders = run.cluster.founders();
                let next = run.pick(&founders);
                if let Err(error) = run.cluster.transfer(next, REACHED_WITHIN).await {
                    run.failures.push(format!("after {point} the change of members stays half done: {error:#}"));
                }
            }
            run.leader().await.context("after a crash")?;
        }
    }
    run.figure("crash_points_ms", begun.elapsed());
    run.figures.insert("crash_points_missed".to_owned(), missed);
    Ok(())
}

/// The load passed by the point, or an election: nothing went wrong, and it may be tried again.
#[derive(Debug)]
struct Missed {
    node: u64,
    why: String,
}

impl std::fmt::Display for Missed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} {}", self.node, self.why)
    }
}

impl std::error::Error for Missed {}

/// One death at a point, or [`Missed`]; any other error is a finding.
async fn once(run: &mut Run, point: &str, way: Way, passes: u64) -> anyhow::Result<()> {
    let count = 1 + run.dice.below(passes);
    let bar = run.timeline.begin(&format!("missed {point}"), 0);
    let struck = death(run, point, way, count, bar).await;
    if struck.is_ok() {
        run.timeline.was(bar, &format!("crash {point}"));
    }
    run.timeline.end(bar);
    struck
}

async fn death(run: &mut Run, point: &str, way: Way, count: u64, bar: usize) -> anyhow::Result<()> {
    let armed = [("PLACET_CRASH_AT", format!("{point}:{count}"))];
    let founders = run.cluster.founders();
    if way == Way::Changes {
        settle_guest(run).await?;
    }
    let node = run.pick(&founders);
    run.cluster.terminate(node, Duration::from_secs(30)).await?;
    if way == Way::Receives {
        far_behind(run, node, None).await?;
    }
    run.cluster.spawn(node, &armed)?;
    run.timeline.begins_at(bar, node);
    let dead = match way {
        Way::Works | Way::Receives => None,
        Way::Leads => lead_to_death(run, node).await?,
        Way::Sends => match lead(run, node).await? {
            Some(dead) => Some(dead),
            None => {
                let others: Vec<u64> = founders.iter().copied().filter(|id| *id != node).collect();
                let late = run.pick(&others);
                run.cluster.kill(late)?;
                let dead = far_behind(run, late, Some(node)).await?;
                run.cluster.spawn(late, &[])?;
                dead
            }
        },
        Way::Changes => {
            // The leader dies as often as a follower does.
            let leads = run.dice.one_in(2);
            match run.cluster.caught_up(node, 5, REACHED_WITHIN).await? {
                None if leads => match lead(run, node).await? {
                    None => change_members(run, node).await?,
                    dead => dead,
                },
                None => change_members(run, node).await?,
                // Of a change that it had missed.
                dead => dead,
            }
        }
    };
    let dead = match dead {
        Some(dead) => Some(dead),
        None => run.cluster.end_of(node, REACHED_WITHIN).await?,
    };
    let Some(status) = dead else {
        return Err(Missed { node, why: format!("did not pass it {count} times") }.into());
    };
    anyhow::ensure!(
        status.signal() == Some(ABORTED),
        "node {node} ended otherwise, {status}: {}",
        run.cluster.log_tail(node, 6)
    );
    Ok(())
}

type Dead = Option<ExitStatus>;

/// Makes a node the leader; it may die before it can say so.
async fn lead(run: &mut Run, node: u64) -> anyhow::Result<Dead> {
    let deadline = Instant::now() + REACHED_WITHIN;
    let body = json!({"to": node});
    while Instant::now() < deadline {
        if let Some(dead) = run.cluster.ended(node)? {
            return Ok(Some(dead));
        }
        for id in run.cluster.alive() {
            let said = run.cluster.doors.call(id, "POST", "/v1/cluster/leader", OPERATE, Some(&body)).await;
            if matches!(said, Said::Answer(200, _)) {
                return Ok(None);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Missed { node, why: "could not be made the leader".to_owned() }.into())
}

/// Makes a node the leader until it dies of it: another may win an election meanwhile.
async fn lead_to_death(run: &mut Run, node: u64) -> anyhow::Result<Dead> {
    for _ in 0..8 {
        let dead = match lead(run, node).await? {
            None => run.cluster.end_of(node, Duration::from_secs(4)).await?,
            dead => dead,
        };
        if dead.is_some() {
            return Ok(dead);
        }
    }
    Ok(None)
}

/// A stopped node misses more than the log keeps, or everything. The armed node may die meanwhile, of another member
/// that is behind.
async fn far_behind(run: &mut Run, node: u64, armed: Option<u64>) -> anyhow::Result<Dead> {
    let others: Vec<u64> = run.cluster.founders().into_iter().filter(|id| *id != node).collect();
    if run.dice.one_in(2) && run.cluster.whole(&others, REACHED_WITHIN).await {
        run.cluster.wipe(node)?;
        return Ok(None);
    }
    let before = run.cluster.furthest().await;
    let deadline = Instant::now() + REACHED_WITHIN;
    while run.cluster.furthest().await < before + 2 * SNAPSHOTS.0 + SNAPSHOTS.1 && Instant::now() < deadline {
        if let Some(dead) = armed.map(|armed| run.cluster.ended(armed)).transpose()?.flatten() {
            return Ok(Some(dead));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(None)
}

/// The guest as the leader sees it: `voter`, `learner`, or nothing.
async fn guest(cluster: &Cluster) -> Option<String> {
    for id in cluster.alive() {
        if let Some(view) = cluster.view(id).await
            && view.leader == Some(id)
        {
            return Some(view.roles.get(&GUEST).cloned().unwrap_or_default());
        }
    }
    None
}

/// One change, asked at every node in turn until it is done or somebody dies of it.
async fn change_members(run: &mut Run, watched: u64) -> anyhow::Result<Dead> {
    let deadline = Instant::now() + REACHED_WITHIN;
    let promote = guest(&run.cluster).await.as_deref() == Some("learner");
    while Instant::now() < deadline {
        for id in run.cluster.alive() {
            let said = ask_change(&run.cluster, id, promote).await;
            if let Some(dead) = run.cluster.ended(watched)? {
                return Ok(Some(dead));
            }
            if matches!(said, Said::Answer(200, _)) {
                return Ok(None);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the members could not be changed")
}

async fn ask_change(cluster: &Cluster, at: u64, promote: bool) -> Said {
    if promote {
        let path = format!("/v1/cluster/members/{GUEST}/promote");
        cluster.doors.call(at, "POST", &path, OPERATE, None).await
    } else {
        cluster.doors.call(at, "DELETE", &format!("/v1/cluster/members/{GUEST}"), OPERATE, None).await
    }
}

/// Brings the guest into one of the two states that a change begins with: a learner that has caught up, or a voter.
async fn settle_guest(run: &mut Run) -> anyhow::Result<()> {
    if !run.cluster.ids().contains(&GUEST) {
        run.cluster.add(GUEST, false)?;
    }
    let deadline = Instant::now() + REACHED_WITHIN;
    let body = json!({"id": GUEST, "addresses": run.cluster.addresses(GUEST)});
    let mut last = None;
    while Instant::now() < deadline {
        match guest(&run.cluster).await.as_deref() {
            Some("voter") => return Ok(()),
            Some("learner") => return run.cluster.caught_up(GUEST, 200, REACHED_WITHIN).await.map(drop),
            Some("") => {
                for id in run.cluster.alive() {
                    last = Some(run.cluster.doors.call(id, "POST", "/v1/cluster/members", OPERATE, Some(&body)).await);
                }
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the guest could not be settled: {last:?}")
}
