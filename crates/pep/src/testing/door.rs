//! The HTTP door of the decision point in this process (AADP §15.1): the routes that an enforcement point calls, and
//! the faults on them.
//! Absent on purpose: limits and roles; the server's door has them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::response::Response;
use axum::serve::Listener;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Fault, Shared, lock};
use crate::limits::ANSWER_BYTES_MAX;

/// Serves until `stop` turns true. With a token, that is the credential; without, the connection is, and a token beside
/// it is one too many.
pub(super) fn open<L>(
    listener: L,
    token: Option<&'static str>,
    shared: Arc<Mutex<Shared>>,
    mut stop: watch::Receiver<bool>,
) -> JoinHandle<()>
where
    L: Listener,
    L::Addr: std::fmt::Debug,
{
    let routes = Router::new().fallback(answer).with_state((token, shared));
    tokio::spawn(async move {
        let stopped = async move {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "the door broke");
        }
    })
}

type Door = (Option<&'static str>, Arc<Mutex<Shared>>);

async fn answer(State((expected, shared)): State<Door>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let presented = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default().to_owned());
    let Ok(body) = axum::body::to_bytes(request.into_body(), ANSWER_BYTES_MAX).await else {
        return say(StatusCode::PAYLOAD_TOO_LARGE, error("too_large", "the body is too large"));
    };
    if presented != expected.map(|token| format!("Bearer {token}")) {
        return say(StatusCode::UNAUTHORIZED, error("unauthenticated", "no such token"));
    }
    let fault = {
        let mut shared = lock(&shared);
        let seen = serde_json::from_slice(&body).unwrap_or(Value::Null);
        shared.received.entry(path.clone()).or_default().push(seen);
        shared.faults.get_mut(&path).and_then(std::collections::VecDeque::pop_front)
    };
    if let Some(Fault::Answer { status, body }) = fault {
        return raw(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body.into());
    }
    let response = carry_out(&shared, &path, &body);
    match fault {
        Some(Fault::LoseAnswer) => {
            let torn = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("lost"))]);
            raw(StatusCode::OK, Body::from_stream(torn))
        }
        Some(Fault::Hang) => std::future::pending().await,
        _ => response,
    }
}

fn carry_out(shared: &Mutex<Shared>, path: &str, body: &Bytes) -> Response {
    let mut shared = lock(shared);
    let answer = match path {
        "/v1/decide" => shared.judge.decide(body.to_vec()).map(|mut decision| {
            if let Some(rewrite) = &shared.rewrite {
                rewrite(&mut decision);
            }
            decision
        }),
        "/v1/report" => shared.judge.report(body.to_vec()),
        "/v1/permits/check" => shared.judge.check(body),
        "/v1/static" => shared.judge.static_list(),
        "/v1/local" => shared.judge.take_local(body),
        _ => return say(StatusCode::NOT_FOUND, error("not_found", "no such route")),
    };
    match answer {
        Ok(answer) => say(StatusCode::OK, answer),
        Err(detail) => say(StatusCode::SERVICE_UNAVAILABLE, error("unavailable", &detail)),
    }
}

fn error(code: &str, detail: &str) -> Value {
    json!({ "code": code, "detail": detail })
}

fn say(status: StatusCode, answer: Value) -> Response {
    raw(status, answer.to_string().into())
}

fn raw(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    response
}
