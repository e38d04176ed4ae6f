//! What operators do with documents, approvals and switches, by the CLI alone.

use serde_json::Value;

use crate::harness::{A1, A2, Cluster, OPERATE, P1, POLICY, Settings};

const FIRST: &str = r#"# the first
apiVersion: placet/v1
approvers: { desk: { members: [A1, A2], quorum: 2 } }
budgets: { eur: { kind: value, unit: EUR, limit: 500, window: day } }
effects: { money.egress: { draws: [eur] } }
policies:
  - action_type: pay
    tier: 3
    dry_run: false
    cost: { param: amount_eur }
    effects: [money.egress]
    approval: { group: desk }
    bounds: { required: [amount_eur], numeric: { amount_eur: { max: 100 } } }
  - { action_type: note, tier: 1, dry_run: false, compensating_command: note }
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Goal: a policy is compared, kept, put in force, taken back and dropped; nothing happens against `--expect`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_policy() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    let file = |name: &str, text: &str| {
        let path = cluster.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let run = |args: &[&str], code: i32| {
        let (got, out, err) = cluster.cli(POLICY, args);
        assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
        out
    };
    let digest = |file: &str| {
        json(&run(&["policy", "check", file, "--output", "json"], 0))["digest"].as_str().unwrap().to_owned()
    };
    let looser = FIRST.replace("max: 100", "max: 200").replace("quorum: 2", "quorum: 1");
    let (one, two) = (file("one.yaml", FIRST), file("two.yaml", &looser));
    let (first, second) = (digest(&one), digest(&two));

    assert!(run(&["policy", "publish", &one, "--expect", "none"], 0).starts_with(&format!("in force: {first}")));
    let told = run(&["policy", "diff", "active", &two], 0);
    assert!(told.contains("~ actions.pay.bounds.numeric.amount_eur.max: 100 -> 200  (loosens"), "{told}");
    assert!(told.contains("~ approvers.desk.quorum: 2 -> 1  (loosens") && told.ends_with("2 loosen\n"), "{told}");
    run(&["policy", "diff", "active", &two, "--fail-if-looser"], 4);
    run(&["policy", "diff", &two, "active", "--fail-if-looser"], 0);

    let kept = run(&["policy", "publish", &two, "--no-activate"], 0);
    assert!(kept.starts_with(&format!("kept:     {second}\nin force: {first}")), "{kept}");
    let listed = run(&["policy", "list"], 0);
    let line = |digest: &str| listed.lines().find(|line| line.starts_with(digest)).unwrap().to_owned();
    assert!(line(&first).contains("in force") && line(&second).contains("never"), "{listed}");
    run(&["policy", "activate", &second, "--expect", &second], 4);
    assert!(run(&["policy", "activate", &second, "--expect", &first], 0).contains(&format!("before:   {first}")));
    assert!(run(&["policy", "diff", &first, &second], 0).contains("after:  "));
    assert!(run(&["policy", "activate", &first], 0).starts_with(&format!("in force: {first}")));
    run(&["policy", "drop", &second], 4);
    let spare = file("spare.yaml", &FIRST.replace("max: 100", "max: 3"));
    run(&["policy", "publish", &spare, "--no-activate"], 0);
    assert!(run(&["policy", "drop", &digest(&spare)], 0).starts_with("dropped:"));
    run(&["policy", "show", &digest(&spare)], 4);

    // What is shown is a document with the same meaning.
    let shown = file("shown.yaml", &run(&["policy", "show"], 0));
    assert_eq!(digest(&shown), first);
    let converted = file("converted.yaml", &run(&["policy", "convert", &one], 0));
    assert_eq!(digest(&converted), first);
}

/// Goal: a group approves, the second vote decides at once; scoped switches and permit checks say what they stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_switches_and_permits() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    let path = cluster.path().join("one.yaml");
    std::fs::write(&path, FIRST).unwrap();
    let run = |token: &str, args: &[&str], code: i32| {
        let (got, out, err) = cluster.cli(token, args);
        assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
        out
    };
    run(POLICY, &["policy", "publish", path.to_str().unwrap()], 0);

    let proposal = json(&run(P1, &["decide", "pay", "amount_eur=60", "--output", "json"], 11));
    let approval = proposal["approval_id"].as_str().unwrap();
    let listed = run(A1, &["approvals", "list"], 0);
    assert!(listed.contains("0 of 2"), "{listed}");
    let shown = run(A1, &["approvals", "show", approval], 0);
    for part in ["cost         60", "eur: 500 of 500 EUR left", "2 of group desk, 0 so far"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let waiting = run(A1, &["approvals", "approve", approval, "--note", "fine"], 11);
    assert!(waiting.contains("granted by   A1"), "{waiting}");
    let permit = json(&run(A2, &["approvals", "approve", approval, "--output", "json"], 0));
    assert_eq!(permit["verdict"], "permit");
    let shown = json(&run(A1, &["approvals", "show", approval, "--output", "json"], 0));
    assert_eq!((shown["state"].as_str(), &shown["resumed_request"]), (Some("consumed"), &permit["request_id"]));

    let note = json(&run(P1, &["decide", "note", "--output", "json"], 0));
    let permit = note["permit_id"].as_str().unwrap();
    assert!(run(P1, &["permit", "check", permit], 0).starts_with("usable until "));
    run(OPERATE, &["kill", "engage", "--action-type", "note", "--note", "too many"], 0);
    let status = run(OPERATE, &["kill", "status"], 0);
    assert!(status.contains("action_type note: engaged since ") && status.contains(": too many"), "{status}");
    assert!(status.starts_with("released"), "{status}");
    assert_eq!(run(P1, &["permit", "check", permit], 10).trim(), "not usable: kill_switch");
    run(P1, &["decide", "note"], 10);
    run(P1, &["decide", "pay", "amount_eur=1"], 11);
    assert!(run(OPERATE, &["kill", "release", "--action-type", "note"], 0).contains("note: released"));
    run(P1, &["report", permit, "success"], 0);
    assert_eq!(run(P1, &["permit", "check", permit], 10).trim(), "not usable: reported");
    run(OPERATE, &["kill", "engage", "--effect", "a", "--principal", "b"], 2);

    let key = cluster.path().join("new.key");
    run(P1, &["keys", "new", key.to_str().unwrap()], 0);
    assert_eq!(std::fs::read_to_string(&key).unwrap().trim().len(), 64);
    run(P1, &["keys", "new", key.to_str().unwrap()], 1);
}

/// Goal: the examples are good, and their cases pass; documents need no node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_hold() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let (code, out, err) = cluster.cli(POLICY, &["--node", "http://127.0.0.1:1", "policy", "test", root]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.trim_end().ends_with(" passed, 0 failed"), "{out}");
    let (code, out, _) = cluster.cli(POLICY, &["--output", "json", "policy", "test", root]);
    assert_eq!((code, json(&out)["failed"].as_u64()), (0, Some(0)));
    for name in ["payments.yaml", "accounts.yaml"] {
        let (code, _, err) = cluster.cli(POLICY, &["policy", "check", &format!("{root}/{name}")]);
        assert_eq!(code, 0, "{err}");
    }
}
