//! AADP §23.10: the cases of later revisions, in the vocabulary of protocol 0.2. Authorities and URLs have rooms of
//! their own.

mod authority;
mod urls;

use placet_core::event::Body;
use placet_core::evidence::{damaged, decode};
use placet_core::exact::{Amount, Exact};
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, Op, Query, Reject};
use placet_core::reply::{DecideReply, Protocol, Reason, Verdict};
use placet_core::trace::{Check, CheckResult};
use serde_json::{Value, json};

use super::features;
use super::fixture::{POLICIES, Pdp, report_body, request, says, with};

fn newer(body: Value) -> Value {
    with(body, json!({"protocol": "aadp/0.2"}))
}

fn pay(pdp: &mut Pdp, amount: &str) -> DecideReply {
    pdp.decide(&newer(request("pay.small", json!({"payee": "x", "amount_eur": amount}))))
}

fn report(pdp: &mut Pdp, reply: &DecideReply, outcome: &str, no_effect: bool) -> Vec<Body> {
    let from = pdp.state.entries.len();
    let body = with(newer(report_body(reply.permit_id.as_ref().unwrap(), outcome)), json!({"no_effect": no_effect}));
    assert!(pdp.report_as("P1", &body).accepted);
    pdp.state.entries.values().skip(from).map(|bytes| decode(bytes).unwrap().body).collect()
}

#[test]
fn case_l01_not_attempted_gives_the_value_back() {
    let mut pdp = Pdp::new();
    let reply = pay(&mut pdp, "60");
    let bodies = report(&mut pdp, &reply, "not_attempted", false);
    let [Body::ReservationReleased(release), Body::ExecResult(result)] = bodies.as_slice() else {
        panic!("{bodies:?}")
    };
    assert_eq!(
        (release.reason.as_str(), release.intent, result.intent),
        ("not_attempted", reply.evidence_id, reply.evidence_id)
    );
    let amounts: Vec<_> = release.released.iter().map(|draw| (draw.budget.as_str(), draw.amount.to_string())).collect();
    assert_eq!(amounts, [("pay.small.eur_day", "60".to_owned()), ("pay.small.eur_month", "60".to_owned())]);
    assert_eq!(result.success, None, "a negative is not a failed attempt");
    assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("0", "1"));
    // One write: a restart from the log never sees one without the other, since both came in one batch.
    assert_eq!(pdp.restarted().counters, pdp.state.counters);
}

#[test]
fn case_l02_a_call_that_was_not_attempted_still_counts() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.budgets.get_mut("pay.small.rate").unwrap().limit = Amount::ONE);
    let reply = pay(&mut pdp, "60");
    report(&mut pdp, &reply, "not_attempted", false);
    let second = pay(&mut pdp, "60");
    assert_eq!(says(&second), ("deny", "rate_exhausted"));
    assert_eq!(second.budget.unwrap().dimension, "calls");
}

#[test]
fn case_l03_a_failure_without_effect() {
    let mut pdp = Pdp::new();
    let reply = pay(&mut pdp, "60");
    let bodies = report(&mut pdp, &reply, "failure", true);
    let [Body::ReservationReleased(release), Body::ExecResult(result)] = bodies.as_slice() else {
        panic!("{bodies:?}")
    };
    assert_eq!((release.reason.as_str(), result.success), ("no_effect", Some(false)));
    assert_eq!((result.no_effect, result.no_effect_ignored), (true, false));
    assert_eq!((pdp.spent_day().as_str(), pdp.spent_rate().as_str()), ("0", "1"));
}

#[test]
fn case_l04_no_effect_means_nothing_elsewhere() {
    for (outcome, day) in [("success", "60"), ("timeout", "60"), ("not_attempted", "0")] {
        let mut pdp = Pdp::new();
        let reply = pay(&mut pdp, "60");
        let bodies = report(&mut pdp, &reply, outcome, true);
        let Some(Body::ExecResult(result)) = bodies.last() else { panic!("{bodies:?}") };
        assert_eq!((result.no_effect, result.no_effect_ignored), (false, true), "{outcome}");
        assert_eq!(pdp.spent_day(), day, "{outcome}");
    }
}

#[test]
fn case_l05_doubt_is_not_evidence() {
    let mut pdp = Pdp::new();
    let reply = pay(&mut pdp, "60");
    let bodies = report(&mut pdp, &reply, "timeout", false);
    let [Body::ExecResult(result)] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert_eq!((result.success, pdp.spent_day().as_str()), (None, "60"));
}

