//! AADP §23.7: evidence. 101 is the store's test as well; 104 and 106 have rooms of their own, 107 is the doors'.

use std::sync::Arc;

use placet_core::event::Body;
use placet_core::evidence::{ChainWalk, EvidenceError, damaged, decode, encode};
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, Op, Query, Reject};
use placet_core::policy::PolicySet;
use placet_core::reply::Verdict;
use placet_core::state::MemState;
use placet_core::trace::CheckResult;
use serde_json::{Value, json};

use super::fixture::{POLICIES, Pdp, says, t0};

/// One of everything.
fn busy() -> Pdp {
    let mut pdp = Pdp::new();
    pdp.publish(POLICIES).unwrap();
    let permit = pdp.pay("60").permit_id.unwrap();
    pdp.report(&permit, "success");
    let unattempted = pdp.pay("10").permit_id.unwrap();
    pdp.report(&unattempted, "not_attempted");
    pdp.report(&unattempted, "success");
    pdp.pay("60");
    pdp.ask("read.status", json!({}));
    pdp.ask("reh.a", json!({}));
    pdp.ask("eff.two", json!({}));
    pdp.decide_bytes("P1", b"{bad");
    let proposal = pdp.ask("pay.danger", json!({})).approval_id.unwrap();
    pdp.grant(&proposal);
    pdp.switch(true);
    pdp.ask("lamp.toggle", json!({"state": "on"}));
    pdp.switch(false);
    pdp.now = t0().plus_ms(4_000_000);
    pdp.sweep();
    pdp
}

#[test]
fn case_102_every_verdict_holds_what_re_derivation_needs() {
    let pdp = busy();
    let (mut seen, mut results) = (Vec::new(), 0);
    for entry in pdp.entries() {
        assert!(entry.policy.is_some() && entry.at >= t0());
        match &entry.body {
            Body::Decision(decided) | Body::ExecIntent(decided) => {
                seen.push(decided.verdict);
                let trace = decided.trace.checks().unwrap();
                let last_fail = trace.iter().rev().find(|check| check.result != CheckResult::Pass);
                if decided.verdict == Verdict::Deny {
                    assert!(last_fail.is_some(), "{decided:?}");
                }
                assert!(!decided.params.is_empty() && !decided.rationale.is_empty());
                assert!(decided.action_type.as_str().contains('.') && decided.created_at == t0());
                assert_eq!(decided.permit_digest.is_some(), decided.verdict == Verdict::Permit);
            }
            Body::ExecResult(result) => {
                let Body::ExecIntent(intent) = pdp.entry(result.intent).body else { panic!("another kind") };
                assert_eq!(
                    (intent.request_id, intent.permit_digest),
                    (result.request_id.clone(), Some(result.permit_digest))
                );
                results += 1;
            }
            _ => {}
        }
    }
    assert_eq!(results, 2);
    for verdict in [Verdict::Permit, Verdict::Deny, Verdict::Propose, Verdict::DryRun, Verdict::Observe] {
        assert!(seen.contains(&verdict), "{verdict:?}");
    }
}

#[test]
fn case_103_policies_have_an_identity_and_stay() {
    let mut pdp = Pdp::new();
    let second = POLICIES.replace("daily_rate: 3", "daily_rate: 4");
    let v1 = pdp.publish(POLICIES).unwrap().digest;
    let v2 = pdp.publish(&second).unwrap().digest;
    let v3 =
        pdp.publish(&format!("# the same rules\n{}", POLICIES.replace("min: 0.01", "min: \"0.010\""))).unwrap().digest;
    assert_eq!(v1, v3);
    assert_ne!(v1, v2);
    let named: Vec<_> = pdp.entries().iter().map(|entry| entry.policy.clone().unwrap()).collect();
    assert_eq!(named, [v1.clone(), v2.clone(), v1.clone()]);
    for digest in [v1, v2] {
        let policy = &pdp.state.policies[&digest];
        assert_eq!(*PolicySet::from_canonical(policy.canonical()).unwrap().digest(), digest);
        let Answer::Policy(view) = pdp.query_as("A1", &Query::Policy { digest: Some(digest.clone()) }) else {
            panic!()
        };
        assert_eq!((view.document.as_str(), view.digest), (policy.canonical(), digest));
    }
}

#[test]
fn case_101_what_is_written_is_never_written_again() {
    // The store refuses to change an entry; here, folding on what another wrote does not either.
    let pdp = busy();
    let first = pdp.state.entries.keys().next().copied().unwrap();
    let mut state = pdp.state.clone();
    let mut overlay = placet_core::state::Overlay::new(MemState::default());
    let mut forged = pdp.log[1].clone();
    forged.entry.index = first;
    let event = placet_core::event::Event::new(forged.entry, forged.permit_id);
    placet_core::fold::fold(&mut overlay, &event).unwrap();
    state.write(overlay.into_changes());
    assert_eq!(state.entries, pdp.state.entries);
}

