//! Re-derivation of what is hidden: no false alarm, whatever the hidden values decided and whenever the rules about
//! hiding changed; and a hidden value switches off no check that does not need it.

use placet_core::evaluate::{Rederived, rederive};
use placet_core::event::{ApprovalRefStatus, Body, BudgetKind, Decided, Entry, SwitchScope};
use placet_core::exact::Amount;
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, Principal};
use placet_core::op::Op;
use placet_core::reply::{DecideReply, Reason, Tier};
use placet_core::trace::{Check, Trace};
use serde_json::{Value, json};

use super::features;
use super::fixture::{Pdp, report_body, request, says, uuid, with};
use super::random::Random;
use super::rederivation::{all, decided, derived, rechained};

/// Every argument that a rule reads is hidden; past the loader, which takes no hidden cost.
fn hiding(pdp: &mut Pdp) {
    pdp.edit(|document| {
        for action in document.actions.values_mut() {
            action.redact = ["amount", "iban", "state", "url", "n", "pin", "colour", "site"]
                .map(|name| format!("params.{name}"))
                .into();
        }
    });
}

fn hides(pdp: &mut Pdp, action: &str, paths: &[&str]) {
    pdp.edit(|document| {
        document.actions.get_mut(action).unwrap().redact = paths.iter().map(|path| (*path).to_owned()).collect();
    });
}

fn found(pdp: &Pdp, reply: &DecideReply) -> Rederived {
    let found = rederive(pdp.state.entries.values().map(Vec::as_slice)).unwrap();
    found[usize::try_from(reply.evidence_id.0 - 1).unwrap()].clone()
}

fn redacted(paths: &[&str]) -> Rederived {
    Rederived::Redacted { paths: paths.iter().map(|path| (*path).to_owned()).collect() }
}

/// The field that the entry at `at` is named for when `change` is made to it.
#[track_caller]
fn named(pdp: &Pdp, at: EvidenceIndex, change: impl FnOnce(&mut Entry)) -> String {
    let mut entries = all(pdp);
    change(&mut entries[usize::try_from(at.0 - 1).unwrap()]);
    let difference = derived(&rechained(entries, None)).unwrap_err();
    assert_eq!(difference.index, at, "{difference}");
    difference.field
}

#[test]
fn hidden_values_decide_everything_and_all_of_it_follows() {
    let (mut random, mut pdp) = (Random(4), features::pdp());
    hiding(&mut pdp);
    pdp.edit(|document| document.budgets.get_mut("calls").unwrap().limit = Amount::parse("7").unwrap());
    let mut reasons = std::collections::BTreeSet::new();
    for _ in 0..900 {
        let principal = random.pick(&["P1", "P2"]);
        let body = random.feature_request();
        let reply = pdp.decide_as(principal, &body);
        reasons.insert(reply.reason.as_str());
        match random.next(6) {
            0 => {
                pdp.switch(true);
                let stopped = pdp.decide_as(principal, &random.feature_request());
                reasons.insert(stopped.reason.as_str());
                pdp.switch(false);
            }
            1 => pdp.now = pdp.now.plus_ms(random.pick(&[1000, 601_000, 7_200_000])),
            _ => {}
        }
        if let Some(permit) = reply.permit_id.filter(|_| random.next(2) == 0) {
            pdp.report_as(principal, &report_body(&permit, random.pick(&["success", "not_attempted"])));
        }
        if let Some(id) = reply.approval_id.filter(|_| random.next(2) == 0) {
            let _refused = pdp.resolve("A1", &id, true);
            let again = json!({"request_id": uuid(), "approval_ref": id.as_str()});
            let other = json!({"params": {"n": "other"}});
            let body = with(body, again);
            pdp.decide_as(principal, &if random.next(3) == 0 { with(body, other) } else { body });
        }
    }
    for reason in [
        "passed",
        "observe",
        "bounds",
        "malformed",
        "effect_floor",
        "tier_confirm",
        "kill_switch",
        "default_deny",
        "external_authorization",
        "present_bound",
        "dry_run",
        "budget_exhausted",
        "cap_eur_day",
        "rate_exhausted",
        "cap_daily_rate",
        "cost_unknown",
    ] {
        assert!(reasons.contains(reason), "{reason} is not among {reasons:?}");
    }
    let found = rederive(pdp.state.entries.values().map(Vec::as_slice)).unwrap();
    let hidden = found.iter().filter(|one| matches!(one, Rederived::Redacted { .. })).count();
    assert!(hidden > 400, "{hidden}");
}

