//! Single use (architecture §7.4): an approval is consumed at most once; one human decision, one permit, and none before
//! as many people as the policy asks have granted, the proposer not among them.
//! Absent on purpose: who may approve, which the doors' tests cover.

use std::collections::BTreeMap;

use super::Observed;
use crate::evidence::Fact;
use crate::requests::QUORUM;

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    let mut opened: BTreeMap<&str, &str> = BTreeMap::new();
    let mut granted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut consumed: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &seen.entries {
        match &entry.fact {
            Fact::Approval { id, to, votes } if to == "approved" => {
                granted.insert(id, votes.iter().map(String::as_str).collect());
            }
            Fact::Intent(decided) | Fact::Decision(decided) => {
                if let Some(id) = &decided.opens {
                    opened.insert(id, &entry.principal);
                }
                let Some(id) = decided.consumes.as_deref() else { continue };
                if let Some(before) = consumed.insert(id, entry.index) {
                    found.push(format!("approval {id} was used at entries {before} and {}", entry.index));
                }
                let votes = granted.get(id).cloned().unwrap_or_default();
                let proposer = opened.get(id).copied().unwrap_or_default();
                if votes.len() < QUORUM || votes.contains(&proposer) {
                    found.push(format!(
                        "entry {} uses approval {id} of {proposer:?} with the votes {votes:?}",
                        entry.index
                    ));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    fn proposed_and_granted(votes: &[&str]) -> World {
        let mut world = World::default();
        world.proposal("r1", "apr-1").granted("apr-1", votes);
        world.consumes("apr-1").intent("r2", "pmt-1");
        world
    }

    /// Goal: an approval that is used twice is found.
    #[test]
    fn a_second_use_is_found() {
        let mut world = proposed_and_granted(&["A1", "A2"]);
        assert!(check(&world.observed()).is_empty());
        world.consumes("apr-1").intent("r3", "pmt-2");
        assert_eq!(check(&world.observed()).len(), 1);
    }

    /// Goal: a permit with too few votes, or with the proposer's own, is found.
    #[test]
    fn a_permit_without_its_people_is_found() {
        assert_eq!(check(&proposed_and_granted(&["A1"]).observed()).len(), 1);
        assert_eq!(check(&proposed_and_granted(&["A1", "P0"]).observed()).len(), 1);
    }
}