#[test]
fn case_105_a_policy_that_evidence_names_is_kept() {
    let mut pdp = Pdp::new();
    let v1 = pdp.publish(POLICIES).unwrap().digest;
    let v2 = pdp.publish(&POLICIES.replace("daily_rate: 3", "daily_rate: 4")).unwrap().digest;
    let third = POLICIES.replace("daily_rate: 3", "daily_rate: 5");
    let op = Op::PublishPolicy { document: third.clone(), expect: None, activate: false };
    let Answer::PolicyPublished(unused) = pdp.call("A1", op.clone()).unwrap() else { panic!("not a publication") };
    assert!(!unused.active && pdp.state.meta.active_policy.as_ref() == Some(&v2));
    // In force, and in force once: both refused, and both still there.
    for digest in [&v1, &v2] {
        let refused = pdp.call("A1", Op::DropPolicy { digest: digest.clone() });
        assert!(matches!(refused, Err(Reject::Conflict { .. })), "{refused:?}");
        assert!(pdp.state.policies.contains_key(digest) && pdp.state.policy_records[digest].used);
    }
    // Never used: it goes, and comes back as what it was.
    pdp.call("A1", Op::DropPolicy { digest: unused.digest.clone() }).unwrap();
    assert!(!pdp.state.policies.contains_key(&unused.digest));
    assert!(matches!(pdp.call("A1", Op::DropPolicy { digest: unused.digest.clone() }), Err(Reject::NotFound { .. })));
    let activate = |digest| Op::ActivatePolicy { digest, expect: None };
    assert!(matches!(pdp.call("A1", activate(unused.digest.clone())), Err(Reject::NotFound { .. })));
    let Answer::PolicyPublished(again) = pdp.call("A1", op).unwrap() else { panic!("not a publication") };
    assert_eq!(again.digest, unused.digest);
    // Back to the first: no document is needed, and the entry names it.
    pdp.call("A1", activate(v1.clone())).unwrap();
    let entry = pdp.entries().pop().unwrap();
    assert_eq!(entry.policy.as_ref(), Some(&v1));
    let Body::PolicyChange(change) = entry.body else { panic!("another kind") };
    assert_eq!((change.document, change.previous), (None, Some(v2)));
    assert_eq!(says(&pdp.pay("1")), ("permit", "passed"));
    // Once used, it stays.
    pdp.call("A1", activate(again.digest.clone())).unwrap();
    pdp.call("A1", activate(v1)).unwrap();
    assert!(matches!(pdp.call("A1", Op::DropPolicy { digest: again.digest }), Err(Reject::Conflict { .. })));
}

#[test]
fn case_108_a_flipped_byte_names_its_entry() {
    let pdp = busy();
    let good: Vec<Vec<u8>> = pdp.state.entries.values().cloned().collect();
    for at in 0..good.len() {
        for byte in (at % 7..good[at].len()).step_by(good[at].len() / 9) {
            let mut bytes = good.clone();
            bytes[at][byte] ^= 1 << (byte % 7);
            let numbered: Vec<_> = bytes.iter().zip(1..).map(|(b, n)| (EvidenceIndex(n), b.as_slice())).collect();
            assert_eq!(damaged(&numbered, pdp.state.meta.chain_head), [EvidenceIndex(at as u64 + 1)], "byte {byte}");
        }
    }
}

#[test]
fn the_chain_verifies_and_names_a_changed_entry() {
    let pdp = busy();
    let mut bytes: Vec<Vec<u8>> = pdp.state.entries.values().cloned().collect();
    let mut walk = ChainWalk::default();
    for entry in &bytes {
        walk.step(entry).unwrap();
    }
    assert_eq!(walk.head, pdp.state.meta.chain_head);
    // One byte of the third entry: the fourth no longer follows, and only the fourth says so.
    let at = bytes[2].iter().position(|b| *b == b'6').unwrap();
    bytes[2][at] = b'7';
    let mut walk = ChainWalk::default();
    let broken: Vec<u64> = bytes
        .iter()
        .filter_map(|entry| match walk.step(entry) {
            Err(EvidenceError::Broken { index, .. }) => Some(index.0),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        })
        .collect();
    assert_eq!(broken, [4]);
}

#[test]
fn entries_are_canonical_json_without_the_capability() {
    let pdp = busy();
    for bytes in pdp.state.entries.values() {
        // serde_json's own map sorts members: equality means that ours were sorted, with no spare space or escape.
        let value: Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(serde_json::to_vec(&value).unwrap(), *bytes);
        assert_eq!(encode(&decode(bytes).unwrap()), *bytes);
        assert!(!String::from_utf8(bytes.clone()).unwrap().contains("pmt-"));
    }
}

#[test]
fn the_switch_reports_what_happened_to_the_policy() {
    let lift = |pdp: &mut Pdp| match pdp
        .call("A1", Op::SetKillSwitch { engaged: false, origin: "t".into(), note: None, scope: None })
        .unwrap()
    {
        Answer::KillSwitch(view) => serde_json::to_value(view.policy).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut pdp = Pdp::new();
    pdp.publish(POLICIES).unwrap();
    assert_eq!(lift(&mut pdp), "no_episode");
    pdp.switch(true);
    pdp.switch(true);
    assert_eq!(lift(&mut pdp), "unchanged");
    pdp.switch(true);
    pdp.publish(&POLICIES.replace("daily_rate: 3", "daily_rate: 4")).unwrap();
    pdp.publish(POLICIES).unwrap();
    assert_eq!(lift(&mut pdp), "changed");
}

#[test]
fn publishing_is_compare_and_swap() {
    let mut pdp = Pdp::new();
    let op = |expect: &str| Op::PublishPolicy {
        document: POLICIES.to_owned(),
        expect: Some(expect.to_owned()),
        activate: true,
    };
    assert!(pdp.call("A1", op("none")).is_err());
    let active = pdp.state.meta.active_policy.clone().unwrap();
    pdp.call("A1", op(active.as_str())).unwrap();
    assert!(pdp.call("A1", op(active.as_str())).is_err());
    assert_eq!(says(&pdp.pay("1")), ("permit", "passed"));
    let digest = Arc::clone(&pdp.state.policies[pdp.state.meta.active_policy.as_ref().unwrap()]);
    assert!(!digest.document().actions.contains_key("card.freeze"));
    assert!(matches!(pdp.call("A1", Op::Query(Query::KillSwitch)), Err(placet_core::op::Reject::Internal { .. })));
}