/// Goal: one hidden value that a rule reads switched off every check of its decision.
#[test]
fn what_a_hidden_value_does_not_decide_is_still_checked() {
    let mut pdp = features::pdp();
    hides(&mut pdp, "pay.card", &["params.amount"]);
    let body = with(request("pay.card", json!({"amount": "60"})), json!({"protocol": "aadp/0.2"}));
    let paid = pdp.decide(&body);
    assert_eq!(says(&paid), ("permit", "passed"));
    assert_eq!(found(&pdp, &paid), redacted(&["params.amount"]));
    let forged = |change: &dyn Fn(&mut Decided)| named(&pdp, paid.evidence_id, |entry| change(decided(entry)));
    assert_eq!(forged(&|decided| decided.nominal_tier = Tier::Auto), "nominal_tier");
    assert_eq!(forged(&|decided| decided.effective_tier = Tier::Auto), "effective_tier");
    assert_eq!(forged(&|decided| decided.reason = Reason::TierConfirm), "reason");
    assert_eq!(forged(&|decided| decided.deadline = decided.deadline.map(|at| at.plus_ms(1))), "deadline");
    assert_eq!(forged(&|decided| drop(decided.obligations.pop())), "obligations");
    assert_eq!(forged(&|decided| drop(decided.draws.pop())), "draws");
    assert_eq!(forged(&|decided| decided.draws[0].amount = Amount::ONE), "draws");
    assert_eq!(forged(&|decided| decided.effects.clear()), "effects");
    assert_eq!(forged(&|decided| decided.effects.push("egress".to_owned())), "effects");
    assert_eq!(forged(&|decided| decided.approval_ref_status = ApprovalRefStatus::Honored), "approval_ref_status");
    assert_eq!(forged(&|decided| decided.resumes = Some(EvidenceIndex(1))), "resumes");
    assert_eq!(forged(&|decided| decided.request_digest = Hash::GENESIS), "request_digest");
    assert_eq!(forged(&|decided| edit(decided, |checks| drop(checks.pop()))), "trace");
    // Text that is JSON and no trace.
    assert_eq!(forged(&|decided| decided.trace = serde_json::from_str("{}").unwrap()), "trace");
    // An amount that the bounds would not have let through, drawn consistently.
    let more = Amount::parse("201").unwrap();
    let drawn = forged(&|decided| {
        decided.cost = Some(more);
        decided.draws.iter_mut().filter(|draw| draw.kind != BudgetKind::Rate).for_each(|draw| {
            draw.amount = more;
        });
    });
    assert_eq!(drawn, "verdict");
    // Another policy's tier, and a name that the policy does not have.
    assert_eq!(
        named(&pdp, paid.evidence_id, |entry| decided(entry).action_type = ActionType::new("pay.crad")),
        "request_digest"
    );
    // Budgets: what is left for the next is counted.
    let (second, third) = (pdp.pay_card("190"), pdp.pay_card("60"));
    assert_eq!((says(&second).0, says(&third)), ("permit", ("deny", "budget_exhausted")));
    let forged = |change: &dyn Fn(&mut Decided)| named(&pdp, third.evidence_id, |entry| change(decided(entry)));
    let left = forged(&|decided| {
        let budget = decided.budget.as_mut().unwrap();
        (budget.consumed, budget.remaining) = (budget.limit, Amount::ZERO);
    });
    assert_eq!(left, "budget");
    let dearer = |checks: &mut Vec<Check>| checks.last_mut().unwrap().value = "9000".into();
    assert_eq!(forged(&|decided| edit(decided, dearer)), "verdict");
}

fn edit(decided: &mut Decided, change: impl Fn(&mut Vec<Check>)) {
    let mut checks = decided.trace.checks().unwrap();
    change(&mut checks);
    decided.trace = Trace::of(checks);
}

impl Pdp {
    fn pay_card(&mut self, amount: &str) -> DecideReply {
        let body = with(request("pay.card", json!({"amount": amount})), json!({"protocol": "aadp/0.2"}));
        self.decide(&body)
    }
}

