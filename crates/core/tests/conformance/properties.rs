//! Properties over generated requests: AADP §23.3 cases 38, 40 and 41, conservation, and `fold` never panicking.

use placet_core::event::Event;
use placet_core::exact::Amount;
use placet_core::fold::fold;
use placet_core::ids::PermitId;
use placet_core::state::{MemState, Overlay};
use serde_json::json;

use super::features;
use super::fixture::{Pdp, report_body, with};
use super::random::{Random, mixed};

const NAMED: [&str; 5] =
    ["tier_confirm", "effect_floor", "no_compensating_command", "kill_switch", "external_authorization"];

#[test]
fn case_038_escalation_is_named() {
    let mut random = Random(38);
    let mut pdp = Pdp::new();
    let mut escalated = 0;
    for step in 0..300 {
        if step % 50 == 0 {
            pdp.switch(step % 100 == 50);
        }
        let body = random.request();
        let reply = pdp.decide(&body);
        if reply.effective_tier > reply.nominal_tier {
            escalated += 1;
            assert!(NAMED.contains(&reply.reason.as_str()), "{body} {reply:?}");
        }
    }
    assert!(escalated > 30, "{escalated}");
    let (mut pdp, mut escalated) = (features::pdp(), 0);
    for step in 0..500 {
        if step % 50 == 0 {
            pdp.switch(step % 100 == 50);
        }
        let body = random.feature_request();
        let reply = pdp.decide(&body);
        if reply.effective_tier > reply.nominal_tier {
            escalated += 1;
            assert!(NAMED.contains(&reply.reason.as_str()), "{body} {reply:?}");
        }
    }
    assert!(escalated > 100, "{escalated}");
}

#[test]
fn case_040_two_instances_agree() {
    let mut random = Random(40);
    let (mut one, mut other) = (Pdp::new(), Pdp::new());
    for _ in 0..500 {
        let body = random.request();
        let (a, b) = (one.decide(&body), other.decide(&body));
        assert_eq!(
            (a.verdict, a.reason, a.nominal_tier, a.effective_tier),
            (b.verdict, b.reason, b.nominal_tier, b.effective_tier)
        );
    }
    assert_eq!(one.state.meta.chain_head, other.state.meta.chain_head);
    // With every later feature, too: approvals, switches, undos, mandates, redaction, signed heads.
    let (mut one, mut other) = (features::pdp(), features::pdp());
    for step in 0..500 {
        let body = random.feature_request();
        let (a, b) = (one.decide(&body), other.decide(&body));
        assert_eq!(a, b);
        for pdp in [&mut one, &mut other] {
            pdp.now = pdp.now.plus_ms(step);
            if let Some(id) = &a.approval_id {
                let _refused = pdp.resolve("A1", id, step % 3 > 0);
                let _refused = pdp.resume_as("A2", id);
            }
            if let Some(permit) = &a.permit_id
                && step % 4 > 0
            {
                pdp.report(permit, if step % 4 == 1 { "not_attempted" } else { "success" });
            }
            if step % 60 == 0 {
                pdp.switch(step % 120 == 0);
                pdp.call("A1", placet_core::op::Op::SignHead).unwrap();
            }
        }
    }
    assert_eq!(one.state.entries, other.state.entries);
    assert!(one.state.permits.len() > 20 && one.state.approvals.len() > 20);
}

#[test]
fn case_041_a_cold_policy_judges_like_a_warm_one() {
    let mut random = Random(41);
    let (mut warm, mut cold) = (Pdp::new(), Pdp::new());
    for _ in 0..100 {
        // The cold instance parses and compiles its policy again before every decision.
        let digest = cold.state.meta.active_policy.clone().unwrap();
        let text = cold.state.policies[&digest].canonical().to_owned();
        let fresh = placet_core::policy::PolicySet::from_canonical(&text).unwrap();
        cold.state.policies.insert(digest, std::sync::Arc::new(fresh));
        let body = random.request();
        let (a, b) = (warm.decide(&body), cold.decide(&body));
        assert_eq!((a.verdict, a.reason, a.effective_tier), (b.verdict, b.reason, b.effective_tier));
    }
    // The order of the rules in the document is not an order of checks either.
    let document = features::document();
    let (before, policies) = document.split_once("policies:\n").unwrap();
    let mut rules: Vec<&str> = policies.split("\n  - ").map(|rule| rule.trim_start_matches("  - ")).collect();
    rules.reverse();
    let reversed =
        format!("{before}policies:\n  - {}\n", rules.iter().map(|r| r.trim_end()).collect::<Vec<_>>().join("\n  - "));
    let (mut one, mut other) = (Pdp::under(&document), Pdp::under(&reversed));
    assert_eq!(one.state.meta.active_policy, other.state.meta.active_policy);
    for _ in 0..200 {
        let digest = other.state.meta.active_policy.clone().unwrap();
        let text = other.state.policies[&digest].canonical().to_owned();
        let fresh = placet_core::policy::PolicySet::from_canonical(&text).unwrap();
        other.state.policies.insert(digest, std::sync::Arc::new(fresh));
        let body = random.feature_request();
        assert_eq!(one.decide(&body), other.decide(&body));
    }
}

