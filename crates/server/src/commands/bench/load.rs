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

/// After the last call became due, how long calls that wait for their turn are still begun: their waits belong to the
/// figures.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// After the last call became due, how long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A caller whose call failed pauses: one that cannot get through must not keep the processors from those that can.
const PAUSE: Duration = Duration::from_millis(10);

/// Permits behind the last call, so that whoever asks for another one is told that there is none.
const BEHIND_THE_LAST: usize = 1 << 28;

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
    begun_calls: AtomicU64,
    /// Calls of the whole run, the warm-up with them.
    total: u64,
    stop: AtomicBool,
}

impl Paced {
    fn new(begun: Instant, rate: u64, end: Instant) -> Self {
        let rate = rate.max(1);
        let total = (end.duration_since(begun).as_nanos() * u128::from(rate)).div_ceil(1_000_000_000);
        Self {
            begun,
            rate,
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
            begun_calls: AtomicU64::new(0),
            total: u64::try_from(total).unwrap_or(u64::MAX),
            stop: AtomicBool::new(false),
        }
    }

    fn at(&self, number: u64) -> Instant {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        self.begun + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Lets all calls become due, one after the other; on a thread of its own.
    fn pace(&self) {
        let mut number = 0;
        while number < self.total && !self.stop.load(Ordering::Relaxed) {
            let (next, now) = (self.at(number), Instant::now());
            if next > now {
                std::thread::sleep(next - now);
                continue;
            }
            self.due.add_permits(1);
            number += 1;
        }
        self.due.add_permits(BEHIND_THE_LAST);
    }
}

impl Clock {
    /// When the next call is due, once it is; `None` when no more is.
    pub(super) async fn next(&self) -> Option<Instant> {
        match &self.paced {
            None => Some(Instant::now()).filter(|now| *now < self.window.to),
            Some(paced) => {
                paced.due.acquire().await.ok()?.forget();
                let number = paced.taken.fetch_add(1, Ordering::Relaxed);
                if number >= paced.total || Instant::now() > self.window.to + BEGUN_WITHIN {
                    return None;
                }
                paced.begun_calls.fetch_add(1, Ordering::Relaxed);
                Some(paced.at(number))
            }
        }
    }

    /// Calls that were due and never begun.
    fn left(&self) -> u64 {
        self.paced.as_ref().map_or(0, |paced| paced.total.saturating_sub(paced.begun_calls.load(Ordering::Relaxed)))
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
    let paced = plan.rate.map(|rate| Paced::new(begun, rate, window.to));
    let clock = Arc::new(Clock { window, paced });
    let pacer = clock.clone();
    let pacing = std::thread::spawn(move || pacer.paced.iter().for_each(Paced::pace));
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
        if matches!(answer, Answer::Failed(_)) {
            tokio::time::sleep(PAUSE).await;
        }
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

    fn clock(begun: Instant, rate: u64, time: Duration) -> (Arc<Clock>, std::thread::JoinHandle<()>) {
        let window = Window { from: begun, to: begun + time };
        let clock = Arc::new(Clock { window, paced: Some(Paced::new(begun, rate, window.to)) });
        let pacer = clock.clone();
        (clock, std::thread::spawn(move || pacer.paced.iter().for_each(Paced::pace)))
    }

    /// Goal: calls fall due at the rate, and every one of them is begun, the last ones too, however late.
    #[tokio::test]
    async fn every_call_that_was_due_is_begun() {
        let begun = Instant::now();
        let (clock, pacing) = clock(begun, 1000, Duration::from_millis(200));
        let mut dues = Vec::new();
        while let Some(due) = clock.next().await {
            assert!(due <= Instant::now(), "a call before its time");
            dues.push(due);
            if dues.len() == 150 {
                // A system that stops for a while: what became due meanwhile is begun when it goes on.
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        }
        pacing.join().unwrap();
        assert_eq!((dues.len(), clock.left()), (200, 0));
        assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(1)));
        assert_eq!(clock.next().await, None, "whoever asks again is told again");
    }

    /// Goal: what a system does not carry is told.
    #[tokio::test]
    async fn calls_that_nobody_begins_are_told() {
        let Some(begun) = Instant::now().checked_sub(BEGUN_WITHIN + Duration::from_millis(300)) else { return };
        let (clock, pacing) = clock(begun, 1000, Duration::from_millis(200));
        pacing.join().unwrap();
        assert_eq!((clock.next().await, clock.left()), (None, 200));
    }
}
