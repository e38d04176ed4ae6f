//! Whose clock can be believed: a majority of voters that agree with each other, by what one node heard from them.
//! Absent on purpose: asking (the watch does), and a true time. Nobody here knows it; a majority is what there is.

use std::collections::BTreeMap;

/// How far a voter's clock is ahead of the one that judges, and how far that may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) ahead_ms: i64,
    pub(crate) error_ms: i64,
}

impl Reading {
    /// A clock beside itself.
    pub(crate) const SELF: Self = Self { ahead_ms: 0, error_ms: 0 };

    /// Whether the two may well be within the bound of each other; what cannot be proven is not held against anybody.
    fn agrees(self, other: Self, bound_ms: i64) -> bool {
        let apart = self.ahead_ms.saturating_sub(other.ahead_ms).saturating_abs();
        apart.saturating_sub(self.error_ms).saturating_sub(other.error_ms) <= bound_ms
    }
}

/// What a node knows about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More than half of all voters agree with it.
    Trusted,
    /// More than half of all voters agree with one of theirs, and not with this one.
    Off,
    /// More than half answered, and no clock agrees with more than half of all voters.
    Split,
    /// Half or less answered.
    Unknown,
}

/// The clocks of the voters, this node's included if it votes, as this node sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    /// All voters, heard or not.
    pub(crate) voters: usize,
    pub(crate) readings: BTreeMap<u64, Reading>,
}

impl Clocks {
    /// Whether more than half of all voters agree with `center`.
    fn majority_around(&self, center: Reading, bound_ms: i64) -> bool {
        self.readings.values().filter(|one| one.agrees(center, bound_ms)).count() * 2 > self.voters
    }

    pub(crate) fn judge(&self, bound_ms: i64) -> Verdict {
        if self.majority_around(Reading::SELF, bound_ms) {
            Verdict::Trusted
        } else if self.readings.values().any(|center| self.majority_around(*center, bound_ms)) {
            Verdict::Off
        } else if self.readings.len() * 2 > self.voters {
            Verdict::Split
        } else {
            Verdict::Unknown
        }
    }

    /// Whether a voter's own clock could be believed.
    pub(crate) fn believes(&self, id: u64, bound_ms: i64) -> bool {
        self.readings.get(&id).is_some_and(|center| self.majority_around(*center, bound_ms))
    }

    /// How far this node's clock is ahead of the median of those that answered.
    pub(crate) fn offset_ms(&self) -> Option<i64> {
        let mut ahead: Vec<i64> = self.readings.values().map(|one| one.ahead_ms).collect();
        ahead.sort_unstable();
        let upper = *ahead.get(ahead.len() / 2)?;
        let lower = *ahead.get(ahead.len().saturating_sub(1) / 2)?;
        Some(lower.midpoint(upper).saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: i64 = 1000;

    /// Voter 1 judges; the others by how far they are ahead and the error of that; `None` did not answer.
    fn clocks(others: &[Option<(i64, i64)>]) -> Clocks {
        let heard = others.iter().zip(2..).filter_map(|(one, id)| Some((id, (*one)?)));
        let mut readings: BTreeMap<u64, Reading> =
            heard.map(|(id, (ahead_ms, error_ms))| (id, Reading { ahead_ms, error_ms })).collect();
        readings.insert(1, Reading::SELF);
        Clocks { voters: others.len() + 1, readings }
    }

    /// Goal: a clock is believed by majority, of all voters and not of those that answer.
    #[test]
    fn a_majority_decides_whose_clock_is_right() {
        let at = |ahead: i64| Some((ahead, 2));
        for (others, verdict, offset) in [
            (vec![], Verdict::Trusted, 0),
            (vec![at(0), at(0)], Verdict::Trusted, 0),
            (vec![at(900), at(-900)], Verdict::Trusted, 0),
            // One bad clock, and it is another's.
            (vec![at(3), at(9000)], Verdict::Trusted, -3),
            // It is this one: fast, slow.
            (vec![at(-9000), at(-9003)], Verdict::Off, 9000),
            (vec![at(9000), at(9003)], Verdict::Off, -9000),
            // Two of three are bad, each in its own way.
            (vec![at(5000), at(-5000)], Verdict::Split, 0),
            // Too few answered to say anything, or one that does answer disagrees.
            (vec![None, None], Verdict::Unknown, 0),
            (vec![at(0), None], Verdict::Trusted, 0),
            (vec![at(5000), None], Verdict::Split, -2500),
            // Two voters have no majority but both.
            (vec![at(5000)], Verdict::Split, -2500),
            // The middle of a wide spread is believed, its ends are not unless enough others are near.
            (vec![at(990), at(1980), None, None], Verdict::Off, -990),
            (vec![at(990), at(1980), at(990), None], Verdict::Trusted, -990),
            (vec![at(1500), at(1600), at(1700), None], Verdict::Off, -1550),
        ] {
            let clocks = clocks(&others);
            assert_eq!((clocks.judge(BOUND), clocks.offset_ms()), (verdict, Some(offset)), "{others:?}");
        }
    }

    /// Goal: a slow answer proves nothing against a clock.
    #[test]
    fn what_may_be_an_error_of_measurement_is_not_held_against_anybody() {
        let slow = clocks(&[Some((1400, 500)), Some((1400, 500))]);
        assert_eq!(slow.judge(BOUND), Verdict::Trusted);
        let quick = clocks(&[Some((1400, 300)), Some((1400, 300))]);
        assert_eq!(quick.judge(BOUND), Verdict::Off);
    }

    /// Goal: whoever leads next has a clock that a majority believes.
    #[test]
    fn a_successor_is_one_of_the_majority() {
        let fast = clocks(&[Some((-5000, 1)), Some((-5001, 1)), Some((700, 1)), Some((-5000, 1))]);
        assert_eq!(fast.judge(BOUND), Verdict::Off);
        assert_eq!((1..=5).map(|id| fast.believes(id, BOUND)).collect::<Vec<_>>(), [false, true, true, false, true]);
        let split = clocks(&[Some((-5000, 1)), Some((5000, 1))]);
        assert!((1..=3).all(|id| !split.believes(id, BOUND)));
    }

    /// Goal: a node that does not vote judges itself by those that do.
    #[test]
    fn a_learner_is_judged_by_the_voters() {
        let reading = |ahead_ms| Reading { ahead_ms, error_ms: 1 };
        let learner = |ahead| Clocks { voters: 3, readings: (1..=2).map(|id| (id, reading(ahead))).collect() };
        assert_eq!(learner(10).judge(BOUND), Verdict::Trusted);
        assert_eq!(learner(4000).judge(BOUND), Verdict::Off);
    }

    /// Goal: the worst that a clock can say is judged, too.
    #[test]
    fn absurd_clocks_are_judged() {
        for ahead in [i64::MIN, i64::MAX] {
            assert_eq!(clocks(&[Some((ahead, 0)), Some((ahead, 0))]).judge(BOUND), Verdict::Off);
            assert_eq!(clocks(&[Some((ahead, 0)), Some((0, 0))]).judge(BOUND), Verdict::Trusted);
        }
    }
}
