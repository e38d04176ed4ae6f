//! Where numbers, times and counts end: what is exact stays exact, and nothing drifts.

use placet_core::exact::Amount;
use placet_core::policy::{Budget, Scope, Window};
use serde_json::json;

use super::fixture::{Pdp, at, request, says, t0, with};

/// The largest amount there is, and the smallest step.
const MOST: &str = "79228162514264337593543950335";
const LEAST: &str = "0.0000000000000000000000000001";

fn unbounded(limit: &str) -> Pdp {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        document.actions.get_mut("pay.small").unwrap().bounds.numeric.clear();
        for name in ["pay.small.rate", "pay.small.eur_day", "pay.small.eur_month"] {
            document.budgets.get_mut(name).unwrap().limit = Amount::parse(limit).unwrap();
        }
    });
    pdp
}

/// Goal: an amount, or a sum, that cannot be held exactly is refused, whatever the limit, and leaves what was there.
#[test]
fn sums_are_exact_or_refused() {
    for (amounts, verdicts, day) in [
        (vec![MOST, "1"], vec!["permit", "deny"], MOST),
        (vec![MOST, LEAST], vec!["permit", "deny"], MOST),
        // So fine an amount cannot be added up exactly under so high a limit, whatever it is added to.
        (vec![LEAST, MOST], vec!["deny", "permit"], MOST),
        (vec!["79228162514264337593543950336"], vec!["deny"], "0"),
        (vec!["0.00000000000000000000000000001"], vec!["deny"], "0"),
        (vec!["12345678901234567890.12345678901"], vec!["deny"], "0"),
        (vec!["-1", "-0"], vec!["deny", "permit"], "0"),
        (vec!["0", "0.00"], vec!["permit", "permit"], "0"),
        (vec![LEAST, LEAST], vec!["deny", "deny"], "0"),
    ] {
        let mut pdp = unbounded(MOST);
        let mut permits = Vec::new();
        let found: Vec<_> = amounts
            .iter()
            .map(|amount| {
                let reply = pdp.pay(amount);
                permits.extend(reply.permit_id.clone());
                says(&reply).0
            })
            .collect();
        assert_eq!(found, verdicts, "{amounts:?}");
        assert_eq!(pdp.spent_day(), day, "{amounts:?}");
        // What went in comes out.
        for permit in permits {
            assert!(pdp.report(&permit, "not_attempted").accepted);
        }
        assert_eq!(pdp.spent_day(), "0", "{amounts:?}");
    }
}

/// Goal: conservation, however a sum is split into reserved and settled parts (found here: a part that did not fit
/// exactly was dropped, and every further permit was free).
#[test]
fn no_split_of_a_sum_is_free() {
    let mut pdp = unbounded("1000");
    let fine = |whole: &str, last: u8| format!("{whole}.0000000000000000000000000{last}");
    for (amount, report) in [(fine("10", 3), true), (fine("750", 3), false), (fine("100", 4), false)] {
        let reply = pdp.pay(&amount);
        if let (Some(permit), true) = (&reply.permit_id, report) {
            pdp.report(permit, "success");
        }
    }
    let mut permitted = 0u32;
    for _ in 0..40 {
        permitted += u32::from(says(&pdp.pay("100.00000000000000000000004")).0 == "permit");
        permitted += u32::from(says(&pdp.pay(&fine("100", 4))).0 == "permit");
    }
    assert!(permitted <= 9, "{permitted} times 100 were permitted under a limit of 1000");
    let day = Amount::parse(&pdp.spent_day()).unwrap();
    assert!(day <= Amount::parse("1000").unwrap(), "{day}");
}

/// Goal: a declared cost that is unknown or unusable is not zero, in whichever form it comes.
#[test]
fn amounts_in_every_form() {
    let body = request("pay.small", json!({"payee": "x", "amount_eur": "@"})).to_string();
    for (token, expected) in [
        ("1e1", ("permit", "passed")),
        ("10.0", ("permit", "passed")),
        ("1E-25", ("permit", "passed")),
        ("1E-26", ("deny", "cap_eur_day")),
        ("1e-29", ("deny", "cost_unknown")),
        ("1e64", ("deny", "cost_unknown")),
        ("true", ("deny", "cost_unknown")),
        ("[1]", ("deny", "cost_unknown")),
        ("\"1e1\"", ("deny", "cost_unknown")),
        ("\"\"", ("deny", "cost_unknown")),
        ("\" 1\"", ("deny", "cost_unknown")),
        ("\"\u{661}\"", ("deny", "cost_unknown")),
        ("null", ("deny", "bounds")),
        ("1e65", ("deny", "malformed")),
    ] {
        let mut pdp = unbounded("100");
        let value = body.replace("\"@\"", token);
        assert_eq!(says(&pdp.decide_bytes("P1", value.as_bytes())), expected, "{token}");
    }
}

