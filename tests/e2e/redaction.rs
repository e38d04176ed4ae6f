//! Case 106 on disk: what a policy hides is in no file of any node, and through no door afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{
    A1, AUDIT, Client, Cluster, Door, OPERATE, P1, P2, Settings, can_become_others, random, report, request, says,
    text, uuid, with,
};

const POLICY: &str = r#"
apiVersion: placet/v1
budgets: { eur: { kind: value, unit: EUR, limit: "1000", window: day } }
policies:
  - { action_type: pay.back, tier: 1, dry_run: false, compensating_command: pay.back, bounds: { strict_params: false } }
  - action_type: pay.card
    tier: 2
    dry_run: false
    compensating_command: pay.back
    cost: { param: amount }
    draws: [eur]
    bounds:
      numeric: { amount: { max: 200 }, pin: { max: 9 } }
      required: [amount]
      strict_params: false
    param_effects: [{ param: site, url: { hosts: [bank.example] }, add_effects: [web] }]
    redact: [params.iban, params.to.iban, params.pin, params.site, rationale, payload.iban, error]
  - { action_type: pay.coloured, tier: 3, bounds: { enum: { colour: [red] } }, redact: [params.colour] }
  - action_type: pay.wire
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    redact: [params.iban, rationale]
effects: { web: {} }
"#;

/// Secrets, each at one place. Random letters, so that compressed files hold them as they are: no four of them stand
/// anywhere before.
#[derive(Default)]
struct Secrets(BTreeMap<String, &'static str>);

/// Letters behind the two that begin every secret.
const LETTERS: usize = 24;

impl Secrets {
    fn at(&mut self, place: &'static str) -> String {
        let letter =
            |_| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[random(62) as usize]);
        let secret = format!("NL{}", (0..LETTERS).map(letter).collect::<String>());
        self.0.insert(secret.clone(), place);
        secret
    }

    /// The places whose secrets stand in these bytes.
    fn found_in(&self, bytes: &[u8]) -> Vec<&'static str> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'N') {
            rest = &rest[at..];
            if let Some(text) = rest.get(..LETTERS + 2).and_then(|text| std::str::from_utf8(text).ok()) {
                found.extend(self.0.get(text));
            }
            rest = &rest[1..];
        }
        found
    }
}

fn card(members: Value) -> Value {
    request("pay.card", with(json!({"amount": "5"}), members))
}

