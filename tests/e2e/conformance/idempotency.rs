//! AADP §23.5.

use std::collections::HashSet;

use futures::future::join_all;
use serde_json::{Value, json};

use super::fixture::{Case, case, case_alone};
use crate::harness::{P1, P2, report, says, text, with};

fn payment(case: &Case) -> Value {
    case.body("pay.small", json!({"payee": "x", "amount_eur": "60"}))
}

fn replayed(reply: &Value) -> Value {
    with(reply.clone(), json!({"replayed": true}))
}

#[test]
fn case_069_replay_of_a_permit_on_every_node() {
    case("c069", async |case| {
        let body = payment(&case);
        let first = case.client().decide(&body).await;
        for _ in 0..3 {
            assert_eq!(case.client().decide(&body).await, replayed(&first));
        }
        assert_eq!(case.consumed("pay.small.eur_day").await, "60");
    });
}

#[test]
fn case_070_replay_of_every_other_verdict() {
    case("c070", async |case| {
        for (action, params) in
            [("nope.x", json!({})), ("pay.danger", json!({})), ("reh.a", json!({})), ("read.status", json!({}))]
        {
            let body = case.body(action, params);
            let first = case.client().decide(&body).await;
            assert_eq!(case.client().decide(&body).await, replayed(&first), "{action}");
        }
        assert_eq!(case.approvals().await.len(), 1);
    });
}

#[test]
fn case_071_replay_after_the_policy_became_stricter() {
    case("c071", async |case| {
        let body = payment(&case);
        let first = case.client().decide(&body).await;
        case.edit(|policies| policies.replace("max: 500", "max: 1")).await;
        assert_eq!(case.client().decide(&body).await, replayed(&first));
    });
}

#[test]
fn case_072_replay_after_the_switch() {
    case_alone("c072", async |case| {
        let body = payment(&case);
        let first = case.client().decide(&body).await;
        case.switch(true).await;
        assert_eq!(case.client().decide(&body).await, replayed(&first));
    });
}

#[test]
fn case_073_twenty_concurrent_decides_of_one_request() {
    case("c073", async |case| {
        let body = payment(&case);
        let replies = join_all((0..20).map(|_| case.client().decide(&body))).await;
        let bare: HashSet<String> =
            replies.iter().map(|reply| with(reply.clone(), json!({"replayed": null})).to_string()).collect();
        assert_eq!(bare.len(), 1, "{bare:?}");
        assert_eq!(replies.iter().filter(|reply| reply.get("replayed").is_none()).count(), 1);
        assert_eq!(case.consumed("pay.small.rate").await, "1");
    });
}

#[test]
fn case_074_replay_with_other_arguments() {
    case("c074", async |case| {
        let body = payment(&case);
        let first = case.client().decide(&body).await;
        let reply = case.client().decide(&with(body, json!({"params": {"payee": "x", "amount_eur": "61"}}))).await;
        assert_eq!(says(&reply), says(&first));
        assert!(["permit_id", "approval_id", "obligations"].iter().all(|name| reply.get(name).is_none()), "{reply}");
        assert_eq!(case.entry(text(&reply, "evidence_id")).await.0, "replay_mismatch");
        assert_eq!(case.consumed("pay.small.eur_day").await, "60");
    });
}

#[test]
fn case_075_replay_by_another_principal() {
    case("c075", async |case| {
        let body = payment(&case);
        let first = case.client().decide(&body).await;
        let reply = case.client().decide_as(P2, &body).await;
        assert_eq!(says(&reply), says(&first));
        assert!(reply.get("permit_id").is_none() && reply.get("obligations").is_none());
    });
}

#[test]
fn case_076_identifiers_are_random() {
    case("c076", async |case| {
        let mut seen = HashSet::new();
        let mut bits = [0u32; 128];
        let mut count = 0u32;
        for _ in 0..8 {
            for reply in join_all((0..50).map(|_| case.ask("eff.two", json!({})))).await {
                let id = text(&reply, "permit_id").strip_prefix("pmt-").unwrap().to_owned();
                let number = u128::from_str_radix(&id, 16).unwrap();
                for (at, ones) in bits.iter_mut().enumerate() {
                    *ones += u32::from(number >> at & 1 == 1);
                }
                count += 1;
                assert!(seen.insert(id));
            }
        }
        // Each of the 128 bits is a coin: of 400 tosses, fewer than 120 heads or tails is one chance in 10^15.
        assert!(bits.iter().all(|ones| (120..=count - 120).contains(ones)), "{bits:?}");
    });
}

#[test]
fn case_077_and_078_many_reports_at_once() {
    case("c077", async |case| {
        let permit = text(&case.pay("60").await, "permit_id").to_owned();
        let replies = join_all((0..10).map(|_| case.report(&permit, "success"))).await;
        assert_eq!(replies.iter().filter(|reply| reply["accepted"] == true).count(), 1);
        let again = case.report(&permit, "failure").await;
        assert_eq!((&again["accepted"], text(&again, "reason")), (&json!(false), "x-placet.already_reported"));
        assert_eq!(case.consumed("pay.small.eur_day").await, "60");
    });
}

#[test]
fn case_079_and_080_invented_and_foreign_permits() {
    case("c079", async |case| {
        let permit = text(&case.pay("60").await, "permit_id").to_owned();
        let invented = case.client().report_as(P2, &report("pmt-00000000000000000000000000000000", "success")).await;
        let foreign = case.client().report_as(P2, &report(&permit, "success")).await;
        assert_eq!((&foreign["accepted"], text(&foreign, "reason")), (&json!(false), "sender_mismatch"));
        let shape = |reply: &Value| with(reply.clone(), json!({"evidence_id": null}));
        assert_eq!(shape(&invented), shape(&foreign));
        assert_eq!(case.entry(text(&foreign, "evidence_id")).await.0, "report_refused");
        assert_eq!(case.client().report_as(P1, &report(&permit, "success")).await["accepted"], true);
    });
}

#[test]
fn case_081_resumption_with_the_proposals_request_id() {
    case("c081", async |case| {
        let body = case.body("wire.send", json!({"amount_eur": "400"}));
        let id = text(&case.client().decide(&body).await, "approval_id").to_owned();
        case.client().grant(&id).await;
        let reply = case.client().decide(&with(body, json!({"approval_ref": id}))).await;
        assert_eq!(says(&reply), ("propose", "tier_confirm"));
        assert!(reply.get("permit_id").is_none());
    });
}
