//! Honest refusals (architecture §1, docs/ERRORS.md): `unavailable` means that nothing happened. A request whose every
//! attempt was refused so is not in the evidence.
//! Absent on purpose: requests that got an answer later, or may have.

use super::Observed;

pub fn check(seen: &Observed) -> Vec<String> {
    let decided = seen.decisions();
    let refused = decided.filter(|(_, decided)| {
        seen.known.requests.get(&decided.request).is_some_and(|known| known.answers.is_empty() && !known.maybe)
    });
    refused
        .map(|(entry, decided)| {
            format!("every attempt at {} was refused, and entry {} decides it", decided.request, entry.index)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a decision that every node said had not happened is found.
    #[test]
    fn a_refusal_that_was_none_is_found() {
        let mut world = World::default();
        world.asked("r1", false);
        assert!(check(&world.observed()).is_empty());
        world.intent("r1", "pmt-1");
        assert_eq!(check(&world.observed()).len(), 1);
        world.asked("r1", true);
        assert!(check(&world.observed()).is_empty());
    }
}
