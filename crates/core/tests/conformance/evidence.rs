//! AADP §23.7: evidence. 101 is the store's test; redaction, pruning and the auditor's tools are not built yet.

use std::sync::Arc;

use placet_core::event::Body;
use placet_core::evidence::{ChainWalk, EvidenceError, decode, encode};
use placet_core::ids::Entropy;
use placet_core::op::{Answer, Call, Op, Query};
use placet_core::policy::PolicySet;
use placet_core::reply::Verdict;
use placet_core::state::MemState;
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
    let mut seen = Vec::new();
    for entry in pdp.entries() {
        assert!(entry.policy.is_some() && entry.at >= t0());
        match &entry.body {
            Body::Decision(decided) | Body::ExecIntent(decided) => {
                seen.push(decided.verdict);
                let last_fail = decided.trace.iter().rev().find(|c| c.result != placet_core::event::CheckResult::Pass);
                if decided.verdict == Verdict::Deny {
                    assert!(last_fail.is_some(), "{decided:?}");
                }
                assert!(!decided.params.is_empty() && !decided.rationale.is_empty());
            }
            Body::ExecResult(result) => {
                assert!(matches!(pdp.entry(result.intent).body, Body::ExecIntent(_)));
            }
            _ => {}
        }
    }
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
    }
}

#[test]
fn case_104_every_verdict_is_derived_again_from_the_record() {
    // Goal: from the entries alone, judge each request again on the state before it, and compare.
    let pdp = busy();
    let mut replayed = Pdp::new();
    replayed.state = MemState::default();
    let mut compared = 0;
    for entry in pdp.entries() {
        let permit_id = pdp
            .state
            .permits
            .iter()
            .find(|(_, p)| Some(p.index) == intent_of(&entry.body, entry.index))
            .map(|(id, _)| id.clone());
        if let Body::Decision(decided) | Body::ExecIntent(decided) = &entry.body {
            let body = json!({
                "protocol": entry.protocol, "request_id": decided.request_id, "action_type": decided.action_type,
                "params": serde_json::from_str::<Value>(&decided.params).unwrap(), "source": decided.source,
                "rationale": decided.rationale, "created_at": decided.created_at, "session_id": decided.session_id,
                "cost_eur": decided.cost_eur, "parent_id": decided.parent_id, "approval_ref": decided.approval_ref,
            });
            let call = Call { principal: entry.principal.clone(), op: Op::Decide(body.to_string().into_bytes()) };
            let outcome = placet_core::evaluate::evaluate(
                &replayed.state,
                &call,
                entry.at,
                Entropy::default(),
                &Default::default(),
            )
            .unwrap();
            let (Body::Decision(again) | Body::ExecIntent(again)) = &outcome.events[0].entry.body else { panic!() };
            assert_eq!(
                (again.verdict, again.reason, again.nominal_tier, again.effective_tier, &again.draws, &again.trace),
                (
                    decided.verdict,
                    decided.reason,
                    decided.nominal_tier,
                    decided.effective_tier,
                    &decided.draws,
                    &decided.trace
                )
            );
            compared += 1;
        }
        let event = placet_core::event::Event::new(entry, permit_id);
        let mut overlay = placet_core::state::Overlay::new(&replayed.state);
        placet_core::fold::fold(&mut overlay, &event).unwrap();
        let changes = overlay.into_changes();
        replayed.state.write(changes);
    }
    assert!(compared >= 8);
    assert_eq!(replayed.state.meta, pdp.state.meta);
    assert_eq!(replayed.state.counters, pdp.state.counters);
    assert_eq!(replayed.state.permits, pdp.state.permits);
    assert_eq!(replayed.state.approvals, pdp.state.approvals);
}

fn intent_of(body: &Body, index: placet_core::ids::EvidenceIndex) -> Option<placet_core::ids::EvidenceIndex> {
    match body {
        Body::ExecIntent(_) => Some(index),
        Body::ExecResult(result) => Some(result.intent),
        Body::ReservationExpired(ended) | Body::ReservationReleased(ended) => Some(ended.intent),
        _ => None,
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
