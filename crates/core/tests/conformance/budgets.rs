//! AADP §23.4: budgets.

use placet_core::event::Body;
use placet_core::exact::Amount;
use placet_core::policy::{Budget, Scope, Window};
use serde_json::json;

use super::fixture::{Pdp, at, request, says, t0, with};

fn limit(pdp: &mut Pdp, budget: &str, limit: &str) {
    pdp.edit(|document| document.budgets.get_mut(budget).unwrap().limit = Amount::parse(limit).unwrap());
}

#[test]
fn case_048_the_day_is_used_up() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.pay("60")), ("permit", "passed"));
    let reply = pdp.pay("60");
    assert_eq!(says(&reply), ("deny", "cap_eur_day"));
    assert_eq!(reply.budget, None);
    assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("60", "1"));
}

#[test]
fn case_049_the_budget_object_of_0_2() {
    let mut pdp = Pdp::new();
    pdp.pay("60");
    let body = with(request("pay.small", json!({"payee": "x", "amount_eur": "60"})), json!({"protocol": "aadp/0.2"}));
    let reply = pdp.decide(&body);
    assert_eq!(says(&reply), ("deny", "budget_exhausted"));
    let budget = reply.budget.clone().unwrap();
    assert_eq!(
        serde_json::to_value(&budget).unwrap(),
        json!({
            "name": "pay.small.eur_day", "dimension": "EUR", "limit": "100", "remaining": "40", "window": "day",
            "consumed": "60", "window_resets_at": "2026-08-18T00:00:00Z",
        })
    );
    assert_eq!(pdp.decided(&reply).budget, Some(budget));
}

#[test]
fn case_050_equality_is_allowed() {
    assert_eq!(says(&Pdp::new().pay("100")), ("permit", "passed"));
}

#[test]
fn case_051_the_rate_is_used_up() {
    let mut pdp = Pdp::new();
    for _ in 0..3 {
        assert_eq!(says(&pdp.pay("1")), ("permit", "passed"));
    }
    assert_eq!(says(&pdp.pay("1")), ("deny", "cap_daily_rate"));
    assert_eq!(pdp.spent_day(), "3");
}

#[test]
fn case_052_two_actions_share_the_budget_of_an_effect() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.ask("net.a", json!({"amount_eur": "40"}))), ("permit", "passed"));
    let reply = pdp.decide(&with(request("net.b", json!({"amount_eur": "40"})), json!({"protocol": "aadp/0.2"})));
    assert_eq!(says(&reply), ("deny", "budget_exhausted"));
    assert_eq!(reply.budget.unwrap().name, "effect:money.egress.eur_day");
    assert_eq!(pdp.counter("effect:money.egress.eur_day", "2026-08-17"), "40");
    assert!(pdp.state.counters.keys().all(|key| !key.budget.starts_with("net.b")));
}

#[test]
fn case_053_one_failing_counter_leaves_all_untouched() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        document.actions.get_mut("pay.small").unwrap().effects = vec!["money.egress".to_owned()];
    });
    let before = pdp.state.counters.clone();
    assert_eq!(says(&pdp.pay("80")), ("deny", "cap_eur_day"));
    assert_eq!(pdp.state.counters, before);
}

#[test]
fn case_054_fifty_decides_of_thirty_give_three_permits() {
    let mut pdp = Pdp::new();
    let mut permits = 0;
    for _ in 0..50 {
        permits += usize::from(says(&pdp.pay("30")).0 == "permit");
        assert!(Amount::parse(&pdp.spent_day()) <= Amount::parse("100"));
    }
    assert_eq!((permits, pdp.spent_day().as_str()), (3, "90"));
}

#[test]
fn case_055_a_mix_of_two_actions_stays_under_the_effect() {
    let mut pdp = Pdp::new();
    let permits = (0..20)
        .filter(|n| {
            says(&pdp.ask(if n % 2 == 0 { "net.a" } else { "net.b" }, json!({"amount_eur": "20"}))).0 == "permit"
        })
        .count();
    assert_eq!((permits, pdp.counter("effect:money.egress.eur_day", "2026-08-17").as_str()), (3, "60"));
}

