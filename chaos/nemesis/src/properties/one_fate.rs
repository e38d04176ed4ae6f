//! One fate (architecture §7.3): an intent has at most one of result and expiry, and a second report is refused.
//! Absent on purpose: which fate; see `durable_intent`.

use super::Observed;
use crate::evidence::{Entry, Fact};
use crate::journal::{Report, Told};

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    for (intent, ends) in seen.ends() {
        let Some(Fact::Intent(decided)) = seen.entry(intent).map(|entry| &entry.fact) else {
            found.push(format!("entry {intent} ended and is no intent"));
            continue;
        };
        let positions: Vec<u64> = ends.iter().map(|entry| entry.index).collect();
        if ends.len() > 1 {
            found.push(format!("intent {intent} of {} ended at entries {positions:?}", decided.request));
        }
        let early = |end: &&&Entry| {
            matches!(end.fact, Fact::Expired { .. }) && decided.deadline.is_none_or(|deadline| end.at < deadline)
        };
        if ends.iter().any(|end| early(&end)) {
            found.push(format!("intent {intent} of {} expired before its deadline", decided.request));
        }
    }
    for (permit, known) in &seen.known.permits {
        let accepted = known.reports.iter().filter(|report| matches!(report.told, Told::Accepted { .. })).count();
        if accepted > 1 {
            found.push(format!("{accepted} reports of permit {permit} were accepted"));
        }
        found.extend(unfounded(&known.reports).map(|why| format!("permit {permit}: {why}")));
    }
    found
}

/// A first report that is refused because there was one already, and no attempt before it that may have been it.
fn unfounded(reports: &[Report]) -> Option<String> {
    let refused = reports
        .iter()
        .find(|report| matches!(&report.told, Told::Refused { reason } if reason == "x-placet.already_reported"))?;
    let earlier =
        reports.iter().any(|report| report.sent < refused.sent && !matches!(report.told, Told::Refused { .. }));
    (!earlier).then(|| "its first report was refused as a second one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a result and an expiry of one intent are found, and so are two results.
    #[test]
    fn two_fates_are_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1").report("pmt-1");
        assert!(check(&world.observed()).is_empty());
        let mut twice = world.clone();
        twice.result(1);
        assert_eq!(check(&twice.observed()).len(), 1);
        world.expired(1);
        assert!(!check(&world.observed()).is_empty());
    }

    /// Goal: two accepted reports are found, and a first one that is refused as a second.
    #[test]
    fn reports_that_count_twice_are_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1").report("pmt-1");
        let mut twice = world.clone();
        twice.accepted("pmt-1", 2);
        assert_eq!(check(&twice.observed()).len(), 1);
        let mut refused = World::default();
        refused.permit("r1", "pmt-1");
        refused.refused("pmt-1", "x-placet.already_reported");
        assert_eq!(check(&refused.observed()).len(), 1);
        // After an attempt without an answer it may be the truth.
        let mut unknown = World::default();
        unknown.permit("r1", "pmt-1");
        unknown.unknown("pmt-1");
        unknown.refused("pmt-1", "x-placet.already_reported");
        assert!(check(&unknown.observed()).is_empty());
    }

    /// Goal: an intent that expires before its deadline is found.
    #[test]
    fn an_early_expiry_is_found() {
        let mut world = World::default();
        world.at(1_000).intent("r1", "pmt-1");
        world.at(1_500).expired(1);
        assert_eq!(check(&world.observed()).len(), 1);
    }
}
