//! What a load took: one tally for each task, added up at the end.
//! Absent on purpose: locks; a task counts for itself.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Latencies up to a minute, in microseconds, to three digits.
const LATENCY_MAX_US: u64 = 60_000_000;
const DIGITS: u8 = 3;

/// The latencies that are told, in hundredths of a per cent; 100 per cent is the worst.
pub(super) const PER_CENTS: [(&str, u32); 6] =
    [("p50", 5_000), ("p90", 9_000), ("p99", 9_900), ("p99.9", 9_990), ("p99.99", 9_999), ("max", 10_000)];

/// Kinds of failures that are told apart; whatever else comes is counted together.
const FAILURES_MAX: usize = 32;

/// How a call ended.
#[derive(Debug)]
pub(super) enum Answer {
    /// A permit, to be reported.
    Permit(String),
    /// Another verdict, by its word and its reason.
    Verdict(String),
    /// The report was accepted.
    Accepted,
    /// Nothing that counts as an answer.
    Failed(String),
}

/// Calls of one kind that were answered.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    latency: Histogram<u64>,
    /// Answered while it was measured, whenever they began.
    within: u64,
}

impl Kind {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { latency: Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS)?, within: 0 })
    }

    /// How many latencies are counted.
    pub(super) fn answered(&self) -> u64 {
        self.latency.len()
    }

    /// The latency that so many hundredths of a per cent of the calls did not exceed, in microseconds.
    #[expect(clippy::float_arithmetic, reason = "of a measurement; it decides nothing")]
    pub(super) fn at(&self, per_cent: u32) -> u64 {
        self.latency.value_at_quantile(f64::from(per_cent) / 10_000.0)
    }
}

/// When it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from: Instant,
    pub(super) to: Instant,
}

/// Counts of one task, or of all.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    window: Window,
    decides: Kind,
    reports: Kind,
    pub(super) verdicts: BTreeMap<String, u64>,
    pub(super) failures: BTreeMap<String, u64>,
    /// Calls that were due while it was measured and never begun: the rate is more than can be carried.
    pub(super) never_begun: u64,
}

impl Figures {
    pub(super) fn new(window: Window) -> anyhow::Result<Self> {
        Ok(Self {
            window,
            decides: Kind::new()?,
            reports: Kind::new()?,
            verdicts: BTreeMap::new(),
            failures: BTreeMap::new(),
            never_begun: 0,
        })
    }

    /// Counts an answer to a call that was due at `due`. The latency of a call that had to wait for its turn has the wait
    /// in it: whoever measures from the moment of sending measures the calls that a slow system let through.
    pub(super) fn count(&mut self, due: Instant, answer: &Answer) {
        self.count_at(Instant::now(), due, answer);
    }

    fn count_at(&mut self, now: Instant, due: Instant, answer: &Answer) {
        let measured = due >= self.window.from && due < self.window.to;
        let word = match answer {
            Answer::Failed(what) => {
                if measured {
                    let known = self.failures.contains_key(what) || self.failures.len() < FAILURES_MAX;
                    *self.failures.entry(if known { what.clone() } else { "other".to_owned() }).or_default() += 1;
                }
                return;
            }
            Answer::Permit(_) => Some("permit"),
            Answer::Verdict(word) => Some(word.as_str()),
            Answer::Accepted => None,
        };
        let kind = if word.is_some() { &mut self.decides } else { &mut self.reports };
        if now >= self.window.from && now < self.window.to {
            kind.within += 1;
        }
        if !measured {
            return;
        }
        kind.latency.saturating_record(u64::try_from((now - due).as_micros()).unwrap_or(u64::MAX).max(1));
        if let Some(word) = word {
            match self.verdicts.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(self.verdicts.insert(word.to_owned(), 1)),
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        for (mine, theirs) in [(&mut self.decides, &other.decides), (&mut self.reports, &other.reports)] {
            mine.latency.add(&theirs.latency)?;
            mine.within += theirs.within;
        }
        for (mine, theirs) in [(&mut self.verdicts, &other.verdicts), (&mut self.failures, &other.failures)] {
            theirs.iter().for_each(|(word, count)| *mine.entry(word.clone()).or_default() += count);
        }
        self.never_begun += other.never_begun;
        Ok(())
    }

    /// What was measured.
    pub(super) fn kinds(&self) -> Vec<(&'static str, &Kind)> {
        [("decide", &self.decides), ("report", &self.reports)]
            .into_iter()
            .filter(|(_, kind)| kind.answered() > 0)
            .collect()
    }

    pub(super) fn per_second(&self, kind: &Kind) -> u64 {
        let took = self.window.to.duration_since(self.window.from).max(Duration::from_micros(1));
        u64::try_from(u128::from(kind.within) * 1_000_000 / took.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a call that waited for its turn is as slow as its caller saw it, and what was not measured is not counted.
    #[test]
    fn latency_counts_from_when_the_call_was_due() {
        let from = Instant::now();
        let at = |ms| from + Duration::from_millis(ms);
        let mut figures = Figures::new(Window { from, to: at(2_000) }).unwrap();
        let permit = Answer::Permit("p".to_owned());
        let early = from.checked_sub(Duration::from_millis(1)).unwrap();
        figures.count_at(at(1_000), at(700), &permit);
        figures.count_at(at(1_000), early, &permit);
        figures.count_at(at(1_000), at(999), &Answer::Failed("lost".to_owned()));
        figures.count_at(at(1_000), early, &Answer::Failed("lost".to_owned()));
        let kinds = figures.kinds();
        let (_, decides) = kinds.first().unwrap();
        assert_eq!((decides.answered(), figures.failed()), (1, 1));
        assert!((299_000..=301_000).contains(&decides.at(5_000)), "{}", decides.at(5_000));
        // Both were answered within the two seconds.
        assert_eq!(figures.per_second(decides), 1);
    }

    #[test]
    fn tallies_add_up() {
        let from = Instant::now();
        let window = Window { from, to: from + Duration::from_secs(1) };
        let (mut one, mut other) = (Figures::new(window).unwrap(), Figures::new(window).unwrap());
        for figures in [&mut one, &mut other] {
            figures.count_at(from, from, &Answer::Verdict("deny: budget".to_owned()));
            figures.count_at(from, from, &Answer::Accepted);
        }
        one.add(&other).unwrap();
        assert_eq!(one.verdicts.get("deny: budget"), Some(&2));
        assert!(one.kinds().iter().all(|(_, kind)| kind.answered() == 2));
    }
}