#[test]
fn case_056_an_unknown_cost_is_not_zero() {
    let mut pdp = Pdp::new();
    for members in [json!({}), json!({"cost_eur": "0"}), json!({"cost_eur": "0.00"})] {
        let body = with(request("pay.fee", json!({})), json!({"protocol": "aadp/0.2"}));
        let reply = pdp.decide(&with(body, members));
        assert_eq!(says(&reply), ("deny", "cost_unknown"));
        assert_eq!(reply.budget, None);
    }
}

#[test]
fn case_057_cost_eur_is_reserved() {
    let mut pdp = Pdp::new();
    let reply = pdp.decide(&with(request("pay.fee", json!({})), json!({"cost_eur": "5.00"})));
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(pdp.counter("pay.fee.eur_day", "2026-08-17"), "5");
}

#[test]
fn case_058_the_month_is_used_up() {
    let mut pdp = Pdp::new();
    for (day, expected) in
        [("17", ("permit", "passed")), ("18", ("permit", "passed")), ("19", ("deny", "cap_eur_month"))]
    {
        pdp.now = at(&format!("2026-08-{day}T09:00:00Z"));
        let reply = pdp.pay("90");
        assert_eq!(says(&reply), expected, "day {day}");
        if let Some(permit) = reply.permit_id {
            pdp.report(&permit, "success");
        }
    }
}

#[test]
fn case_059_the_calendar_is_the_policys() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.timezone = "Europe/Amsterdam".to_owned());
    pdp.now = at("2026-08-31T21:59:00Z");
    assert_eq!(says(&pdp.pay("60")), ("permit", "passed"));
    pdp.now = at("2026-08-31T22:01:00Z");
    assert_eq!(says(&pdp.pay("60")), ("permit", "passed"));
    for (budget, window) in [
        ("pay.small.eur_day", "2026-08-31"),
        ("pay.small.eur_day", "2026-09-01"),
        ("pay.small.eur_month", "2026-08"),
        ("pay.small.eur_month", "2026-09"),
    ] {
        assert_eq!(pdp.counter(budget, window), "60", "{budget} {window}");
    }
}

#[test]
fn case_060_a_reservation_stands_until_its_deadline() {
    let mut pdp = Pdp::new();
    let permit = pdp.pay("60").permit_id.unwrap();
    pdp.now = t0().plus_ms(599_000);
    assert_eq!(says(&pdp.pay("60")), ("deny", "cap_eur_day"));
    assert_eq!(pdp.spent_day(), "60");
    assert_eq!(pdp.state.permits[&permit].status, placet_core::state::PermitStatus::Held);
}

#[test]
fn case_061_after_the_deadline_it_is_free_again() {
    let mut pdp = Pdp::new();
    let first = pdp.pay("60");
    pdp.now = t0().plus_ms(601_000);
    pdp.sweep();
    assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("0", "0"));
    assert_eq!(says(&pdp.pay("60")), ("permit", "passed"));
    let expiries: Vec<_> = pdp
        .entries()
        .into_iter()
        .filter_map(|entry| if let Body::ReservationExpired(ended) = entry.body { Some(ended) } else { None })
        .collect();
    assert_eq!(expiries.len(), 1);
    assert_eq!(expiries[0].intent, first.evidence_id);
    assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("60", "1"));
}

#[test]
fn case_062_expiry_needs_no_further_decide() {
    let mut pdp = Pdp::new();
    pdp.pay("60");
    pdp.now = t0().plus_ms(601_000);
    pdp.sweep();
    assert_eq!(pdp.entries().last().unwrap().body.kind(), "reservation_expired");
    assert_eq!(pdp.spent_day(), "0");
}

