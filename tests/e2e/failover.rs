//! What survives when processes die: AADP §23.3 cases 45 to 47, and the leader killed fifty times under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Client, Cluster, OPERATE, P1, Settings, random, report, request, says, text};

/// Budgets that a run reaches, so that conservation is put to the test, and ones that it does not.
const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 2h }
budgets:
  small: { kind: value, unit: EUR, limit: "100", window: month }
  large: { kind: value, unit: EUR, limit: "100000000", window: month }
  calls: { kind: rate, limit: 100000000, window: month }
policies:
  - { action_type: pay.small, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [small, calls], bounds: { required: [amount_eur] } }
  - { action_type: pay.large, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [large, calls], bounds: { required: [amount_eur] } }
  - { action_type: pay.back, tier: 1, dry_run: false, compensating_command: pay.back, bounds: { strict_params: false } }
"#;

/// What a client knows about one permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Never reported.
    Open,
    /// A report was sent and no answer came.
    Unknown,
    /// A report was accepted.
    Reported,
}

/// Between two attempts of a client that got no answer.
const BACKOFF: Duration = Duration::from_millis(20);

/// Asks until there is an answer: the same body, any node.
async fn for_certain(http: &Client, path: &str, body: &Value) -> Value {
    loop {
        let id = http.turn();
        match http.try_call_at(id, "POST", path, P1, Some(body)).await {
            Some(answer) if answer.status == 200 => return answer.body,
            Some(answer) if answer.status != 503 => panic!("{path} answered {}: {}", answer.status, answer.body),
            _ => tokio::time::sleep(BACKOFF).await,
        }
    }
}

async fn decide_for_certain(http: &Client, body: &Value) -> Value {
    for_certain(http, "/v1/decide", body).await
}

/// Reports until there is an answer, accepted or not.
async fn report_for_certain(http: &Client, permit: &str) -> Value {
    for_certain(http, "/v1/report", &report(permit, "success")).await
}

async fn every_intent(http: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = http.get(&format!("/v1/intents?limit=1000{after}"), OPERATE).await;
        all.extend(page["intents"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

async fn consumed(http: &Client, name: &str) -> u64 {
    let budgets = http.get("/v1/budgets", OPERATE).await;
    let found = budgets["budgets"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
    text(&found, "consumed").parse().unwrap()
}

/// Goal: fifty leaders die at random moments under load; every permit that a client received is reportable exactly
/// once, no budget exceeds its limit, the open intents are exactly the permits without a report, and all nodes agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_leaders_are_killed_under_load() {
    const KILLS: usize = 50;
    const CLIENTS: usize = 12;
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let http = Arc::new(Client::new(cluster.http.bases().to_vec(), None));
    let stop = Arc::new(AtomicBool::new(false));
    let permits: Arc<Mutex<BTreeMap<String, (String, Known)>>> = Arc::default();
    let denied = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (http, stop, permits, denied) =
                (Arc::clone(&http), Arc::clone(&stop), Arc::clone(&permits), Arc::clone(&denied));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let action = if random(4) == 0 { "pay.small" } else { "pay.large" };
                    let body = request(action, json!({"amount_eur": "1"}));
                    let reply = decide_for_certain(&http, &body).await;
                    let permit = text(&reply, "permit_id").to_owned();
                    match says(&reply) {
                        ("permit", "passed") => {}
                        ("deny", "cap_eur_month") if action == "pay.small" => {
                            denied.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        other => panic!("{other:?} {reply}"),
                    }
                    let known = match random(3) {
                        0 => Known::Open,
                        _ => {
                            let id = http.turn();
                            match http
                                .try_call_at(id, "POST", "/v1/report", P1, Some(&report(&permit, "success")))
                                .await
                            {
                                Some(answer) if answer.status == 200 => {
                                    assert_eq!(answer.body["accepted"], true, "the first report: {}", answer.body);
                                    Known::Reported
                                }
                                _ => Known::Unknown,
                            }
                        }
                    };
                    let before = permits.lock().unwrap().insert(permit.clone(), (action.to_owned(), known));
                    assert_eq!(before, None, "permit {permit} was given twice");
                }
            })
        })
        .collect();
    for kill in 0..KILLS {
        let leader = cluster.leader().await;
        tokio::time::sleep(Duration::from_millis(random(300))).await;
        cluster.kill(leader);
        if kill % 2 == 0 {
            // Every second time the dead leader stays away until there is a new one.
            cluster.leader().await;
        }
        cluster.spawn(leader);
    }
    cluster.leader().await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    cluster.leader().await;
    cluster.agree(&cluster.ids()).await;

    let permits = std::mem::take(&mut *permits.lock().unwrap());
    let count = |wanted: Known| permits.values().filter(|(_, known)| *known == wanted).count();
    println!(
        "{KILLS} kills: {} permits ({} reported, {} open, {} with a lost answer), {} denied by a used-up budget",
        permits.len(),
        count(Known::Reported),
        count(Known::Open),
        count(Known::Unknown),
        denied.load(Ordering::Relaxed)
    );
    assert!(permits.len() > 500 && denied.load(Ordering::Relaxed) > 0, "the load was no load");

    // The open intents are exactly the permits without a report; a lost answer may be either.
    let open: Vec<String> = every_intent(&http).await.iter().map(|one| text(one, "permit_id").to_owned()).collect();
    for permit in &open {
        let (_, known) = permits.get(permit).unwrap_or_else(|| panic!("{permit} is open and no client received it"));
        assert_ne!(*known, Known::Reported, "{permit} is listed and was reported");
    }
    for (permit, (_, known)) in &permits {
        assert!(*known != Known::Open || open.contains(permit), "{permit} is open and not listed");
    }

    // Counters: every permit is one amount, settled or reserved, and the limit holds.
    let drawn = |action: &str| permits.values().filter(|(of, _)| of == action).count() as u64;
    assert_eq!(consumed(&http, "small").await, drawn("pay.small"));
    assert_eq!(consumed(&http, "large").await, drawn("pay.large"));
    assert!(drawn("pay.small") <= 100);
    assert_eq!(consumed(&http, "calls").await, permits.len() as u64);

    // Every permit takes exactly one report.
    for (permit, (_, known)) in &permits {
        let first = report_for_certain(&http, permit).await;
        match known {
            Known::Open => assert_eq!(first["accepted"], true, "{permit}: {first}"),
            Known::Reported => assert_eq!(text(&first, "reason"), "x-placet.already_reported", "{permit}"),
            Known::Unknown => {
                assert!(first["accepted"] == true || text(&first, "reason") == "x-placet.already_reported")
            }
        }
        let second = report_for_certain(&http, permit).await;
        assert_eq!((&second["accepted"], text(&second, "reason")), (&json!(false), "x-placet.already_reported"));
    }
    assert!(every_intent(&http).await.is_empty());
    cluster.agree(&cluster.ids()).await;
    for id in cluster.ids() {
        assert!(!cluster.exited(id), "node {id} stopped by itself:\n{}", cluster.log(id));
    }
}

