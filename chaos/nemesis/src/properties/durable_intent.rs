//! Durable intent (architecture §7.1): every permit that a client ever received is in the evidence, and so is every
//! report that was accepted.
//! Absent on purpose: permits that nobody received; see `intents`.

use std::collections::BTreeMap;

use super::Observed;
use crate::evidence::{Fact, digest};
use crate::journal::Told;

pub fn check(seen: &Observed) -> Vec<String> {
    let intents: BTreeMap<&str, (u64, &str)> = seen
        .intents()
        .filter_map(|(entry, decided)| {
            Some((decided.permit_digest.as_deref()?, (entry.index, decided.request.as_str())))
        })
        .collect();
    let mut found = Vec::new();
    for (permit, known) in &seen.known.permits {
        let Some((index, request)) = intents.get(digest(permit).as_str()).copied() else {
            found.push(format!("permit {permit} of request {} was received and is not in the evidence", known.request));
            continue;
        };
        if request != known.request {
            found.push(format!("permit {permit} was received for {} and is recorded for {request}", known.request));
        }
        for report in &known.reports {
            let Told::Accepted { evidence } = report.told else { continue };
            let fact = seen.entry(evidence).map(|entry| &entry.fact);
            if !matches!(fact, Some(Fact::Result { intent }) if *intent == index) {
                found
                    .push(format!("the report of permit {permit} was accepted as entry {evidence}, which is {fact:?}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a permit that was received and is not recorded is found, and so is an accepted report.
    #[test]
    fn a_forgotten_permit_and_a_forgotten_report_are_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1").report("pmt-1");
        assert!(check(&world.observed()).is_empty());
        world.answer("r2", "permit", Some("pmt-2"), 99);
        assert_eq!(check(&world.observed()).len(), 1);
        world.accepted("pmt-1", 77);
        assert_eq!(check(&world.observed()).len(), 2);
    }

    /// Goal: a permit that is recorded for another request is found.
    #[test]
    fn a_permit_of_another_request_is_found() {
        let mut world = World::default();
        let index = world.intent("r1", "pmt-1");
        world.answer("r2", "permit", Some("pmt-1"), index);
        assert_eq!(check(&world.observed()).len(), 1);
    }
}
