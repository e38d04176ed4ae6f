//! Faults of the machine under a cluster, one at a time, each with its end: processes that stand still, networks that
//! cut, lose and delay, clocks that are wrong, disks that fail, fill up, or lie.
//! Absent on purpose: two at a time in one place. A majority is healthy, as the architecture asks.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use crate::disk::Disks;
use crate::run::Run;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Kill,
    KillAll,
    Stop,
    StopLeader,
    OneWay,
    Loss,
    Latency,
    Clock,
    ClockFarOff,
    FailedSync,
    FullDisk,
    Corruption,
    Deletion,
    Wiped,
}

/// All of them, in the order of a short run.
pub const ALL: [Kind; 14] = [
    Kind::Kill,
    Kind::KillAll,
    Kind::Stop,
    Kind::StopLeader,
    Kind::OneWay,
    Kind::Loss,
    Kind::Latency,
    Kind::Clock,
    Kind::ClockFarOff,
    Kind::FailedSync,
    Kind::FullDisk,
    Kind::Corruption,
    Kind::Deletion,
    Kind::Wiped,
];

/// The node whose disk is a small one.
pub const SMALL_DISK: u64 = 3;

/// Its size in megabytes: enough for some minutes of load.
pub const SMALL_DISK_MEGABYTES: u64 = 400;

/// How long a node may take to start, or to find that it must not.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// How long a node may take to be a full member again after its data was deleted.
const RECOVERS_WITHIN: Duration = Duration::from_secs(40);

/// How long a node runs on files that were spoilt.
const SPOILT_FOR: Duration = Duration::from_secs(5);

/// Brings one fault about, waits, and undoes it.
pub async fn strike(run: &mut Run, kind: Kind) -> anyhow::Result<()> {
    let ids = run.cluster.founders();
    let node = run.pick(&ids);
    let others: Vec<u64> = ids.iter().copied().filter(|id| *id != node).collect();
    let hold = Duration::from_millis(1000 + run.dice.below(1500));
    match kind {
        Kind::Kill => super::kills::strike(run, 1).await?,
        Kind::KillAll => {
            let bars: Vec<usize> = ids.iter().map(|id| run.timeline.begin("kill -9 of all", *id)).collect();
            ids.iter().try_for_each(|id| run.cluster.kill(*id))?;
            ids.iter().try_for_each(|id| run.cluster.spawn(*id, &[]))?;
            bars.into_iter().for_each(|bar| run.timeline.end(bar));
        }
        Kind::Stop => stop(run, node, hold).await,
        Kind::StopLeader => {
            let leader = run.leader().await?;
            stop(run, leader, hold).await;
        }
        Kind::OneWay if run.means.packet_filter => {
            let other = run.pick(&others);
            let bar = run.timeline.begin("one-way cut", node);
            run.network.cut_one_way(node, other)?;
            tokio::time::sleep(hold).await;
            run.network.heal(&ids)?;
            run.timeline.end(bar);
        }
        Kind::Loss if run.means.random_loss => {
            let bar = run.timeline.begin("random loss", 0);
            let per_thousand = 30 + run.dice.below(120);
            run.network.lose(per_thousand, &ids)?;
            tokio::time::sleep(hold * 2).await;
            run.network.heal(&ids)?;
            run.timeline.end(bar);
        }
        Kind::Latency => {
            let delay = Duration::from_millis(10 + run.dice.below(90));
            let bar = run.timeline.begin("latency", 0);
            run.relays.iter().for_each(|relays| relays.delay(delay));
            tokio::time::sleep(hold * 2).await;
            run.relays.iter().for_each(|relays| relays.delay(Duration::ZERO));
            run.timeline.end(bar);
        }
        Kind::Clock if run.means.clocks => {
            let seconds = i64::try_from(run.dice.below(20)).unwrap_or_default() + 1;
            let seconds = if run.dice.one_in(2) { seconds } else { -60 * seconds };
            clock(run, node, seconds, "clock wrong", hold).await?;
        }
        // Beyond what any clock may be wrong: such a node must not decide, and time must not jump with it.
        Kind::ClockFarOff if run.means.clocks => {
            let leader = run.leader().await?;
            clock(run, leader, 3 * 3600, "clock far off", hold * 2).await?;
        }
        Kind::FailedSync if run.means.compiler => failed_sync(run, node).await?,
        Kind::FullDisk if run.means.small_disks => full_disk(run).await?,
        Kind::Corruption => spoil(run, node, "corruption", corrupt).await?,
        Kind::Deletion => spoil(run, node, "deletion", delete).await?,
        Kind::Wiped => {
            anyhow::ensure!(run.cluster.whole(&ids, RECOVERS_WITHIN).await, "somebody is still catching up");
            let bar = run.timeline.begin("disk lost", node);
            run.cluster.kill(node)?;
            run.cluster.wipe(node)?;
            run.cluster.spawn(node, &[])?;
            let whole = run.cluster.whole(&ids, RECOVERS_WITHIN).await;
            run.timeline.end(bar);
            anyhow::ensure!(whole, "node {node} does not catch up after its disk was lost");
        }
        // What this machine cannot do is in the summary.
        _ => {}
    }
    Ok(())
}

