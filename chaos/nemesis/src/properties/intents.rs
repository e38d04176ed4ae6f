//! Unresolved intents (architecture §7, last paragraph): the list is exactly what the evidence leaves open, and holds
//! exactly the permits whose client died, was not answered, or whose report has no answer.
//! Absent on purpose: permits that expired; they are resolved by an event.

use std::collections::BTreeMap;

use super::Observed;
use crate::evidence::digest;
use crate::journal::Told;

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    let ends = seen.ends();
    let unresolved: BTreeMap<u64, &str> = seen
        .intents()
        .filter(|(entry, _)| !ends.contains_key(&entry.index))
        .map(|(entry, decided)| (entry.index, decided.request.as_str()))
        .collect();
    let listed: BTreeMap<u64, &str> = seen.open.iter().map(|open| (open.evidence, open.request.as_str())).collect();
    for (index, request) in &unresolved {
        if listed.get(index) != Some(request) {
            found.push(format!("intent {index} of {request} has no end and is not listed"));
        }
    }
    for open in &seen.open {
        if unresolved.get(&open.evidence) != Some(&open.request.as_str()) {
            found.push(format!("intent {} of {} is listed and has an end, or never was", open.evidence, open.request));
        }
        found.extend(
            unexpected(seen, &open.permit, &open.request).map(|why| format!("intent {}: {why}", open.evidence)),
        );
    }
    let by_digest: BTreeMap<&str, u64> =
        seen.intents().filter_map(|(entry, one)| Some((one.permit_digest.as_deref()?, entry.index))).collect();
    for (permit, known) in seen.known.permits.iter().filter(|(_, known)| known.reports.is_empty()) {
        let Some(index) = by_digest.get(digest(permit).as_str()) else { continue };
        let resolved = ends
            .get(index)
            .is_some_and(|ends| ends.iter().any(|end| matches!(end.fact, crate::evidence::Fact::Result { .. })));
        if resolved {
            found.push(format!("permit {permit} of {} was never reported and has a result", known.request));
        }
    }
    found
}

/// Why an open intent should not be one.
fn unexpected(seen: &Observed, permit: &str, request: &str) -> Option<String> {
    let Some(asked) = seen.known.requests.get(request) else {
        return Some(format!("nobody asked for {request}"));
    };
    match seen.known.permits.get(permit) {
        Some(known) if known.reports.iter().any(|report| matches!(report.told, Told::Accepted { .. })) => {
            Some(format!("permit {permit} was reported and is open"))
        }
        Some(known) if known.reports.iter().any(|report| matches!(report.told, Told::Refused { .. })) => {
            Some(format!("permit {permit} is open, and its report was refused"))
        }
        Some(_) => None,
        None if !asked.answers.is_empty() => Some(format!("request {request} was answered without permit {permit}")),
        None if asked.maybe => None,
        None => Some(format!("permit {permit} reached nobody, and no answer to {request} was lost")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: an open intent that is not listed, and a listed one that has an end, are found.
    #[test]
    fn a_list_that_differs_from_the_evidence_is_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1").permit("r2", "pmt-2").report("pmt-2");
        let mut seen = world.observed();
        assert!(check(&seen).is_empty());
        assert_eq!(seen.open.len(), 1);
        let open = seen.open.pop().unwrap();
        assert_eq!(check(&seen).len(), 1);
        seen.open.push(open.clone());
        let (request, permit) = ("r2".to_owned(), "pmt-2".to_owned());
        seen.open.push(crate::properties::Open { evidence: 2, request, permit, ..Default::default() });
        assert!(!check(&seen).is_empty());
    }

    /// Goal: an open intent that nobody asked for, one that reached nobody although no answer was lost, and one whose
    /// report was accepted are found.
    #[test]
    fn an_open_intent_that_no_client_explains_is_found() {
        let mut world = World::default();
        world.intent("r1", "pmt-1");
        assert_eq!(check(&world.observed()).len(), 1);
        world.asked("r1", false);
        assert_eq!(check(&world.observed()).len(), 1);
        world.asked("r1", true);
        assert!(check(&world.observed()).is_empty());
        let mut world = World::default();
        world.permit("r1", "pmt-1");
        world.accepted("pmt-1", 9);
        assert_eq!(check(&world.observed()).len(), 1);
    }

    /// Goal: a result that nobody reported is found.
    #[test]
    fn a_result_out_of_nothing_is_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1");
        world.result(1);
        assert_eq!(check(&world.observed()).len(), 1);
    }
}
