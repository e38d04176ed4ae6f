//! AADP §23.10: the cases of later revisions, in the vocabulary of protocol 0.2. Those about URLs are in `urls`.

use serde_json::{Value, json};

use super::fixture::{Case, case, case_alone};
use crate::harness::{P1, report, says, text, with};

fn newer(body: Value) -> Value {
    with(body, json!({"protocol": "aadp/0.2"}))
}

async fn pay(case: &Case, amount: &str) -> Value {
    let params = json!({"payee": "x", "amount_eur": amount});
    case.client().decide(&newer(case.body("pay.small", params))).await
}

/// The entry before another one.
fn before(evidence_id: &str) -> String {
    let index: u64 = evidence_id.trim_start_matches("aud-").parse().unwrap();
    format!("aud-{}", index - 1)
}

/// Goal: what each outcome gives back, and that release and result are one write: neighbours at one instant.
#[test]
fn case_l01_l03_l04_and_l05_what_an_outcome_gives_back() {
    case("l01", async |case| {
        case.edit(|policies| policies.replace("daily_rate: 3,", "daily_rate: 9,")).await;
        for (rate, (outcome, no_effect, released, day, success)) in [
            ("not_attempted", false, Some("not_attempted"), "0", json!(null)),
            ("failure", true, Some("no_effect"), "0", json!(false)),
            ("success", true, None, "10", json!(true)),
            ("timeout", true, None, "20", json!(null)),
            ("not_attempted", true, Some("not_attempted"), "20", json!(null)),
            ("timeout", false, None, "30", json!(null)),
        ]
        .into_iter()
        .enumerate()
        {
            let permit = pay(&case, "10").await;
            let body = with(report(text(&permit, "permit_id"), outcome), json!({"no_effect": no_effect}));
            let reply = case.client().report_as(P1, &body).await;
            assert_eq!(reply["accepted"], true);
            let (kind, result, whole) = case.entry(text(&reply, "evidence_id")).await;
            assert_eq!((kind.as_str(), &result["success"]), ("exec_result", &success), "{outcome} {no_effect}");
            let counts = no_effect && outcome == "failure";
            assert_eq!(result["no_effect"], counts, "{outcome}");
            assert_eq!(result["no_effect_ignored"], no_effect && !counts, "{outcome}");
            let (kind, release, at) = case.entry(&before(text(&reply, "evidence_id"))).await;
            if let Some(reason) = released {
                assert_eq!((kind.as_str(), text(&release, "reason")), ("reservation_released", reason));
                assert_eq!((&release["intent"], &at["at"]), (&result["intent"], &whole["at"]));
                let kinds: Vec<_> =
                    release["released"].as_array().unwrap().iter().map(|one| text(one, "kind")).collect();
                assert_eq!(kinds, ["value", "value"], "the call stays counted");
            } else {
                assert!(kind != "reservation_released" || release["intent"] != result["intent"]);
            }
            assert_eq!(case.consumed("pay.small.eur_day").await, day, "{outcome} {no_effect}");
            assert_eq!(case.consumed("pay.small.rate").await, (rate + 1).to_string());
        }
    });
}

#[test]
fn case_l02_a_call_that_was_not_attempted_still_counts() {
    case("l02", async |case| {
        case.edit(|policies| policies.replace("daily_rate: 3,", "daily_rate: 1,")).await;
        let permit = pay(&case, "60").await;
        assert_eq!(case.report(text(&permit, "permit_id"), "not_attempted").await["accepted"], true);
        let second = pay(&case, "60").await;
        assert_eq!((says(&second), text(&second["budget"], "dimension")), (("deny", "rate_exhausted"), "calls"));
    });
}

#[test]
fn case_l06_and_l08_the_budget_object_is_on_budget_denials_only() {
    case_alone("l06", async |case| {
        let first = pay(&case, "60.50").await;
        let denied = pay(&case, "60").await;
        assert_eq!(says(&denied), ("deny", "budget_exhausted"));
        for (member, expected) in [
            ("name", case.name("pay.small.eur_day").as_str()),
            ("dimension", "EUR"),
            ("limit", "100"),
            ("remaining", "39.5"),
            ("window", "day"),
            ("consumed", "60.5"),
        ] {
            assert_eq!(text(&denied["budget"], member), expected, "{member}");
        }
        let (_, entry, _) = case.entry(text(&denied, "evidence_id")).await;
        assert_eq!(entry["budget"], denied["budget"], "it is on record");
        let mut others = vec![first];
        for (action, params) in [
            ("pay.fee", json!({})),
            ("lamp.toggle", json!({"state": "dim"})),
            ("nope.x", json!({})),
            ("wire.send", json!({"amount_eur": "1"})),
            ("reh.a", json!({})),
            ("read.status", json!({})),
        ] {
            others.push(case.client().decide(&newer(case.body(action, params))).await);
        }
        case.switch(true).await;
        others.push(pay(&case, "60").await);
        assert_eq!(text(&others[1], "reason"), "cost_unknown");
        for reply in &others {
            let (_, entry, _) = case.entry(text(reply, "evidence_id")).await;
            assert!(reply.get("budget").is_none() && entry.get("budget").is_none(), "{reply}");
            assert!(!text(reply, "reason").starts_with("cap_"));
        }
    });
}

