//! Nodes that come back, come empty, come new, and leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, Client, Cluster, OPERATE, P1, Settings, request, says, text};

const POLICY: &str = "apiVersion: placet/v1\npolicies:\n  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, bounds: { strict_params: false } }\n";

async fn work(cluster: &Cluster, count: usize) {
    for _ in 0..count {
        let reply = cluster.http.decide(&request("act", json!({}))).await;
        assert_eq!(says(&reply), ("permit", "passed"));
    }
}

/// Work while some nodes are down: asks the leader only.
async fn work_at(cluster: &Cluster, id: u64, count: usize) {
    for _ in 0..count {
        let answer = cluster.http.try_call_at(id, "POST", "/v1/decide", P1, Some(&request("act", json!({})))).await;
        assert_eq!(answer.map(|answer| answer.status), Some(200));
    }
}

async fn role_of(cluster: &Cluster, at: u64, id: u64) -> Option<String> {
    let view = cluster.view(at).await?;
    let member = view["members"].as_array()?.iter().find(|one| one["id"] == id)?.clone();
    Some(text(&member, "role").to_owned())
}

/// Goal: a follower that was away longer than the log is kept catches up by a snapshot, and so does one whose data
/// was deleted; both count again afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_follower_and_an_empty_one_catch_up_by_snapshot() {
    let mut cluster = Cluster::start(Settings { snapshots: Some((60, 10)), ..Settings::default() }).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let [late, empty]: [u64; 2] =
        cluster.ids().into_iter().filter(|id| *id != leader).collect::<Vec<_>>().try_into().unwrap();
    cluster.kill(late);
    work_at(&cluster, leader, 250).await;
    cluster
        .until("snapshot at the leader", async || {
            let view = cluster.view(leader).await?;
            (view["snapshot_index"].as_u64()? > 100).then_some(())
        })
        .await;
    cluster.spawn(late);
    cluster.agree(&cluster.ids()).await;

    cluster.kill(empty);
    cluster.wipe(empty);
    work_at(&cluster, leader, 100).await;
    cluster.spawn(empty);
    cluster.agree(&cluster.ids()).await;
    // Both count: with the third node gone, the two of them are the majority.
    cluster.kill(leader);
    cluster.leader().await;
    cluster.spawn(leader);
    cluster.agree(&cluster.ids()).await;
}

/// Goal: a node is added, promoted and removed while the cluster works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_and_another_leaves() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    work(&cluster, 20).await;
    let fourth = cluster.add_member();
    let body = json!({"id": fourth, "addresses": cluster.addresses(fourth)});
    let answer = cluster.http.try_call_at(1, "POST", "/v1/cluster/members", OPERATE, Some(&body)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    cluster.agree(&cluster.ids()).await;
    assert_eq!(role_of(&cluster, 1, fourth).await.as_deref(), Some("learner"));
    // The newcomer answers like any other: it forwards.
    assert!(cluster.http.decides(fourth).await);

    let answer = cluster
        .http
        .try_call_at(2, "POST", &format!("/v1/cluster/members/{fourth}/promote"), OPERATE, None)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    cluster.until("fourth voter", async || (role_of(&cluster, 1, fourth).await? == "voter").then_some(())).await;

    let leader = cluster.leader().await;
    let leaving = cluster.ids().into_iter().find(|id| *id != leader && *id != fourth).unwrap();
    let answer = cluster
        .http
        .try_call_at(leader, "DELETE", &format!("/v1/cluster/members/{leaving}"), OPERATE, None)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    cluster.kill(leaving);
    let rest: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leaving).collect();
    assert_eq!(role_of(&cluster, leader, leaving).await, None);
    // Three voters remain; one of them dies and the other two decide.
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let next = cluster.leader().await;
    work_at(&cluster, next, 5).await;
    cluster.spawn(leader);
    cluster.agree(&rest).await;
}