#[test]
fn case_063_a_report_after_expiry_is_refused_and_recorded() {
    let mut pdp = Pdp::new();
    let permit = pdp.pay("60").permit_id.unwrap();
    pdp.now = t0().plus_ms(601_000);
    let reply = pdp.report(&permit, "success");
    assert!(!reply.accepted);
    assert_eq!(reply.reason.unwrap().as_str(), "expired");
    let Body::ReportRefused(refused) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
    assert!(refused.reconcile, "the act may have happened");
    assert_eq!((pdp.spent_day().as_str(), pdp.state.meta.late_reports), ("0", 1));
}

#[test]
fn case_064_a_reported_permit_never_expires() {
    let mut pdp = Pdp::new();
    let permit = pdp.pay("60").permit_id.unwrap();
    assert!(pdp.report(&permit, "success").accepted);
    pdp.now = t0().plus_ms(3_600_000);
    pdp.sweep();
    assert!(pdp.entries().iter().all(|entry| entry.body.kind() != "reservation_expired"));
    assert_eq!(pdp.spent_day(), "60");
}

#[test]
fn case_065_nothing_is_released_implicitly() {
    let mut pdp = Pdp::new();
    limit(&mut pdp, "pay.small.rate", "2000");
    limit(&mut pdp, "pay.small.eur_day", "1000");
    limit(&mut pdp, "pay.small.eur_month", "1000");
    for _ in 0..1000 {
        assert_eq!(says(&pdp.pay("1")), ("permit", "passed"));
    }
    pdp.now = t0().plus_ms(599_999);
    assert_eq!(says(&pdp.pay("0.01")), ("deny", "cap_eur_day"));
    assert_eq!(pdp.spent_day(), "1000");
}

#[test]
fn case_066_execute_within_is_the_reservation_deadline() {
    let mut pdp = Pdp::new();
    let reply = pdp.pay("60");
    let value = reply.obligations.iter().find(|o| o.kind == "execute_within").unwrap().value.clone().unwrap();
    assert_eq!(value, "2026-08-17T09:10:00Z");
    assert_eq!(pdp.state.permits[&reply.permit_id.unwrap()].deadline, at(&value));
}

#[test]
fn case_067_tenths_add_up_exactly() {
    let mut pdp = Pdp::new();
    limit(&mut pdp, "pay.small.eur_day", "0.3");
    limit(&mut pdp, "pay.small.rate", "9");
    pdp.edit(|document| document.actions.get_mut("pay.small").unwrap().bounds.numeric.clear());
    for _ in 0..3 {
        assert_eq!(says(&pdp.pay("0.1")), ("permit", "passed"));
    }
    assert_eq!(says(&pdp.pay("0.0000001")), ("deny", "cap_eur_day"));
    assert_eq!(pdp.spent_day(), "0.3");
}

#[test]
fn case_068_what_an_expiry_entry_holds() {
    let mut pdp = Pdp::new();
    let reply = pdp.pay("60");
    pdp.now = t0().plus_ms(600_000);
    pdp.sweep();
    let entry = pdp.entries().pop().unwrap();
    assert_eq!(entry.at, pdp.now);
    let Body::ReservationExpired(ended) = entry.body else { panic!("another kind") };
    assert_eq!((ended.reason.as_str(), ended.intent), ("expired", reply.evidence_id));
    let released: Vec<_> =
        ended.released.iter().map(|d| (d.budget.as_str(), d.window.as_str(), d.amount.to_string())).collect();
    assert_eq!(
        released,
        [
            ("pay.small.rate", "2026-08-17", "1".to_owned()),
            ("pay.small.eur_day", "2026-08-17", "60".to_owned()),
            ("pay.small.eur_month", "2026-08", "60".to_owned()),
        ]
    );
}

