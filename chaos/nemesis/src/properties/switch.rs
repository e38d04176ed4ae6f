//! No way round the switch (architecture §7.5): no permit has a log position between an engaged kill switch and its
//! release, and an engagement that was acknowledged is in the evidence.
//! Absent on purpose: permits that were asked for before and answered after; see `order`.

use super::Observed;
use crate::evidence::Fact;

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    let mut engaged: Option<u64> = None;
    for entry in &seen.entries {
        match &entry.fact {
            Fact::Switch { engaged: true, .. } => engaged = engaged.or(Some(entry.index)),
            Fact::Switch { engaged: false, .. } => engaged = None,
            Fact::Intent(decided) => {
                if let Some(since) = engaged {
                    let request = &decided.request;
                    found.push(format!(
                        "entry {} permits {request}; the switch is engaged since entry {since}",
                        entry.index
                    ));
                }
            }
            _ => {}
        }
    }
    for switch in seen.known.switches.iter().filter(|switch| switch.acknowledged.is_some()) {
        let recorded = seen.entries.iter().any(|entry| {
            matches!(&entry.fact, Fact::Switch { engaged, origin } if *engaged == switch.engaged && *origin == switch.origin)
        });
        if !recorded {
            found.push(format!("setting {} of the switch was acknowledged and is not recorded", switch.origin));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a permit behind an engaged switch is found, one behind its release is none.
    #[test]
    fn a_permit_past_the_switch_is_found() {
        let mut world = World::default();
        world.switch("one", true).switch("two", false).intent("r1", "pmt-1");
        assert!(check(&world.observed()).is_empty());
        world.switch("three", true).intent("r2", "pmt-2");
        assert_eq!(check(&world.observed()).len(), 1);
    }

    /// Goal: an acknowledged engagement that is not recorded is found.
    #[test]
    fn a_forgotten_engagement_is_found() {
        let mut world = World::default();
        world.acknowledged("one", true);
        assert_eq!(check(&world.observed()).len(), 1);
        world.switch("one", true);
        assert!(check(&world.observed()).is_empty());
    }
}
