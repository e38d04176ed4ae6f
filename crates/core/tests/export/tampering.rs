//! What someone who can rewrite the whole file would do: change the record, compute every hash anew, and sign with a key
//! of their own. The record itself, a head that was kept, or a trusted key tells.

use placet_core::event::{Body, Decided, Entry};
use placet_core::evidence;
use placet_core::exact::Amount;
use placet_core::export::{Failure, Kind, Trust};
use placet_core::head::{Head, HeadSigner, SignedHead};
use placet_core::ids::{EvidenceIndex, Hash, PolicyDigest};
use placet_core::merkle::{Frontier, leaf_hash};
use placet_core::policy::PolicySet;
use placet_core::reply::Verdict;
use placet_core::trace::Trace;

use crate::bytes::{rederive, verify};
use crate::desk::{NODE_SECRET, export};
use crate::story::story;

fn entries() -> Vec<Entry> {
    story().state.entries.values().map(|bytes| evidence::decode(bytes).unwrap()).collect()
}

/// Numbers and chains the entries anew and signs their heads with another key.
fn rewritten(entries: Vec<Entry>) -> Vec<u8> {
    let forger = HeadSigner::new(&[66; 32]);
    let (mut prev, mut tree, mut all) = (Hash::GENESIS, Frontier::default(), Vec::new());
    for mut entry in entries {
        entry.prev = prev;
        entry.index = EvidenceIndex(tree.size()).next();
        if let Body::HeadSigned(_) = entry.body {
            let head = Head { at: entry.at, chain_head: prev, root: tree.root(), size: tree.size() };
            entry.body = Body::HeadSigned(forger.sign(head));
        }
        let bytes = evidence::encode(&entry);
        prev = evidence::hash(&bytes);
        tree.push(leaf_hash(&prev));
        all.push(bytes);
    }
    export(all.iter().map(Vec::as_slice))
}

/// The last head that was signed in truth, as an auditor may have kept it.
fn kept() -> SignedHead {
    let signed = |entry: Entry| match entry.body {
        Body::HeadSigned(signed) => Some(signed),
        _ => None,
    };
    entries().into_iter().filter_map(signed).next_back().unwrap()
}

fn with_head() -> Trust {
    Trust { heads: vec![kept()], keys: Vec::new() }
}

fn with_key() -> Trust {
    Trust { heads: Vec::new(), keys: vec![HeadSigner::new(&NODE_SECRET).public_key()] }
}

/// The position of the first entry that `wanted` wants.
fn find(entries: &[Entry], wanted: impl Fn(&Body) -> bool) -> usize {
    entries.iter().position(|entry| wanted(&entry.body)).unwrap()
}

fn decided(entry: &mut Entry) -> &mut Decided {
    match &mut entry.body {
        Body::Decision(decided) | Body::ExecIntent(decided) => decided,
        other => panic!("not a decision: {other:?}"),
    }
}

/// The rewritten export is consistent in itself, and fails the three tests that look further.
fn found(entries: Vec<Entry>) -> Failure {
    let export = rewritten(entries);
    verify(&export, Trust::default()).unwrap();
    assert_eq!(verify(&export, with_key()).unwrap_err().kind, Kind::Signature);
    let kind = verify(&export, with_head()).unwrap_err().kind;
    assert!(matches!(kind, Kind::Contradiction | Kind::Truncated), "{kind}");
    let found = rederive(&export).unwrap_err();
    assert_eq!(found.kind, Kind::Difference, "{found}");
    found
}

fn at(position: usize) -> Option<EvidenceIndex> {
    Some(EvidenceIndex(u64::try_from(position).unwrap()).next())
}

fn is_transfer(body: &Body) -> bool {
    matches!(body, Body::ExecIntent(decided) if decided.action_type.as_str() == "payments.transfer")
}

#[test]
fn a_rewriting_that_changes_nothing_is_only_another_signature() {
    let export = rewritten(entries());
    rederive(&export).unwrap();
    assert_eq!(verify(&export, with_key()).unwrap_err().kind, Kind::Signature);
    assert_eq!(verify(&story().export(), with_head()).unwrap().heads_given, 1);
}

#[test]
fn a_changed_amount() {
    let mut changed = entries();
    let position = find(&changed, is_transfer);
    let intent = decided(&mut changed[position]);
    intent.params = intent.params.replace("120.50", "20.50");
    let failure = found(changed.clone());
    assert_eq!(failure.entry, at(position));
    assert!(failure.detail.contains("`request_digest`"), "{failure}");
    // The tamperer carries it through the whole entry; then what was left for the next denial does not follow.
    let amount = Amount::parse("20.5").unwrap();
    let intent = decided(&mut changed[position]);
    intent.cost = Some(amount);
    intent.draws.iter_mut().filter(|draw| draw.budget == "eur-daily").for_each(|draw| draw.amount = amount);
    let request =
        placet_core::request::DecideRequest::of_record(changed[position].protocol, decided(&mut changed[position]))
            .unwrap();
    decided(&mut changed[position]).request_digest = request.digest(&request.params_canonical());
    let intent = decided(&mut changed[position]);
    let mut checks = intent.trace.checks().unwrap();
    checks.iter_mut().for_each(|check| check.value = check.value.replace("120.5", "20.5").into());
    intent.trace = Trace::of(checks);
    let denial = find(&changed, |body| matches!(body, Body::Decision(decided) if decided.budget.is_some()));
    let failure = found(changed);
    assert_eq!(failure.entry, at(denial), "{failure}");
}