/// Goal: case 45. Every process dies right after the permit left; afterwards there is exactly one intent without a
/// result, its reservation stands, and the permit is reportable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_045_every_process_dies_right_after_the_permit() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let body = request("pay.small", json!({"amount_eur": "60"}));
    let reply = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&body)).await.unwrap().body;
    for id in cluster.ids() {
        cluster.kill(id);
    }
    for id in cluster.ids() {
        cluster.spawn(id);
    }
    cluster.leader().await;
    let intents = every_intent(&cluster.http).await;
    assert_eq!(intents.len(), 1);
    assert_eq!(intents[0]["permit_id"], reply["permit_id"]);
    assert_eq!(consumed(&cluster.http, "small").await, 60);
    assert_eq!(report_for_certain(&cluster.http, text(&reply, "permit_id")).await["accepted"], true);
    assert!(every_intent(&cluster.http).await.is_empty());
}

/// Goal: case 46. Without a majority no evidence can be durable: no permit is returned, and afterwards no counter has
/// moved more than the one decision under this request id allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_046_without_a_majority_there_is_no_permit() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id);
    }
    let body = request("pay.small", json!({"amount_eur": "60"}));
    let answer = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&body)).await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.get("verdict").is_none() && answer.body.get("permit_id").is_none());
    assert!(matches!(text(&answer.body, "code"), "unknown" | "unavailable"));
    for id in &others {
        cluster.spawn(*id);
    }
    cluster.leader().await;
    // The same request id has one answer, whatever became of the first attempt.
    let reply = decide_for_certain(&cluster.http, &body).await;
    assert_eq!(says(&reply), ("permit", "passed"));
    assert_eq!(consumed(&cluster.http, "small").await, 60);
}

/// Goal: a request refused for want of a majority and never asked again leaves no half of a decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_047_intent_and_reservation_are_both_there_or_neither() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    for _ in 0..5 {
        let leader = cluster.leader().await;
        let bodies: Vec<Value> = (0..8).map(|_| request("pay.large", json!({"amount_eur": "7"}))).collect();
        let calls: Vec<_> =
            bodies.iter().map(|body| cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(body))).collect();
        let sent = tokio::time::timeout(Duration::from_millis(random(6)), futures::future::join_all(calls)).await;
        drop(sent);
        cluster.kill(leader);
        cluster.spawn(leader);
    }
    cluster.leader().await;
    let intents = every_intent(&cluster.http).await;
    assert_eq!(consumed(&cluster.http, "large").await, 7 * intents.len() as u64);
    assert_eq!(consumed(&cluster.http, "calls").await, intents.len() as u64);
    cluster.agree(&cluster.ids()).await;
}
