//! The golden export: the bytes that every verifier of this and of later versions must accept.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use placet_core::evaluate::Rederived;
use placet_core::evidence;
use placet_core::export::{Failure, Kind, Trust, Verified, Verifier};
use placet_core::head::HeadSigner;
use placet_core::ids::EvidenceIndex;

use crate::bytes::{rederive, verify};
use crate::desk::NODE_SECRET;
use crate::story::story;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/export-v1.jsonl");

/// `PLACET_BLESS=1 cargo test -p placet-core --test export` writes the file anew. Only a new version of the format, or a
/// story that was added to, gives a reason to.
static EXPORT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    if std::env::var_os("PLACET_BLESS").is_some() {
        std::fs::write(GOLDEN, story().export()).unwrap();
    }
    std::fs::read(GOLDEN).unwrap()
});

fn trusted() -> Trust {
    Trust { heads: Vec::new(), keys: vec![HeadSigner::new(&NODE_SECRET).public_key()] }
}

#[test]
fn the_same_story_gives_the_golden_export() {
    assert!(story().export() == *EXPORT, "the story or the format changed; see `EXPORT`");
}

#[test]
fn the_golden_export_holds_every_kind_of_entry_and_verifies() {
    let verified = verify(&EXPORT, trusted()).unwrap();
    let alone = verify(&EXPORT, Trust::default()).unwrap();
    assert_eq!(alone, Verified { vouched: None, ..verified.clone() });
    let story = story();
    assert_eq!((verified.entries, verified.chain_head), (story.entries(), story.state.meta.chain_head));
    assert_eq!((verified.heads, verified.vouched), (2, Some(story.entries() - 2)));
    assert_eq!(verified.redacted, 2);
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for bytes in story.state.entries.values() {
        *kinds.entry(evidence::decode(bytes).unwrap().body.kind()).or_default() += 1;
    }
    assert_eq!(kinds.len(), 17, "{kinds:?}");
}

#[test]
fn every_verdict_of_the_golden_export_is_derived_again() {
    let found = rederive(&EXPORT).unwrap();
    let verdicts = found.iter().filter(|one| **one == Rederived::Verdict).count();
    assert!(verdicts > 25, "{verdicts}");
}

/// A verifier before each line, and where the line begins: what is in front of a change need not be read again.
fn before_each_line(export: &[u8]) -> Vec<(usize, Verifier)> {
    let (mut verifier, mut start, mut all) = (Verifier::default(), 0, Vec::new());
    for line in export.split_inclusive(|byte| *byte == b'\n') {
        all.push((start, verifier.clone()));
        verifier.line(line).unwrap();
        start += line.len();
    }
    all
}

/// The failure after `change` of the line that holds `at`; a change may also merge it with the next, or split it.
fn failure(before: &[(usize, Verifier)], at: usize, change: impl FnOnce(&mut Vec<u8>, usize)) -> Failure {
    let line = before.partition_point(|(start, _)| *start <= at) - 1;
    let (start, mut verifier) = before[line].clone();
    let end = before.get(line + 2).map_or(EXPORT.len(), |(next, _)| *next);
    let mut changed = EXPORT[start..end].to_vec();
    change(&mut changed, at - start);
    for line in changed.split_inclusive(|byte| *byte == b'\n') {
        if let Err(failure) = verifier.line(line) {
            return failure;
        }
    }
    verifier.finish().unwrap_err()
}

#[test]
fn a_change_of_any_byte_is_found_and_named() {
    let before = before_each_line(&EXPORT);
    let mut line = 0;
    for at in 0..EXPORT.len() {
        line += usize::from(before.get(line + 1).is_some_and(|(start, _)| *start == at));
        let was = EXPORT[at];
        for byte in [was ^ 1, was ^ 0x20, was ^ 0x80, b'\n', b'"', b'0'] {
            if byte != was {
                let found = failure(&before, at, |bytes, at| bytes[at] = byte);
                named(&found, line, before.len());
            }
        }
        named(&failure(&before, at, |bytes, at| _ = bytes.remove(at)), line, before.len());
        named(&failure(&before, at, |bytes, at| bytes.insert(at, b' ')), line, before.len());
    }
}

/// A damaged line is named by its entry; no damage of bytes alone passes for another kind of failure.
fn named(found: &Failure, line: usize, lines: usize) {
    let index = EvidenceIndex(u64::try_from(line).unwrap());
    let of_entry = line > 0 && line < lines - 1;
    if of_entry {
        assert_eq!(found.entry, Some(index), "{found}");
        assert!(matches!(found.kind, Kind::Hash | Kind::Unreadable), "{found}");
    }
    assert_ne!(found.kind, Kind::Difference);
}

#[test]
fn an_export_ends_where_it_says() {
    let before = before_each_line(&EXPORT);
    let entries = u64::try_from(before.len()).unwrap() - 2;
    for (line, (start, _)) in before.iter().enumerate() {
        let found = verify(&EXPORT[..*start], Trust::default()).unwrap_err();
        assert_eq!(found.kind, Kind::Truncated);
        let next = u64::try_from(line).unwrap().clamp(1, entries + 1);
        assert_eq!(found.entry, Some(EvidenceIndex(next)), "{found}");
        let cut = verify(&EXPORT[..start + 3], Trust::default()).unwrap_err();
        assert_eq!(cut.kind, Kind::Truncated, "{cut}");
    }
    let twice = [&EXPORT[..], b"\n"].concat();
    assert_eq!(verify(&twice, Trust::default()).unwrap_err().kind, Kind::Unreadable);
}
