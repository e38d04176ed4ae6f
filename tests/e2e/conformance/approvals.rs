//! AADP §23.6.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use super::fixture::{Case, case, case_alone};
use crate::harness::{A1, A2, P1, P2, says, text, with};

async fn propose(case: &Case) -> String {
    let reply = case.ask("wire.send", json!({"amount_eur": "400"})).await;
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    text(&reply, "approval_id").to_owned()
}

async fn granted(case: &Case) -> String {
    let id = propose(case).await;
    case.client().grant(&id).await;
    id
}

fn resumption(case: &Case, id: &str, amount: Value) -> Value {
    with(case.body("wire.send", json!({"amount_eur": amount})), json!({"approval_ref": id}))
}

async fn resume(case: &Case, id: &str) -> Value {
    case.client().decide(&resumption(case, id, json!("400"))).await
}

async fn status(case: &Case, reply: &Value) -> String {
    let (_, entry, _) = case.entry(text(reply, "evidence_id")).await;
    text(&entry, "approval_ref_status").to_owned()
}

async fn approval(case: &Case, id: &str) -> Value {
    case.client().get(&format!("/v1/approvals/{id}"), A1).await
}

#[test]
fn case_082_a_proposal_waits() {
    case("c082", async |case| {
        let id = propose(&case).await;
        let view = approval(&case, &id).await;
        assert_eq!((text(&view, "state"), text(&view, "proposer")), ("pending", "P1"));
        assert_eq!(case.consumed("wire.send.eur_day").await, "0");
    });
}

#[test]
fn case_083_and_087_granted_once_by_whom_and_when() {
    case("c083", async |case| {
        let id = granted(&case).await;
        assert_eq!(case.client().resolve(A2, &id, "grant").await.status, 409);
        let view = approval(&case, &id).await;
        assert_eq!((text(&view, "state"), text(&view, "decided_by")), ("approved", "A1"));
        assert!(text(&view, "decided_at").ends_with('Z'));
    });
}

#[test]
fn case_084_twenty_concurrent_grants() {
    case("c084", async |case| {
        let id = propose(&case).await;
        let answers =
            join_all((0..20).map(|n| case.client().resolve(if n % 2 == 0 { A1 } else { A2 }, &id, "grant"))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 409)));
    });
}

#[test]
fn case_085_an_approval_expires() {
    case("c085", async |case| {
        let reply = case.ask("wire.brief", json!({})).await;
        let id = text(&reply, "approval_id").to_owned();
        case.cluster()
            .until("expired approval", async || (text(&approval(&case, &id).await, "state") == "expired").then_some(()))
            .await;
        assert_eq!(case.client().resolve(A1, &id, "grant").await.status, 409);
    });
}

#[test]
fn case_086_a_grant_can_be_withdrawn() {
    case("c086", async |case| {
        let id = granted(&case).await;
        assert_eq!(case.client().resolve(A2, &id, "deny").await.status, 200);
        assert_eq!(says(&resume(&case, &id).await).0, "propose");
    });
}

#[test]
fn case_088_and_089_resumed_once() {
    case("c088", async |case| {
        let id = granted(&case).await;
        let reply = resume(&case, &id).await;
        assert_eq!(says(&reply), ("permit", "passed"));
        assert_eq!((&reply["nominal_tier"], &reply["effective_tier"]), (&json!(3), &json!(1)));
        assert_eq!(case.consumed("wire.send.eur_day").await, "400");
        let view = approval(&case, &id).await;
        assert_eq!(text(&view, "state"), "consumed");
        let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
        assert_eq!(format!("aud-{}", entry["resumes"]), text(&view, "proposal"));
        let again = resume(&case, &id).await;
        assert_eq!((says(&again), status(&case, &again).await.as_str()), (("propose", "tier_confirm"), "consumed"));
    });
}

#[test]
fn case_090_twenty_concurrent_resumptions() {
    case("c090", async |case| {
        let id = granted(&case).await;
        let replies = join_all((0..20).map(|_| resume(&case, &id))).await;
        assert_eq!(replies.iter().filter(|reply| text(reply, "verdict") == "permit").count(), 1);
        assert_eq!(replies.iter().filter(|reply| text(reply, "verdict") == "propose").count(), 19);
    });
}

