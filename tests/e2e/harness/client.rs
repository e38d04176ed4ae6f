//! One client for all doors of a cluster: the same calls and the same answers, whichever way they go. Calls go round
//! the nodes, so every case is also a case of forwarding.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::grpc::GrpcDoor;
use super::unix::Relay;
use super::{A1, P1, POLICY};

/// How a node is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Http,
    Grpc,
    Unix,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// A call in the words of the HTTP door.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub token: &'a str,
    pub body: Option<Vec<u8>>,
    pub media: &'a str,
    /// `If-Match`.
    pub expect: Option<&'a str>,
    /// JSON text that takes the place of the body's `params`.
    pub params: Option<&'a str>,
}

impl<'a> Call<'a> {
    pub fn new(method: &'a str, path: &'a str, token: &'a str) -> Self {
        Self { method, path, token, body: None, media: "application/json", expect: None, params: None }
    }

    pub fn json(self, body: &Value) -> Self {
        Self { body: Some(body.to_string().into_bytes()), ..self }
    }

    pub fn bytes(self, body: &[u8], media: &'a str) -> Self {
        Self { body: Some(body.to_vec()), media, ..self }
    }

    /// The body as it goes over HTTP.
    fn spliced(&self) -> Option<Vec<u8>> {
        let (Some(params), Some(body)) = (self.params, &self.body) else { return self.body.clone() };
        let mut members: Value = serde_json::from_slice(body).unwrap();
        members["params"] = Value::String("@".to_owned());
        Some(members.to_string().replacen("\"@\"", params, 1).into_bytes())
    }
}

#[derive(Clone, Debug)]
enum Way {
    Http { client: reqwest::Client, bases: Vec<String> },
    Grpc(GrpcDoor),
    Unix { client: reqwest::Client, relay: Arc<Relay> },
}

#[derive(Debug)]
pub struct Client {
    way: Way,
    next: AtomicUsize,
}

impl Clone for Client {
    /// The same connections, with turns of its own.
    fn clone(&self) -> Self {
        Self { way: self.way.clone(), next: AtomicUsize::new(self.next.load(Ordering::Relaxed)) }
    }
}

fn http_client(ca: Option<&Path>) -> reqwest::Client {
    // The first client of this process installs it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(20)).no_proxy();
    if let Some(path) = ca {
        let pem = std::fs::read(path).unwrap();
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap());
    }
    builder.build().unwrap()
}

impl Client {
    fn through(way: Way) -> Self {
        Self { way, next: AtomicUsize::new(0) }
    }

    pub fn new(bases: Vec<String>, ca: Option<&Path>) -> Self {
        Self::through(Way::Http { client: http_client(ca), bases })
    }

    pub fn grpc(ports: &[u16]) -> Self {
        Self::through(Way::Grpc(GrpcDoor::new(ports)))
    }

    pub fn unix(relay: Relay) -> Self {
        Self::through(Way::Unix { client: http_client(None), relay: Arc::new(relay) })
    }

    pub fn door(&self) -> Door {
        match self.way {
            Way::Http { .. } => Door::Http,
            Way::Grpc(_) => Door::Grpc,
            Way::Unix { .. } => Door::Unix,
        }
    }

    /// One more node, on the HTTP door.
    pub fn add(&mut self, base: String) {
        match &mut self.way {
            Way::Http { bases, .. } => bases.push(base),
            _ => panic!("nodes are added to the HTTP client"),
        }
    }

    pub fn bases(&self) -> &[String] {
        match &self.way {
            Way::Http { bases, .. } => bases,
            _ => panic!("only the HTTP client has base URLs"),
        }
    }

    /// A node's gRPC door, for streams.
    pub fn channel(&self, id: u64) -> tonic::transport::Channel {
        match &self.way {
            Way::Grpc(door) => door.channel(id),
            _ => panic!("only the gRPC client has channels"),
        }
    }

    fn nodes(&self) -> usize {
        match &self.way {
            Way::Http { bases, .. } => bases.len(),
            Way::Grpc(door) => door.nodes(),
            Way::Unix { relay, .. } => relay.nodes(),
        }
    }

