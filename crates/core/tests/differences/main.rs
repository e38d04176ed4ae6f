//! Rows of AADP §24 that no case of §23 shows: where onedoor 0.8.1 deviates from the draft, and what is answered here.
//! docs/DIFFERENCES.md names the tests of every row.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails, panics"
)]

#[path = "../conformance/fixture.rs"]
#[expect(dead_code, reason = "the cases use the rest")]
mod fixture;

use placet_core::event::{ApprovalRefStatus, Body};
use placet_core::evidence::ChainWalk;
use placet_core::ids::{ApprovalId, Hash, Principal};
use placet_core::op::{Answer, Call, Op, Query, Reject};
use placet_core::policy::Scope;
use placet_core::reply::DecideReply;
use serde_json::{Value, json};

use fixture::{POLICIES, Pdp, report_body, request, says, t0, tiers, with};

/// A body in which the string `@` is replaced by bare text, such as a number's exact spelling.
fn spelt(body: &Value, text: &str) -> Vec<u8> {
    body.to_string().replace("\"@\"", text).into_bytes()
}

#[test]
fn row_05_what_is_no_number_is_no_amount_and_nothing_invalid_is_stored() {
    for token in ["NaN", "Infinity", "-Infinity"] {
        for name in ["pay.small", "read.status"] {
            let mut pdp = Pdp::new();
            let body = spelt(&request(name, json!({"payee": "x", "amount_eur": "@"})), token);
            let reply = pdp.decide_bytes("P1", &body);
            assert_eq!(says(&reply), ("deny", "malformed"), "{name} {token}");
            assert!(serde_json::from_slice::<Value>(&pdp.state.entries[&reply.evidence_id]).is_ok());
        }
        // As a string it is well-formed, and no number.
        assert_eq!(says(&Pdp::new().pay(token)), ("deny", "bounds"), "{token}");
    }
}

#[test]
fn row_06_messages_have_the_members_of_the_draft() {
    let mut pdp = Pdp::new();
    let members = |reply: &DecideReply| {
        let value = serde_json::to_value(reply).unwrap();
        let names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        assert_eq!(value["protocol"], "aadp/0.1");
        names.join(" ")
    };
    let common = "detail effective_tier evidence_id nominal_tier";
    let permit = pdp.ask("lamp.toggle", json!({"state": "on"}));
    assert_eq!(members(&permit), format!("{common} obligations permit_id protocol reason request_id verdict"));
    let proposal = pdp.ask("wire.send", json!({"amount_eur": "1"}));
    assert_eq!(members(&proposal), format!("approval_id {common} protocol reason request_id verdict"));
    let denial = pdp.ask("nope.x", json!({}));
    assert_eq!(members(&denial), format!("{common} protocol reason request_id verdict"));
    // The session counts where a budget is per session.
    pdp.edit(|document| document.budgets.get_mut("pay.small.eur_day").unwrap().per = Some(Scope::Session));
    let pay = |session: &str| {
        let body = request("pay.small", json!({"payee": "x", "amount_eur": "60"}));
        with(body, json!({"session_id": session}))
    };
    for (session, verdict) in [("s1", "permit"), ("s1", "deny"), ("s2", "permit")] {
        assert_eq!(pdp.decide(&pay(session)).verdict.as_str(), verdict, "{session}");
    }
}

/// Goal: a fraction beside a reference is a number like every other, and tells no reference from another.
#[test]
fn row_13_a_fraction_with_a_reference_is_judged() {
    let mut pdp = Pdp::new();
    let wire = || request("wire.send", json!({"amount_eur": "@"}));
    let propose = |pdp: &mut Pdp| pdp.decide_bytes("P1", &spelt(&wire(), "40.5")).approval_id.unwrap();
    let (granted, denied) = (propose(&mut pdp), propose(&mut pdp));
    pdp.grant(&granted);
    pdp.resolve("A1", &denied, false).unwrap();
    let mut presented = |id: &ApprovalId, amount: &str| {
        let reply = pdp.decide_bytes("P1", &spelt(&with(wire(), json!({"approval_ref": id.as_str()})), amount));
        (says(&reply), tiers(&reply))
    };
    let proposed = (("propose", "tier_confirm"), (3, 3));
    assert_eq!(presented(&ApprovalId::from_random([1; 16]), "40.5"), proposed);
    assert_eq!(presented(&denied, "40.5"), proposed);
    assert_eq!(presented(&granted, "40.6"), proposed);
    assert_eq!(presented(&granted, "40.50"), (("permit", "passed"), (3, 1)));
}