/// Goal: giving back and drawing again is one live counter, however often (found here: each turn counted as another).
#[test]
fn a_scope_that_gives_back_is_counted_once() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| {
        let budget = document.budgets.get_mut("pay.small.eur_day").unwrap();
        *budget = Budget { window: Window::Rolling(3_600_000), per: Some(Scope::Principal), ..budget.clone() };
        document.budgets.get_mut("pay.small.rate").unwrap().limit = Amount::parse("100").unwrap();
    });
    for _ in 0..20 {
        let permit = pdp.pay("5").permit_id.unwrap();
        assert!(pdp.report(&permit, "not_attempted").accepted);
    }
    let scopes: Vec<u64> =
        pdp.state.counters.values().map(|counter| counter.scopes).filter(|scopes| *scopes > 0).collect();
    assert_eq!(scopes, [1]);
}

/// Goal: AADP §9.4: what expiry gives back is the policy's choice; a report within the grace is taken, its act began in
/// time.
#[test]
fn expiry_and_grace_are_the_policys() {
    for (keeps_rate, rate) in [(false, "0"), (true, "1")] {
        let mut pdp = Pdp::new();
        pdp.edit(|document| document.expiry_keeps_rate = keeps_rate);
        pdp.pay("60");
        pdp.now = t0().plus_ms(600_000);
        pdp.sweep();
        assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("0", rate));
        assert_eq!(pdp.state.meta.open_permits, 0);
    }
    for (late_ms, taken) in [(0, true), (29_999, true), (30_000, false)] {
        let mut pdp = Pdp::new();
        pdp.edit(|document| document.report_grace_ms = 30_000);
        let reply = pdp.pay("60");
        let until = reply.obligations.iter().find(|one| one.kind == "execute_within").unwrap().value.clone();
        assert_eq!(until.as_deref(), Some("2026-08-17T09:10:00Z"), "the act has no grace");
        pdp.now = at(&until.unwrap()).plus_ms(late_ms);
        assert_eq!(pdp.report(&reply.permit_id.unwrap(), "success").accepted, taken, "{late_ms}");
        assert_eq!(pdp.spent_day(), if taken { "60" } else { "0" });
    }
}

/// Goal: a rehearsal ends at its instant, to the millisecond, and either word of the policy rehearses.
#[test]
fn a_rehearsal_ends_at_its_instant() {
    for (dry_run, early_ms, expected) in [(false, 1, "dry_run"), (false, 0, "permit"), (true, 0, "dry_run")] {
        let mut pdp = Pdp::new();
        pdp.edit(|document| {
            let toggle = document.actions.get_mut("lamp.toggle").unwrap();
            toggle.dry_run = dry_run;
            toggle.dry_run_until = Some(t0().plus_ms(1));
        });
        pdp.now = t0().plus_ms(1 - early_ms);
        assert_eq!(says(&pdp.ask("lamp.toggle", json!({"state": "on"}))).0, expected, "{dry_run} {early_ms}");
    }
}

/// Goal: a session is a counter, never an identity: two principals of one session share it.
#[test]
fn a_budget_per_session() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.budgets.get_mut("pay.small.eur_day").unwrap().per = Some(Scope::Session));
    let body = |session: &str| {
        with(request("pay.small", json!({"payee": "x", "amount_eur": "60"})), json!({"session_id": session}))
    };
    assert_eq!(says(&pdp.decide_as("P1", &body("a"))).0, "permit");
    assert_eq!(says(&pdp.decide_as("P2", &body("a"))).0, "deny");
    assert_eq!(says(&pdp.decide_as("P2", &body("b"))).0, "permit");
    // Without a session there is one counter for all of those.
    assert_eq!(says(&pdp.pay("60")).0, "permit");
    let mut over = request("pay.small", json!({"payee": "x", "amount_eur": "60"}));
    over["source"] = json!("ui");
    assert_eq!(says(&pdp.decide_as("P3", &over)).0, "deny");
}
