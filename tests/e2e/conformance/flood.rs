//! AADP §16: a flood of proposals is bounded, and what an operator needs answers meanwhile.

use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::fixture::case_alone;
use crate::harness::{A1, OPERATE, P2, says, text};

#[test]
fn case_134_a_thousand_proposals_in_a_minute() {
    case_alone("c134", async |case| {
        let other = text(&case.ask("wire.send", json!({"amount_eur": "400"})).await, "approval_id").to_owned();
        let scope = json!({"action_type": case.name("lamp.toggle")});
        let flood = async {
            let asks = stream::iter(0..1000).map(|n| case.ask("flood", json!({"n": n})));
            asks.buffer_unordered(64).collect::<Vec<Value>>().await
        };
        let desk = async {
            let mut slowest = Duration::ZERO;
            for engaged in [true, false, true, false] {
                let begun = Instant::now();
                let body = json!({"engaged": engaged, "origin": "desk", "scope": scope});
                case.client().done("POST", "/v1/killswitch", OPERATE, Some(&body)).await;
                case.client().get("/v1/approvals?limit=1000", A1).await;
                slowest = slowest.max(begun.elapsed());
            }
            case.client().grant(&other).await;
            slowest
        };
        let (replies, slowest) = futures::join!(flood, desk);
        let of = |verdict: (&str, &str)| replies.iter().filter(|reply| says(reply) == verdict).count();
        let proposed = of(("propose", "tier_confirm"));
        assert_eq!(proposed, 20, "as many as may wait");
        assert_eq!(of(("deny", "x-placet.proposals_exhausted")), 1000 - proposed);
        assert!(slowest < Duration::from_secs(2), "the desk waited {slowest:?}");
        let waiting = case.approvals().await;
        assert_eq!(waiting.iter().filter(|one| one["state"] == "pending").count(), proposed);
        // Someone else still gets through, and a decided proposal makes room, until the minute is full as well.
        let body = case.body("flood", json!({}));
        assert_eq!(says(&case.client().decide_as(P2, &body).await).0, "propose");
        let ids: Vec<_> = replies.iter().map(|reply| text(reply, "approval_id")).filter(|id| !id.is_empty()).collect();
        let denied = join_all(ids.iter().map(|id| case.client().resolve(A1, id, "deny"))).await;
        assert!(denied.iter().all(|answer| answer.status == 200));
        let more = join_all((0..20).map(|n| case.ask("flood", json!({"again": n})))).await;
        let room = more.iter().filter(|reply| says(reply).0 == "propose").count();
        assert!((10..=20).contains(&room), "{room}: thirty in a minute, twenty at once");
    });
}
