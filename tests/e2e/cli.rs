//! The `placet` binary as operators and scripts use it.

use serde_json::Value;

use crate::harness::{A1, AUDIT, Cluster, OPERATE, P1, POLICY, Settings};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Goal: the whole flow with the CLI alone: publish, decide, propose, grant, resume, report, look, stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_flow_with_the_cli() {
    let cluster = Cluster::start(Settings::default()).await;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let example = format!("{root}/examples/payments.yaml");
    let run = |token: &str, args: &[&str], code: i32| {
        let (got, out, err) = cluster.cli(token, args);
        assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
        (out, err)
    };
    let (out, _) = run(POLICY, &["policy", "check", &example], 0);
    assert!(out.starts_with("good: "));
    run(POLICY, &["policy", "publish", &example], 0);
    let (shown, _) = run(POLICY, &["policy", "show"], 0);
    assert!(shown.contains("(in force)") && shown.contains("payments.transfer"));

    let transfer = ["decide", "payments.transfer", "payee=alice", "amount_eur=120", "--output", "json"];
    let permit = json(&run(P1, &transfer, 0).0);
    let permit_id = permit["permit_id"].as_str().unwrap();
    let (listed, _) = run(OPERATE, &["intents"], 0);
    assert!(listed.contains(permit_id));
    run(P1, &["report", permit_id, "success", "--payload", "{\"ref\":1}"], 0);
    run(P1, &["report", permit_id, "success"], 10);
    let (listed, _) = run(OPERATE, &["intents"], 0);
    assert_eq!(listed.trim(), "every permit has its report");

    run(P1, &["decide", "payments.mint"], 10);
    run(P1, &["decide", "payments.refund", "payment=p", "amount_eur:=20"], 12);
    run(P1, &["decide", "accounts.balance", "account=main"], 13);
    let payout = ["decide", "payments.payout", "batch=b", "amount_eur=900", "--output", "json"];
    let proposal = json(&run(P1, &payout, 11).0);
    let approval = proposal["approval_id"].as_str().unwrap();
    assert!(run(A1, &["approvals", "list"], 0).0.contains(approval));
    run(P1, &["approvals", "grant", approval], 3);
    run(A1, &["approvals", "grant", approval, "--note", "fine"], 0);
    run(A1, &["approvals", "grant", approval], 4);
    assert!(run(A1, &["approvals", "show", approval], 0).0.contains("fine"));
    let resume = ["decide", "payments.payout", "batch=b", "amount_eur=900", "--approval-ref", approval];
    run(P1, &resume, 0);
    run(P1, &resume, 11);

    run(OPERATE, &["kill", "engage", "--origin", "test"], 0);
    assert!(run(OPERATE, &["kill", "status"], 0).0.contains("engaged since"));
    run(P1, &["decide", "payments.transfer", "payee=a", "amount_eur=1"], 10);
    assert!(run(OPERATE, &["kill", "release"], 0).0.contains("policy meanwhile: unchanged"));

    assert!(run(OPERATE, &["budgets"], 0).0.contains("eur-daily"));
    let (status, _) = run(OPERATE, &["cluster", "status"], 0);
    // Every node's view, then the members as one node knows them.
    let (nodes, members) = status.split_once("\n\n").unwrap();
    assert_eq!((nodes.lines().count(), members.lines().count()), (4, 5), "{status}");
    let (tail, _) = run(AUDIT, &["evidence", "tail", "--limit", "5"], 0);
    assert_eq!(tail.lines().count(), 6, "{tail}");
    let entry = json(&run(AUDIT, &["evidence", "show", "aud-1", "--output", "json"], 0).0);
    assert!(entry["entry"]["body"].is_object());
}

/// Goal: wrong input gets an exit code that scripts can use and a line that a person can act on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_input_is_explained() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    for (token, args, code, part) in [
        ("no-such-token-at-all", &["kill", "status"][..], 3, "unauth"),
        (P1, &["kill", "status"], 3, "role"),
        (AUDIT, &["evidence", "show", "aud-99999"], 4, "not_found"),
        (AUDIT, &["evidence", "show", "17"], 4, "aud-"),
        (A1, &["approvals", "grant", "apr-1"], 4, "32 lowercase hex"),
        (A1, &["approvals", "grant", "apr-00000000000000000000000000000000"], 4, "not_found"),
        (P1, &["decide"], 2, "ACTION_TYPE"),
        (P1, &["decide", "a", "b"], 1, "NAME=VALUE"),
        (P1, &["decide", "a", "b:=x"], 1, "not JSON"),
        (P1, &["--node", "localhost:1", "decide", "a"], 1, "not a URL"),
        (P1, &["--node", "http://127.0.0.1:1", "decide", "a"], 5, "cannot be reached"),
        (POLICY, &["policy", "publish", "/nonexistent"], 1, "cannot read"),
        (P1, &["frobnicate"], 2, "frobnicate"),
    ] {
        let (got, out, err) = cluster.cli(token, args);
        assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
        assert!(err.contains(part), "placet {args:?}: {err}");
    }
    let document = cluster.path().join("bad.yaml");
    std::fs::write(&document, "policies:\n  - action_type: x\n    tier: 9\n").unwrap();
    for verb in ["check", "publish"] {
        let (code, _, err) = cluster.cli(POLICY, &["policy", verb, document.to_str().unwrap()]);
        assert_eq!(code, 4, "{err}");
        assert!(err.contains("line 3, column 11"), "{err}");
    }
    let (code, out, _) = cluster.cli(POLICY, &["--output", "json", "policy", "publish", document.to_str().unwrap()]);
    assert_eq!((code, json(&out)["code"].as_str()), (4, Some("policy_mistakes")));
}

/// Goal: a node that cannot run says why and does not start; two nodes never share a folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_run_says_why() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    let config = cluster.path().join("node-1.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let http = text.lines().find(|line| line.starts_with("listen")).unwrap();
    for (name, changed, part) in [
        ("open", text.replacen(http, "listen = \"0.0.0.0:0\"", 1), "TLS"),
        ("misspelt", format!("nod = 1\n{text}"), "unknown field"),
        ("tokens", text.replace("tokens.json", "none.json"), "none.json"),
        ("taken", text.replace("data = \"node-1\"", "data = \"other\""), "in use"),
        ("shared", text.replace("127.0.0.1:", "127.0.0.2:"), "node-1"),
    ] {
        let path = cluster.path().join(format!("{name}.toml"));
        std::fs::write(&path, changed).unwrap();
        let (code, _, err) = cluster.cli(OPERATE, &["serve", "--config", path.to_str().unwrap()]);
        assert_eq!(code, 1, "{name}: {err}");
        assert!(err.contains(part), "{name}: {err}");
    }
    assert!(cluster.http.decides(1).await);
}
