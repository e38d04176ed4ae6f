//! A cluster that was restored from a backup: the chain goes on, under another name.

use std::sync::LazyLock;

use placet_core::evaluate::{cluster_id, mandate_statement, ratification_statement};
use placet_core::event::{Body, Entry, MandateSet, Restored};
use placet_core::evidence;
use placet_core::export::{Kind, Trust};
use placet_core::head::SignedHead;
use placet_core::ids::{ActionType, ApprovalId, Hash};
use placet_core::op::{Op, Reject};
use placet_core::state::Read;
use serde_json::json;

use crate::bytes::{rederive, verify};
use crate::desk::{Desk, authorised, export};
use crate::story::story;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/export-restored-v1.jsonl");

fn name(byte: u8) -> Hash {
    Hash([byte; 32])
}

fn id(desk: &Desk) -> Option<Hash> {
    cluster_id(&desk.state, &desk.state.meta().unwrap()).unwrap()
}

/// A short life, a backup, the life that the backup missed, and the restored cluster's life.
fn lives() -> (Desk, SignedHead, Desk) {
    let mut old = story();
    let mut new = Desk::new();
    new.state = old.state.clone();
    new.now = old.now;
    old.decide("agent-1", "payments.transfer", json!({"payee": "lost", "amount_eur": "2"}), json!({}));
    let lost = old.sign_head();
    new.wait(3600);
    new.restore(name(0xc1));
    new.decide("agent-1", "payments.transfer", json!({"payee": "alice", "amount_eur": "3"}), json!({}));
    new.sign_head();
    (old, lost, new)
}

static LIVES: LazyLock<(Desk, SignedHead, Desk)> = LazyLock::new(lives);

/// `PLACET_BLESS=1 cargo test -p placet-core --test export` writes the file anew; see `golden.rs` for when.
#[test]
fn the_same_lives_give_the_golden_export() {
    let (_, _, new) = &*LIVES;
    if std::env::var_os("PLACET_BLESS").is_some() {
        std::fs::write(GOLDEN, new.export()).unwrap();
    }
    assert!(new.export() == std::fs::read(GOLDEN).unwrap(), "the lives or the format changed");
}

/// Goal: the chain goes on over the restoration, heads up to the backup fit, and those of the lost life do not.
#[test]
fn a_restored_chain_goes_on_and_is_another_one() {
    let (old, lost, new) = &*LIVES;
    let backup = story();
    let found = verify(&new.export(), Trust::default()).unwrap();
    assert_eq!(found.restored, Some(backup.entries()));
    assert_eq!(found.heads, 3);
    rederive(&new.export()).unwrap();
    let kept = story().state.entries.values().rev().find_map(|bytes| match evidence::decode(bytes).unwrap().body {
        Body::HeadSigned(signed) => Some(signed),
        _ => None,
    });
    let trust = Trust { heads: kept.into_iter().collect(), keys: Vec::new() };
    assert_eq!(verify(&new.export(), trust).unwrap().heads_given, 1);
    let trust = || Trust { heads: vec![lost.clone()], keys: Vec::new() };
    verify(&old.export(), trust()).unwrap();
    let failure = verify(&new.export(), trust()).unwrap_err();
    assert_eq!(failure.kind, Kind::Contradiction);
    assert!(failure.detail.contains(&format!("from a backup of {} entries", backup.entries())), "{failure}");
}

/// Goal: the name changes with every restoration and never comes back.
#[test]
fn every_restoration_is_another_cluster() {
    assert_eq!(id(&Desk::new()), None);
    let mut desk = story();
    let first = evidence::hash(&desk.state.entries[&placet_core::ids::EvidenceIndex(1)]);
    assert_eq!(id(&desk), Some(first));
    desk.restore(name(1));
    assert_eq!(id(&desk), Some(name(1)));
    desk.restore(name(2));
    assert_eq!(id(&desk), Some(name(2)));
    let last = desk.state.entries.values().next_back().unwrap();
    let Body::Restored(last) = evidence::decode(last).unwrap().body else { panic!() };
    assert_eq!((last.previous, last.entries), (name(1), desk.entries() - 1));
    rederive(&desk.export()).unwrap();
    let mut empty = Desk::new();
    empty.restore(name(3));
    assert_eq!(id(&empty), Some(name(3)));
    rederive(&empty.export()).unwrap();
}

