//! AADP §23.4. 58, 59 and 65 turn the clock by days and run on the core alone.

use futures::future::join_all;
use serde_json::json;

use super::fixture::case;
use crate::harness::{AUDIT, says, text, with};

#[test]
fn case_048_049_the_day_is_used_up() {
    case("c048", async |case| {
        assert_eq!(says(&case.pay("60").await), ("permit", "passed"));
        let reply = case.pay("60").await;
        assert_eq!(says(&reply), ("deny", "cap_eur_day"));
        assert!(reply.get("budget").is_none());
        let body =
            with(case.body("pay.small", json!({"payee": "x", "amount_eur": "60"})), json!({"protocol": "aadp/0.2"}));
        let reply = case.client().decide(&body).await;
        assert_eq!(says(&reply), ("deny", "budget_exhausted"));
        assert_eq!(
            (text(&reply["budget"], "remaining"), text(&reply["budget"], "name")),
            ("40", case.name("pay.small.eur_day").as_str())
        );
        assert_eq!(
            (case.consumed("pay.small.eur_day").await.as_str(), case.consumed("pay.small.rate").await.as_str()),
            ("60", "1")
        );
    });
}

#[test]
fn case_050_equality_is_allowed() {
    case("c050", async |case| assert_eq!(says(&case.pay("100").await), ("permit", "passed")));
}

#[test]
fn case_051_the_rate_is_used_up() {
    case("c051", async |case| {
        for _ in 0..3 {
            assert_eq!(says(&case.pay("1").await), ("permit", "passed"));
        }
        assert_eq!(says(&case.pay("1").await), ("deny", "cap_daily_rate"));
        assert_eq!(case.consumed("pay.small.eur_day").await, "3");
    });
}

#[test]
fn case_052_053_two_actions_share_the_budget_of_an_effect() {
    case("c052", async |case| {
        assert_eq!(says(&case.ask("net.a", json!({"amount_eur": "40"})).await), ("permit", "passed"));
        let body = with(case.body("net.b", json!({"amount_eur": "40"})), json!({"protocol": "aadp/0.2"}));
        let reply = case.client().decide(&body).await;
        assert_eq!(
            (says(&reply), text(&reply["budget"], "name")),
            (("deny", "budget_exhausted"), case.name("effect:money.egress.eur_day").as_str())
        );
        assert_eq!(case.consumed("effect:money.egress.eur_day").await, "40");
    });
}

#[test]
fn case_054_fifty_parallel_decides_of_thirty() {
    case("c054", async |case| {
        let replies = join_all((0..50).map(|_| case.pay("30"))).await;
        assert_eq!(replies.iter().filter(|reply| text(reply, "verdict") == "permit").count(), 3);
        assert_eq!(case.consumed("pay.small.eur_day").await, "90");
    });
}

#[test]
fn case_055_a_parallel_mix_of_two_actions() {
    case("c055", async |case| {
        let ask = |n: usize| case.ask(if n.is_multiple_of(2) { "net.a" } else { "net.b" }, json!({"amount_eur": "20"}));
        let replies = join_all((0..20).map(ask)).await;
        assert_eq!(replies.iter().filter(|reply| text(reply, "verdict") == "permit").count(), 3);
        assert_eq!(case.consumed("effect:money.egress.eur_day").await, "60");
    });
}

#[test]
fn case_056_057_cost_from_the_request() {
    case("c056", async |case| {
        let reply = case.ask("pay.fee", json!({})).await;
        assert_eq!((says(&reply), reply.get("budget")), (("deny", "cost_unknown"), None));
        let body = with(case.body("pay.fee", json!({})), json!({"cost_eur": "5.00"}));
        assert_eq!(says(&case.client().decide(&body).await), ("permit", "passed"));
        assert_eq!(case.consumed("pay.fee.eur_day").await, "5");
    });
}

#[test]
fn case_060_061_062_063_and_068_a_permit_expires_without_a_further_decide() {
    case("c061", async |case| {
        let reply = case.ask("pay.brief", json!({"amount_eur": "60"})).await;
        let (permit, intent) = (text(&reply, "permit_id"), text(&reply, "evidence_id"));
        assert_eq!(says(&case.ask("pay.brief", json!({"amount_eur": "60"})).await), ("deny", "cap_eur_day"));
        let after = intent.to_owned();
        let expiry = case
            .cluster()
            .until("expiry entry", async || {
                let tail = case.client().get(&format!("/v1/evidence?after={after}&limit=1000"), AUDIT).await;
                tail["evidence"].as_array().unwrap().iter().find_map(|one| {
                    let ended = one["entry"]["body"].get("reservation_expired")?;
                    (format!("aud-{}", ended["intent"]) == after).then(|| ended.clone())
                })
            })
            .await;
        assert_eq!(text(&expiry, "reason"), "expired");
        assert_eq!(text(&expiry["released"][0], "amount"), "60");
        let late = case.report(permit, "success").await;
        assert_eq!((&late["accepted"], text(&late, "reason")), (&json!(false), "expired"));
        assert_eq!(case.entry(text(&late, "evidence_id")).await.0, "report_refused");
        assert_eq!(case.consumed("pay.brief.eur_day").await, "0");
        assert_eq!(says(&case.ask("pay.brief", json!({"amount_eur": "60"})).await), ("permit", "passed"));
    });
}

#[test]
fn case_064_a_reported_permit_never_expires() {
    case("c064", async |case| {
        let reply = case.ask("pay.brief", json!({"amount_eur": "50"})).await;
        assert_eq!(case.report(text(&reply, "permit_id"), "success").await["accepted"], true);
        // A second permit, of which the expiry shows that the first one's deadline has passed too.
        let other = case.ask("pay.brief", json!({"amount_eur": "10"})).await;
        assert_eq!(says(&other), ("permit", "passed"));
        case.cluster()
            .until("release of the second permit", async || {
                (case.consumed("pay.brief.eur_day").await == "50").then_some(())
            })
            .await;
    });
}

#[test]
fn case_066_execute_within_is_the_reservation_deadline() {
    case("c066", async |case| {
        let reply = case.pay("60").await;
        let obligations = reply["obligations"].as_array().unwrap();
        let within = obligations.iter().find(|one| one["type"] == "execute_within").unwrap();
        let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
        assert_eq!(within["value"], entry["deadline"]);
        assert!(obligations.iter().any(|one| one["type"] == "report_result" && one["required"] == true));
    });
}

#[test]
fn case_067_tenths_add_up_exactly() {
    case("c067", async |case| {
        case.edit(|policies| {
            policies
                .replace("{ min: 0.01, max: 500 }", "{ max: 500 }")
                .replace("daily_rate: 3, eur_day: 100", "daily_rate: 9, eur_day: 0.3")
        })
        .await;
        for _ in 0..3 {
            assert_eq!(says(&case.pay("0.1").await), ("permit", "passed"));
        }
        assert_eq!(says(&case.pay("0.0000001").await), ("deny", "cap_eur_day"));
        assert_eq!(case.consumed("pay.small.eur_day").await, "0.3");
    });
}