/// Every way into the record.
async fn leave_secrets_everywhere(client: &Client, secrets: &mut Secrets) {
    let (iban, deep, why) = (secrets.at("params"), secrets.at("nested params"), secrets.at("rationale"));
    let permitted =
        with(card(json!({"iban": iban, "to": [{"iban": deep}]})), json!({"rationale": format!("pay {why}")}));
    let reply = client.decide(&permitted).await;
    assert_eq!(says(&reply), ("permit", "passed"), "{reply}");
    let replayed = client.decide(&permitted).await;
    assert_eq!(replayed["permit_id"], reply["permit_id"], "values are compared all the same");
    let other =
        with(permitted, json!({"params": {"amount": "5", "iban": secrets.at("another body under the same id")}}));
    assert!(client.decide(&other).await.get("permit_id").is_none());

    let (payload, error) = (secrets.at("payload"), secrets.at("error"));
    let members = json!({"payload": {"iban": payload, "ref": 1}, "error": format!("{error} is closed")});
    let done = with(report(text(&reply, "permit_id"), "failure"), members);
    assert_eq!(client.report_as(P1, &done).await["accepted"], true);
    for (place, who, permit) in [
        ("second report", P1, text(&reply, "permit_id")),
        ("foreign report", P2, text(&reply, "permit_id")),
        ("invented report", P1, "pmt-00000000000000000000000000000000"),
    ] {
        let secret = secrets.at(place);
        // Of an unknown permit nobody knows what to hide, so all of it is.
        let deep = if who == P1 && permit.ends_with("000") { secret.as_str() } else { "shown" };
        let members = json!({"payload": {"iban": secret, "deep": {"iban": deep}}, "error": secret});
        assert_eq!(client.report_as(who, &with(report(permit, "success"), members)).await["accepted"], false);
    }
    let secret = secrets.at("malformed report");
    let members = json!({"outcome": "done", "error": secret, "payload": {"iban": secret}});
    client.report_as(P1, &with(report(text(&reply, "permit_id"), "success"), members)).await;

    // Denials: their details quote what they refuse, and may not quote this.
    let denied = [
        card(json!({"iban": secrets.at("bounds of another member"), "amount": "900"})),
        request("pay.coloured", json!({"colour": secrets.at("a choice out of bounds")})),
        card(json!({"pin": secrets.at("a number that is none")})),
        card(json!({"site": format!("https://{}.example:99999/", secrets.at("a URL that is none"))})),
        with(card(json!({"iban": secrets.at("params of an unknown source")})), json!({"source": "nobody"})),
        with(card(json!({})), json!({"source": secrets.at("source")})),
        with(card(json!({})), json!({"cost_eur": secrets.at("cost")})),
        with(card(json!({})), json!({"created_at": secrets.at("created_at")})),
        with(card(json!({})), json!({"request_id": secrets.at("request_id")})),
        with(card(json!({"iban": secrets.at("params of an unknown action")})), json!({"action_type": "pay.crad"})),
        with(card(json!({})), json!({"action_type": "pay.crad", "rationale": secrets.at("rationale of no action")})),
    ];
    for body in denied {
        let reply = client.decide(&body).await;
        assert_eq!(text(&reply, "verdict"), "deny", "{body}");
        assert_eq!(secrets.found_in(reply.to_string().as_bytes()), Vec::<&str>::new(), "{reply}");
    }
    for place in ["no JSON", "a member twice"] {
        if client.door() == Door::Grpc {
            break;
        }
        let secret = secrets.at(place);
        let body = if place == "no JSON" {
            format!("{{\"iban\":\"{secret}\"")
        } else {
            format!("{{\"{secret}\":1,\"{secret}\":2}}")
        };
        assert_eq!(says(&client.decide_bytes(P1, body.as_bytes()).await), ("deny", "malformed"));
    }

    // A proposal, its approval, and what an enforcement point did alone.
    let body = with(
        request("pay.wire", json!({"iban": secrets.at("params of a proposal")})),
        json!({"rationale": secrets.at("rationale of a proposal")}),
    );
    let proposal = client.decide(&body).await;
    let id = text(&proposal, "approval_id");
    client.grant(id).await;
    let shown = client.get(&format!("/v1/approvals/{id}"), A1).await;
    assert_eq!(shown["redacted"], json!(["params.iban"]));
    let resumed = with(body, json!({"request_id": uuid(), "approval_ref": id}));
    assert_eq!(says(&client.decide(&resumed).await), ("permit", "passed"));
    let members = json!({
        "protocol": null, "created_at": null, "mode": "fail_open", "outcome": "failure",
        "decided_at": "2026-08-17T09:00:00Z", "completed_at": "2026-08-17T09:00:01Z",
        "rationale": secrets.at("rationale of a local decision"), "error": secrets.at("error of a local decision"),
    });
    let local = with(card(json!({"iban": secrets.at("params of a local decision")})), members);
    client.done("POST", "/v1/local", P1, Some(&json!({"protocol": "aadp/0.2", "entries": [local]}))).await;
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Goal: values that the policy hides are in no file of any node (log, state, snapshots, what it prints), nor in what
/// any door tells afterwards. A value that it does not hide is found, so the search itself works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_106_what_is_hidden_is_in_no_file_of_any_node() {
    let unix = can_become_others();
    let settings = Settings { redaction: true, unix, snapshots: Some((40, 5)), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    cluster.publish(POLICY).await;
    let (mut secrets, mut marks) = (Secrets::default(), Secrets::default());
    let mark = marks.at("a payment whose payee is not hidden");
    cluster.http.decide(&request("pay.back", json!({"payee": mark}))).await;
    leave_secrets_everywhere(&cluster.http, &mut secrets).await;
    for door in [Some(cluster.grpc()), cluster.unix()].into_iter().flatten() {
        leave_secrets_everywhere(&door, &mut secrets).await;
    }
    // Enough for snapshots, and for memory to reach the disk.
    let bodies: Vec<Value> = (0..60).map(|_| card(json!({"iban": secrets.at("one of many"), "amount": "1"}))).collect();
    join_all(bodies.iter().map(|body| cluster.http.decide(body))).await;
    cluster
        .until("snapshot on every node", async || {
            for id in cluster.ids() {
                cluster.view(id).await.filter(|view| view["snapshot_index"].as_u64() > Some(40))?;
            }
            Some(())
        })
        .await;
    cluster.agree(&cluster.ids()).await;

    for (token, path, name) in [
        (AUDIT, "/v1/evidence", "evidence"),
        (A1, "/v1/approvals?all=true", "approvals"),
        (OPERATE, "/v1/intents", "intents"),
        (OPERATE, "/v1/budgets", "budgets"),
    ] {
        let told = Value::from(cluster.http.every(token, path, name).await).to_string();
        assert_eq!(secrets.found_in(told.as_bytes()), Vec::<&str>::new(), "{path}");
        assert!(path != "/v1/evidence" || !marks.found_in(told.as_bytes()).is_empty());
    }
    let metrics = cluster.http.call("GET", "/metrics", OPERATE, None).await.body.to_string();
    assert_eq!(secrets.found_in(metrics.as_bytes()), Vec::<&str>::new());

    // Killed, so that the write-ahead logs stay as they were written.
    for id in cluster.ids() {
        cluster.kill(id);
    }
    let mut marked = BTreeSet::new();
    for id in cluster.ids() {
        let mut paths = vec![cluster.path().join(format!("node-{id}.log"))];
        files(&cluster.path().join(format!("node-{id}")), &mut paths);
        for path in paths {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(secrets.found_in(&bytes), Vec::<&str>::new(), "{}", path.display());
            if !marks.found_in(&bytes).is_empty() {
                let below = path.strip_prefix(cluster.path()).unwrap();
                marked.insert(below.iter().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/"));
            }
        }
    }
    // The search finds what is there: the mark, in each kind of file of each node.
    for id in cluster.ids() {
        for kind in ["log", "state", "snapshots"] {
            assert!(marked.contains(&format!("node-{id}/{kind}")), "{marked:?}");
        }
    }
}
