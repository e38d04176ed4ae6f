//! What must hold (architecture §7), one property per file, each with its own checker over what clients know and what
//! the evidence says. A checker that found nothing proves nothing unless it can find something: each file has a forged
//! history that it must refuse.
//! Absent on purpose: repair. A finding is a sentence for a person.

mod agreement;
mod conservation;
mod durable_intent;
mod intents;
mod one_fate;
mod order;
mod refusals;
mod same_answer;
mod single_use;
mod switch;

#[cfg(test)]
mod forge;

use std::collections::BTreeMap;

use crate::cluster::View;
use crate::evidence::{Decided, Entry, Fact};
use crate::journal::Known;

/// An intent that the cluster lists as unresolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub permit: String,
    pub request: String,
    pub action: String,
    pub evidence: u64,
}

/// Everything there is to compare at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub known: Known,
    pub entries: Vec<Entry>,
    /// What each node exported while it led: its size and its hash.
    pub exports: BTreeMap<u64, (u64, String)>,
    pub views: Vec<View>,
    pub open: Vec<Open>,
}

impl Observed {
    /// Decisions of both kinds, by position.
    fn decisions(&self) -> impl Iterator<Item = (&Entry, &Decided)> {
        self.entries.iter().filter_map(|entry| match &entry.fact {
            Fact::Intent(decided) | Fact::Decision(decided) => Some((entry, decided)),
            _ => None,
        })
    }

    /// Permits as recorded, by position.
    fn intents(&self) -> impl Iterator<Item = (&Entry, &Decided)> {
        self.entries.iter().filter_map(|entry| match &entry.fact {
            Fact::Intent(decided) => Some((entry, decided)),
            _ => None,
        })
    }

    /// Intents that have an end, with the entries that end them.
    fn ends(&self) -> BTreeMap<u64, Vec<&Entry>> {
        let mut ends: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            if let Fact::Result { intent } | Fact::Expired { intent, .. } = &entry.fact {
                ends.entry(*intent).or_default().push(entry);
            }
        }
        ends
    }

    fn entry(&self, index: u64) -> Option<&Entry> {
        let at = usize::try_from(index.checked_sub(1)?).ok()?;
        self.entries.get(at).filter(|entry| entry.index == index)
    }
}

/// A property: its name, the sentence of the architecture that it guards, and its checker.
pub type Property = (&'static str, &'static str, fn(&Observed) -> Vec<String>);

/// All of them. Liveness, the eighth, is measured by the campaigns.
pub const ALL: [Property; 10] = [
    ("durable intent", "architecture §7.1", durable_intent::check),
    ("conservation", "architecture §7.2", conservation::check),
    ("one fate", "architecture §7.3", one_fate::check),
    ("single use", "architecture §7.4", single_use::check),
    ("no way round the switch", "architecture §7.5", switch::check),
    ("same answer", "architecture §7.6", same_answer::check),
    ("agreement", "architecture §7.7", agreement::check),
    ("unresolved intents", "architecture §7, last paragraph", intents::check),
    ("real-time order", "architecture §1: no reply before its batch is applied", order::check),
    ("honest refusals", "architecture §1: unavailable means that nothing happened", refusals::check),
];

/// Findings of one property that a report shows; the rest is counted.
pub const SHOWN: usize = 5;

/// Checks all properties; the findings of each.
pub fn check(seen: &Observed) -> Vec<(&'static str, Vec<String>)> {
    ALL.iter().map(|(name, _, check)| (*name, check(seen))).collect()
}