#[test]
fn outcomes_settle_or_release_as_the_table_says() {
    // AADP §9.4: what each outcome does to the value part and to the rate part.
    for (outcome, no_effect, day, rate, kinds) in [
        ("success", false, "60", "1", vec!["exec_intent", "exec_result"]),
        ("failure", false, "60", "1", vec!["exec_intent", "exec_result"]),
        ("timeout", false, "60", "1", vec!["exec_intent", "exec_result"]),
        ("failure", true, "0", "1", vec!["exec_intent", "reservation_released", "exec_result"]),
        ("not_attempted", false, "0", "1", vec!["exec_intent", "reservation_released", "exec_result"]),
        ("success", true, "60", "1", vec!["exec_intent", "exec_result"]),
    ] {
        let mut pdp = Pdp::new();
        let permit = pdp.pay("60").permit_id.unwrap();
        let body = with(super::fixture::report_body(&permit, outcome), json!({"no_effect": no_effect}));
        assert!(pdp.report_as("P1", &body).accepted);
        assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), (day, rate), "{outcome} {no_effect}");
        assert_eq!(pdp.kinds(), kinds, "{outcome} {no_effect}");
        assert!(!pdp.report(&permit, "success").accepted);
        assert_eq!(pdp.spent_day(), day);
        assert_eq!(pdp.state.meta.open_permits, 0);
    }
}

#[test]
fn a_rolling_window_holds_its_limit_in_any_interval() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        let budget = document.budgets.get_mut("pay.small.eur_day").unwrap();
        *budget = Budget { window: Window::Rolling(18_000_000), ..budget.clone() };
        document.budgets.get_mut("pay.small.rate").unwrap().limit = Amount::parse("1000").unwrap();
        document.budgets.get_mut("pay.small.eur_month").unwrap().limit = Amount::parse("100000").unwrap();
    });
    let mut permitted: Vec<(i64, i64)> = Vec::new();
    for step in 0..400i64 {
        pdp.now = t0().plus_ms(step * 97_000);
        let reply = pdp.pay("7");
        if let Some(permit) = reply.permit_id {
            permitted.push((pdp.now.0, 7));
            pdp.report(&permit, "success");
        }
    }
    for (start, _) in &permitted {
        let inside: i64 = permitted.iter().filter(|(t, _)| t >= start && *t < start + 18_000_000).map(|(_, a)| a).sum();
        assert!(inside <= 100, "{inside} in the five hours from {start}");
    }
    // The window does roll: more than one full limit passed in the eleven hours of this test.
    assert!(permitted.len() > 20, "{}", permitted.len());
    let counter = pdp.state.counters.iter().find(|(key, _)| key.window == "PT5H").unwrap().1;
    assert!(counter.buckets.len() <= 65);
}

#[test]
fn a_budget_per_principal_is_one_counter_each() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.budgets.get_mut("pay.small.eur_day").unwrap().per = Some(Scope::Principal));
    let body = || request("pay.small", json!({"payee": "x", "amount_eur": "60"}));
    assert_eq!(says(&pdp.decide_as("P1", &body())), ("permit", "passed"));
    assert_eq!(says(&pdp.decide_as("P1", &body())), ("deny", "cap_eur_day"));
    assert_eq!(says(&pdp.decide_as("P2", &body())), ("permit", "passed"));
}

/// Goal: the bound on live counters counts live ones: after a window of silence a scope is counted anew.
#[test]
fn live_counters_of_a_rolling_window_are_counted_per_turn() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        let budget = document.budgets.get_mut("pay.small.eur_day").unwrap();
        *budget = Budget { window: Window::Rolling(60_000), per: Some(Scope::Principal), ..budget.clone() };
        document.budgets.get_mut("pay.small.rate").unwrap().limit = Amount::parse("1000").unwrap();
    });
    let body = || request("pay.small", json!({"payee": "x", "amount_eur": "1"}));
    for (minute, principals) in [(0, 3), (10, 2)] {
        pdp.now = t0().plus_ms(minute * 60_000);
        for principal in 0..principals {
            for _ in 0..2 {
                assert_eq!(says(&pdp.decide_as(&format!("S{principal}"), &body())), ("permit", "passed"));
            }
        }
        let counted = pdp
            .state
            .counters
            .iter()
            .filter(|(key, _)| key.window.starts_with("PT1M@"))
            .max_by_key(|(key, _)| key.window.clone())
            .map(|(_, counter)| counter.scopes);
        assert_eq!(counted, Some(principals));
    }
}
