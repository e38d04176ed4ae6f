//! Planned stops: not ready first, then the leadership, then the doors; and no caller that asks again loses anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, Cluster, OPERATE, P1, Settings, request, says, text};

const POLICY: &str = "apiVersion: placet/v1\npolicies:\n  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, bounds: { strict_params: false } }\n";

/// What clients saw.
#[derive(Debug, Default)]
struct Tally {
    /// Attempts without an answer, and answers 503.
    cut: AtomicU64,
    unavailable: AtomicU64,
    slowest_ms: AtomicU64,
}

/// Decides until told to stop, each request under one id until it has an answer; returns the permits.
async fn load(http: Client, stop: Arc<AtomicBool>, tally: Arc<Tally>) -> Vec<String> {
    let mut permits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let body = request("act", json!({}));
        let begun = Instant::now();
        let mut attempts = 0;
        let reply = loop {
            match http.try_call_at(http.turn(), "POST", "/v1/decide", P1, Some(&body)).await {
                Some(answer) if answer.status == 200 => break answer.body,
                Some(answer) => {
                    assert_eq!(answer.status, 503, "{}", answer.body);
                    tally.unavailable.fetch_add(1, Ordering::Relaxed);
                }
                None => drop(tally.cut.fetch_add(1, Ordering::Relaxed)),
            }
            attempts += 1;
            assert!(attempts < 100, "a decide failed for good: {body}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        tally.slowest_ms.fetch_max(u64::try_from(begun.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
        assert_eq!(says(&reply), ("permit", "passed"));
        permits.push(text(&reply, "permit_id").to_owned());
    }
    permits
}

async fn health(cluster: &Cluster, id: u64) -> Option<(u16, Value)> {
    let answer = cluster.http.try_call_at(id, "GET", "/v1/health", OPERATE, None).await?;
    Some((answer.status, answer.body))
}

/// Goal: every node in turn, leader or not, is told to stop under load. It says "not ready" while it still answers, hands
/// the leadership over before its doors close, ends by itself with success and in time, and no caller that asks again
/// with the same request_id is without its one permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_costs_no_call() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let (stop, tally) = (Arc::new(AtomicBool::new(false)), Arc::new(Tally::default()));
    let clients: Vec<_> =
        (0..6).map(|_| tokio::spawn(load(cluster.http.clone(), Arc::clone(&stop), Arc::clone(&tally)))).collect();
    let mut took = Vec::new();
    // The leader twice, then whoever is not.
    for leads in [true, true, false, false] {
        let leader = cluster.leader().await;
        let id = if leads { leader } else { leader % 3 + 1 };
        cluster.signal(id, "TERM");
        let status = cluster
            .until("not ready", async || {
                let (code, body) = health(&cluster, id).await?;
                (code == 503).then(|| text(&body, "status").to_owned())
            })
            .await;
        assert_eq!(status, "stopping");
        // It answers what still comes: two seconds by default.
        let body = request("act", json!({}));
        let answer = cluster.http.try_call_at(id, "POST", "/v1/decide", P1, Some(&body)).await.unwrap();
        assert_eq!((answer.status, says(&answer.body)), (200, ("permit", "passed")), "{}", answer.body);
        let view = cluster
            .until("another leader while it drains", async || {
                let view = cluster.view(id).await?;
                view["leader_id"].as_u64().is_some_and(|leader| leader != id).then_some(view)
            })
            .await;
        assert_eq!(view["node_id"].as_u64(), Some(id), "told by the one that stops");
        let (code, elapsed) = cluster.drained(id).await;
        assert_eq!(code, Some(0), "{}", cluster.log(id));
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
        took.push(elapsed);
        cluster.spawn(id);
        cluster.until("its return", async || (health(&cluster, id).await?.0 == 200).then_some(())).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut permits = Vec::new();
    for client in clients {
        permits.extend(client.await.unwrap());
    }
    println!("{} permits, {tally:?}, drains took {took:?}", permits.len());
    assert!(permits.len() > 100, "{} decides are no load", permits.len());
    assert_eq!(permits.iter().collect::<BTreeSet<_>>().len(), permits.len(), "no permit is given twice");
    cluster.leader().await;
    cluster.agree(&cluster.ids()).await;
}

/// Goal: a second signal ends the drain at once, and what was answered is there afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_stops_at_once() {
    let mut cluster = Cluster::start(Settings { drain_ms: Some(60_000), ..Settings::default() }).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let body = request("act", json!({}));
    let answer = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&body)).await.unwrap();
    assert_eq!(answer.status, 200);
    cluster.signal(leader, "TERM");
    cluster.until("not ready", async || (health(&cluster, leader).await?.0 == 503).then_some(())).await;
    cluster.signal(leader, "TERM");
    let (code, elapsed) = cluster.drained(leader).await;
    assert_eq!(code, Some(1), "{}", cluster.log(leader));
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    assert!(cluster.log(leader).contains("stopped at once by a second signal, SIGTERM"), "{}", cluster.log(leader));
    cluster.spawn(leader);
    cluster.leader().await;
    let again = cluster
        .until("the same answer", async || {
            let answer = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&body)).await?;
            (answer.status == 200).then_some(answer.body)
        })
        .await;
    assert_eq!(again["permit_id"], answer.body["permit_id"]);
}
