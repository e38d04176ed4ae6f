//! Strict arguments: each mistake is a 400 that names the field (AADP §18).

use placet_core::ids::{ApprovalId, EvidenceIndex};
use placet_core::op::{BudgetCursor, Op, Query};

use crate::client::ask;
use crate::fake::APPROVAL_ID;
use crate::house::House;

#[tokio::test]
async fn what_is_not_understood_is_refused_by_name() {
    let house = House::open().await;
    for (path, names) in [
        ("/v1/approvals?al=true", "`al`"),
        ("/v1/approvals?all=yes", "`all`"),
        ("/v1/approvals?all=true&all=true", "`all`"),
        ("/v1/approvals?after=7", "`after`"),
        ("/v1/approvals?limit=0", "`limit`"),
        ("/v1/approvals?limit=1001", "`limit`"),
        ("/v1/approvals?limit=-1", "`limit`"),
        ("/v1/approvals?limit=ten", "`limit`"),
        ("/v1/approvals?limit=99999999999999999999", "`limit`"),
        ("/v1/approvals/7", "`id`"),
        ("/v1/approvals/apr-00112233445566778899aabbccddeefG", "`id`"),
        ("/v1/evidence/7", "`id`"),
        ("/v1/evidence/aud-0", "`id`"),
        ("/v1/evidence/aud-07", "`id`"),
        ("/v1/evidence?after=7", "`after`"),
        ("/v1/evidence?from=aud-7", "`from`"),
        ("/v1/policies?digest=x", "`digest`"),
        ("/v1/policies/active", "`digest`"),
        ("/v1/policies?all=maybe", "`all`"),
        ("/v1/policies?all=true&digest=x", "`digest`"),
        ("/v1/policies?limit=1", "`limit`"),
        ("/v1/policies?all=true&after=x", "`after`"),
        ("/v1/evidence?since=yesterday", "`since`"),
        ("/v1/evidence?until=2026-08-17T09:00:00%2B02:00", "`until`"),
        ("/v1/evidence?kind=intent", "`kind`"),
        ("/v1/evidence?action_type=", "`action_type`"),
        ("/v1/evidence?principal=", "`principal`"),
        ("/v1/evidence?verdict=allow", "`verdict`"),
        ("/v1/evidence?reason=No", "`reason`"),
        ("/v1/evidence?request_id=7", "`request_id`"),
        ("/v1/evidence?permit=pmt-7", "`permit`"),
        ("/v1/evidence?reconcile=1", "`reconcile`"),
        ("/v1/evidence/aud-7/proof", "`size`"),
        ("/v1/evidence/aud-7/proof?size=0", "`size`"),
        ("/v1/evidence/aud-7/proof?size=-7", "`size`"),
        ("/v1/evidence/7/proof?size=8", "`id`"),
        ("/v1/evidence/consistency?from=1", "`to`"),
        ("/v1/evidence/consistency?from=0&to=1", "`from`"),
        ("/v1/evidence/consistency?from=2&to=1", "`from`"),
        ("/v1/evidence/export?after=7", "`after`"),
        ("/v1/evidence/export?limit=7", "`limit`"),
        ("/v1/static?x=1", "`x`"),
        ("/v1/intents?after=pmt-1", "`after`"),
        ("/v1/budgets?after=x", "`after`"),
        ("/v1/killswitch?x=1", "`x`"),
        ("/v1/cluster?x=1", "`x`"),
    ] {
        let got = ask("GET", path).of(&house).await;
        let detail = got.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!((got.status.as_u16(), &got.json()["code"]), (400, &"invalid".into()), "{path}");
        assert!(detail.contains(names), "{path}: {detail}");
    }
    assert!(house.fake.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn pages_go_on_where_they_stopped() {
    let house = House::open().await;
    let got = ask("GET", format!("/v1/approvals?all=true&limit=2&after={APPROVAL_ID}")).of(&house).await;
    assert_eq!(got.json()["next"], APPROVAL_ID);
    let after = Some(ApprovalId::new(APPROVAL_ID));
    assert_eq!(house.fake.last().op, Op::Query(Query::Approvals { all: true, after, limit: 2 }));
    let got = ask("GET", "/v1/approvals").of(&house).await;
    assert_eq!((got.json()["approvals"].as_array().unwrap().len(), got.json()["next"].is_null()), (2, true));
    assert_eq!(house.fake.last().op, Op::Query(Query::Approvals { all: false, after: None, limit: 100 }));

    let first = ask("GET", "/v1/budgets?limit=1").of(&house).await.json();
    let next = first["next"].as_str().unwrap();
    let encoded: String = next.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let second = ask("GET", format!("/v1/budgets?limit=1&after={encoded}")).of(&house).await;
    assert_eq!(second.status, 200);
    let cursor = BudgetCursor { budget: "pay|\"ü".into(), window: "2026-08-17".into(), scope: None };
    assert_eq!(house.fake.last().op, Op::Query(Query::Budgets { after: Some(cursor), limit: 1 }));

    ask("GET", "/v1/evidence?after=aud-0&limit=1000").of(&house).await;
    assert_eq!(house.fake.last().op, Op::Query(Query::EvidenceTail { after: EvidenceIndex(0), limit: 1000 }));
}

#[tokio::test]
async fn small_bodies_are_strict() {
    let house = House::open().await;
    let grant = format!("/v1/approvals/{APPROVAL_ID}/grant");
    let ratify = format!("/v1/approvals/{APPROVAL_ID}/ratify");
    for (path, body, names) in [
        ("/v1/killswitch", "", "JSON value"),
        ("/v1/killswitch", "[]", "object"),
        ("/v1/killswitch", "{}", "`engaged`"),
        ("/v1/killswitch", r#"{"engaged":"true"}"#, "`engaged`"),
        ("/v1/killswitch", r#"{"engaged":true,"engaged":false}"#, "`engaged`"),
        ("/v1/killswitch", r#"{"engaged":true,"origin":7}"#, "`origin`"),
        ("/v1/killswitch", r#"{"engaged":true,"why":"x"}"#, "`why`"),
        ("/v1/killswitch", r#"{"engaged":true,"note":7}"#, "`note`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":"pay"}"#, "`scope`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":{}}"#, "`scope`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":{"effect":"a","principal":"b"}}"#, "`scope`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":{"effect":"a","x":"b"}}"#, "`x`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":{"effect":""}}"#, "`scope.effect`"),
        ("/v1/killswitch", r#"{"engaged":true,"scope":{"action_type":"7"}}"#, "`scope.action_type`"),
        ("/v1/permits/check", "{}", "`permit_id`"),
        ("/v1/permits/check", r#"{"permit_id":"pmt-7"}"#, "`permit_id`"),
        ("/v1/permits/check", r#"{"permit_id":null,"x":1}"#, "`permit_id`"),
        (ratify.as_str(), r#"{"approved":true}"#, "`signature`"),
        (ratify.as_str(), r#"{"approved":true,"signature":"ab"}"#, "`signature`"),
        ("/v1/mandates", r#"{"action_type":"7","denied":true,"serial":1,"signature":""}"#, "`action_type`"),
        ("/v1/mandates", r#"{"action_type":"pay","serial":1,"signature":""}"#, "`denied`"),
        ("/v1/mandates", r#"{"action_type":"pay","denied":true,"serial":-1,"signature":""}"#, "`serial`"),
        ("/v1/evidence/head", "{}", "no body"),
        (grant.as_str(), r#"{"note":7}"#, "`note`"),
        (grant.as_str(), r#"{"notes":"x"}"#, "`notes`"),
        (grant.as_str(), "x", "JSON value"),
        ("/v1/cluster/members", r#"{"id":1.5,"addresses":{}}"#, "`id`"),
        ("/v1/cluster/members", r#"{"id":4}"#, "`addresses`"),
        ("/v1/cluster/members", r#"{"id":4,"addresses":{"peer":"a:1","http":"b"}}"#, "`addresses.grpc`"),
        ("/v1/cluster/members", r#"{"id":4,"addresses":{"peer":"a","http":"b","grpc":"c","x":"d"}}"#, "`x`"),
        ("/v1/cluster/leader", "[]", "object"),
        ("/v1/cluster/leader", r#"{"to":"2"}"#, "`to`"),
        ("/v1/cluster/leader", r#"{"to":-1}"#, "`to`"),
        ("/v1/cluster/leader", r#"{"id":2}"#, "`id`"),
        ("/v1/cluster/members/4/promote", "{}", "no body"),
        ("/v1/cluster/members/four/promote", "", "member id"),
    ] {
        let got = ask("POST", path).body(body).of(&house).await;
        let detail = got.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(got.status, 400, "{path} {body}: {detail}");
        assert!(detail.contains(names), "{path} {body}: {detail}");
    }
    let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(1025));
    assert_eq!(ask("POST", &grant).body(long).of(&house).await.status, 400);
    assert_eq!(ask("POST", &grant).body(vec![b' '; 1 << 20]).of(&house).await.status, 413);
    assert_eq!(ask("POST", &grant).body("{}").header("content-type", "text/plain").of(&house).await.status, 415);
    assert!(house.fake.calls.lock().unwrap().is_empty());
    assert!(house.fake.changes.lock().unwrap().is_empty());
}