#[test]
fn row_14_an_expired_approval_leaves_the_pending_list() {
    let mut pdp = Pdp::new();
    pdp.ask("wire.send", json!({"amount_eur": "400"}));
    let pending = |pdp: &Pdp| match pdp.query_as("A1", &Query::Approvals { all: false, after: None, limit: 10 }) {
        Answer::Approvals(list) => list.len(),
        other => panic!("not a list: {other:?}"),
    };
    assert_eq!(pending(&pdp), 1);
    pdp.now = t0().plus_ms(3_600_000);
    pdp.sweep();
    assert_eq!((pending(&pdp), pdp.state.meta.pending_approvals), (0, 0));
    assert_eq!(pdp.kinds(), ["decision", "approval_transition"]);
}

#[test]
fn row_20_a_permit_without_a_budget_expires_like_every_other() {
    let mut pdp = Pdp::new();
    let reply = pdp.ask("lamp.toggle", json!({"state": "on"}));
    assert!(reply.obligations.iter().any(|one| one.kind == "execute_within"));
    assert_eq!(pdp.state.meta.open_permits, 1);
    pdp.now = t0().plus_ms(600_000);
    pdp.sweep();
    assert_eq!(pdp.kinds(), ["exec_intent", "reservation_expired"]);
    assert_eq!(pdp.state.meta.open_permits, 0);
}

/// Goal: release and result are the events of one evaluation, which the log takes whole or not at all.
#[test]
fn row_21_a_release_and_its_result_are_one_write() {
    let mut pdp = Pdp::new();
    let permit = pdp.pay("60").permit_id.unwrap();
    let report = || Op::Report(report_body(&permit, "not_attempted").to_string().into_bytes());
    let call = Call { principal: Principal::new("P1"), op: report() };
    let outcome =
        placet_core::evaluate::evaluate(&pdp.state, &call, pdp.now, Default::default(), &Default::default()).unwrap();
    let kinds: Vec<_> = outcome.events.iter().map(|event| event.entry.body.kind()).collect();
    assert_eq!(kinds, ["reservation_released", "exec_result"]);
    // Dropped before the log had them: nothing is released, and the report is still to come.
    drop(outcome);
    assert_eq!(pdp.spent_day(), "60");
    assert!(pdp.report(&permit, "not_attempted").accepted);
    assert_eq!(pdp.spent_day(), "0");
}

#[test]
fn row_25_a_read_has_bounds_and_floors_too() {
    let mut pdp = Pdp::new();
    assert_eq!(says(&pdp.ask("read.status", json!({}))), ("observe", "observe"));
    assert_eq!(says(&pdp.ask("read.status", json!({"extra": 1}))), ("deny", "bounds"));
    pdp.edit(|document| document.actions.get_mut("read.status").unwrap().effects = vec!["danger".to_owned()]);
    let raised = pdp.ask("read.status", json!({}));
    assert_eq!((says(&raised), tiers(&raised)), (("propose", "effect_floor"), (0, 3)));
    assert_eq!(says(&pdp.ask("read.status", json!({"extra": 1}))), ("deny", "bounds"));
    pdp.switch(true);
    assert_eq!(says(&pdp.ask("read.status", json!({}))), ("deny", "kill_switch"));
}

#[test]
fn row_26_a_label_without_an_effect_is_a_mistake() {
    let mut pdp = Pdp::new();
    let before = pdp.state.meta.active_policy.clone();
    let added = "param_effects: [{ param: n, pattern: x, add_effects: [nobody] }]\n    effects: [bulk]";
    for document in
        [POLICIES.replace("effects: [bulk]", "effects: [nobody]"), POLICIES.replace("effects: [bulk]", added)]
    {
        let Err(Reject::PolicyMistakes { mistakes }) = pdp.publish(&document) else { panic!("it was taken") };
        assert!(mistakes.iter().any(|one| one.message.contains("nobody")), "{mistakes:?}");
    }
    assert_eq!(pdp.state.meta.active_policy, before);
}