#[test]
fn a_changed_verdict() {
    let mut changed = entries();
    let position = find(&changed, |body| matches!(body, Body::Decision(decided) if decided.budget.is_some()));
    decided(&mut changed[position]).verdict = Verdict::DryRun;
    let failure = found(changed);
    assert_eq!(failure.entry, at(position));
    assert!(failure.detail.contains("`verdict` is dry_run"), "{failure}");
}

#[test]
fn a_removed_entry() {
    let all = entries();
    let position = find(&all, is_transfer);
    let mut removed = all.clone();
    removed.remove(position);
    // The report that followed it now reports nothing.
    assert_eq!(found(removed).entry, at(position));
    // Without new numbers, the entry behind stands in its place.
    let lines: Vec<Vec<u8>> = all.iter().map(evidence::encode).collect();
    let mut gone = lines.clone();
    gone.remove(position);
    let failure = verify(&export(gone.iter().map(Vec::as_slice)), Trust::default()).unwrap_err();
    assert_eq!((failure.kind, failure.entry), (Kind::Chain, at(position)));
}

#[test]
fn a_swapped_pair() {
    let mut all = entries();
    let position = find(&all, is_transfer);
    let mut lines: Vec<Vec<u8>> = all.iter().map(evidence::encode).collect();
    lines.swap(position, position + 1);
    let failure = verify(&export(lines.iter().map(Vec::as_slice)), Trust::default()).unwrap_err();
    assert_eq!((failure.kind, failure.entry), (Kind::Chain, at(position)));
    all.swap(position, position + 1);
    assert_eq!(found(all).entry, at(position));
}

#[test]
fn a_policy_replaced_by_another() {
    let all = entries();
    let position = find(&all, |body| matches!(body, Body::PolicyChange(_)));
    let Body::PolicyChange(change) = &all[position].body else { panic!() };
    let document = change.document.clone().unwrap();
    let lax = document.replace(r#""max":"400""#, r#""max":"4000""#);
    assert_ne!(lax, document);
    let replace = |entries: &mut Vec<Entry>, digest: &PolicyDigest| {
        for entry in entries.iter_mut() {
            if entry.policy.as_ref() == Some(&change.digest) {
                entry.policy = Some(digest.clone());
            }
            if let Body::PolicyChange(other) = &mut entry.body {
                if other.digest == change.digest {
                    other.document = Some(lax.clone());
                    other.digest = digest.clone();
                }
                if other.previous.as_ref() == Some(&change.digest) {
                    other.previous = Some(digest.clone());
                }
            }
        }
    };
    let mut changed = all.clone();
    replace(&mut changed, &change.digest);
    let failure = found(changed);
    assert_eq!(failure.entry, at(position));
    assert!(failure.detail.contains("`digest`"), "{failure}");
    // With its own digest everywhere, the first denial that it would not have given tells.
    let digest = PolicySet::from_canonical(&lax).unwrap().digest().clone();
    let mut changed = all.clone();
    replace(&mut changed, &digest);
    let bounds = find(&all, |body| matches!(body, Body::Decision(decided) if decided.params.contains("400.01")));
    assert_eq!(found(changed).entry, at(bounds));
}

#[test]
fn a_truncated_tail_against_a_later_head() {
    let all = entries();
    let head = kept();
    for left in [1, 7, usize::try_from(head.head.size).unwrap() - 1] {
        let lines: Vec<Vec<u8>> = all.iter().take(left).map(evidence::encode).collect();
        let short = export(lines.iter().map(Vec::as_slice));
        verify(&short, Trust::default()).unwrap();
        let failure = verify(&short, with_head()).unwrap_err();
        assert_eq!((failure.kind, failure.entry), (Kind::Truncated, at(left)));
    }
}

#[test]
fn heads_that_do_not_fit() {
    let all = entries();
    let position = find(&all, |body| matches!(body, Body::HeadSigned(_)));
    let Body::HeadSigned(signed) = all[position].body.clone() else { panic!() };
    let with = |signed: SignedHead| {
        let mut lines: Vec<Vec<u8>> = all.iter().map(evidence::encode).collect();
        lines[position] = evidence::encode(&Entry { body: Body::HeadSigned(signed), ..all[position].clone() });
        verify(&export(lines.iter().map(Vec::as_slice)), Trust::default()).unwrap_err()
    };
    let forged = |change: &dyn Fn(&mut Head)| {
        let mut head = signed.head.clone();
        change(&mut head);
        with(HeadSigner::new(&NODE_SECRET).sign(head))
    };
    for failure in [
        forged(&|head| head.size -= 1),
        forged(&|head| head.root = Hash::GENESIS),
        forged(&|head| head.chain_head = Hash::GENESIS),
    ] {
        assert_eq!((failure.kind, failure.entry), (Kind::Contradiction, at(position)));
    }
    let failure = with(SignedHead { head: Head { size: 1, ..signed.head.clone() }, ..signed.clone() });
    assert_eq!((failure.kind, failure.entry), (Kind::Signature, at(position)));
    // A head of the auditor that nobody signed, or another than the trusted key.
    let unsigned = SignedHead { head: Head { size: 1, ..signed.head.clone() }, ..signed.clone() };
    let foreign = HeadSigner::new(&[66; 32]).sign(signed.head.clone());
    for (head, keys) in [(unsigned, Vec::new()), (foreign, with_key().keys)] {
        let failure = verify(&story().export(), Trust { heads: vec![head], keys }).unwrap_err();
        assert_eq!((failure.kind, failure.line), (Kind::Signature, 0));
    }
}
