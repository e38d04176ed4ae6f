//! The HTTP client of the operator commands: any node, the first that answers.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Certificate, Method, StatusCode};
use serde_json::Value;

use crate::cli::{Target, exit};

/// Longer than a node waits for its cluster by default, so that its own answer arrives.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longest that a stream may be silent.
const SILENCE: Duration = Duration::from_secs(60);

/// Longest that a stream may take.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Whose credential a command needs when none is given.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Decide,
    Approve,
    Operate,
    Policy,
    Audit,
}

impl Role {
    fn variable(self) -> &'static str {
        match self {
            Self::Decide => "PLACET_DECIDE_TOKEN",
            Self::Approve => "PLACET_APPROVE_TOKEN",
            Self::Operate => "PLACET_OPERATE_TOKEN",
            Self::Policy => "PLACET_POLICY_TOKEN",
            Self::Audit => "PLACET_AUDIT_TOKEN",
        }
    }
}

/// A command that did not succeed, with the exit code for scripts.
#[derive(Debug)]
pub struct Refused {
    pub code: u8,
    pub text: String,
    /// What the node answered, for `--output json`.
    pub body: Option<Value>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}

#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    nodes: Vec<String>,
    token: Option<String>,
}

/// One request.
#[derive(Debug)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub body: Option<Vec<u8>>,
    pub content_type: &'static str,
    pub if_match: Option<String>,
}

impl Request {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, content_type: "", if_match: None }
    }

    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::post_bytes(path, body.to_string().into_bytes(), "application/json")
    }

    pub fn post_bytes(path: impl Into<String>, body: Vec<u8>, content_type: &'static str) -> Self {
        Self { method: Method::POST, path: path.into(), body: Some(body), content_type, if_match: None }
    }
}

/// The bearer token of a command: the one that is given, or that of its role.
pub fn credential(target: &Target, role: Role) -> Option<String> {
    target.token.clone().or_else(|| std::env::var(role.variable()).ok())
}

