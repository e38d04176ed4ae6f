//! Each route: what it asks of the decision point, and what it answers.

use placet_core::cluster::{MemberAddresses, MembershipChange};
use placet_core::event::{MandateSet, SwitchScope};
use placet_core::ids::{ActionType, ApprovalId, Hash, PolicyDigest, Principal};
use placet_core::limits::BODY_BYTES_MAX;
use placet_core::op::{Op, Query, Reject};
use serde_json::json;

use crate::client::ask;
use crate::fake::{APPROVAL_ID, PERMIT_ID, REQUEST_ID};
use crate::house::House;

#[tokio::test]
async fn approvals_are_read_and_resolved() {
    let house = House::open().await;
    let got = ask("GET", format!("/v1/approvals/{APPROVAL_ID}")).of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["state"]), (200, &"pending".into()));
    assert_eq!(got.header("cache-control"), "no-store");
    let id = ApprovalId::new(APPROVAL_ID);
    for (verb, grant, body, note, state) in [
        ("grant", true, "", None, "approved"),
        ("grant", true, r#"{"note":"looks right"}"#, Some("looks right"), "approved"),
        ("deny", false, r#"{"note":null}"#, None, "denied"),
        ("deny", false, "{}", None, "denied"),
    ] {
        let got = ask("POST", format!("/v1/approvals/{APPROVAL_ID}/{verb}")).body(body).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["state"]), (200, &state.into()), "{verb} {body}");
        let note = note.map(str::to_owned);
        assert_eq!(house.fake.last().op, Op::ResolveApproval { id: id.clone(), grant, note });
    }
}

#[tokio::test]
async fn the_kill_switch_is_read_and_set() {
    let house = House::open().await;
    let got = ask("GET", "/v1/killswitch").of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["engaged"]), (200, &false.into()));
    let got = ask("POST", "/v1/killswitch").body(r#"{"engaged":true,"origin":"drill"}"#).of(&house).await;
    assert_eq!((&got.json()["engaged"], &got.json()["origin"]), (&true.into(), &"drill".into()));
    assert_eq!(
        house.fake.last().op,
        Op::SetKillSwitch { engaged: true, origin: "drill".into(), note: None, scope: None }
    );
    for (scope, read) in [
        (json!({"action_type": "pay.small"}), SwitchScope::ActionType(ActionType::new("pay.small"))),
        (json!({"effect": "money out"}), SwitchScope::Effect("money out".into())),
        (json!({"principal": "agent"}), SwitchScope::Principal(Principal::new("agent"))),
    ] {
        let body = json!({"engaged": true, "note": "why", "scope": scope}).to_string();
        let got = ask("POST", "/v1/killswitch").body(body).of(&house).await.json();
        assert_eq!((&got["scope"], &got["note"]), (&scope, &"why".into()));
        let (origin, note, scope) = (String::new(), Some("why".into()), Some(read));
        assert_eq!(house.fake.last().op, Op::SetKillSwitch { engaged: true, origin, note, scope });
    }
}

#[tokio::test]
async fn approvals_are_resumed_and_ratified() {
    let house = House::open().await;
    let id = ApprovalId::new(APPROVAL_ID);
    let got = ask("POST", format!("/v1/approvals/{APPROVAL_ID}/approve")).of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["verdict"]), (200, &"permit".into()));
    assert_eq!(house.fake.last().op, Op::ResumeApproval { id: id.clone(), note: None });
    let more = ask("POST", format!("/v1/approvals/{APPROVAL_ID}/approve")).body(r#"{"note":"not yet"}"#);
    let got = more.of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["votes"], &got.json()["quorum"]), (202, &json!(["root"]), &2.into()));

    let signature = "0a".repeat(64);
    let body = json!({"approved": true, "signature": signature}).to_string();
    let got = ask("POST", format!("/v1/approvals/{APPROVAL_ID}/ratify")).body(body).of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["ratified"]), (200, &true.into()));
    assert_eq!(house.fake.last().op, Op::RatifyApproval { id, approved: true, signature: signature.clone() });

    let body = json!({"action_type": "pay.small", "denied": true, "serial": 7, "signature": signature}).to_string();
    let got = ask("POST", "/v1/mandates").body(body).of(&house).await;
    let view = json!({"action_type": "pay.small", "denied": true, "serial": 7, "evidence_id": "aud-9"});
    assert_eq!((got.status.as_u16(), got.json()), (200, view));
    let action_type = ActionType::new("pay.small");
    assert_eq!(
        house.fake.last().op,
        Op::SetMandate(MandateSet { action_type, authority: None, denied: true, serial: 7, signature })
    );
}

