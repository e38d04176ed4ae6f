//! Scoped kill switches (AADP §7), the check of a permit before its act, and what an enforcement point may do alone
//! (AADP §16).

use serde_json::{Value, json};

use super::fixture::{Case, case, case_alone};
use crate::harness::{OPERATE, P1, P2, request, says, text, uuid, with};

async fn scoped(case: &Case, scope: &Value, engaged: bool) -> Value {
    let body = json!({"engaged": engaged, "origin": "desk", "note": "why", "scope": scope});
    let view = case.client().done("POST", "/v1/killswitch", OPERATE, Some(&body)).await;
    assert_eq!((&view["engaged"], &view["scope"], text(&view, "note")), (&json!(engaged), scope, "why"));
    let listed = case.client().get("/v1/killswitch", OPERATE).await;
    let listed: Vec<&Value> = listed["scoped"].as_array().into_iter().flatten().map(|one| &one["scope"]).collect();
    assert_eq!(listed.contains(&scope), engaged, "{listed:?}");
    view
}

#[test]
fn a_scope_stops_what_it_names_and_nothing_else() {
    case("sscope", async |case| {
        let toggle = || json!({"state": "on"});
        let money = || json!({"amount_eur": "1"});
        for (scope, stopped, free) in [
            (json!({"action_type": case.name("lamp.toggle")}), ("lamp.toggle", toggle()), ("lamp.restore", toggle())),
            (json!({"effect": case.name("money.egress")}), ("net.a", money()), ("lamp.toggle", toggle())),
            // An effect that an argument adds counts like one that the policy declares.
            (
                json!({"effect": case.name("egress")}),
                ("web.get", json!({"url": "https://bank.example/"})),
                ("web.get", json!({"url": "https://other.example/"})),
            ),
        ] {
            scoped(&case, &scope, true).await;
            let reply = case.ask(stopped.0, stopped.1.clone()).await;
            assert_eq!(says(&reply), ("deny", "kill_switch"), "{scope}");
            assert_eq!(says(&case.ask(free.0, free.1.clone()).await), ("permit", "passed"), "{scope}");
            let view = scoped(&case, &scope, false).await;
            assert!(["changed", "unchanged"].contains(&text(&view, "policy")), "{view}");
            assert_ne!(says(&case.ask(stopped.0, stopped.1).await).1, "kill_switch", "{scope}");
        }
        for wrong in [json!({}), json!({"action_type": "a", "effect": "b"}), json!({"action_type": ""})] {
            let body = json!({"engaged": true, "origin": "desk", "scope": wrong});
            if wrong.as_object().unwrap().len() == 1 {
                let answer = case.client().call("POST", "/v1/killswitch", OPERATE, Some(&body)).await;
                assert_eq!(answer.status, 400, "{}", answer.body);
            }
        }
    });
}

/// Alone: every other case asks as these principals too.
#[test]
fn a_switch_for_one_principal() {
    case_alone("sprincipal", async |case| {
        let scope = json!({"principal": "P2"});
        scoped(&case, &scope, true).await;
        let body = || case.body("lamp.toggle", json!({"state": "on"}));
        assert_eq!(says(&case.client().decide_as(P2, &body()).await), ("deny", "kill_switch"));
        assert_eq!(says(&case.client().decide_as(P1, &body()).await), ("permit", "passed"));
        scoped(&case, &scope, false).await;
        assert_eq!(says(&case.client().decide_as(P2, &body()).await), ("permit", "passed"));
    });
}

