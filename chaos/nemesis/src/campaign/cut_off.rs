//! An old leader that is cut off from the others and still reached by clients: it permits nothing, and a kill switch
//! that the others engage meanwhile is never passed, neither on its side nor when the cut ends.
//! Absent on purpose: the operator of the usual load, who waits meanwhile. The switch is set here, at the moment that
//! matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Place;
use crate::doors::Doors;
use crate::journal::{Answered, Journal, Micros};
use crate::load;
use crate::requests;
use crate::run::Run;
use crate::secrets;
use crate::summary::Summary;

/// Clients that ask the old leader all the time.
const ASKERS: u64 = 3;

/// How long both sides are asked while the switch is engaged, before and after the cut ends.
const WATCHED: Duration = Duration::from_millis(1500);

/// Cuts the leader off `count` times.
pub async fn run(place: &Place, count: u64) -> anyhow::Result<Summary> {
    let mut plan = place.plan("cut-off");
    plan.pace.switch_every = None;
    let mut run = Run::start(plan).await?;
    let mut struck = Ok(());
    for _ in 0..count {
        struck = struck.and(strike(&mut run).await);
    }
    run.finish_after(struck).await
}

/// One cut.
pub async fn strike(run: &mut Run) -> anyhow::Result<()> {
    let switch = run.switch().context("the load has ended")?;
    let _hand = switch.lock().await;
    let old = run.leader().await?;
    let others: Vec<u64> = run.cluster.ids().into_iter().filter(|id| *id != old).collect();
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let tried = Arc::new(AtomicU64::new(0));
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        let doors = Doors::new(run.cluster.folder(), Duration::from_millis(1200))?;
        askers.spawn(ask_on(
            doors,
            Arc::clone(&run.journal),
            old,
            Arc::clone(&stop),
            Arc::clone(&asked),
            Arc::clone(&tried),
        ));
    }
    // They are at work before the cut.
    let begun = Instant::now();
    while u64::try_from(asked.lock().len())? < ASKERS {
        anyhow::ensure!(begun.elapsed() < WATCHED * 5, "the leader answers nobody before the cut");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Half of the time it goes on hearing the others, and only its own voice is lost.
    let deaf = run.dice.one_in(2);
    let bar = run.timeline.begin(if deaf { "cut off" } else { "cut off, one way" }, old);
    if deaf {
        run.network.cut_off(old, &others)?;
    } else {
        others.iter().try_for_each(|other| run.network.cut_one_way(old, *other))?;
    }
    let cut = run.journal.now();
    let tried_before = tried.load(Ordering::Relaxed);
    let begun = Instant::now();
    new_leader(run, &others).await?;
    note_worst(run, "worst_new_leader_ms", begun.elapsed());
    let engaged = load::set_switch(&run.cluster.doors, &run.journal, &others, true).await;
    anyhow::ensure!(engaged, "the majority could not engage the switch");
    let behind = run.journal.now();
    tokio::time::sleep(WATCHED).await;
    let healed = run.journal.now();
    let tried_meanwhile = tried.load(Ordering::Relaxed).saturating_sub(tried_before);
    *run.figures.entry("asked_while_cut".to_owned()).or_default() += tried_meanwhile;
    run.network.heal(&run.cluster.ids())?;
    run.timeline.end(bar);
    tokio::time::sleep(WATCHED).await;
    let before_release = run.journal.now();
    stop.store(true, Ordering::Relaxed);
    anyhow::ensure!(load::set_switch(&run.cluster.doors, &run.journal, &others, false).await, "the switch stays");
    askers.join_all().await;
    judge(run, &asked.lock(), cut, behind, healed, before_release);
    Ok(())
}

/// What no answer may say; the properties judge the evidence besides.
fn judge(run: &mut Run, asked: &[(Micros, Answered)], cut: Micros, behind: Micros, healed: Micros, release: Micros) {
    let mut while_cut = 0u64;
    for (sent, answered) in asked.iter().filter(|(sent, _)| *sent > cut) {
        while_cut += u64::from(*sent < healed);
        let permitted = answered.permit.is_some();
        if permitted && answered.at < healed {
            run.failures.push(format!("node {} permitted {} while it was cut off", answered.node, answered.evidence));
        }
        if permitted && *sent > behind && answered.at < release {
            run.failures.push(format!("entry {} is a permit behind the engaged switch", answered.evidence));
        }
    }
    *run.figures.entry("asked_while_cut_and_answered".to_owned()).or_default() += while_cut;
}

/// Asks one node again and again, each time for something new.
async fn ask_on(
    doors: Doors,
    journal: Arc<Journal>,
    node: u64,
    stop: Arc<AtomicBool>,
    asked: Arc<parking_lot::Mutex<Vec<(Micros, Answered)>>>,
    tried: Arc<AtomicU64>,
) {
    let token = secrets::token(secrets::CLIENTS_MAX - 1);
    while !stop.load(Ordering::Relaxed) {
        let body = requests::decide("pay.large", &json!({"amount_eur": "1"}), None);
        let sent = journal.now();
        journal.decide_sent(&body);
        tried.fetch_add(1, Ordering::Relaxed);
        if let Some(answered) = load::ask(&doors, &journal, &token, node, &body).await {
            asked.lock().push((sent, answered));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until one of the others leads and decides.
async fn new_leader(run: &Run, others: &[u64]) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        for id in others {
            if let Some(view) = run.cluster.view(*id).await
                && view.leader == Some(*id)
            {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None.context("the others have no leader after 20 s")
}

fn note_worst(run: &mut Run, name: &str, took: Duration) {
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let worst = run.figures.entry(name.to_owned()).or_default();
    *worst = (*worst).max(took);
}
