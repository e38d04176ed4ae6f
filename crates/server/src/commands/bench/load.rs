//! Who calls, and when. Closed: a caller that has its answer calls again. Open: calls are due at a fixed rate, whatever the
//! answers do, and a call that finds no free caller waits, with its wait in its latency.
//! Absent on purpose: timers of the runtime for the rate; they are a millisecond coarse.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::calls::Calls;
use super::tally::{Answer, Figures, Window};
use super::{http, stream, unary};
use crate::cli::Door;

/// After the last call became due, how long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) door: Door,
    pub(super) addresses: Vec<String>,
    pub(super) connections: usize,
    /// Calls at a time, over all connections.
    pub(super) in_flight: usize,
    /// Whether each permit is reported.
    pub(super) reports: bool,
    /// Calls that become due each second.
    pub(super) rate: Option<u64>,
    pub(super) warm_up: Duration,
    pub(super) time: Duration,
    pub(super) token: Option<String>,
    pub(super) ca: Option<PathBuf>,
}

/// When calls are due, for all callers together.
#[derive(Debug)]
pub(super) struct Clock {
    window: Window,
    paced: Option<Paced>,
}

#[derive(Debug)]
struct Paced {
    begun: Instant,
    rate: u64,
    /// Calls that are due and that nobody took yet.
    due: Semaphore,
    taken: AtomicU64,
    stop: AtomicBool,
}

impl Paced {
    fn at(&self, number: u64) -> Instant {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        self.begun + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Lets calls become due, until `end`; on a thread of its own.
    fn pace(&self, end: Instant) {
        let mut number = 0;
        loop {
            let next = self.at(number);
            if next >= end || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let now = Instant::now();
            if next > now {
                std::thread::sleep(next - now);
                continue;
            }
            self.due.add_permits(1);
            number += 1;
        }
        self.due.close();
    }
}

impl Clock {
    /// When the next call is due, once it is; `None` when no more is.
    pub(super) async fn next(&self) -> Option<Instant> {
        match &self.paced {
            None => Some(Instant::now()).filter(|now| *now < self.window.to),
            Some(paced) => {
                paced.due.acquire().await.ok()?.forget();
                Some(paced.at(paced.taken.fetch_add(1, Ordering::Relaxed)))
            }
        }
    }

    /// Calls that were due within the window and never taken.
    fn left(&self) -> u64 {
        let Some(paced) = &self.paced else { return 0 };
        let until = self.window.to.duration_since(paced.begun).as_nanos();
        let all = u64::try_from(until * u128::from(paced.rate) / 1_000_000_000).unwrap_or(u64::MAX);
        all.saturating_sub(paced.taken.load(Ordering::Relaxed))
    }
}

/// One caller's way to a door; it has one call at a time.
pub(super) trait Caller: Send + 'static {
    fn decide(&mut self, calls: &Calls) -> impl Future<Output = Answer> + Send;
    fn report(&mut self, calls: &Calls, permit_id: String) -> impl Future<Output = Answer> + Send;
}

/// Carries out a plan.
pub(super) async fn run(plan: &Plan, calls: &Arc<Calls>) -> anyhow::Result<Figures> {
    let mut tasks: JoinSet<anyhow::Result<Figures>> = JoinSet::new();
    let mut connected = Connected::to(plan).await?;
    let begun = Instant::now();
    let from = begun + plan.warm_up;
    let window = Window { from, to: from + plan.time };
    let paced = plan.rate.map(|rate| Paced {
        begun,
        rate: rate.max(1),
        due: Semaphore::new(0),
        taken: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let clock = Arc::new(Clock { window, paced });
    let pacer = clock.clone();
    let pacing = std::thread::spawn(move || pacer.paced.iter().for_each(|paced| paced.pace(window.to)));
    for number in 0..plan.in_flight {
        let (calls, clock, reports) = (calls.clone(), clock.clone(), plan.reports);
        let figures = Figures::new(window)?;
        match &mut connected {
            Connected::Http(callers) => {
                let Some(caller) = callers.pop() else { break };
                tasks.spawn(one(caller, calls, clock, reports, figures));
            }
            Connected::Unary(channels) => {
                let Some(channel) = channels.get(number % channels.len().max(1)) else { break };
                tasks.spawn(one(channel.clone(), calls, clock, reports, figures));
            }
            Connected::Streams(streams) => {
                let share = plan.in_flight / plan.connections + usize::from(number < plan.in_flight % plan.connections);
                let Some(stream) = streams.pop() else { break };
                tasks.spawn(stream.run(share, calls, clock, reports, figures));
            }
        }
    }
    let mut all = Figures::new(window)?;
    let added = tokio::time::timeout_at(window.to + PATIENCE, async {
        while let Some(ended) = tasks.join_next().await {
            all.add(&ended??)?;
        }
        anyhow::Ok(())
    });
    let added = added.await;
    clock.paced.iter().for_each(|paced| paced.stop.store(true, Ordering::Relaxed));
    // It sleeps for one interval at most.
    let _ = pacing.join();
    added.map_err(|_| anyhow::anyhow!("after {} s some calls have no answer", PATIENCE.as_secs()))??;
    all.never_begun = clock.left();
    Ok(all)
}

/// Open connections, before anything is measured.
enum Connected {
    Http(Vec<http::Connection>),
    Unary(Vec<unary::Channel>),
    Streams(Vec<stream::Stream>),
}

impl Connected {
    async fn to(plan: &Plan) -> anyhow::Result<Self> {
        let addresses = plan.addresses.iter().cycle().take(plan.connections);
        match plan.door {
            Door::Http => {
                let mut all = Vec::new();
                for address in addresses {
                    all.push(http::Connection::open(address, plan).await?);
                }
                Ok(Self::Http(all))
            }
            Door::Grpc => {
                let mut all = Vec::new();
                for address in addresses {
                    all.push(unary::Channel::open(address, plan).await?);
                }
                Ok(Self::Unary(all))
            }
            Door::Stream => {
                let mut all = Vec::new();
                for address in addresses {
                    all.push(stream::Stream::open(address, plan).await?);
                }
                Ok(Self::Streams(all))
            }
        }
    }
}

async fn one(
    mut caller: impl Caller,
    calls: Arc<Calls>,
    clock: Arc<Clock>,
    reports: bool,
    mut figures: Figures,
) -> anyhow::Result<Figures> {
    while let Some(due) = clock.next().await {
        let answer = caller.decide(&calls).await;
        figures.count(due, &answer);
        if let (Answer::Permit(permit_id), true) = (answer, reports) {
            let begun = Instant::now();
            let answer = caller.report(&calls, permit_id).await;
            figures.count(begun, &answer);
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls fall due at the rate, none is lost, and those that nobody took are told.
    #[tokio::test]
    async fn calls_fall_due_at_the_rate() {
        let begun = Instant::now();
        let window = Window { from: begun, to: begun + Duration::from_millis(200) };
        let paced =
            Paced { begun, rate: 1000, due: Semaphore::new(0), taken: AtomicU64::new(0), stop: AtomicBool::new(false) };
        let clock = Arc::new(Clock { window, paced: Some(paced) });
        let pacer = clock.clone();
        let pacing = std::thread::spawn(move || pacer.paced.iter().for_each(|paced| paced.pace(window.to)));
        let mut dues = Vec::new();
        while dues.len() < 150 {
            let Some(due) = clock.next().await else { break };
            assert!(due <= Instant::now(), "a call before its time");
            dues.push(due);
        }
        pacing.join().unwrap();
        assert_eq!(dues.len(), 150);
        assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(1)));
        assert_eq!(clock.left(), 50);
    }
}
