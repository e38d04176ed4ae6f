//! Approvers' events at an endpoint that answers 500, is not there, hangs, and at last takes them; and the leader that
//! sends them dies meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::{A1, AUDIT, Cluster, OPERATE, P1, Settings, WEBHOOK_SECRET, request, says, text, with};

const POLICY: &str = r#"
apiVersion: placet/v1
budgets: { eur: { kind: value, unit: EUR, limit: "1000", window: day } }
policies:
  - { action_type: lamp, tier: 1, dry_run: false, compensating_command: lamp, bounds: { strict_params: false } }
  - action_type: wire
    tier: 3
    dry_run: false
    cost: { param: amount }
    draws: [eur]
    bounds: { required: [amount] }
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fails,
    Hangs,
    Takes,
}

#[derive(Clone, Debug)]
struct Message {
    id: String,
    timestamp: String,
    signature: String,
    body: Vec<u8>,
    answered: Option<u16>,
}

#[derive(Debug)]
struct Seen {
    mood: Mood,
    messages: Vec<Message>,
}

/// An endpoint with moods.
struct Endpoint {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    listening: Option<JoinHandle<()>>,
}

impl Endpoint {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen { mood: Mood::Fails, messages: Vec::new() }));
        let listening = Some(tokio::spawn(accept(listener, Arc::clone(&seen))));
        Self { port, seen, listening }
    }

    /// Nobody listens any more: connections are refused.
    async fn close(&mut self) {
        let task = self.listening.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    async fn reopen(&mut self, mood: Mood) {
        self.set(mood);
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.listening = Some(tokio::spawn(accept(listener, Arc::clone(&self.seen))));
    }

    fn set(&self, mood: Mood) {
        self.seen.lock().unwrap().mood = mood;
    }

    fn messages(&self) -> Vec<Message> {
        self.seen.lock().unwrap().messages.clone()
    }

    fn taken(&self) -> Vec<Message> {
        self.messages().into_iter().filter(|one| one.answered == Some(200)).collect()
    }
}

async fn accept(listener: TcpListener, seen: Arc<Mutex<Seen>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&seen)));
    }
}

/// One request of one connection.
async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    let Some((head, body)) = read(&mut stream).await else { return };
    let header = |name: &str| {
        let found = head.lines().find_map(|line| line.split_once(": ").filter(|(of, _)| of.eq_ignore_ascii_case(name)));
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    assert!(head.starts_with("POST /hook HTTP/1.1"), "{head}");
    let mood = {
        let mut seen = seen.lock().unwrap();
        let answered = match seen.mood {
            Mood::Fails => Some(500),
            Mood::Hangs => None,
            Mood::Takes => Some(200),
        };
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        seen.messages.push(Message { id, timestamp, signature: header("webhook-signature"), body, answered });
        seen.mood
    };
    let answer: &[u8] = match mood {
        Mood::Fails => b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        Mood::Takes => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        // Until the sender gives up.
        Mood::Hangs => {
            let _ = stream.read(&mut [0; 1]).await;
            return;
        }
    };
    let _ = stream.write_all(answer).await;
}

async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let body = bytes[at + 4..].to_vec();
        if body.len() >= length.unwrap_or(0) {
            return Some((head, body));
        }
    }
}

/// As a receiver of Standard Webhooks checks it.
fn verify(message: &Message) {
    let secret = STANDARD.decode(WEBHOOK_SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
    mac.update(format!("{}.{}.", message.id, message.timestamp).as_bytes());
    mac.update(&message.body);
    let signature = message.signature.strip_prefix("v1,").unwrap();
    mac.verify_slice(&STANDARD.decode(signature).unwrap()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(message.timestamp.parse().unwrap()) < 120, "sent now, not when it happened");
}

async fn propose(cluster: &Cluster, amount: &str) -> Value {
    let body = with(request("wire", json!({"amount": amount})), json!({"rationale": "rent <!channel>"}));
    let reply = cluster.http.decide(&body).await;
    assert_eq!(says(&reply), ("propose", "tier_confirm"));
    reply
}

/// The median of some decides, at the node that leads.
async fn median(cluster: &Cluster, leader: u64) -> Duration {
    let mut times = Vec::new();
    for _ in 0..60 {
        let (begun, body) = (Instant::now(), request("lamp", json!({})));
        let answer = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&body)).await.unwrap();
        assert_eq!(says(&answer.body), ("permit", "passed"));
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

async fn failures(cluster: &Cluster, id: u64) -> u64 {
    let text = cluster.http.try_call_at(id, "GET", "/metrics", OPERATE, None).await.unwrap().body;
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix("placet_webhook_failed_total "));
    line.map_or(0, |count| count.parse().unwrap())
}

/// What approvers should have heard of, by its entry, in order.
async fn expected(cluster: &Cluster) -> Vec<String> {
    let all = cluster.http.every(AUDIT, "/v1/evidence", "evidence").await;
    let news = |one: &&Value| {
        let body = &one["entry"]["body"];
        !body["approval_transition"].is_null()
            || !body["decision"]["approval_id"].is_null()
            || !body["exec_intent"]["resumes"].is_null()
    };
    all.iter().filter(news).map(|one| text(one, "evidence_id").to_owned()).collect()
}