impl Client {
    pub fn new(target: &Target, role: Role) -> anyhow::Result<Self> {
        let mut builder = reqwest::Client::builder().timeout(TIMEOUT).connect_timeout(Duration::from_secs(3));
        // A proxy has no business between an operator and this machine.
        if target.node.split(',').all(|node| is_loopback(node.trim())) {
            builder = builder.no_proxy();
        }
        if let Some(path) = &target.ca {
            let pem = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let certificates = Certificate::from_pem_bundle(&pem)
                .with_context(|| format!("`{}` holds no certificate in PEM", path.display()))?;
            builder = builder.tls_certs_only(certificates);
        }
        let nodes: Vec<String> = target
            .node
            .split(',')
            .map(|node| node.trim().trim_end_matches('/').to_owned())
            .filter(|n| !n.is_empty())
            .collect();
        if let Some(node) = nodes.iter().find(|node| !node.starts_with("http://") && !node.starts_with("https://")) {
            anyhow::bail!("`{node}` is not a URL such as http://127.0.0.1:7101");
        }
        anyhow::ensure!(!nodes.is_empty(), "--node names no address");
        Ok(Self { http: builder.build()?, nodes, token: credential(target, role) })
    }

    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Sends to the first node that can be reached and returns its answer, if it is a success.
    pub async fn send(&self, request: &Request) -> anyhow::Result<Value> {
        let mut last = None;
        for node in &self.nodes {
            match self.send_to(node, request).await {
                Err(error) if is_unreachable(&error) => last = Some(error),
                answered => return answered,
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node to ask")))
    }

    /// Opens a stream at the first node that can be reached.
    pub async fn stream(&self, path: &str) -> anyhow::Result<Stream> {
        let mut last = None;
        for node in &self.nodes {
            let mut builder = self.http.get(format!("{node}{path}")).timeout(STREAM_TIMEOUT);
            if let Some(token) = &self.token {
                builder = builder.bearer_auth(token);
            }
            match builder.send().await {
                Ok(response) if response.status().is_success() => {
                    return Ok(Stream { node: node.clone(), response });
                }
                Ok(response) => {
                    let status = response.status();
                    let body = response.bytes().await.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                    return Err(refused(status, body.unwrap_or_default()).into());
                }
                Err(error) if error.is_connect() => last = Some(unreachable(node, &error)),
                Err(error) => return Err(unreachable(node, &error)),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node to ask")))
    }

    /// What a node answers in plain text.
    pub async fn text_from(&self, node: &str, path: &str) -> anyhow::Result<String> {
        let mut builder = self.http.get(format!("{node}{path}"));
        if let Some(token) = &self.token {
            builder = builder.bearer_auth(token);
        }
        Ok(builder.send().await?.error_for_status()?.text().await?)
    }

    pub async fn send_to(&self, node: &str, request: &Request) -> anyhow::Result<Value> {
        let mut builder = self.http.request(request.method.clone(), format!("{node}{}", request.path));
        if let Some(token) = &self.token {
            builder = builder.bearer_auth(token);
        }
        if let Some(body) = &request.body {
            builder = builder.header("content-type", request.content_type).body(body.clone());
        }
        if let Some(digest) = &request.if_match {
            builder = builder.header("if-match", digest);
        }
        let response = builder.send().await.map_err(|error| unreachable(node, &error))?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|error| unreachable(node, &error))?;
        let body = serde_json::from_slice(&bytes);
        match body {
            Ok(body) if status.is_success() => Ok(body),
            // Something that is not Placet answered, or half an answer came: not a success.
            Err(_) if status.is_success() => {
                let text = format!("{node} did not answer with JSON; it may have acted");
                Err(Refused { code: exit::FAILED, text, body: Some(Value::Null) }.into())
            }
            // A decide that is too large or of another media type still carries its verdict.
            Ok(body) if body.get("verdict").is_some() => Ok(body),
            body => Err(refused(status, body.unwrap_or_default()).into()),
        }
    }
}

/// An answer that arrives in parts.
#[derive(Debug)]
pub struct Stream {
    node: String,
    response: reqwest::Response,
}

impl Stream {
    /// The next part; `None` at the end. An answer that breaks off is an error, never an end.
    pub async fn next(&mut self) -> anyhow::Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>> {
        let broken = |text: String| Refused { code: exit::UNAVAILABLE, text, body: Some(Value::Null) };
        match tokio::time::timeout(SILENCE, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(broken(format!("{} broke off: {error}", self.node)).into()),
            Err(_) => Err(broken(format!("{} fell silent", self.node)).into()),
        }
    }
}

fn is_loopback(node: &str) -> bool {
    let host = node.split_once("://").map_or(node, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|prefix| host.starts_with(prefix))
}

/// Only a request that never left may go to another node: a lost answer may hide a success, and only a decide may be
/// asked again.
fn is_unreachable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == exit::UNAVAILABLE && refused.body.is_none())
}

fn unreachable(node: &str, error: &reqwest::Error) -> anyhow::Error {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    let body = (!error.is_connect()).then_some(Value::Null);
    let detail = if error.is_connect() { "cannot be reached" } else { "gave no answer; it may have acted" };
    Refused { code: exit::UNAVAILABLE, text: format!("{node} {detail}: {text}"), body }.into()
}

fn refused(status: StatusCode, body: Value) -> Refused {
    let code = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => exit::NOT_ALLOWED,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => exit::UNAVAILABLE,
        status if status.is_client_error() => exit::REFUSED,
        _ => exit::FAILED,
    };
    let word = body.get("code").and_then(Value::as_str).unwrap_or_else(|| status.as_str()).to_owned();
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("{word}: {detail}");
    for mistake in body.get("mistakes").and_then(Value::as_array).into_iter().flatten() {
        let number = |name: &str| mistake.get(name).and_then(Value::as_u64).unwrap_or_default();
        let message = mistake.get("message").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("\n  line {}, column {}: {message}", number("line"), number("column")));
    }
    Refused { code, text, body: Some(body) }
}
