//! One attempt at one node over HTTP. What did not answer is unknown: it may have happened.
//! Absent on purpose: retries. Whoever asks again says so in the journal.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::sandbox::address;

/// The port of every node's HTTP door.
pub const HTTP_PORT: u16 = 7100;

/// What one attempt brought.
#[derive(Clone, Debug)]
pub enum Said {
    /// The node answered with this status and body.
    Answer(u16, Value),
    /// No answer, or one that says that it may have happened.
    Unknown,
    /// The node says that nothing happened.
    Nothing,
}

/// A client of all nodes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Doors {
    http: reqwest::Client,
}

impl Doors {
    /// A client with connections of its own. `patience`: how long one attempt may take.
    pub fn new(folder: &Path, patience: Duration) -> anyhow::Result<Self> {
        // Another part of this process may have installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ca = reqwest::Certificate::from_pem(&std::fs::read(folder.join("ca.pem"))?)?;
        let http = reqwest::Client::builder()
            .tls_certs_only([ca])
            .connect_timeout(Duration::from_millis(700))
            .timeout(patience)
            .no_proxy()
            .build()
            .context("an HTTP client")?;
        Ok(Self { http })
    }

    /// One attempt.
    pub async fn call(&self, node: u64, method: &str, path: &str, token: &str, body: Option<&Value>) -> Said {
        let url = format!("https://{}:{HTTP_PORT}{path}", address(node));
        let Ok(method) = reqwest::Method::from_bytes(method.as_bytes()) else { return Said::Nothing };
        let mut request = self.http.request(method, url);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            let media = if body.is_string() { "application/yaml" } else { "application/json" };
            request = request.header("content-type", media).body(text);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Said::Nothing,
            Err(_) => return Said::Unknown,
        };
        let status = response.status().as_u16();
        let Ok(bytes) = response.bytes().await else { return Said::Unknown };
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        match (status, text(&body, "code")) {
            (503 | 429, "unavailable") => Said::Nothing,
            (500.., _) | (408, _) => Said::Unknown,
            _ => Said::Answer(status, body),
        }
    }

    /// A call that must bring 200; `None` otherwise.
    pub async fn get(&self, node: u64, path: &str, token: &str) -> Option<Value> {
        match self.call(node, "GET", path, token, None).await {
            Said::Answer(200, body) => Some(body),
            _ => None,
        }
    }
}

/// Text of a member; empty when it is not there.
pub fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}