#[test]
fn row_28_digits_are_ascii() {
    for amount in ["\u{ff11}\u{ff10}", "\u{0661}", "1\u{0966}", "1_0", "+1", " 1", ".5", "1e1"] {
        let mut pdp = Pdp::new();
        assert_eq!(says(&pdp.pay(amount)), ("deny", "bounds"), "{amount}");
        let fee = with(request("pay.fee", json!({})), json!({"cost_eur": amount}));
        assert_eq!(says(&pdp.decide(&fee)), ("deny", "malformed"), "{amount}");
        assert_eq!(pdp.reserved(), (0, 0, 0));
    }
}

/// Goal: an approval for one large number is none for its neighbour, and no spelling makes a small body large.
#[test]
fn row_29_equivalence_compares_every_digit() {
    let mut pdp = Pdp::new();
    pdp.edit(|document| document.actions.get_mut("pay.back").unwrap().effects = vec!["danger".to_owned()]);
    let body = || request("pay.back", json!({"n": "@"}));
    let large = "123456789012345678901234567890123456789";
    let id = pdp.decide_bytes("P1", &spelt(&body(), large)).approval_id.unwrap();
    pdp.grant(&id);
    let resumed = |number: &str| spelt(&with(body(), json!({"approval_ref": id.as_str()})), number);
    let neighbour = pdp.decide_bytes("P1", &resumed("123456789012345678901234567890123456788"));
    assert_eq!(says(&neighbour), ("propose", "effect_floor"));
    assert_eq!(pdp.decided(&neighbour).approval_ref_status, ApprovalRefStatus::ActionMismatch);
    assert_eq!(says(&pdp.decide_bytes("P1", &resumed(large))), ("permit", "passed"));
    for huge in ["1e65", "1e999999999", "1e-999999999"] {
        assert_eq!(says(&pdp.decide_bytes("P1", &spelt(&body(), huge))), ("deny", "malformed"), "{huge}");
    }
}

#[test]
fn row_30_the_record_holds_the_whole_request() {
    let mut pdp = Pdp::new();
    let members = json!({
        "cost_eur": "5.00", "session_id": "s1", "rationale": "invoice 17", "created_at": "2026-08-17T08:59:59.5Z",
    });
    let reply = pdp.decide(&with(request("pay.fee", json!({"to": ["x", 1.50]})), members));
    let decided = pdp.decided(&reply);
    let text = |value: Option<String>| value.unwrap();
    assert_eq!(text(decided.cost_eur.map(|cost| cost.to_string())), "5", "in its canonical form");
    assert_eq!((text(decided.session_id).as_str(), decided.rationale.as_str()), ("s1", "invoice 17"));
    assert_eq!(decided.created_at.to_string(), "2026-08-17T08:59:59.5Z");
    assert_eq!(serde_json::from_str::<Value>(&decided.params).unwrap(), json!({"to": ["x", 1.50]}));
}

#[test]
fn row_32_every_switch_is_an_entry() {
    let mut pdp = Pdp::new();
    pdp.switch(true);
    pdp.now = t0().plus_ms(1000);
    pdp.switch(false);
    let seen: Vec<_> = pdp
        .entries()
        .into_iter()
        .map(|entry| match entry.body {
            Body::KillSwitch(set) => (set.engaged, set.origin, entry.principal, entry.at),
            other => panic!("another kind: {other:?}"),
        })
        .collect();
    let (who, origin) = (Principal::new("A1"), "test".to_owned());
    assert_eq!(seen, [(true, origin.clone(), who.clone(), t0()), (false, origin, who, pdp.now)]);
}

/// Goal: nothing turns the chain on, because nothing turns it off; and an instant has one form.
#[test]
fn row_33_the_chain_starts_with_the_first_entry() {
    let mut pdp = Pdp::new();
    pdp.now = t0().plus_ms(500);
    pdp.pay("60");
    let mut walk = ChainWalk::default();
    for (bytes, prev) in pdp.state.entries.values().zip([Hash::GENESIS, walk_head(&pdp)]) {
        let entry: Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(entry["prev"], prev.to_string());
        walk.step(bytes).unwrap();
    }
    assert_eq!(walk.head, pdp.state.meta.chain_head);
    let last: Value = serde_json::from_slice(pdp.state.entries.values().last().unwrap()).unwrap();
    assert_eq!(last["at"], "2026-08-17T09:00:00.5Z");
}

/// The head after the first entry.
fn walk_head(pdp: &Pdp) -> Hash {
    let mut walk = ChainWalk::default();
    walk.step(pdp.state.entries.values().next().unwrap()).unwrap();
    walk.head
}