#[test]
fn case_l06_the_budget_object_is_on_budget_denials_only() {
    let mut pdp = Pdp::new();
    let first = pay(&mut pdp, "60.50");
    let denied = pay(&mut pdp, "60");
    assert_eq!(says(&denied), ("deny", "budget_exhausted"));
    let value = serde_json::to_value(denied.budget.as_ref().unwrap()).unwrap();
    for (member, expected) in [
        ("name", "pay.small.eur_day"),
        ("dimension", "EUR"),
        ("limit", "100"),
        ("remaining", "39.5"),
        ("window", "day"),
        ("consumed", "60.5"),
    ] {
        assert_eq!(value[member], expected, "{member}");
    }
    assert_eq!(pdp.decided(&denied).budget, denied.budget, "it is on record");
    let mut others = vec![first];
    for (name, params) in [
        ("pay.fee", json!({})),
        ("lamp.toggle", json!({"state": "dim"})),
        ("nope.x", json!({})),
        ("wire.send", json!({"amount_eur": "1"})),
        ("reh.a", json!({})),
        ("read.status", json!({})),
    ] {
        others.push(pdp.decide(&newer(request(name, params))));
    }
    pdp.switch(true);
    others.push(pay(&mut pdp, "60"));
    let reasons: Vec<_> = others.iter().map(|reply| reply.reason.as_str()).collect();
    assert_eq!(reasons[1], "cost_unknown");
    assert!(others.iter().all(|reply| reply.budget.is_none() && pdp.decided(reply).budget.is_none()), "{reasons:?}");
}

#[test]
fn case_l07_the_budget_name_tells_day_and_month_apart() {
    for (budget, window) in [("pay.small.eur_day", "day"), ("pay.small.eur_month", "month")] {
        let mut pdp = Pdp::new();
        pdp.edit(|document| document.budgets.get_mut(budget).unwrap().limit = Amount::parse("10").unwrap());
        let reply = pay(&mut pdp, "60");
        assert_eq!(says(&reply), ("deny", "budget_exhausted"));
        let found = reply.budget.clone().unwrap();
        assert_eq!((found.name.as_str(), found.window.as_str()), (budget, window));
        let last = pdp.trace(&reply).pop().unwrap();
        assert_eq!((&*last.check, &*last.rule), ("budget_exhausted", budget));
    }
}

#[test]
fn case_l08_three_generations_are_read_and_one_is_written() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.budgets.get_mut("pay.small.rate").unwrap().limit = Amount::ONE);
    for amount in ["60", "60", "300"] {
        pay(&mut pdp, amount);
    }
    pdp.decide(&newer(request("net.a", json!({"amount_eur": "61"}))));
    let reasons: Vec<_> = pdp
        .entries()
        .iter()
        .filter_map(
            |entry| if let Body::Decision(decided) = &entry.body { Some(decided.reason.as_str()) } else { None },
        )
        .collect();
    assert!(reasons.contains(&"rate_exhausted") && reasons.contains(&"budget_exhausted"), "{reasons:?}");
    assert!(reasons.iter().all(|reason| !reason.starts_with("cap_")), "{reasons:?}");
    for (word, meaning) in [
        ("cap_daily_rate", Reason::CapDailyRate),
        ("cap_eur_day", Reason::CapEurDay),
        ("cap_eur_month", Reason::CapEurMonth),
        ("cap_rate", Reason::RateExhausted),
        ("cap_value", Reason::BudgetExhausted),
        ("rate_exhausted", Reason::RateExhausted),
        ("budget_exhausted", Reason::BudgetExhausted),
    ] {
        assert_eq!(serde_json::from_value::<Reason>(json!(word)).unwrap(), meaning, "{word}");
    }
}

#[test]
fn case_l09_an_entry_without_a_stamp_is_of_0_1() {
    let mut pdp = Pdp::new();
    let reply = pay(&mut pdp, "60");
    let mut value: Value = serde_json::from_slice(&pdp.state.entries[&reply.evidence_id]).unwrap();
    assert_eq!(value["protocol"], "aadp/0.2");
    value.as_object_mut().unwrap().remove("protocol");
    let entry = decode(value.to_string().as_bytes()).unwrap();
    assert_eq!(entry.protocol, Protocol::V01);
    assert_eq!(entry.body, pdp.entry(reply.evidence_id).body);
}