#[test]
fn case_091_the_switch_between_grant_and_resumption() {
    case_alone("c091", async |case| {
        let id = granted(&case).await;
        case.switch(true).await;
        assert_eq!(says(&resume(&case, &id).await), ("deny", "kill_switch"));
        assert_eq!(text(&approval(&case, &id).await, "state"), "consumed");
    });
}

#[test]
fn case_092_bounds_tightened_in_between() {
    case("c092", async |case| {
        let id = granted(&case).await;
        case.edit(|policies| policies.replace("max: 5000", "max: 100")).await;
        assert_eq!(says(&resume(&case, &id).await), ("deny", "bounds"));
    });
}

#[test]
fn case_093_the_budget_used_up_in_between() {
    case("c093", async |case| {
        let id = granted(&case).await;
        case.edit(|policies| policies.replace("eur_day: 5000", "eur_day: 399")).await;
        assert_eq!(says(&resume(&case, &id).await), ("deny", "cap_eur_day"));
    });
}

#[test]
fn case_095_another_amount_does_not_spend_the_approval() {
    case("c095", async |case| {
        let id = granted(&case).await;
        let reply = case.client().decide(&resumption(&case, &id, json!("401"))).await;
        assert_eq!((says(&reply).0, status(&case, &reply).await.as_str()), ("propose", "action_mismatch"));
        assert_eq!(says(&resume(&case, &id).await), ("permit", "passed"));
    });
}

#[test]
fn case_096_spelling_does_not_matter() {
    case("c096", async |case| {
        let id = text(&case.ask("wire.send", json!({"amount_eur": 400})).await, "approval_id").to_owned();
        case.client().grant(&id).await;
        let reply =
            case.client().decide_text(P1, &resumption(&case, &id, json!("@")), r#"{ "amount_eur":400.00}"#).await;
        assert_eq!(says(&reply), ("permit", "passed"));
    });
}

#[test]
fn case_097_unusable_references_tell_nothing() {
    case("c097", async |case| {
        let pending = propose(&case).await;
        let denied = propose(&case).await;
        assert_eq!(case.client().resolve(A1, &denied, "deny").await.status, 200);
        let plain = case.ask("wire.send", json!({"amount_eur": "400"})).await;
        let shape =
            |reply: &Value| with(reply.clone(), json!({"request_id": null, "approval_id": null, "evidence_id": null}));
        let references =
            [("apr-00000000000000000000000000000000", "unknown"), (pending.as_str(), "unknown"), (&denied, "consumed")];
        for (id, expected) in references {
            let reply = resume(&case, id).await;
            assert_eq!(shape(&reply), shape(&plain));
            assert_eq!(status(&case, &reply).await, expected);
        }
        // Nor does the time that an answer takes: medians of turns that alternate, on a machine that others use.
        let mut took: [Vec<Duration>; 4] = Default::default();
        for _ in 0..25 {
            for (kind, times) in took.iter_mut().enumerate() {
                let begun = Instant::now();
                match kind.checked_sub(1) {
                    None => case.ask("wire.send", json!({"amount_eur": "400"})).await,
                    Some(at) => resume(&case, references[at].0).await,
                };
                times.push(begun.elapsed());
            }
        }
        let medians = took.map(|mut times| {
            times.sort();
            times[times.len() / 2]
        });
        let (least, most) = (medians.iter().min().unwrap(), medians.iter().max().unwrap());
        assert!(*most <= *least * 3 + Duration::from_millis(10), "{medians:?}");
    });
}

#[test]
fn case_099_a_decide_credential_cannot_grant() {
    case("c099", async |case| {
        let id = propose(&case).await;
        assert_eq!(case.client().resolve(P1, &id, "grant").await.status, 403);
        assert_eq!(text(&approval(&case, &id).await, "state"), "pending");
    });
}

#[test]
fn case_100_another_principal_cannot_use_it() {
    case("c100", async |case| {
        let id = granted(&case).await;
        let reply = case.client().decide_as(P2, &resumption(&case, &id, json!("400"))).await;
        assert_eq!((says(&reply).0, status(&case, &reply).await.as_str()), ("propose", "principal_mismatch"));
        assert_eq!(says(&resume(&case, &id).await), ("permit", "passed"));
    });
}
