//! Conservation (architecture §7.2): settled + reserved never exceeds the limit, per budget and window, at any entry.
//! Recomputed from the draws of the entries: a calendar window by its name, a rolling one from the moments themselves.
//! Absent on purpose: the product's buckets. A rolling budget promises any interval of its length.

use std::collections::{BTreeMap, VecDeque};

use rust_decimal::Decimal;

use super::Observed;
use crate::evidence::{Draw, Fact};
use crate::requests::LIMITS;

/// What still counts in a rolling window: when, of which intent, how much.
type Recent = VecDeque<(i64, u64, Decimal)>;

#[derive(Default)]
struct Books {
    calendar: BTreeMap<(String, String, String), Decimal>,
    rolling: BTreeMap<(String, String), Recent>,
}

pub fn check(seen: &Observed) -> Vec<String> {
    let mut books = Books::default();
    let mut found = Vec::new();
    for entry in &seen.entries {
        match &entry.fact {
            Fact::Intent(decided) => {
                for draw in &decided.draws {
                    found.extend(
                        books.take(draw, entry.at, entry.index).map(|why| format!("entry {}: {why}", entry.index)),
                    );
                }
            }
            Fact::Released { intent, draws } | Fact::Expired { intent, draws } => {
                for draw in draws {
                    found.extend(books.give_back(draw, *intent).map(|why| format!("entry {}: {why}", entry.index)));
                }
            }
            _ => {}
        }
    }
    found
}

impl Books {
    fn take(&mut self, draw: &Draw, at: i64, intent: u64) -> Option<String> {
        let Some((_, limit, rolls)) = LIMITS.iter().find(|(name, ..)| *name == draw.budget) else {
            return Some(format!("no budget is called `{}`", draw.budget));
        };
        let sum = match rolls {
            None => {
                let key = (draw.budget.clone(), draw.window.clone(), draw.scope.clone());
                let sum = self.calendar.entry(key).or_default();
                *sum = sum.checked_add(draw.amount)?;
                *sum
            }
            Some(seconds) => {
                let recent = self.rolling.entry((draw.budget.clone(), draw.scope.clone())).or_default();
                recent.push_back((at, intent, draw.amount));
                recent.retain(|(then, ..)| at.saturating_sub(*then) < seconds * 1000);
                recent.iter().map(|(.., amount)| *amount).sum()
            }
        };
        (sum > Decimal::from(*limit))
            .then(|| format!("`{}` of {} holds {sum}, its limit is {limit}", draw.budget, draw.window))
    }

    fn give_back(&mut self, draw: &Draw, intent: u64) -> Option<String> {
        let recent = self.rolling.get_mut(&(draw.budget.clone(), draw.scope.clone()));
        if let Some(recent) = recent {
            recent.retain(|(_, of, amount)| *of != intent || *amount != draw.amount);
            return None;
        }
        let key = (draw.budget.clone(), draw.window.clone(), draw.scope.clone());
        let Some(sum) = self.calendar.get_mut(&key) else {
            return Some(format!("`{}` gets back what was never taken", draw.budget));
        };
        *sum = sum.checked_sub(draw.amount)?;
        sum.is_sign_negative().then(|| format!("`{}` got back more than was taken: {sum}", draw.budget))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: one more than a calendar window holds is found at its entry, and what was released counts no more.
    #[test]
    fn an_overspent_month_is_found() {
        let mut world = World::default();
        for number in 0..3 {
            world.draws("small", "2026-12", "100").intent(&format!("r{number}"), &format!("pmt-{number}"));
        }
        assert!(check(&world.observed()).is_empty());
        let mut over = world.clone();
        over.draws("small", "2026-12", "0.01").intent("r9", "pmt-9");
        assert_eq!(check(&over.observed()).len(), 1);
        world.released(1, "small", "2026-12", "100");
        world.draws("small", "2026-12", "100").intent("r9", "pmt-9");
        assert!(check(&world.observed()).is_empty());
    }

    /// Goal: a rolling window is any interval of its length, not a bucket.
    #[test]
    fn an_overspent_interval_is_found() {
        let mut world = World::default();
        world.at(9_900).draws("rolling", "PT10S", "40").intent("r1", "pmt-1");
        world.at(19_899).draws("rolling", "PT10S", "21").intent("r2", "pmt-2");
        assert_eq!(check(&world.observed()).len(), 1);
        let mut world = World::default();
        world.at(9_900).draws("rolling", "PT10S", "40").intent("r1", "pmt-1");
        world.at(19_900).draws("rolling", "PT10S", "21").intent("r2", "pmt-2");
        assert!(check(&world.observed()).is_empty());
    }

    /// Goal: a budget that is released twice is found.
    #[test]
    fn a_second_release_is_found() {
        let mut world = World::default();
        world.draws("small", "2026-12", "100").intent("r1", "pmt-1");
        world.released(1, "small", "2026-12", "100");
        world.released(1, "small", "2026-12", "100");
        assert_eq!(check(&world.observed()).len(), 1);
    }
}
