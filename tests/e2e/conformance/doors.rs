//! What does not depend on the door: bodies and entries (case 129); and the door's own: who calls (case 130).

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::fixture::{Case, JSON_DOORS, case, case_alone, case_at};
use crate::harness::{A1, AUDIT, Call, Door, OPERATE, P1, POLICY, report, says, text, with};

/// Members that are positions, of entries and of views.
const POSITIONS: [&str; 7] = ["index", "intent", "proposal", "resumes", "undo_of", "original", "consumed_by"];

/// A value without what differs from run to run: identifiers, hashes, instants, positions, and the case's prefix.
fn masked(case: &Case, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(masked_text(&text.replace(&case.name(""), "@"))),
        Value::Array(items) => items.iter().map(|item| masked(case, item)).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let position = POSITIONS.contains(&name.as_str()) && !value.is_null();
                (name.clone(), if position { json!("<position>") } else { masked(case, value) })
            };
            members.iter().map(member).collect::<serde_json::Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn masked_text(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.');
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        out.push_str(mask_of(run).unwrap_or(run));
        let mut others = after.chars();
        out.extend(others.next());
        rest = others.as_str();
    }
    out
}

fn mask_of(run: &str) -> Option<&'static str> {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    match run {
        _ if ["pmt-", "apr-", "aud-"].iter().any(|kind| run.starts_with(kind)) => Some("<id>"),
        _ if run.len() == 36 && run.matches('-').count() == 4 && hex(&run.replace('-', "")) => Some("<id>"),
        _ if run.len() == 64 && hex(run) => Some("<hash>"),
        _ if run.len() >= 20 && run.starts_with("20") && run.contains('T') && run.ends_with('Z') => Some("<instant>"),
        _ => None,
    }
}

/// The story of one case: every answer, and the entry behind it.
#[derive(Default)]
struct Story(Vec<Value>);

impl Story {
    async fn tell(&mut self, case: &Case, reply: Value) -> Value {
        let (_, _, entry) = case.entry(text(&reply, "evidence_id")).await;
        self.0.extend([masked(case, &reply), masked(case, &entry)]);
        reply
    }
}

async fn story(case: &Case) -> Vec<Value> {
    let mut story = Story::default();
    let decide = async |body: Value| case.client().decide(&body).await;
    let reported = async |body: Value| case.client().report_as(P1, &body).await;
    let pay = |amount: &str| case.body("pay.small", json!({"payee": "x", "amount_eur": amount}));

    let first = pay("60.50");
    let permit = story.tell(case, decide(first.clone()).await).await;
    story.tell(case, decide(first.clone()).await).await;
    story.tell(case, decide(with(first, json!({"params": {}}))).await).await;
    for outcome in ["success", "failure"] {
        let members = json!({"payload": {"ref": "tx-1"}, "error": "none"});
        story.tell(case, reported(with(report(text(&permit, "permit_id"), outcome), members)).await).await;
    }
    story.tell(case, reported(report("pmt-00000000000000000000000000000000", "success")).await).await;
    for body in [
        pay("60"),
        with(pay("60"), json!({"protocol": "aadp/0.2", "session_id": "s"})),
        pay("900"),
        with(pay("1"), json!({"params": [1]})),
        case.body("nope.x", json!({})),
        case.body("reh.a", json!({"é": "\u{1f4a1}"})),
        case.body("read.status", json!({})),
        with(case.body("pay.fee", json!({})), json!({"cost_eur": "5.00"})),
        case.body("web.get", json!({"url": "https://bit.ly/x"})),
    ] {
        story.tell(case, decide(body).await).await;
    }
    let toggle = story.tell(case, decide(case.body("lamp.toggle", json!({"state": "on"}))).await).await;
    story.tell(case, reported(report(text(&toggle, "permit_id"), "success")).await).await;
    let members = json!({"source": "undo", "parent_id": toggle["evidence_id"]});
    story.tell(case, decide(with(case.body("lamp.restore", json!({"state": "on"})), members)).await).await;

    let wire = || case.body("wire.send", json!({"amount_eur": "400"}));
    let proposal = story.tell(case, decide(wire()).await).await;
    let id = text(&proposal, "approval_id");
    let path = format!("/v1/approvals/{id}");
    story.0.push(masked(case, &case.client().get(&path, A1).await));
    let note = json!({"note": "fine"});
    let granted = case.client().done("POST", &format!("{path}/grant"), A1, Some(&note)).await;
    story.0.push(masked(case, &granted));
    let again = case.client().resolve(A1, id, "grant").await;
    story.0.push(masked(case, &json!([again.status, again.body["code"]])));
    story.tell(case, decide(with(wire(), json!({"approval_ref": id}))).await).await;
    story.0.push(masked(case, &case.client().get(&path, A1).await));
    story.0
}

#[test]
fn case_129_the_same_story_has_the_same_bodies_and_entries_at_every_door() {
    let seen: Mutex<Vec<(Door, Vec<Value>)>> = Mutex::default();
    case("c129", async |case| {
        let told = story(&case).await;
        assert!(told.len() > 40);
        seen.lock().unwrap().push((case.client().door(), told));
    });
    let seen = seen.into_inner().unwrap();
    let (first_door, first) = &seen[0];
    for (door, told) in &seen[1..] {
        for (step, (one, other)) in first.iter().zip(told).enumerate() {
            if text(&one["body"]["malformed_request"], "operation") == "decide" {
                // A message has no bytes of JSON: the entry shows those that the door wrote for it.
                continue;
            }
            assert_eq!(one, other, "step {step}: {first_door:?} and {door:?}");
        }
        assert_eq!(first.len(), told.len());
    }
}