#[test]
fn case_l07_the_budget_name_tells_day_and_month_apart() {
    case("l07", async |case| {
        for (limits, budget, window) in [
            ("eur_day: 10, eur_month: 250", "pay.small.eur_day", "day"),
            ("eur_day: 100, eur_month: 10", "pay.small.eur_month", "month"),
        ] {
            let policies = super::policies::POLICIES.replace('@', &case.name(""));
            case.edit(|_| policies.replace("eur_day: 100, eur_month: 250", limits)).await;
            let reply = pay(&case, "60").await;
            assert_eq!(says(&reply), ("deny", "budget_exhausted"));
            let found = &reply["budget"];
            assert_eq!((text(found, "name"), text(found, "window")), (case.name(budget).as_str(), window));
        }
    });
}

/// Goal: for every verdict, the last check that did not pass is the reason, and nothing is checked after a stop.
#[test]
fn case_l10_the_trace_names_the_reason() {
    case("l10", async |case| {
        let url = |host: &str| json!({"url": format!("https://{host}/")});
        for (action, params, reason, check) in [
            ("lamp.toggle", json!({"state": "on"}), "passed", ""),
            ("read.status", json!({}), "observe", ""),
            ("lamp.toggle", json!({"state": "dim"}), "bounds", "bounds"),
            ("nope.x", json!({}), "default_deny", "default_deny"),
            ("reh.a", json!({}), "dry_run", "dry_run"),
            ("pay.small", json!({"payee": "x", "amount_eur": "200"}), "budget_exhausted", "budget_exhausted"),
            ("wire.send", json!({"amount_eur": "1"}), "tier_confirm", "tier_confirm"),
            ("pay.danger", json!({}), "effect_floor", "effect_floor"),
            ("eff.two", json!({}), "effect_floor", "effect_floor"),
            ("web.get", url("bit.ly"), "effect_floor", "opaque_host"),
            ("bound.act", json!({"amount_eur": "1"}), "present_bound", "present_bound"),
            ("web.get", json!({"url": "nonsense"}), "malformed", ""),
        ] {
            let reply = case.client().decide(&newer(case.body(action, params))).await;
            assert_eq!(text(&reply, "reason"), reason, "{action}");
            let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
            let trace = entry["trace"].as_array().unwrap();
            assert_eq!(trace.is_empty(), reason == "malformed", "{action}: {trace:?}");
            let failed: Vec<_> = trace.iter().filter(|one| one["result"] != "pass").collect();
            let shown = format!("{action}: {trace:#?}");
            match failed.last() {
                Some(last) => assert_eq!(text(last, "check"), check, "{shown}"),
                None => assert_eq!(check, "", "{shown}"),
            }
            if text(&reply, "verdict") == "deny" && reason != "malformed" {
                assert_eq!(trace.last(), failed.last().copied(), "{shown}");
            }
        }
    });
}

#[test]
fn case_l14_another_audience_is_denied_before_anything_else() {
    case("l14", async |case| {
        for audience in [json!(null), json!("https://bank.example/other"), json!("https://bank.example/act/")] {
            for (action, params) in [("bound.act", json!({"amount_eur": "1"})), ("bound.confirm", json!({}))] {
                let body = with(case.body(action, params), json!({"presented_audience": audience}));
                assert_eq!(says(&case.client().decide(&body).await), ("deny", "present_bound"), "{audience}");
            }
        }
        assert_eq!((case.consumed("bound.act.eur_day").await.as_str(), case.approvals().await.len()), ("0", 0));
        let members = json!({"presented_audience": "https://bank.example/act"});
        let reply = case.client().decide(&with(case.body("bound.act", json!({"amount_eur": "1"})), members)).await;
        assert_eq!(says(&reply), ("permit", "passed"));
        let obligations = reply["obligations"].as_array().unwrap();
        let bound = json!({"type": "present_bound", "value": "https://bank.example/act", "required": true});
        assert!(obligations.contains(&bound), "{obligations:?}");
    });
}

/// Goal: spelling is no difference, every digit is: a replay compares the canonical forms.
#[test]
fn case_l21_numbers_have_one_canonical_form() {
    case("l21", async |case| {
        let sixty = "9".repeat(60);
        for (token, canonical) in
            [("250.00", "250"), ("2.5E+2", "250"), ("-0", "0"), ("0.50", "0.5"), (sixty.as_str(), sixty.as_str())]
        {
            let body = case.body("pay.back", json!({}));
            let ask = async |token: &str| case.client().decide_text(P1, &body, &format!("{{\"n\":{token}}}")).await;
            let first = ask(token).await;
            assert_eq!(ask(canonical).await, with(first, json!({"replayed": true})), "{token}");
        }
        let body = case.body("pay.back", json!({}));
        let ask = async |token: &str| case.client().decide_text(P1, &body, &format!("{{\"n\":{token}}}")).await;
        assert_eq!(says(&ask(&sixty).await), ("permit", "passed"));
        let last_digit = ask(&format!("{}8", "9".repeat(59))).await;
        assert!(last_digit.get("permit_id").is_none(), "sixty digits are compared, not twenty-eight");
    });
}
