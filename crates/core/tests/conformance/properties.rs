//! Properties over generated requests: AADP §23.3 cases 38, 40 and 41, conservation, and `fold` never panicking.

use placet_core::event::Event;
use placet_core::exact::Amount;
use placet_core::fold::fold;
use placet_core::ids::PermitId;
use placet_core::reply::Verdict;
use placet_core::state::{MemState, Overlay};
use serde_json::{Value, json};

use super::fixture::{Pdp, report_body, request, with};

/// A small generator: the same seed gives the same requests.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.next(choices.len() as u64)).unwrap()].clone()
    }

    fn request(&mut self) -> Value {
        let action = self.pick(&[
            "read.status",
            "lamp.toggle",
            "card.freeze",
            "pay.small",
            "pay.fee",
            "wire.send",
            "reh.a",
            "reh.b",
            "reh.c",
            "net.a",
            "net.b",
            "eff.two",
            "pay.danger",
            "nope.x",
        ]);
        let amount = self.pick(&["1", "30", "60", "500.01", "0.01", "x", "9000"]);
        let params = match self.next(4) {
            0 => json!({"state": self.pick(&["on", "off", "dim"])}),
            1 => json!({}),
            2 => json!({"payee": "x", "amount_eur": amount}),
            _ => json!({"amount_eur": amount}),
        };
        let extra = match self.next(3) {
            0 => json!({"cost_eur": self.pick(&["5.00", "0", "49.99"])}),
            1 => json!({"protocol": "aadp/0.2"}),
            _ => json!({}),
        };
        with(request(action, params), extra)
    }
}

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
            let named = ["tier_confirm", "effect_floor", "no_compensating_command", "kill_switch"];
            assert!(named.contains(&reply.reason.as_str()), "{body} {reply:?}");
        }
    }
    assert!(escalated > 30, "{escalated}");
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
        for (key, counter) in &pdp.state.counters {
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
    let mut pdp = Pdp::new();
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..150 {
        let body = random.request();
        let reply = pdp.decide(&body);
        let entry = pdp.entry(reply.evidence_id);
        events.push(Event::new(entry, reply.permit_id.clone()));
        if let Some(permit) = &reply.permit_id {
            let reported = pdp.report(permit, "not_attempted");
            for index in reply.evidence_id.0 + 1..=reported.evidence_id.0 {
                let entry = pdp.entry(placet_core::ids::EvidenceIndex(index));
                events.push(Event::new(entry, Some(permit.clone())));
            }
        }
        if reply.verdict == Verdict::Propose {
            pdp.grant(&reply.approval_id.unwrap());
            let entry = pdp.entries().pop().unwrap();
            events.push(Event::new(entry, None));
        }
    }
    let mut state = MemState::default();
    for _ in 0..3000 {
        let mut event = random.pick(&events);
        if random.next(4) == 0 {
            event.permit_id = random.pick(&events).permit_id;
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
