//! An HTTP client to all nodes of a cluster: calls go round, so every case is also a case of forwarding.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{A1, P1, POLICY};

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

#[derive(Debug)]
pub struct Http {
    client: reqwest::Client,
    bases: Vec<String>,
    next: AtomicUsize,
}

impl Http {
    pub fn new(bases: Vec<String>, ca: Option<&Path>) -> Self {
        // The first client of this process installs it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder().timeout(Duration::from_secs(20)).no_proxy();
        if let Some(path) = ca {
            let pem = std::fs::read(path).unwrap();
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem).unwrap());
        }
        Self { client: builder.build().unwrap(), bases, next: AtomicUsize::new(0) }
    }

    pub fn add(&mut self, base: String) {
        self.bases.push(base);
    }

    pub fn bases(&self) -> &[String] {
        &self.bases
    }

    /// Bytes to one node; `None` when no answer came.
    pub async fn try_bytes_at(
        &self,
        id: u64,
        method: &str,
        path: &str,
        token: &str,
        body: Option<Vec<u8>>,
        content_type: &str,
    ) -> Option<Answer> {
        let url = format!("{}{path}", self.bases[id as usize - 1]);
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, url);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", content_type).body(body);
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
        let body = body.map(|body| body.to_string().into_bytes());
        self.try_bytes_at(id, method, path, token, body, "application/json").await
    }

    /// The node whose turn it is.
    pub fn turn(&self) -> u64 {
        (self.next.fetch_add(1, Ordering::Relaxed) % self.bases.len()) as u64 + 1
    }

    pub async fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Answer {
        let id = self.turn();
        self.try_call_at(id, method, path, token, body).await.unwrap_or_else(|| panic!("node {id} gave no answer"))
    }

    pub async fn get(&self, path: &str, token: &str) -> Value {
        let answer = self.call("GET", path, token, None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    pub async fn decide_bytes(&self, token: &str, body: &[u8]) -> Value {
        let id = self.turn();
        let answer = self
            .try_bytes_at(id, "POST", "/v1/decide", token, Some(body.to_vec()), "application/json")
            .await
            .expect("an answer");
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
        let answer = self.call("POST", "/v1/report", token, Some(body)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    pub async fn resolve(&self, token: &str, approval: &str, verb: &str) -> Answer {
        self.call("POST", &format!("/v1/approvals/{approval}/{verb}"), token, None).await
    }

    pub async fn grant(&self, approval: &str) {
        let answer = self.resolve(A1, approval, "grant").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    pub async fn publish(&self, document: &str) -> Answer {
        let body = Some(document.as_bytes().to_vec());
        let id = self.turn();
        self.try_bytes_at(id, "POST", "/v1/policies", POLICY, body, "application/yaml").await.expect("an answer")
    }

    /// Whether a node answers a decide; the body is one that no policy names.
    pub async fn decides(&self, id: u64) -> bool {
        let body = super::request("harness.probe", serde_json::json!({}));
        let answer = self.try_call_at(id, "POST", "/v1/decide", P1, Some(&body)).await;
        answer.is_some_and(|answer| answer.status == 200)
    }
}