/// Goal: a permit under an engaged switch passed where its decision read something hidden.
#[test]
fn no_hidden_value_gets_past_an_engaged_switch() {
    let mut pdp = features::pdp();
    hides(&mut pdp, "lamp.toggle", &["params.state"]);
    for scoped in [false, true] {
        let scope = SwitchScope::ActionType(ActionType::new("lamp.toggle"));
        let permitted = pdp.ask("lamp.toggle", json!({"state": "on"}));
        if scoped {
            pdp.scoped(&scope, true).unwrap();
        } else {
            pdp.switch(true);
        }
        let denied = pdp.ask("lamp.toggle", json!({"state": "on"}));
        assert_eq!(says(&denied), ("deny", "kill_switch"));
        // The permit before moves behind the switch.
        let mut entries = all(&pdp);
        let at = usize::try_from(permitted.evidence_id.0).unwrap();
        entries.swap(at - 1, at);
        let difference = derived(&rechained(entries, None)).unwrap_err();
        assert_eq!((difference.index.0, difference.field.as_str()), (at as u64 + 1, "verdict"), "{difference}");
        // A denial that no switch explains.
        let mut entries = all(&pdp);
        entries.remove(at);
        let difference = derived(&rechained(entries, None)).unwrap_err();
        assert_eq!(difference.index.0, at as u64 + 1, "{difference}");
        pdp.switch(false);
        pdp.scoped(&scope, false).unwrap();
    }
}

/// Goal: the arguments of an approval are compared in clear, and other paths are hidden when it is used: it looked like
/// another action when it was derived again.
#[test]
fn an_approval_outlives_the_rules_about_hiding() {
    for (before, after) in [(&[][..], &["params.iban"][..]), (&["params.iban"], &[]), (&["params.a"], &["params.iban"])]
    {
        let mut pdp = features::pdp();
        hides(&mut pdp, "flood.plain", before);
        let body = with(request("flood.plain", json!({"iban": "NL1", "a": 1})), json!({"protocol": "aadp/0.2"}));
        let proposed = |pdp: &mut Pdp| {
            let id = pdp.decide(&with(body.clone(), json!({"request_id": uuid()}))).approval_id.unwrap();
            pdp.grant(&id);
            id
        };
        let (used, other) = (proposed(&mut pdp), proposed(&mut pdp));
        hides(&mut pdp, "flood.plain", after);
        let resume = |id: &ApprovalId, params: Value| {
            with(body.clone(), json!({"request_id": uuid(), "approval_ref": id.as_str(), "params": params}))
        };
        let honoured = pdp.decide(&resume(&used, json!({"iban": "NL1", "a": 1})));
        assert_eq!(says(&honoured), ("permit", "passed"));
        let refused = pdp.decide(&resume(&other, json!({"iban": "NL2", "a": 1})));
        assert_eq!(says(&refused).0, "propose");
        for reply in [&honoured, &refused] {
            assert!(matches!(found(&pdp, reply), Rederived::Redacted { paths } if !paths.is_empty()));
        }
        // Everything else about the use is still checked: whose it is, that it is the only one, and the permit.
        assert_eq!(named(&pdp, honoured.evidence_id, |entry| decided(entry).deadline = None), "deadline");
        assert_eq!(named(&pdp, honoured.evidence_id, |entry| entry.principal = Principal::new("P2")), "verdict");
        let twice = resume(&used, json!({"iban": "NL1", "a": 1}));
        let again = pdp.decide(&twice);
        assert_eq!(pdp.decided(&again).approval_ref_status, ApprovalRefStatus::Consumed);
        assert_eq!(
            named(&pdp, again.evidence_id, |entry| decided(entry).approval_ref_status = ApprovalRefStatus::Honored),
            "approval_ref_status"
        );
        assert_eq!(found(&pdp, &again), Rederived::Verdict);
    }
}

/// Goal: the same for an undo, whose action may hide other arguments than the one that it reverses.
#[test]
fn an_undo_may_hide_other_arguments_than_what_it_reverses() {
    let mut pdp = features::pdp();
    hides(&mut pdp, "obliged", &["params.iban"]);
    let params = json!({"iban": "NL1", "n": 1});
    let done = pdp.ask("obliged", params.clone());
    pdp.report(done.permit_id.as_ref().unwrap(), "success");
    let undo = json!({"source": "undo", "parent_id": done.permit_id.as_ref().unwrap().as_str()});
    let wrong = pdp.decide(&with(request("pay.back", json!({"iban": "NL2", "n": 1})), undo.clone()));
    let right = pdp.decide(&with(request("pay.back", params.clone()), undo.clone()));
    let late = pdp.decide(&with(request("pay.back", params), undo));
    assert_eq!([&wrong, &right, &late].map(|reply| says(reply).0), ["deny", "permit", "deny"]);
    assert_eq!(pdp.decided(&right).undo_of, Some(done.evidence_id));
    for reply in [&wrong, &right, &late] {
        assert_eq!(found(&pdp, reply), redacted(&["params.iban"]));
    }
    assert_eq!(named(&pdp, late.evidence_id, |entry| decided(entry).undo_of = Some(done.evidence_id)), "undo_of");
}