/// The check whose failure a reason stands for (AADP §14.4); what a permit, a read and a malformed body have is none.
fn check_of(reason: &str) -> &[&str] {
    match reason {
        "effect_floor" => &["effect_floor", "opaque_host"],
        "no_compensating_command" => &["reversibility"],
        "x-placet.undo_refused" => &["undo"],
        "passed" | "observe" | "malformed" => &[],
        _ => &[],
    }
}

#[test]
fn case_l10_the_trace_names_the_reason() {
    let bank = || json!({"url": "https://bank.example/"});
    let opaque = || json!({"url": "https://bit.ly/x"});
    let asks: Vec<(&str, Value, Value)> = vec![
        ("lamp.toggle", json!({"state": "on"}), json!({})),
        ("lamp.toggle", json!({"state": "dim"}), json!({})),
        ("lamp.restore", json!({"state": "on"}), json!({"source": "undo", "parent_id": "aud-1"})),
        ("read.status", json!({}), json!({})),
        ("nope.x", json!({}), json!({})),
        ("rehearsed", json!({}), json!({})),
        ("pay.card", json!({"amount": "200"}), json!({})),
        ("pay.card", json!({"amount": "200"}), json!({})),
        ("wire.treasury", json!({"amount": "1"}), json!({})),
        ("web.get", bank(), json!({})),
        ("web.get", opaque(), json!({})),
        ("web.get", json!({"url": "nonsense"}), json!({})),
        ("web.plain", opaque(), json!({})),
        ("web.bulk", bank(), json!({})),
        ("web.confirm", opaque(), json!({})),
        ("mandated.auto", json!({}), json!({})),
        ("mandated.confirm", json!({}), json!({})),
        ("mandated.floor", json!({}), json!({})),
        ("bound.confirm", json!({}), json!({})),
        ("bound.act", json!({"amount": "1"}), json!({"presented_audience": "https://bank.example/act"})),
    ];
    for protocol in ["aadp/0.1", "aadp/0.2"] {
        let mut pdp = features::pdp();
        let mut seen = Vec::new();
        for (name, params, members) in &asks {
            let body = with(with(request(name, params.clone()), members.clone()), json!({"protocol": protocol}));
            let reply = pdp.decide(&body);
            let trace = pdp.trace(&reply);
            let (reason, shown) = (reply.reason.as_str(), format!("{name} {:?} {trace:#?}", says(&reply)));
            assert_eq!(trace.is_empty(), reason == "malformed", "{shown}");
            let failed: Vec<&Check> = trace.iter().filter(|check| check.result != CheckResult::Pass).collect();
            let last_fail = trace.iter().rev().find(|check| check.result == CheckResult::Fail);
            let names = |check: &Check| check.check == reason || check_of(reason).contains(&&*check.check);
            match reply.verdict {
                Verdict::Deny if reason != "malformed" => {
                    assert!(names(failed.last().unwrap()), "{shown}");
                    assert!(
                        std::ptr::eq(trace.last().unwrap(), *failed.last().unwrap()),
                        "nothing after the stop: {shown}"
                    );
                }
                Verdict::Propose | Verdict::DryRun => assert!(names(last_fail.unwrap()), "{shown}"),
                Verdict::Permit => assert!(last_fail.is_none_or(names), "{shown}"),
                _ => assert!(failed.is_empty(), "{shown}"),
            }
            seen.push(says(&reply));
        }
        pdp.switch(true);
        let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
        let trace = pdp.trace(&reply);
        assert_eq!((trace.len(), &*trace[0].check, trace[0].result), (1, "kill_switch", CheckResult::Fail));
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() >= 12, "{seen:?}");
    }
}

#[test]
fn case_l19_the_chain_goes_over_a_version_change_and_localises_a_change() {
    let mut pdp = Pdp::new();
    pdp.pay("1");
    pdp.publish(POLICIES).unwrap();
    pdp.decide(&newer(request("pay.small", json!({"payee": "x", "amount_eur": "1"}))));
    pdp.publish(&POLICIES.replace("daily_rate: 3", "daily_rate: 9")).unwrap();
    pdp.pay("1");
    let policies: std::collections::BTreeSet<_> = pdp.entries().into_iter().map(|entry| entry.policy).collect();
    let protocols: Vec<_> = pdp.entries().into_iter().map(|entry| entry.protocol).collect();
    assert!(policies.len() == 3 && protocols.contains(&Protocol::V01) && protocols.contains(&Protocol::V02));
    let head = pdp.state.meta.chain_head;
    let localised = |entries: &[Vec<u8>]| {
        let numbered: Vec<_> =
            entries.iter().zip(1..).map(|(bytes, index)| (EvidenceIndex(index), bytes.as_slice())).collect();
        damaged(&numbered, head)
    };
    let good: Vec<Vec<u8>> = pdp.state.entries.values().cloned().collect();
    assert_eq!(localised(&good), []);
    for at in 0..good.len() {
        for byte in (0..good[at].len()).step_by(41) {
            let mut changed = good.clone();
            changed[at][byte] ^= 1;
            assert_eq!(localised(&changed), [EvidenceIndex(at as u64 + 1)], "byte {byte}");
        }
    }
}