/// Goal: an operator adds, promotes and removes a node by the CLI alone, and sees in between where it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_by_the_cli() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let fourth = cluster.add_member();
    let addresses = cluster.addresses(fourth);
    let run = |args: &[&str], code: i32| {
        let (got, out, err) = cluster.cli(OPERATE, &[&["cluster"], args].concat());
        assert_eq!(got, code, "placet cluster {args:?}\n{out}\n{err}");
        format!("{out}{err}")
    };
    let of = |name: &str| text(&addresses, name).to_owned();
    let (peer, http, grpc) = (of("peer"), of("http"), of("grpc"));
    let add = ["add", "4", "--peer", &peer, "--http", &http, "--grpc", &grpc];
    assert!(run(&add, 0).contains("learner"));
    assert!(run(&add, 4).contains("node 4 is a member already"));
    cluster.agree(&cluster.ids()).await;
    cluster
        .until("a member that was heard", async || {
            let status = run(&["status"], 0);
            let line = status.lines().rfind(|line| line.starts_with("4 "))?.to_owned();
            (line.contains("learner") && line.contains(" ms ago")).then_some(())
        })
        .await;
    assert!(run(&["promote", "9"], 4).contains("node 9 is not a member"));
    assert!(run(&["promote", "4"], 0).lines().any(|line| line.starts_with("4 ") && line.contains("voter")));
    assert!(run(&["promote", "4"], 4).contains("a voter already"));
    let removed = cluster.ids().into_iter().find(|id| *id != fourth).unwrap();
    run(&["transfer-leader", "--to", "4"], 0);
    let left = run(&["remove", &removed.to_string()], 0);
    assert!(!left.lines().any(|line| line.starts_with(&format!("{removed} "))), "{left}");
    assert!(run(&["remove", "9"], 4).contains("node 9 is not a member"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_membership_changes_are_refused_by_name() {
    let cluster = Cluster::start(Settings::default()).await;
    let call = async |method: &str, path: &str, body: Option<Value>| {
        let answer = cluster.http.call(method, path, OPERATE, body.as_ref()).await;
        (answer.status, text(&answer.body, "detail").to_owned())
    };
    let addresses = json!({"peer": "nowhere", "http": "http://x", "grpc": "http://x"});
    for (method, path, body) in [
        ("POST", "/v1/cluster/members/9/promote", None),
        ("DELETE", "/v1/cluster/members/9", None),
        ("POST", "/v1/cluster/members", Some(json!({"id": 1, "addresses": addresses}))),
        ("POST", "/v1/cluster/members", Some(json!({"id": 0, "addresses": addresses}))),
        ("POST", "/v1/cluster/members/x/promote", None),
    ] {
        let (status, detail) = call(method, path, body).await;
        assert!((400..500).contains(&status), "{method} {path}: {status} {detail}");
        assert!(!detail.is_empty());
    }
    assert!(cluster.http.decides(1).await);
}

/// Asks one node to hand the leadership over, again while it knows no leader: nothing has happened then.
async fn transfer(cluster: &Cluster, at: u64, body: Value) -> Answer {
    cluster
        .until("node that knows the leader", async || {
            let answer = cluster.http.try_call_at(at, "POST", "/v1/cluster/leader", OPERATE, Some(&body)).await?;
            (text(&answer.body, "code") != "unavailable").then_some(answer)
        })
        .await
}

/// Decides until told to stop, each request until it has an answer; returns the permits.
async fn load(http: Client, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut permits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let body = request("act", json!({}));
        let mut attempts = 0;
        let reply = loop {
            match http.try_call_at(http.turn(), "POST", "/v1/decide", P1, Some(&body)).await {
                Some(answer) if answer.status == 200 => break answer.body,
                Some(answer) if answer.status == 503 && attempts < 5 => attempts += 1,
                other => panic!("a decide failed for good: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(says(&reply), ("permit", "passed"));
        permits.push(text(&reply, "permit_id").to_owned());
    }
    permits
}

/// Goal: the leadership goes to each node in turn, asked at another one, while clients decide: none of them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leadership_is_handed_to_each_node_under_load() {
    let cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(load(cluster.http.clone(), Arc::clone(&stop)))).collect();
    let mut term = 0;
    for to in [1, 2, 3, 1, 2, 3] {
        let answer = transfer(&cluster, to % 3 + 1, json!({"to": to})).await;
        assert_eq!((answer.status, answer.body["leader_id"].as_u64()), (200, Some(to)), "{}", answer.body);
        assert!(answer.body["term"].as_u64() > Some(term), "{}", answer.body);
        term = answer.body["term"].as_u64().unwrap();
        assert_eq!(cluster.leader().await, to);
        // Once more changes nothing.
        let again = transfer(&cluster, to, json!({"to": to})).await;
        assert_eq!((again.status, again.body["term"].as_u64()), (200, Some(term)), "{}", again.body);
    }
    let before = cluster.leader().await;
    let (code, out, err) = cluster.cli(OPERATE, &["cluster", "transfer-leader"]);
    assert_eq!(code, 0, "{out}{err}");
    let after = cluster.leader().await;
    assert_eq!(out.trim(), format!("node {after} leads"));
    assert_ne!(before, after);
    stop.store(true, Ordering::Relaxed);
    let mut permits = Vec::new();
    for client in clients {
        permits.extend(client.await.unwrap());
    }
    assert!(permits.len() > 20, "{} decides are no load", permits.len());
    assert_eq!(permits.iter().collect::<BTreeSet<_>>().len(), permits.len(), "no permit is given twice");
    cluster.agree(&cluster.ids()).await;
}

/// Goal: over gRPC the leadership is handed over in the same words, and what both doors show of the cluster is alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leadership_is_handed_over_by_grpc() {
    let cluster = Cluster::start(Settings::default()).await;
    let grpc = cluster.grpc();
    let ask = async |at: u64, body: Value| {
        cluster
            .until("node that knows the leader", async || {
                let answer = grpc.try_call_at(at, "POST", "/v1/cluster/leader", OPERATE, Some(&body)).await?;
                (text(&answer.body, "code") != "unavailable").then_some(answer)
            })
            .await
    };
    for to in [1, 2, 3] {
        let answer = ask(to % 3 + 1, json!({"to": to})).await;
        assert_eq!((answer.status, answer.body["leader_id"].as_u64()), (200, Some(to)), "{}", answer.body);
    }
    let answer = ask(2, json!({})).await;
    assert!(answer.status == 200 && answer.body["leader_id"].as_u64() != Some(3), "{}", answer.body);
    let refused = ask(1, json!({"to": 9})).await;
    assert_eq!((refused.status, text(&refused.body, "code")), (409, "conflict"), "{}", refused.body);
    assert!(text(&refused.body, "detail").contains("node 9 is not a voter"), "{}", refused.body);
    // A node knows of the others' clocks once it has heard them.
    let trusting = async || {
        let view = grpc.try_call_at(1, "GET", "/v1/cluster", OPERATE, None).await.unwrap().body;
        (text(&view["clock"], "state") == "trusted").then_some(view)
    };
    let view = cluster.until("a trusted clock", trusting).await;
    assert_eq!(view["clock"]["bound_ms"].as_u64(), Some(1000), "{view}");
    let http = cluster.view(1).await.unwrap();
    assert_eq!((&view["version"], &view["log_format"]), (&http["version"], &http["log_format"]));
    for id in [1, 2] {
        let heard = &view["members"][id]["heard"];
        assert!(heard["ago_ms"].as_u64() < Some(5_000) && heard["version"] == view["version"], "{view}");
    }
}

/// Goal: nobody is made leader who does not vote or does not answer; the old leader goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_that_cannot_be_taken_is_not_handed_over() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let fourth = cluster.add_member();
    let body = json!({"id": fourth, "addresses": cluster.addresses(fourth)});
    cluster.http.done("POST", "/v1/cluster/members", OPERATE, Some(&body)).await;
    for to in [0, fourth, 9] {
        let answer = transfer(&cluster, 2, json!({"to": to})).await;
        assert_eq!((answer.status, text(&answer.body, "code")), (409, "conflict"), "{}", answer.body);
        assert!(text(&answer.body, "detail").contains("not a voter"), "{}", answer.body);
    }
    let gone = cluster.ids().into_iter().find(|id| *id != leader && *id != fourth).unwrap();
    cluster.kill(gone);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let answer = transfer(&cluster, leader, json!({"to": gone})).await;
    assert_eq!((answer.status, text(&answer.body, "code")), (409, "conflict"), "{}", answer.body);
    assert!(text(&answer.body, "detail").contains("does not answer"), "{}", answer.body);
    assert_eq!(cluster.leader().await, leader);
    work_at(&cluster, leader, 5).await;
    // The leader chooses the one that is left, which answers although nothing happens.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = transfer(&cluster, leader, json!({})).await;
    let next = answer.body["leader_id"].as_u64().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(![leader, gone, fourth].contains(&next), "{}", answer.body);
    work_at(&cluster, next, 5).await;
    cluster.spawn(gone);
    cluster.agree(&cluster.ids()).await;
}

/// Goal: a node that is a whole cluster by itself stays healthy while nothing happens, longer than an election takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_is_its_own_quorum() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(2) {
        let answer = cluster.http.call("GET", "/v1/health", OPERATE, None).await;
        assert_eq!((answer.status, text(&answer.body, "status")), (200, "serving"), "{}", answer.body);
    }
    assert!(cluster.http.decides(1).await);
}