/// Goal: every event arrives at least once and in order, signed, whatever the endpoint does and although the sender dies;
/// decisions do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvers_hear_of_everything_in_order() {
    let mut endpoint = Endpoint::open().await;
    let mut cluster = Cluster::start(Settings { webhook: Some(endpoint.port), ..Settings::default() }).await;
    cluster.publish(POLICY).await;
    let leader = cluster.leader().await;
    let before = median(&cluster, leader).await;

    // It fails, twice with one id; then nobody is there.
    let first = propose(&cluster, "100").await;
    cluster.until("second attempt", async || (endpoint.messages().len() >= 2).then_some(())).await;
    endpoint.close().await;
    let failed = failures(&cluster, leader).await;
    cluster.until("refused attempt", async || (failures(&cluster, leader).await > failed).then_some(())).await;
    let attempts = endpoint.messages();
    assert!(attempts.iter().all(|one| one.id == text(&first, "evidence_id") && one.body == attempts[0].body));

    // It hangs; a queue builds up behind it, and decisions are as fast as before.
    endpoint.reopen(Mood::Hangs).await;
    cluster
        .until("hanging attempt", async || endpoint.messages().iter().any(|one| one.answered.is_none()).then_some(()))
        .await;
    for amount in ["1", "2", "3"] {
        let reply = propose(&cluster, amount).await;
        cluster.http.grant(text(&reply, "approval_id")).await;
    }
    let during = median(&cluster, leader).await;
    println!("median of a decide: {before:?} before, {during:?} while the endpoint hangs");
    assert!(during < before * 3 + Duration::from_millis(20), "{before:?} before, {during:?} while it hangs");

    // The sender dies with everything still to be told.
    assert!(endpoint.taken().is_empty());
    cluster.kill(leader);
    endpoint.set(Mood::Takes);
    let next = cluster.leader().await;
    cluster.until("something delivered", async || (!endpoint.taken().is_empty()).then_some(())).await;
    cluster.spawn(leader);
    cluster.until("all nodes", async || cluster.http.decides(leader).await.then_some(())).await;

    // Again, in the middle of a row of deliveries.
    let mut last = Value::Null;
    for n in 0..12 {
        last = propose(&cluster, &(10 + n).to_string()).await;
        if n == 5 {
            let leader = cluster.leader().await;
            cluster.kill(leader);
            cluster.leader().await;
            cluster.spawn(leader);
            cluster.until("all nodes", async || cluster.http.decides(leader).await.then_some(())).await;
        }
    }
    let answer = cluster.http.resolve(A1, text(&last, "approval_id"), "approve").await;
    assert_eq!(says(&answer.body), ("permit", "passed"));
    let expected = expected(&cluster).await;
    assert!(expected.len() >= 1 + 6 + 12 + 2, "{expected:?}");
    cluster
        .until("every event", async || {
            let ids: BTreeSet<String> = endpoint.taken().into_iter().map(|one| one.id).collect();
            expected.iter().all(|id| ids.contains(id)).then_some(())
        })
        .await;

    // In order: what is told for the first time is newer than everything before it. And nothing else is told.
    let mut told: Vec<String> = Vec::new();
    for message in endpoint.messages() {
        verify(&message);
        if message.answered == Some(200) && !told.contains(&message.id) {
            told.push(message.id);
        }
    }
    assert_eq!(told, expected, "the leaders were {leader} and {next}");
    content(&endpoint.taken(), &first, &last);
}

/// What a human reads, and what a program does.
fn content(taken: &[Message], first: &Value, last: &Value) {
    let of = |reply: &Value, kind: &str| -> Value {
        let bodies = taken.iter().map(|one| serde_json::from_slice::<Value>(&one.body).unwrap());
        let about =
            |body: &Value| body["data"]["approval"]["approval_id"] == reply["approval_id"] && body["type"] == kind;
        bodies.into_iter().find(about).unwrap_or_else(|| panic!("no {kind} about {reply}"))
    };
    let proposed = of(first, "approval.proposed");
    let approval = &proposed["data"]["approval"];
    assert_eq!((text(approval, "proposer"), text(approval, "reason")), ("P1", "tier_confirm"));
    assert_eq!((text(approval, "cost"), text(approval, "rationale")), ("100", "rent <!channel>"));
    let budget = &approval["budgets"][0];
    assert_eq!((text(budget, "name"), text(budget, "limit"), text(budget, "remaining")), ("eur", "1000", "1000"));
    let deadline = text(approval, "deadline");
    for part in
        ["`P1`", "rent &lt;!channel&gt;", "tier_confirm", "cost: 100", "left in eur: 1000 of 1000 EUR", deadline]
    {
        assert!(text(&proposed, "text").contains(part), "{part}: {proposed}");
    }
    assert_eq!(proposed["data"]["evidence_id"], first["evidence_id"]);
    for (kind, by) in [("approval.proposed", "P1"), ("approval.granted", "A1"), ("approval.consumed", "P1")] {
        assert_eq!(text(&of(last, kind)["data"], "by"), by, "{kind}");
    }
}