#[test]
fn case_l20_a_damaged_range_is_not_signed() {
    let prepared = || {
        let mut pdp = Pdp::new();
        for _ in 0..3 {
            pdp.pay("1");
        }
        pdp
    };
    let mut pdp = prepared();
    let Answer::Head(view) = pdp.call("A1", Op::SignHead).unwrap() else { panic!("not a head") };
    assert!(view.signed.verify());
    assert_eq!((view.signed.head.size, view.evidence_id.0), (4, 5));
    let good = pdp.state.entries[&EvidenceIndex(2)].clone();
    // An entry changed behind a signed head: the proof under that head no longer holds, and names the entry.
    pdp.tampered = true;
    let proof =
        |pdp: &Pdp, index| match pdp.query_as("A1", &Query::InclusionProof { index: EvidenceIndex(index), size: 4 }) {
            Answer::Proof(proof) => proof,
            other => panic!("{other:?}"),
        };
    let verifies = |pdp: &Pdp, index: u64, bytes: &[u8]| {
        let leaf = placet_core::merkle::leaf_hash(&placet_core::evidence::hash(bytes));
        let path = proof(pdp, index).path;
        placet_core::merkle::verify_inclusion(&leaf, index - 1, 4, &path, &view.signed.head.root)
    };
    assert!(verifies(&pdp, 2, &good));
    let mut bad = good.clone();
    bad[40] ^= 1;
    assert!(!verifies(&pdp, 2, &bad));
    // An entry changed, lost or unreadable since the last head: no head is signed over it.
    type Damage = fn(&mut Vec<u8>) -> bool;
    let damages: [Damage; 3] = [
        |bytes| {
            let at = bytes.len() - 40;
            bytes[at] ^= 1;
            true
        },
        |bytes| {
            bytes.truncate(10);
            true
        },
        |_| false,
    ];
    for damage in damages {
        for index in 1..=4 {
            let mut pdp = prepared();
            pdp.tampered = true;
            let mut bytes = pdp.state.entries.remove(&EvidenceIndex(index)).unwrap();
            if damage(&mut bytes) {
                pdp.state.entries.insert(EvidenceIndex(index), bytes);
            }
            let refused = pdp.call("A1", Op::SignHead);
            assert!(
                matches!(&refused, Err(Reject::Internal { detail }) if detail.contains(&format!("aud-{index}"))),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn case_l21_numbers_have_one_canonical_form() {
    let sixty = "9".repeat(60);
    for (token, canonical) in
        [("250", "250"), ("250.00", "250"), ("2.5E+2", "250"), ("-0", "0"), ("0.50", "0.5"), (&sixty, &sixty)]
    {
        assert_eq!(Exact::parse_number(token).unwrap().to_string(), canonical);
        // The same on the path of a request: spelling is not a difference, every digit is.
        let mut pdp = Pdp::new();
        let body = request("pay.back", json!({"n": "@"})).to_string();
        let spelt = |token: &str| body.replace("\"@\"", token);
        let reply = pdp.decide_bytes("P1", spelt(token).as_bytes());
        let again = pdp.decide_bytes("P1", spelt(canonical).as_bytes());
        assert_eq!(again, DecideReply { replayed: true, ..reply }, "{token}");
    }
    let mut pdp = Pdp::new();
    let body = request("pay.back", json!({"n": "@"})).to_string();
    pdp.decide_bytes("P1", body.replace("\"@\"", &sixty).as_bytes());
    let last_digit = pdp.decide_bytes("P1", body.replace("\"@\"", &format!("{}8", "9".repeat(59))).as_bytes());
    assert_eq!(last_digit.permit_id, None, "sixty digits are compared, not twenty-eight");
}