/// Goal: the mandate authority's word for the cluster before is no word for the restored one, nor the other way round.
#[test]
fn statements_are_for_one_cluster() {
    let mut desk = Desk::new();
    desk.publish(crate::story::POLICY);
    let treaty = ActionType::new("treaty.sign");
    let waits = desk.decide("agent-3", "treaty.sign", json!({"with": "x"}), json!({})).approval_id.unwrap();
    let first = id(&desk).unwrap();
    let mut restored = Desk::new();
    (restored.state, restored.now) = (desk.state.clone(), desk.now);
    restored.restore(name(7));

    let mandate = |cluster: Hash| {
        Op::SetMandate(MandateSet {
            action_type: treaty.clone(),
            authority: None,
            denied: true,
            serial: 1,
            signature: authorised(&mandate_statement(cluster, &treaty, true, 1)),
        })
    };
    let forbidden = |desk: &mut Desk, op: Op| {
        let refused = desk.try_call("treaty-desk", op);
        let recorded = matches!(refused, Ok(placet_core::op::Answer::Refused(_)));
        assert!(recorded || matches!(refused, Err(Reject::Forbidden { .. })), "{refused:?}");
    };
    forbidden(&mut restored, mandate(first));
    forbidden(&mut desk, mandate(name(7)));
    restored.call("treaty-desk", mandate(name(7)));
    desk.call("treaty-desk", mandate(first));

    let ratify = |desk: &Desk, cluster: Option<Hash>, id: &ApprovalId| {
        let signature = authorised(&ratification_statement(cluster, &desk.state.approvals[id], true));
        Op::RatifyApproval { id: id.clone(), approved: true, signature }
    };
    let (old, new) = (ratify(&desk, None, &waits), ratify(&restored, Some(name(7)), &waits));
    forbidden(&mut restored, old.clone());
    forbidden(&mut desk, new.clone());
    restored.call("treaty-desk", new);
    desk.call("treaty-desk", old);
    rederive(&restored.export()).unwrap();
}

/// Goal: an entry that says something else about its backup is found by both checks, whatever is hashed anew.
#[test]
fn a_restoration_says_what_stands_before_it() {
    let (_, _, new) = &*LIVES;
    let entries: Vec<Entry> = new.state.entries.values().map(|bytes| evidence::decode(bytes).unwrap()).collect();
    let at = entries.iter().position(|entry| matches!(entry.body, Body::Restored(_))).unwrap();
    let Body::Restored(good) = entries[at].body.clone() else { panic!() };
    let tampered = |restored: Restored| {
        let mut bytes: Vec<Vec<u8>> = entries[..at].iter().map(evidence::encode).collect();
        bytes.push(evidence::encode(&Entry { body: Body::Restored(restored), ..entries[at].clone() }));
        export(bytes.iter().map(Vec::as_slice))
    };
    rederive(&tampered(good.clone())).unwrap();
    let contradiction = |restored| {
        let failure = verify(&tampered(restored), Trust::default()).unwrap_err();
        assert_eq!(failure.kind, Kind::Contradiction, "{failure}");
    };
    contradiction(Restored { entries: good.entries - 1, ..good.clone() });
    contradiction(Restored { chain_head: Hash::GENESIS, ..good.clone() });
    for restored in
        [Restored { previous: Hash::GENESIS, ..good.clone() }, Restored { cluster: good.previous, ..good.clone() }]
    {
        let failure = rederive(&tampered(restored)).unwrap_err();
        assert_eq!(failure.kind, Kind::Difference, "{failure}");
    }
}