    /// A call to one node; `None` when no answer came.
    pub async fn send(&self, id: u64, call: &Call<'_>) -> Option<Answer> {
        let (client, url, token) = match &self.way {
            Way::Grpc(door) => return door.send(id, call).await,
            Way::Http { client, bases } => {
                (client, format!("{}{}", bases[id as usize - 1], call.path), Some(call.token))
            }
            // The connection is the identity.
            Way::Unix { client, relay } => (client, format!("{}{}", relay.base(id, call.token), call.path), None),
        };
        let mut request = client.request(reqwest::Method::from_bytes(call.method.as_bytes()).unwrap(), url);
        if let Some(token) = token.filter(|token| !token.is_empty()) {
            request = request.bearer_auth(token);
        }
        if let Some(digest) = call.expect {
            request = request.header("if-match", format!("\"{digest}\""));
        }
        if let Some(body) = call.spliced() {
            request = request.header("content-type", call.media).body(body);
        }
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let bytes = response.bytes().await.ok()?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Some(Answer { status, body })
    }

    pub async fn try_call_at(
        &self,
        id: u64,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let call = Call::new(method, path, token);
        self.send(id, &if let Some(body) = body { call.json(body) } else { call }).await
    }

    /// The node whose turn it is.
    pub fn turn(&self) -> u64 {
        (self.next.fetch_add(1, Ordering::Relaxed) % self.nodes()) as u64 + 1
    }

    /// A call to the next node.
    pub async fn ask(&self, call: Call<'_>) -> Answer {
        let id = self.turn();
        self.send(id, &call)
            .await
            .unwrap_or_else(|| panic!("node {id} gave no answer to {} {}", call.method, call.path))
    }

    pub async fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Answer {
        let call = Call::new(method, path, token);
        self.ask(if let Some(body) = body { call.json(body) } else { call }).await
    }

    /// The same, when it must succeed.
    pub async fn done(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Value {
        let answer = self.call(method, path, token, body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.body
    }

    pub async fn get(&self, path: &str, token: &str) -> Value {
        self.done("GET", path, token, None).await
    }

    pub async fn decide_bytes(&self, token: &str, body: &[u8]) -> Value {
        let answer = self.ask(Call::new("POST", "/v1/decide", token).bytes(body, "application/json")).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// Decides with `params` as this text, which need not be JSON.
    pub async fn decide_text(&self, token: &str, body: &Value, params: &str) -> Value {
        let call = Call { params: Some(params), ..Call::new("POST", "/v1/decide", token).json(body) };
        let answer = self.ask(call).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    pub async fn decide_as(&self, token: &str, body: &Value) -> Value {
        self.decide_bytes(token, body.to_string().as_bytes()).await
    }

    pub async fn decide(&self, body: &Value) -> Value {
        self.decide_as(P1, body).await
    }

    pub async fn report_as(&self, token: &str, body: &Value) -> Value {
        self.done("POST", "/v1/report", token, Some(body)).await
    }

    pub async fn resolve(&self, token: &str, approval: &str, verb: &str) -> Answer {
        self.call("POST", &format!("/v1/approvals/{approval}/{verb}"), token, None).await
    }

    pub async fn grant(&self, approval: &str) {
        let answer = self.resolve(A1, approval, "grant").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    pub async fn publish(&self, document: &str) -> Answer {
        self.ask(Call::new("POST", "/v1/policies", POLICY).bytes(document.as_bytes(), "application/yaml")).await
    }

    /// Whether a node answers a decide; the body is one that no policy names.
    pub async fn decides(&self, id: u64) -> bool {
        let body = super::request("harness.probe", serde_json::json!({}));
        let answer = self.try_call_at(id, "POST", "/v1/decide", P1, Some(&body)).await;
        answer.is_some_and(|answer| answer.status == 200)
    }

    /// Every page of a listing, read by the one who may.
    pub async fn every(&self, token: &str, path: &str, name: &str) -> Vec<Value> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("{path}{joint}limit=1000{after}"), token).await;
            all.extend(page[name].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", escaped(next)),
                None => return all,
            }
        }
    }
}

/// Text in a query string.
pub fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b if b.is_ascii_alphanumeric() || b"-_.".contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}
