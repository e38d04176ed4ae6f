//! Agreement (architecture §7.7): all nodes that applied index i have the same chain head at i: at the end, byte for
//! byte, and at every moment of the run at which a node told its head.
//! Absent on purpose: the chain's arithmetic, which `placet evidence verify` and a foreign verifier check.

use super::Observed;

pub fn check(seen: &Observed) -> Vec<String> {
    let mut found = Vec::new();
    let mut expected = 1;
    let mut prev: Option<&str> = None;
    for entry in &seen.entries {
        if entry.index != expected || prev.is_some_and(|prev| prev != entry.prev) {
            found.push(format!("entry {} does not follow the one before it", entry.index));
        }
        expected = entry.index + 1;
        prev = Some(&entry.hash);
    }
    let mut exports = seen.exports.iter();
    if let Some((first, one)) = exports.next() {
        for (node, other) in exports.filter(|(_, other)| *other != one) {
            found.push(format!("node {first} exported {one:?}, node {node} {other:?}"));
        }
    }
    for view in &seen.views {
        if seen.entry(view.evidence).is_none_or(|entry| entry.hash != view.head) || view.evidence + 1 != expected {
            found.push(format!("node {} ends at entry {} with head {}", view.node, view.evidence, view.head));
        }
    }
    for (node, index, head) in seen.known.heads.iter().filter(|(_, index, _)| *index > 0) {
        if seen.entry(*index).is_none_or(|entry| entry.hash != *head) {
            found.push(format!("node {node} had head {head} at entry {index}, which the evidence does not have"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: another head on the way, another export, another end and a broken chain are found.
    #[test]
    fn another_history_is_found() {
        let mut world = World::default();
        world.permit("r1", "pmt-1").report("pmt-1");
        let mut seen = world.observed();
        seen.known.heads.push((1, 1, seen.entries[0].hash.clone()));
        seen.exports = [(1, (9, "a".to_owned())), (2, (9, "a".to_owned()))].into();
        assert!(check(&seen).is_empty());
        let mut other = seen.clone();
        other.known.heads.push((2, 1, "another".to_owned()));
        assert_eq!(check(&other).len(), 1);
        let mut other = seen.clone();
        other.exports.insert(3, (8, "b".to_owned()));
        assert_eq!(check(&other).len(), 1);
        let mut other = seen.clone();
        other.views[0].evidence = 1;
        assert_eq!(check(&other).len(), 1);
        seen.entries[1].prev = "another".to_owned();
        assert_eq!(check(&seen).len(), 1);
    }
}