#[tokio::test]
async fn permits_are_checked_and_local_acts_recorded() {
    let house = House::open().await;
    let check = async |id: &str| {
        ask("POST", "/v1/permits/check").body(json!({"permit_id": id}).to_string()).of(&house).await.json()
    };
    let usable = json!({"usable": true, "deadline": "1970-01-01T00:00:01Z", "evidence_id": "aud-7"});
    assert_eq!(check(PERMIT_ID).await, usable);
    assert_eq!(check(&PERMIT_ID.replace('0', "1")).await, json!({"usable": false, "reason": "unknown"}));

    let got = ask("GET", "/v1/static").of(&house).await.json();
    assert_eq!(
        (&got["as_of"], &got["actions"][0]["action_type"]),
        (&"1970-01-01T00:00:00Z".into(), &"read.mail".into())
    );
    assert_eq!((&got["actions"][0]["tier"], &got["actions"][0]["params"]["required"]), (&0.into(), &json!(["box"])));

    let local = json!({"protocol": "aadp/0.2", "entries": [{
        "request_id": REQUEST_ID, "action_type": "read.mail", "params": {}, "source": "llm", "rationale": "",
        "mode": "fail_static", "decided_at": "2026-08-17T09:00:00Z", "outcome": "success",
        "completed_at": "2026-08-17T09:00:00Z",
    }]});
    let got = ask("POST", "/v1/local").body(local.to_string()).of(&house).await;
    assert_eq!((got.status.as_u16(), got.json()), (200, json!({"evidence_ids": ["aud-9"]})));
    for (media, body, status) in [
        ("application/json", b"{}".to_vec(), 400),
        ("application/json", b"{bad".to_vec(), 400),
        ("text/plain", local.to_string().into_bytes(), 415),
        ("application/json", vec![b' '; BODY_BYTES_MAX + 1], 413),
    ] {
        let got = ask("POST", "/v1/local").header("content-type", media).body(body).of(&house).await;
        assert_eq!(got.status, status, "{media}: {}", got.text);
    }
}

#[tokio::test]
async fn policies_are_read_and_published() {
    let house = House::open().await;
    let digest = "ef".repeat(32);
    let query = |digest: Option<&String>| {
        Op::Query(Query::Policy { digest: digest.map(|digest| PolicyDigest::new(digest.as_str())) })
    };
    assert_eq!(ask("GET", "/v1/policies").of(&house).await.json()["active"], true);
    assert_eq!(house.fake.last().op, query(None));
    for path in [format!("/v1/policies?digest={digest}"), format!("/v1/policies/{digest}")] {
        assert_eq!(ask("GET", path).of(&house).await.json()["digest"], digest);
        assert_eq!(house.fake.last().op, query(Some(&digest)));
    }
    for (if_match, expect) in [
        (None, None),
        (Some(format!("\"{digest}\"")), Some(digest.clone())),
        (Some(digest.clone()), Some(digest.clone())),
        (Some("none".to_owned()), Some("none".to_owned())),
    ] {
        let mut call = ask("POST", "/v1/policies").header("content-type", "application/yaml").body("version: 1 # é");
        if let Some(if_match) = if_match {
            call = call.header("if-match", if_match);
        }
        let got = call.of(&house).await;
        assert_eq!(got.status, 200);
        assert_eq!(
            got.json(),
            json!({"digest": "ab".repeat(32), "previous": null, "active": true, "evidence_id": "aud-9", "warnings": []})
        );
        assert_eq!(
            house.fake.last().op,
            Op::PublishPolicy { document: "version: 1 # é".into(), expect, activate: true }
        );
    }
    let got = ask("POST", "/v1/policies?activate=false").body("a: b").of(&house).await;
    assert_eq!(got.json()["active"], false);
    let kept = Op::PublishPolicy { document: "a: b".into(), expect: None, activate: false };
    assert_eq!(house.fake.last().op, kept);
    let asked = house.fake.calls.lock().unwrap().len();
    for (name, value, body, status) in [
        ("if-match", "*", &b"a: b"[..], 400),
        ("if-match", "\"abc\"", b"a: b", 400),
        ("content-type", "application/x-www-form-urlencoded", b"a: b", 415),
        ("content-type", "text/yaml", b"\xff", 400),
    ] {
        let got = ask("POST", "/v1/policies").header(name, value).body(body).of(&house).await;
        assert_eq!(got.status, status, "{name}: {value}");
    }
    assert_eq!(ask("POST", "/v1/policies").body(vec![b'#'; (1 << 20) + 1]).of(&house).await.status, 413);
    assert_eq!(house.fake.calls.lock().unwrap().len(), asked);
}

