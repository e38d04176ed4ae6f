//! The peer watch: every node asks every member about once a second how it is, and so knows its own clock's offset, who
//! answers, how far each has come, and who is best to lead next.
//! Absent on purpose: a time that is agreed on. Stamps are the leader's clock; the watch tells when that clock must not
//! be believed (Architecture §1), and the leader hands over then.
//!
//! Between two rounds a step of the own clock shows beside the monotonic one, at once: the Decider asks before each
//! batch, so that a clock that jumped stamps nothing.

pub(crate) mod clocks;
mod successor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use placet_core::cluster::{ClockState, HeardView};
use placet_wire::{log, peer};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::clocks::{Clocks, Reading, Verdict};
use crate::bootstrap::{self, Gate};
use crate::network::client::Peers;
use crate::options::Options;
use crate::types::Raft;

/// Between two rounds of questions: a handful of small messages each.
const ROUND: Duration = Duration::from_secs(1);

/// Between two rounds that doubt asks for: callers may doubt with every call.
const DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// Between two attempts of a node with a bad clock to hand the leadership over.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(3);

/// No clock of a working machine gains or loses more than this many parts per million (the limit of NTP's own
/// corrections): what was heard about a clock grows less exact with age, and ends when it is too vague.
const DRIFT_PPM: u128 = 500;

/// Both clocks are read in whole milliseconds.
const GRAIN_MS: i64 = 2;

/// A clock that was found to be off is believed again within this share of the bound, so that one at the bound does not
/// come and go.
const RETURN_PERCENT: i64 = 80;

/// What one member said last, and when.
#[derive(Clone, Debug)]
struct Heard {
    at: Instant,
    /// This node's clock at that moment.
    local_ms: i64,
    round_trip: Duration,
    ahead_ms: i64,
    status: peer::StatusResponse,
}

/// What this node knows of the others; shared by everything that must choose among them.
#[derive(Debug)]
pub(crate) struct PeerWatch {
    options: Arc<Options>,
    raft: Raft,
    peers: Peers,
    gate: Arc<Gate>,
    heard: Mutex<BTreeMap<u64, Heard>>,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
struct Notes {
    /// After the last full round.
    verdict: Verdict,
    /// The own clock was found to be off, and has not come back far enough.
    off: bool,
    /// This node was told not to stand for election.
    abstains: bool,
    /// It is about to stop.
    stopping: bool,
    doubted: Option<Instant>,
    handed_over: Option<Instant>,
}

impl PeerWatch {
    pub(crate) fn new(options: Arc<Options>, raft: Raft, peers: Peers, gate: Arc<Gate>) -> Self {
        let notes = Notes {
            verdict: Verdict::Unknown,
            off: false,
            abstains: false,
            stopping: false,
            doubted: None,
            handed_over: None,
        };
        Self { options, raft, peers, gate, heard: Mutex::default(), notes: Mutex::new(notes) }
    }