#[test]
fn a_permit_is_checked_before_its_act() {
    case("scheck", async |case| {
        let check = async |token: &str, permit: &str| {
            case.client().done("POST", "/v1/permits/check", token, Some(&json!({"permit_id": permit}))).await
        };
        let reply = case.ask("lamp.toggle", json!({"state": "on"})).await;
        let permit = text(&reply, "permit_id");
        let usable = check(P1, permit).await;
        assert_eq!((&usable["usable"], &usable["evidence_id"]), (&json!(true), &reply["evidence_id"]));
        assert!(text(&usable, "deadline").ends_with('Z'));
        // A foreign permit looks like an invented one.
        let unknown = json!({"usable": false, "reason": "unknown"});
        assert_eq!(check(P2, permit).await, unknown);
        assert_eq!(check(P1, "pmt-00000000000000000000000000000000").await, unknown);
        let scope = json!({"action_type": case.name("lamp.toggle")});
        scoped(&case, &scope, true).await;
        let stopped = check(P1, permit).await;
        assert_eq!((&stopped["usable"], text(&stopped, "reason")), (&json!(false), "kill_switch"));
        scoped(&case, &scope, false).await;
        assert_eq!(check(P1, permit).await, usable);
        assert_eq!(case.report(permit, "success").await["accepted"], true);
        assert_eq!(text(&check(P1, permit).await, "reason"), "reported");
        let wrong = case.client().call("POST", "/v1/permits/check", P1, Some(&json!({"permit_id": "pmt-1"}))).await;
        assert_eq!(wrong.status, 400);
    });
}

#[test]
fn the_static_list_under_the_switch() {
    case_alone("sstatic", async |case| {
        let names = async || -> Vec<String> {
            let found = case.client().get("/v1/static", P1).await;
            assert_eq!(text(&found, "policy").len(), 64);
            let all = found["actions"].as_array().unwrap().iter();
            all.filter_map(|one| text(one, "action_type").strip_prefix(&case.name("")).map(str::to_owned)).collect()
        };
        assert_eq!(names().await, ["lamp.restore", "lamp.toggle", "pay.back", "read.status"]);
        let scope = json!({"action_type": case.name("lamp.toggle")});
        scoped(&case, &scope, true).await;
        assert_eq!(names().await, ["lamp.restore", "pay.back", "read.status"]);
        scoped(&case, &scope, false).await;
        case.switch(true).await;
        assert_eq!(names().await, ["read.status"]);
    });
}

/// Goal: what an enforcement point did alone is recorded once, however often it is delivered, and all of it or none.
#[test]
fn local_decisions_are_recorded_once() {
    case("slocal", async |case| {
        let entry = |action: &str| {
            let decided = request(&case.name(action), json!({"state": "on"}));
            let members = json!({
                "protocol": null, "created_at": null, "mode": "fail_static", "outcome": "success",
                "decided_at": "2026-08-17T09:00:00Z", "completed_at": "2026-08-17T09:00:01Z",
            });
            with(decided, members)
        };
        let deliver = async |token: &str, entries: &[Value]| {
            let body = json!({"protocol": "aadp/0.2", "entries": entries});
            case.client().call("POST", "/v1/local", token, Some(&body)).await
        };
        let entries = [entry("lamp.toggle"), entry("lamp.restore")];
        let first = deliver(P1, &entries).await;
        assert_eq!(first.status, 200, "{}", first.body);
        assert_eq!(deliver(P1, &entries).await.body, first.body);
        let ids: Vec<&str> = first.body["evidence_ids"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for (id, sent) in ids.iter().zip(&entries) {
            let (kind, body, _) = case.entry(id).await;
            assert_eq!((kind.as_str(), &body["request_id"]), ("local_decision", &sent["request_id"]));
        }
        // More of them, one of which is known.
        let more = [entries[1].clone(), entry("pay.back")];
        let second = deliver(P1, &more).await;
        assert_eq!(second.body["evidence_ids"][0], ids[1]);
        assert!(!ids.contains(&second.body["evidence_ids"][1].as_str().unwrap()));
        let foreign = deliver(P2, &entries).await;
        assert!(foreign.status == 200 && foreign.body["evidence_ids"] != first.body["evidence_ids"], "another's act");
        let wrong = [entry("lamp.toggle"), with(entry("lamp.toggle"), json!({"mode": "fail_up"}))];
        let refused = deliver(P1, &wrong).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(deliver(P1, &[with(entry("x"), json!({"request_id": uuid()}))]).await.status, 200);
    });
}