/// Goal: bytes that are no request are recorded alike as well.
#[test]
fn case_129_what_is_no_json_has_the_same_entry() {
    let seen: Mutex<Vec<Value>> = Mutex::default();
    case_at("c129raw", JSON_DOORS, async |case| {
        let mut story = Story::default();
        for body in [&b"{bad"[..], b"[1]", b"{\"a\":1,\"a\":2}", b"\xff", b"{\"protocol\":\"aadp/0.2\"}"] {
            story.tell(&case, case.client().decide_bytes(P1, body).await).await;
            let call = Call::new("POST", "/v1/report", P1).bytes(body, "application/json");
            story.tell(&case, case.client().ask(call).await.body).await;
        }
        seen.lock().unwrap().push(story.0.into());
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:#?}");
}

/// Goal: a reader sees one thing, whichever door he looks through.
#[test]
fn every_view_is_the_same_at_every_door() {
    case_alone("cviews", async |case| {
        case.pay("60").await;
        case.ask("pay.danger", json!({})).await;
        let reply = case.ask("web.get", json!({"url": "https://bit.ly/x"})).await;
        case.client().grant(text(&reply, "approval_id")).await;
        let treasury = case.ask("wire.treasury", json!({"amount_eur": "100"})).await;
        let mut views = BTreeMap::new();
        for (path, token) in [
            ("/v1/approvals?all=true&limit=1000".to_owned(), A1),
            (format!("/v1/approvals/{}", text(&treasury, "approval_id")), AUDIT),
            ("/v1/killswitch".to_owned(), OPERATE),
            ("/v1/policies".to_owned(), POLICY),
            ("/v1/policies?all=true&limit=3".to_owned(), POLICY),
            (format!("/v1/evidence?limit=20&action_type={}", case.name("pay.small")), AUDIT),
            (format!("/v1/evidence/{}", text(&reply, "evidence_id")), AUDIT),
            ("/v1/evidence?limit=3&after=aud-2".to_owned(), AUDIT),
            (format!("/v1/evidence/{}/proof?size=9", "aud-3"), AUDIT),
            ("/v1/evidence/consistency?from=5&to=9".to_owned(), AUDIT),
            ("/v1/budgets?limit=50".to_owned(), OPERATE),
            ("/v1/evidence/aud-99999999".to_owned(), AUDIT),
            ("/v1/approvals/apr-00000000000000000000000000000000".to_owned(), A1),
        ] {
            for door in [Door::Http, Door::Grpc, Door::Unix] {
                let Some(client) = case.other(door) else { continue };
                let answer = client.call("GET", &path, token, None).await;
                let told = (answer.status, answer.body);
                let first = views.entry(path.clone()).or_insert_with(|| told.clone());
                assert_eq!(told, *first, "{path} through {door:?}");
            }
        }
        // Permits are open in other cases as well: compare this one's.
        let mut intents = Vec::new();
        for door in [Door::Http, Door::Grpc, Door::Unix] {
            let Some(client) = case.other(door) else { continue };
            let all = client.every(OPERATE, "/v1/intents", "intents").await;
            let own = all.into_iter().filter(|one| text(one, "action_type").starts_with(&case.name("")));
            intents.push(own.collect::<Vec<_>>());
        }
        assert!(intents[0].len() == 1 && intents.iter().all(|one| *one == intents[0]), "{intents:#?}");
    });
}

const UNIX: &[Door] = &[Door::Unix];

/// Goal: a process that no peer names is refused on every route but health, and leaves no trace.
#[test]
fn case_130_a_peer_without_a_name_leaves_no_entry() {
    case_at("c130", UNIX, async |case| {
        let decide = case.body("lamp.toggle", json!({"state": "on"}));
        for (method, path, body) in [
            ("POST", "/v1/decide", decide.clone()),
            ("POST", "/v1/decide", json!([1])),
            ("POST", "/v1/report", report("pmt-00000000000000000000000000000000", "success")),
            ("POST", "/v1/killswitch", json!({"engaged": true, "origin": "x"})),
        ] {
            for id in case.cluster().ids() {
                let answer = case.client().try_call_at(id, method, path, "", Some(&body)).await.unwrap();
                assert_eq!((answer.status, text(&answer.body, "code")), (403, "forbidden"), "{method} {path}");
                assert!(answer.body.get("verdict").is_none());
            }
        }
        assert_eq!(case.client().call("GET", "/v1/health", "", None).await.status, 200);
        let path = format!("/v1/evidence?action_type={}", text(&decide, "action_type"));
        let entries = async || case.client().every(AUDIT, &path, "evidence").await.len();
        assert_eq!(entries().await, 0);
        // The same request by a peer with a name is decided for the first time.
        let reply = case.client().decide(&decide).await;
        assert_eq!((says(&reply), reply.get("replayed")), (("permit", "passed"), None));
        assert_eq!(entries().await, 1);
    });
}