async fn stop(run: &mut Run, node: u64, hold: Duration) {
    let bar = run.timeline.begin("SIGSTOP", node);
    run.cluster.hold(node);
    tokio::time::sleep(hold).await;
    run.cluster.resume(node);
    run.timeline.end(bar);
}

async fn clock(run: &mut Run, node: u64, seconds: i64, what: &str, hold: Duration) -> anyhow::Result<()> {
    let bar = run.timeline.begin(what, node);
    run.cluster.clocks.set(node, seconds)?;
    tokio::time::sleep(hold).await;
    run.cluster.clocks.set(node, 0)?;
    run.timeline.end(bar);
    Ok(())
}

/// A node whose fsync failed must end: nobody knows what of its writes is there.
async fn failed_sync(run: &mut Run, node: u64) -> anyhow::Result<()> {
    let bar = run.timeline.begin("fsync fails", node);
    run.cluster.disks.fail_syncs(node, true)?;
    let ended = run.cluster.end_of(node, STARTS_WITHIN).await?;
    run.cluster.disks.fail_syncs(node, false)?;
    if ended.is_none() {
        run.failures.push(format!("node {node} went on for {} s after its fsync failed", STARTS_WITHIN.as_secs()));
        run.cluster.kill(node)?;
    }
    run.cluster.spawn(node, &[])?;
    run.timeline.end(bar);
    Ok(())
}

/// A node whose disk is full may refuse work or end; with space again it must serve.
async fn full_disk(run: &mut Run) -> anyhow::Result<()> {
    let bar = run.timeline.begin("disk full", SMALL_DISK);
    let data = run.cluster.data(SMALL_DISK);
    Disks::fill(&data)?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    Disks::free(&data)?;
    run.restart_ended(true)?;
    let serves = run.cluster.serves(SMALL_DISK, STARTS_WITHIN).await;
    run.timeline.end(bar);
    if !serves {
        run.failures.push(format!(
            "with space again, node {SMALL_DISK} does not serve:\n{}",
            run.cluster.log_tail(SMALL_DISK, 8)
        ));
    }
    run.restart_ended(true)
}

/// Spoils a stopped node's files. It may find out and refuse to start, or stop when it meets the place, or run where
/// nothing that it needs was hit; wrong evidence it may never show. Then it is what an operator does: everything is
/// deleted, and the peers give it back.
async fn spoil(
    run: &mut Run,
    node: u64,
    what: &str,
    how: fn(&mut Run, u64) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<()> {
    let ids = run.cluster.founders();
    anyhow::ensure!(run.cluster.whole(&ids, RECOVERS_WITHIN).await, "somebody is still catching up");
    let bar = run.timeline.begin(what, node);
    run.cluster.kill(node)?;
    let file = how(run, node)?;
    run.cluster.spawn(node, &[])?;
    let refused = run.cluster.end_of(node, SPOILT_FOR).await?.is_some();
    *run.figures.entry(format!("{what}_refused")).or_default() += u64::from(refused);
    if refused && run.cluster.log_tail(node, 1).trim().is_empty() {
        run.failures.push(format!("node {node} ended without a word about {}", file.display()));
    }
    // What it did not meet yet it would meet in the middle of something else.
    run.cluster.kill(node)?;
    run.cluster.wipe(node)?;
    run.cluster.spawn(node, &[])?;
    let serves = run.cluster.serves(node, STARTS_WITHIN).await && run.cluster.whole(&ids, RECOVERS_WITHIN).await;
    run.timeline.end(bar);
    if !serves {
        let (file, tail) = (file.display(), run.cluster.log_tail(node, 8));
        run.failures.push(format!("node {node} does not serve after {what} of {file} and its repair:\n{tail}"));
    }
    Ok(())
}

/// Every file of a node's databases with something in it.
fn files(run: &Run, node: u64) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = vec![run.cluster.data(node).join("log"), run.cluster.data(node).join("state")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.metadata()?.len() > 64 && path.extension().is_some_and(|kind| kind == "sst" || kind == "log")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Flips a byte somewhere in the first half of a file, where nothing is a torn end.
fn corrupt(run: &mut Run, node: u64) -> anyhow::Result<PathBuf> {
    let files = files(run, node)?;
    let path = run.dice.pick(&files).cloned().context("the node has no files")?;
    let file = std::fs::File::options().read(true).write(true).open(&path)?;
    let at = run.dice.below(file.metadata()?.len() / 2);
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&byte.map(|byte| byte ^ 0x55), at)?;
    Ok(path)
}

fn delete(run: &mut Run, node: u64) -> anyhow::Result<PathBuf> {
    let files = files(run, node)?;
    let path = run.dice.pick(&files).cloned().context("the node has no files")?;
    std::fs::remove_file(&path)?;
    Ok(path)
}