    /// Runs for the life of the node.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            self.ask_everyone(false).await;
            self.conclude().await;
        }
    }

    /// Asks every other member, all at once. With `until_trusted` it returns as soon as a majority agrees with this
    /// node's clock; whoever answers later is not listened to.
    async fn ask_everyone(&self, until_trusted: bool) {
        let me = self.options.node_id;
        let members = self.raft.metrics().borrow_watched().membership_config.clone();
        self.heard.lock().retain(|id, _| members.membership().get_node(id).is_some());
        let others = members.nodes().filter(|(id, _)| **id != me);
        let mut asked: FuturesUnordered<_> = others
            .map(|(id, at)| async move {
                let begun = Instant::now();
                (*id, begun, bootstrap::ask(&self.peers, me, *id, at).await)
            })
            .collect();
        while let Some((id, begun, answer)) = asked.next().await {
            if let Some(status) = answer {
                self.note(id, begun, status);
            }
            if until_trusted && self.clock() == Verdict::Trusted {
                return;
            }
        }
    }

    /// Asks everybody now, for a choice that must not hang on what was so a second ago.
    pub(crate) async fn look_again(&self) {
        self.ask_everyone(false).await;
    }

    fn note(&self, id: u64, begun: Instant, status: peer::StatusResponse) {
        let (at, local_ms) = (Instant::now(), self.options.clock.now_ms());
        let round_trip = at.duration_since(begun);
        let then = local_ms.saturating_sub(millis(round_trip) / 2);
        let ahead_ms = status.now_ms.saturating_sub(then);
        self.heard.lock().insert(id, Heard { at, local_ms, round_trip, ahead_ms, status });
    }

    /// Draws the conclusions of a round: what health says, whether this node may win elections, whether it must hand
    /// the leadership over.
    async fn conclude(&self) {
        let clocks = self.clocks();
        let verdict = self.judge(&clocks);
        if let Some(offset) = clocks.offset_ms() {
            #[expect(clippy::cast_precision_loss, reason = "a gauge")]
            metrics::gauge!("placet_clock_offset_ms").set(offset as f64);
        }
        metrics::gauge!("placet_clock_trusted").set(f64::from(u8::from(verdict == Verdict::Trusted)));
        let before = std::mem::replace(&mut self.notes.lock().verdict, verdict);
        if before != verdict {
            let offset_ms = clocks.offset_ms();
            match verdict {
                Verdict::Trusted => tracing::info!(offset_ms, "the clock of this node agrees with a majority"),
                Verdict::Unknown => tracing::warn!("too few voters answer to know whether this node's clock is right"),
                Verdict::Off | Verdict::Split => tracing::error!(offset_ms, "{}", self.complaint(verdict)),
            }
        }
        self.abstain(verdict == Verdict::Off);
        if verdict == Verdict::Off && self.leads() {
            self.hand_over().await;
        }
    }

    /// A node whose clock is off gives votes, and does not stand for election: it would have to hand over at once. When
    /// no majority agrees with anybody it stands: a leader that decides nothing still reads and stops (kill switch).
    fn abstain(&self, off: bool) {
        let mut notes = self.notes.lock();
        let off = off || notes.stopping;
        // Before the gate is open it is `bootstrap` that keeps this node from elections.
        if off && self.gate.is_open() {
            notes.abstains = true;
            self.raft.runtime_config().elect(false);
        } else if notes.abstains {
            notes.abstains = false;
            self.raft.runtime_config().elect(true);
        }
    }

    /// From here on this node is not to lead.
    pub(crate) fn retire(&self) {
        self.notes.lock().stopping = true;
        self.abstain(true);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.notes.lock().stopping
    }

    fn leads(&self) -> bool {
        self.raft.metrics().borrow_watched().state == openraft::ServerState::Leader
    }

    /// What is known now of the voters' clocks.
    fn clocks(&self) -> Clocks {
        let members = self.raft.metrics().borrow_watched().membership_config.clone();
        let (now, local_ms, bound_ms) = (Instant::now(), self.options.clock.now_ms(), self.bound_ms());
        let heard = self.heard.lock();
        let mut clocks = Clocks::default();
        for id in members.voter_ids() {
            clocks.voters += 1;
            let reading = if id == self.options.node_id {
                Some(Reading::SELF)
            } else {
                heard.get(&id).and_then(|one| one.reading(now, local_ms, bound_ms))
            };
            clocks.readings.extend(reading.map(|reading| (id, reading)));
        }
        clocks
    }

    fn judge(&self, clocks: &Clocks) -> Verdict {
        let mut notes = self.notes.lock();
        let verdict = clocks.judge(self.within(notes.off));
        match verdict {
            Verdict::Trusted => notes.off = false,
            Verdict::Off => notes.off = true,
            Verdict::Split | Verdict::Unknown => {}
        }
        verdict
    }

    fn bound_ms(&self) -> i64 {
        millis(self.options.clock_skew_max)
    }

    fn within(&self, off: bool) -> i64 {
        if off { self.bound_ms().saturating_mul(RETURN_PERCENT) / 100 } else { self.bound_ms() }
    }

    /// What is known now about this node's clock, a step since the last round included. Cheap.
    pub(crate) fn clock(&self) -> Verdict {
        self.judge(&self.clocks())
    }

    /// The same, and whether that is certain: unless it is `Trusted` the others were asked once more. A doubt that comes
    /// right after another is not, so that calls cannot make a node ask for ever.
    pub(crate) async fn clock_for_certain(&self) -> (Verdict, bool) {
        let doubtful = self.clock();
        if doubtful == Verdict::Trusted {
            return (doubtful, true);
        }
        {
            let mut notes = self.notes.lock();
            if notes.doubted.is_some_and(|at| at.elapsed() < DOUBT_PAUSE) {
                return (doubtful, false);
            }
            notes.doubted = Some(Instant::now());
        }
        self.ask_everyone(true).await;
        // The pause counts from the end: a round with a dead member takes as long as one waits for an answer.
        self.notes.lock().doubted = Some(Instant::now());
        (self.clock(), true)
    }

    /// How far this node's clock is ahead of the median, and the verdict of the last round.
    pub(crate) fn clock_state(&self) -> (ClockState, Option<i64>) {
        let state = match self.notes.lock().verdict {
            Verdict::Trusted => ClockState::Trusted,
            Verdict::Off => ClockState::Off,
            Verdict::Split => ClockState::Split,
            Verdict::Unknown => ClockState::Unknown,
        };
        (state, self.clocks().offset_ms())
    }

    /// What an unhealthy clock is called, for people; empty for a healthy one.
    pub(crate) fn complaint(&self, verdict: Verdict) -> String {
        let clocks = self.clocks();
        let (bound, offset) = (self.options.clock_skew_max.as_millis(), clocks.offset_ms().unwrap_or_default());
        match verdict {
            Verdict::Trusted => String::new(),
            Verdict::Unknown => "this node has not heard enough voters to know whether its clock is right".to_owned(),
            Verdict::Off => {
                let which = if offset < 0 { "behind" } else { "ahead of" };
                let apart = offset.unsigned_abs();
                format!("this node's clock is {apart} ms {which} the majority's; {bound} ms are allowed")
            }
            Verdict::Split => {
                let (heard, voters) = (clocks.readings.len(), clocks.voters);
                format!(
                    "no majority of the voters' clocks agrees within {bound} ms ({heard} of {voters} are known); \
                     nothing is decided until one does"
                )
            }
        }
    }

    /// What a health answer says about the clock; `None` while there is nothing to say.
    pub(crate) fn unhealthy(&self) -> Option<String> {
        let verdict = self.notes.lock().verdict;
        matches!(verdict, Verdict::Off | Verdict::Split).then(|| self.complaint(verdict))
    }

    /// The newest format of log records that every member was heard to read. A member that was never heard, or whose
    /// version does not say, reads the oldest.
    pub(crate) fn log_format(&self) -> u32 {
        let members = self.raft.metrics().borrow_watched().membership_config.clone();
        let heard = self.heard.lock();
        let others = members.nodes().filter(|(id, _)| **id != self.options.node_id);
        let theirs = others.map(|(id, _)| heard.get(id).map_or(log::OLDEST, |one| one.status.log_format));
        theirs.fold(self.options.log_format_max, u32::min).max(log::OLDEST)
    }

    /// What a member said last.
    pub(crate) fn heard(&self, id: u64) -> Option<HeardView> {
        let (now, local_ms) = (Instant::now(), self.options.clock.now_ms());
        self.heard.lock().get(&id).map(|one| HeardView {
            ago_ms: millis(now.duration_since(one.at)).unsigned_abs(),
            round_trip_ms: millis(one.round_trip).unsigned_abs(),
            clock_ahead_ms: one.ahead_now(now, local_ms),
            version: one.status.version.clone(),
            log_format: one.status.log_format,
            last_log_index: one.status.last.map_or(0, |at| at.index),
            applied_index: one.status.applied_index,
            recovering: one.status.recovering,
        })
    }
}

impl Heard {
    /// How far its clock is ahead, if nobody's clock but this node's was set since.
    fn ahead_now(&self, now: Instant, local_ms: i64) -> i64 {
        let passed = millis(now.duration_since(self.at));
        let step = local_ms.saturating_sub(self.local_ms).saturating_sub(passed);
        self.ahead_ms.saturating_sub(step)
    }

    /// `None` when it is too vague to say anything.
    fn reading(&self, now: Instant, local_ms: i64, bound_ms: i64) -> Option<Reading> {
        let age = now.duration_since(self.at).as_millis();
        let drift = i64::try_from(age.saturating_mul(DRIFT_PPM) / 1_000_000).unwrap_or(i64::MAX);
        let error_ms = (millis(self.round_trip) / 2).saturating_add(drift).saturating_add(GRAIN_MS);
        (error_ms <= bound_ms).then(|| Reading { ahead_ms: self.ahead_now(now, local_ms), error_ms })
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