/// Goal: what marks and exponents make of a body was too long, or unreadable, for whoever derived it again.
#[test]
fn a_body_that_grows_is_recorded_or_refused_and_never_unreadable() {
    let mut pdp = features::pdp();
    let decide = |pdp: &mut Pdp, params: String| {
        let body = request("pay.card", json!({})).to_string().replace("\"params\":{}", &format!("\"params\":{params}"));
        let reply = pdp.decide_bytes("P1", body.as_bytes());
        let entry = &pdp.state.entries[&reply.evidence_id];
        assert!(entry.len() < 3 << 20, "{}", entry.len());
        reply
    };
    // Exponents that are written out.
    let few = decide(&mut pdp, r#"{"amount":"5","iban":"x","n":[1e64,9e-64]}"#.to_owned());
    assert_eq!(says(&few), ("permit", "passed"));
    assert_eq!(found(&pdp, &few), Rederived::Verdict);
    let many = decide(&mut pdp, format!(r#"{{"amount":"5","iban":"x","n":[{}1]}}"#, "9e64,".repeat(200_000)));
    assert_eq!(says(&many), ("deny", "malformed"));
    let Body::MalformedRequest(malformed) = pdp.entry(many.evidence_id).body else { panic!("another kind") };
    assert_eq!(malformed.request.kind, "size");
    // Marks that are longer than what they hide.
    let marks = decide(&mut pdp, format!(r#"{{"amount":"5","to":[{}1]}}"#, r#"{"iban":1},"#.repeat(90_000)));
    assert_eq!(says(&marks).0, "permit");
    assert_eq!(pdp.decided(&marks).redacted[0], "params.to.iban");
    // Reports and local decisions.
    let permit = few.permit_id.unwrap();
    let report = report_body(&permit, "success").to_string();
    let payload = format!(r#""payload":{{"iban":1,"n":[{}1]}},"permit_id""#, "9e64,".repeat(200_000));
    let report = report.replace("\"permit_id\"", &payload);
    pdp.call("P1", Op::Report(report.into_bytes())).unwrap();
    let local = json!({
        "action_type": "pay.card", "completed_at": "2026-08-17T09:00:00Z", "mode": "fail_open",
        "decided_at": "2026-08-17T09:00:00Z", "outcome": "success", "params": {}, "rationale": "t",
        "request_id": uuid(), "source": "llm",
    });
    let local = |params: &str| {
        let entry = local.to_string().replace("\"params\":{}", &format!("\"params\":{params}"));
        format!(r#"{{"protocol":"aadp/0.2","entries":[{entry}]}}"#).into_bytes()
    };
    pdp.call("P1", Op::RecordLocal(local(r#"{"iban":"RAW-VALUE","n":1e64}"#))).unwrap();
    let last = pdp.state.entries.values().next_back().unwrap();
    assert!(!String::from_utf8_lossy(last).contains("RAW-VALUE"));
    pdp.call("P1", Op::RecordLocal(local(&format!(r#"{{"to":[{}1]}}"#, r#"{"iban":1},"#.repeat(90_000))))).unwrap();
    assert!(pdp.call("P1", Op::RecordLocal(local(&format!(r#"{{"n":[{}1]}}"#, "9e64,".repeat(200_000))))).is_err());
    assert!(pdp.state.entries.values().all(|bytes| bytes.len() < 3 << 20));
}

/// Goal: a hidden value that shows all the same was not found.
#[test]
fn a_value_that_leaked_is_named_and_not_repeated() {
    const RAW: &str = "NL00SECRET0123456789";
    let mut pdp = features::pdp();
    let body = with(
        request("pay.card", json!({"amount": "5", "iban": RAW, "to": [{"iban": RAW}]})),
        json!({"rationale": format!("pay {RAW}")}),
    );
    let paid = pdp.decide(&body);
    let report = json!({"payload": {"iban": RAW, "deep": [{"iban": 1}]}, "error": RAW});
    let reported = with(report_body(paid.permit_id.as_ref().unwrap(), "failure"), report.clone());
    let result = pdp.report_as("P1", &reported).evidence_id;
    let refused = pdp.report_as("P1", &reported).evidence_id;
    let unknown = pdp.report_as("P1", &with(reported, json!({"permit_id": "x"}))).evidence_id;
    let noted = with(
        report_body(&PermitId::new("x"), "success"),
        with(report, json!({"request_id": uuid(), "permit_id": null})),
    );
    let noted = pdp.report_as("P1", &with(noted, json!({"permit_id": null}))).evidence_id;
    let local = json!({
        "action_type": "pay.card", "completed_at": "2026-08-17T09:00:00Z", "mode": "fail_open",
        "decided_at": "2026-08-17T09:00:00Z", "outcome": "success", "params": {"iban": RAW, "amount": "1"},
        "rationale": RAW, "error": RAW, "request_id": uuid(), "source": "llm",
    });
    pdp.call("P1", Op::RecordLocal(json!({"protocol": "aadp/0.2", "entries": [local]}).to_string().into())).unwrap();
    let local = EvidenceIndex(pdp.state.meta.next_index.0 - 1);
    pdp.decide_bytes("P1", RAW.as_bytes());
    let malformed = EvidenceIndex(local.0 + 1);
    let leak = |text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        unmark(&mut value);
        value.to_string()
    };
    let leaked = |at: EvidenceIndex, change: &dyn Fn(&mut Body)| {
        let mut entries = all(&pdp);
        change(&mut entries[usize::try_from(at.0 - 1).unwrap()].body);
        let difference = derived(&rechained(entries, None)).unwrap_err();
        assert_eq!(difference.index, at, "{difference}");
        assert!(!difference.to_string().contains(RAW), "{difference}");
        difference.field
    };
    type Change<'a> = Box<dyn Fn(&mut Body) + 'a>;
    let cases: Vec<(EvidenceIndex, &str, Change<'_>)> = vec![
        (paid.evidence_id, "params.iban", Box::new(|body| intent(body).params = leak(&intent(body).params))),
        (
            paid.evidence_id,
            "params.to.iban",
            Box::new(|body| {
                let params = &mut intent(body).params;
                let mut value: Value = serde_json::from_str(params).unwrap();
                unmark(&mut value["to"]);
                *params = value.to_string();
            }),
        ),
        (paid.evidence_id, "rationale", Box::new(|body| intent(body).rationale = RAW.to_owned())),
        (
            result,
            "payload.iban",
            Box::new(|body| {
                let Body::ExecResult(found) = body else { panic!("another kind") };
                found.payload = found.payload.as_deref().map(leak);
            }),
        ),
        (
            result,
            "error",
            Box::new(|body| {
                let Body::ExecResult(found) = body else { panic!("another kind") };
                found.error = Some(RAW.to_owned());
            }),
        ),
        (
            refused,
            "payload.iban",
            Box::new(|body| {
                let Body::ReportRefused(found) = body else { panic!("another kind") };
                found.payload = found.payload.as_deref().map(leak);
            }),
        ),
        (
            unknown,
            "payload",
            Box::new(|body| {
                let Body::ReportRefused(found) = body else { panic!("another kind") };
                found.payload = Some(format!("{{\"x\":\"{RAW}\"}}"));
            }),
        ),
        (
            unknown,
            "error",
            Box::new(|body| {
                let Body::ReportRefused(found) = body else { panic!("another kind") };
                found.error = Some(RAW.to_owned());
            }),
        ),
        (
            noted,
            "payload",
            Box::new(|body| {
                let Body::ReportNoted(found) = body else { panic!("another kind") };
                found.payload = Some(format!("{{\"x\":\"{RAW}\"}}"));
            }),
        ),
        (
            noted,
            "error",
            Box::new(|body| {
                let Body::ReportNoted(found) = body else { panic!("another kind") };
                found.error = Some(RAW.to_owned());
            }),
        ),
        (
            local,
            "params.iban",
            Box::new(|body| {
                let Body::LocalDecision(found) = body else { panic!("another kind") };
                found.params = leak(&found.params);
            }),
        ),
        (
            local,
            "rationale",
            Box::new(|body| {
                let Body::LocalDecision(found) = body else { panic!("another kind") };
                found.rationale = RAW.to_owned();
            }),
        ),
        (
            local,
            "error",
            Box::new(|body| {
                let Body::LocalDecision(found) = body else { panic!("another kind") };
                found.error = Some(RAW.to_owned());
            }),
        ),
        (
            malformed,
            "received.kept",
            Box::new(|body| {
                let Body::MalformedRequest(found) = body else { panic!("another kind") };
                found.request.received = RAW.to_owned();
            }),
        ),
    ];
    for (at, field, change) in cases {
        assert_eq!(leaked(at, &*change), field);
    }
}

fn intent(body: &mut Body) -> &mut Decided {
    match body {
        Body::ExecIntent(decided) => decided,
        other => panic!("not an intent: {other:?}"),
    }
}

/// Puts a value in place of every mark.
fn unmark(value: &mut Value) {
    match value {
        Value::Object(members) if members.contains_key("$redacted") => *value = "NL00SECRET0123456789".into(),
        Value::Object(members) => members.values_mut().for_each(unmark),
        Value::Array(items) => items.iter_mut().for_each(unmark),
        _ => {}
    }
}
