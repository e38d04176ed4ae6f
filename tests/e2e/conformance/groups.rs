//! Groups of approvers with a quorum (AADP §11.2), and resumption by an approver (AADP §11.3).

use serde_json::json;

use super::fixture::{Case, case};
use crate::harness::{A1, A2, A3, P1, P2, report, says, text, with};

async fn proposed(case: &Case) -> String {
    let reply = case.client().decide_as(P2, &case.body("wire.treasury", json!({"amount_eur": "100"}))).await;
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    text(&reply, "approval_id").to_owned()
}

/// Goal: two distinct members of three, whoever else tries and however often.
#[test]
fn a_quorum_is_of_distinct_members() {
    case("gquorum", async |case| {
        let id = proposed(&case).await;
        let grant = async |token: &str| case.client().resolve(token, &id, "grant").await;
        let first = grant(A1).await;
        assert_eq!((first.status, text(&first.body, "state")), (200, "pending"));
        assert_eq!((&first.body["votes"], &first.body["quorum"]), (&json!(["A1"]), &json!(2)));
        assert_eq!(text(&first.body, "group"), case.name("treasury"));
        assert_eq!(grant(A1).await.status, 409, "nobody counts twice");
        let outsider = grant(A3).await;
        assert_eq!((outsider.status, text(&outsider.body, "code")), (403, "forbidden"));
        let body = with(case.body("wire.treasury", json!({"amount_eur": "100"})), json!({"approval_ref": id}));
        assert_eq!(says(&case.client().decide_as(P2, &body).await).0, "propose", "one vote is none");
        let second = grant(A2).await;
        assert_eq!((second.status, text(&second.body, "state")), (200, "approved"));
        let body = with(body, json!({"request_id": crate::harness::uuid()}));
        assert_eq!(says(&case.client().decide_as(P2, &body).await), ("permit", "passed"));
    });
}

#[test]
fn the_last_vote_may_drive_the_resumption() {
    case("gdrive", async |case| {
        let id = proposed(&case).await;
        let first = case.client().resolve(A1, &id, "approve").await;
        assert_eq!((first.status, text(&first.body, "state")), (202, "pending"), "{}", first.body);
        let second = case.client().resolve(A2, &id, "approve").await;
        assert_eq!((second.status, says(&second.body)), (200, ("permit", "passed")));
        let body = report(text(&second.body, "permit_id"), "success");
        assert_eq!(case.client().report_as(P2, &body).await["accepted"], true);
    });
}

#[test]
fn case_098_an_approver_drives_the_resumption() {
    case("c098", async |case| {
        let body = case.body("wire.send", json!({"amount_eur": "400"}));
        let id = text(&case.client().decide(&body).await, "approval_id").to_owned();
        let answer = case.client().resolve(A1, &id, "approve").await;
        let reply = &answer.body;
        assert_eq!((answer.status, says(reply)), (200, ("permit", "passed")));
        assert_eq!((&reply["nominal_tier"], &reply["effective_tier"]), (&json!(3), &json!(1)));
        let (_, decided, entry) = case.entry(text(reply, "evidence_id")).await;
        assert_eq!((text(&entry, "principal"), text(&decided, "resumed_by")), ("P1", "A1"));
        let view = case.client().get(&format!("/v1/approvals/{id}"), A1).await;
        assert_eq!((text(&view, "state"), &view["resumed_request"]), ("consumed", &reply["request_id"]));
        // The proposer asks again under the request that the approver drove, and reports; the approver cannot.
        let again = with(body, json!({"request_id": reply["request_id"], "approval_ref": id}));
        assert_eq!(case.client().decide(&again).await, with(reply.clone(), json!({"replayed": true})));
        let done = report(text(reply, "permit_id"), "success");
        assert_eq!(case.client().call("POST", "/v1/report", A1, Some(&done)).await.status, 403);
        assert_eq!(case.client().report_as(P2, &done).await["accepted"], false);
        assert_eq!(case.client().report_as(P1, &done).await["accepted"], true);
        assert_eq!(case.client().resolve(A1, &id, "approve").await.status, 409, "single use");
    });
}