#[test]
fn budgets_are_conserved_under_any_mix() {
    let mut random = Random(9);
    let mut pdp = Pdp::new();
    let mut open: Vec<PermitId> = Vec::new();
    for _ in 0..400 {
        match random.next(5) {
            0 if !open.is_empty() => {
                let permit = open.swap_remove(usize::try_from(random.next(open.len() as u64)).unwrap());
                let outcome = random.pick(&["success", "failure", "timeout", "not_attempted"]);
                let no_effect = random.next(2) == 0;
                pdp.report_as("P1", &with(report_body(&permit, outcome), json!({"no_effect": no_effect})));
            }
            1 => pdp.now = pdp.now.plus_ms(i64::try_from(random.next(200_000)).unwrap()),
            _ => {
                let body = random.request();
                open.extend(pdp.decide(&body).permit_id);
            }
        }
        let policy = pdp.state.policies[pdp.state.meta.active_policy.as_ref().unwrap()].clone();
        let budgets = pdp.state.counters.iter().filter(|(key, _)| !key.budget.starts_with('#'));
        for (key, counter) in budgets {
            let consumed = counter.consumed(i64::MIN).unwrap();
            assert!(consumed <= policy.document().budgets[&key.budget].limit, "{key:?}");
            assert!(consumed >= Amount::ZERO);
        }
        let held = pdp.state.permits.values().filter(|p| p.status == placet_core::state::PermitStatus::Held).count();
        assert_eq!(pdp.state.meta.open_permits, held as u64);
    }
}

#[test]
fn fold_takes_any_events_in_any_order_on_any_state() {
    // Goal: no decodable event can stop a node, even one that no leader would propose here.
    let mut random = Random(77);
    let events: Vec<Event> = mixed(77, 500).log.clone();
    let kinds: std::collections::BTreeSet<_> = events.iter().map(|event| event.entry.body.kind()).collect();
    assert!(kinds.len() >= 15, "{kinds:?}");
    let mut state = MemState::default();
    for _ in 0..3000 {
        let mut event = random.pick(&events);
        if random.next(4) == 0 {
            event.permit_id = random.pick(&events).permit_id;
        }
        if random.next(4) == 0 {
            // In another place, at another time, by another one: rightly encoded all the same.
            let other = random.pick(&events).entry;
            let index = placet_core::ids::EvidenceIndex(random.pick(&[0, 1, 2, 1 << 20, u64::MAX - 1, u64::MAX]));
            let at = placet_core::stamp::Stamp(random.pick(&[0, i64::MAX, i64::MIN, other.at.0]));
            let entry = placet_core::event::Entry { index, at, principal: other.principal, ..event.entry };
            event = Event::new(entry, event.permit_id);
        }
        let mut overlay = Overlay::new(&state);
        fold(&mut overlay, &event).unwrap();
        let changes = overlay.into_changes();
        state.write(changes);
    }
    assert!(state.counters.values().all(|c| c.consumed(i64::MIN).is_none_or(|sum| sum >= Amount::ZERO)));
}

#[test]
fn an_overlay_answers_like_the_state_that_it_becomes() {
    // Goal: what the leader sees with batches in flight is what every node has once they are applied.
    let mut random = Random(5);
    let mut pdp = Pdp::new();
    let mut applied = pdp.state.clone();
    let mut overlay = Overlay::new(applied.clone());
    for round in 0..60 {
        let body = random.request();
        let reply = pdp.decide(&body);
        let event = Event::new(pdp.entry(reply.evidence_id), reply.permit_id.clone());
        fold(&mut overlay, &event).unwrap();
        let batch = overlay.seal();
        use placet_core::state::Read;
        assert_eq!(overlay.meta().unwrap(), pdp.state.meta);
        for (key, counter) in &pdp.state.counters {
            assert_eq!(overlay.counter(key).unwrap().as_ref(), Some(counter));
        }
        if round % 7 == 0 {
            applied = pdp.state.clone();
            overlay.forget(batch);
            overlay = Overlay::new(applied.clone());
        }
    }
}
