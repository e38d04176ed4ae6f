//! Same answer (architecture §7.6): one request id, one verdict and reason, one permit, one entry, whichever node
//! answers, before and after failover.
//! Absent on purpose: request ids that come back for something else; no client of a run does that.

use std::collections::BTreeMap;

use super::Observed;

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    let mut recorded: BTreeMap<&str, u64> = BTreeMap::new();
    for (entry, decided) in seen.decisions() {
        if let Some(before) = recorded.insert(&decided.request, entry.index) {
            found.push(format!("request {} was decided at entries {before} and {}", decided.request, entry.index));
        }
    }
    let by_index: BTreeMap<u64, _> = seen.decisions().map(|(entry, decided)| (entry.index, decided)).collect();
    for (request, known) in &seen.known.requests {
        let said = |one: &crate::journal::Answered| {
            (one.verdict.clone(), one.reason.clone(), one.permit.clone(), one.approval.clone(), one.evidence)
        };
        let Some(first) = known.answers.first() else { continue };
        for other in known.answers.iter().filter(|other| said(other) != said(first)) {
            found.push(format!("request {request} was answered {first:?} and {other:?}"));
        }
        let agrees = by_index.get(&first.evidence).is_some_and(|decided| {
            decided.request == *request && decided.verdict == first.verdict && decided.reason == first.reason
        });
        if !agrees {
            found.push(format!("request {request} was answered {first:?}, which its entry does not say"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a second answer that differs is found, and one that the evidence does not hold.
    #[test]
    fn another_answer_is_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1");
        world.answer("r1", "permit", Some("pmt-1"), 1);
        assert!(check(&world.observed()).is_empty());
        let mut other = world.clone();
        other.answer("r1", "deny", None, 1);
        assert_eq!(check(&other.observed()).len(), 1);
        world.answer("r2", "permit", Some("pmt-2"), 1);
        assert_eq!(check(&world.observed()).len(), 1);
    }

    /// Goal: a request id that was decided twice is found, even if nobody received the second answer.
    #[test]
    fn a_second_decision_is_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1");
        world.intent("r1", "pmt-2");
        assert_eq!(check(&world.observed()).len(), 1);
    }
}