#[tokio::test]
async fn kept_policies_are_listed_activated_and_dropped() {
    let house = House::open().await;
    let (digest, other) = (PolicyDigest::new("ef".repeat(32)), "aa".repeat(32));
    let got = ask("GET", format!("/v1/policies?all=true&limit=1&after={other}")).of(&house).await.json();
    assert_eq!((&got["policies"][0]["used"], &got["next"]), (&false.into(), &other.clone().into()));
    let after = Some(PolicyDigest::new(other.as_str()));
    assert_eq!(house.fake.last().op, Op::Query(Query::Policies { after, limit: 1 }));
    assert!(ask("GET", "/v1/policies?all=true").of(&house).await.json()["next"].is_null());

    for (if_match, expect) in [(None, None), (Some(format!("\"{other}\"")), Some(other.clone()))] {
        let mut call = ask("POST", format!("/v1/policies/{digest}/activate"));
        if let Some(if_match) = if_match {
            call = call.header("if-match", if_match);
        }
        assert_eq!(call.of(&house).await.json()["active"], true);
        assert_eq!(house.fake.last().op, Op::ActivatePolicy { digest: digest.clone(), expect });
    }
    let got = ask("DELETE", format!("/v1/policies/{digest}")).of(&house).await;
    assert_eq!(got.json(), json!({"digest": digest, "evidence_id": "aud-9"}));
    assert_eq!(house.fake.last().op, Op::DropPolicy { digest });
}

#[tokio::test]
async fn evidence_keeps_its_bytes() {
    let house = House::open().await;
    let entry = r#"{"at":"2026-08-17T09:00:00Z", "body":{"exec_intent":{"n":1.0e2,"s":"\u00e9/"}} }"#;
    house.fake.record(7, entry);
    let got = ask("GET", "/v1/evidence/aud-7").of(&house).await;
    assert_eq!(got.status, 200);
    let hash = Hash::of(entry.as_bytes());
    let one = format!(r#"{{"evidence_id":"aud-7","kind":"exec_intent","hash":"{hash}","entry":{entry}}}"#);
    assert_eq!(got.text, one);
    let page = ask("GET", "/v1/evidence?limit=1").of(&house).await;
    assert_eq!(page.text, format!(r#"{{"evidence":[{one}],"next":"aud-7"}}"#));
    let end = ask("GET", "/v1/evidence?after=aud-7").of(&house).await;
    assert_eq!(end.text, r#"{"evidence":[],"next":null}"#);
}

#[tokio::test]
async fn members_open_permits_and_counters() {
    let house = House::open().await;
    assert_eq!(ask("GET", "/v1/intents").of(&house).await.json()["intents"][0]["permit_id"], PERMIT_ID);
    assert_eq!(ask("GET", "/v1/budgets").of(&house).await.json()["budgets"][0]["limit"], "100.5");
    assert_eq!(ask("GET", "/v1/cluster").of(&house).await.json()["leader_id"], 2);
    let addresses = MemberAddresses { peer: "n4:9000".into(), http: "https://n4".into(), grpc: "https://n4:1".into() };
    let body = json!({"id": 4, "addresses": addresses}).to_string();
    for (method, path, body, change) in [
        ("POST", "/v1/cluster/members", body.as_str(), MembershipChange::AddLearner { id: 4, addresses }),
        ("POST", "/v1/cluster/members/4/promote", "", MembershipChange::Promote { id: 4 }),
        ("DELETE", "/v1/cluster/members/4", "", MembershipChange::Remove { id: 4 }),
        ("POST", "/v1/cluster/leader", r#"{"to":4}"#, MembershipChange::TransferLeader { to: Some(4) }),
        ("POST", "/v1/cluster/leader", r#"{"to":null}"#, MembershipChange::TransferLeader { to: None }),
        ("POST", "/v1/cluster/leader", "", MembershipChange::TransferLeader { to: None }),
    ] {
        let got = ask(method, path).body(body).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["node_id"]), (200, &1.into()), "{method} {path}");
        assert_eq!(house.fake.changes.lock().unwrap().last(), Some(&change));
    }
    *house.fake.reject.lock().unwrap() = Some(Reject::Conflict { detail: "node 4 is not a voter".to_owned() });
    let got = ask("POST", "/v1/cluster/leader").body(r#"{"to":4}"#).of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["detail"]), (409, &"node 4 is not a voter".into()));
}

#[tokio::test]
async fn strangers_learn_little_from_health() {
    let house = House::open().await;
    let brief = ask("GET", "/v1/health").token(None).of(&house).await;
    assert_eq!((brief.status.as_u16(), brief.json()), (200, json!({"status":"serving","node_id":1,"leader_id":2})));
    let full = ask("GET", "/v1/health").of(&house).await.json();
    assert_eq!((&full["pending_intents"], &full["durable"]), (&3.into(), &true.into()));
    assert_eq!(ask("HEAD", "/v1/health").of(&house).await.status, 200);
    house.sick();
    let sick = ask("GET", "/v1/health").token(None).of(&house).await;
    assert_eq!((sick.status.as_u16(), &sick.json()["status"]), (503, &"no_leader".into()));
    let metrics = ask("GET", "/metrics").of(&house).await;
    assert_eq!((metrics.text.as_str(), &metrics.header("content-type")[..10]), ("placet_up 1\n", "text/plain"));
}
