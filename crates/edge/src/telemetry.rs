//! What the doors measure and trace.
//! Absent on purpose: exporters, and identifiers of requests: a span names the route and the verdict, evidence names
//! the rest.

use std::time::Instant;

use http::HeaderMap;
use metrics::{counter, gauge, histogram};
pub use placet_core::op::CALLS;
use placet_core::reply::DecideReply;
use tracing::Span;
use tracing::field::Empty;

/// Calls by door, route, method and status.
pub const REQUESTS_TOTAL: &str = "placet_edge_requests_total";
/// Seconds from the request's head to the response's head, by door and route.
pub const REQUEST_SECONDS: &str = "placet_edge_request_seconds";
/// Decisions that left this node, by verdict and reason.
pub const DECISIONS_TOTAL: &str = "placet_edge_decisions_total";
/// Open connections by door.
pub const CONNECTIONS: &str = "placet_edge_connections";

/// Names the metrics for whoever installed a recorder.
pub fn describe() {
    metrics::describe_counter!(REQUESTS_TOTAL, "Calls by door, route, method and status.");
    metrics::describe_histogram!(REQUEST_SECONDS, metrics::Unit::Seconds, "Time to the head of the response.");
    metrics::describe_counter!(DECISIONS_TOTAL, "Decisions that left this node, by verdict and reason.");
    metrics::describe_gauge!(CONNECTIONS, "Open connections by door.");
}

/// A span for one call. Verdict and reason are filled in when a decision is known.
pub(crate) fn span(door: &'static str, route: &'static str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        target: CALLS,
        "request",
        otel.name = route,
        otel.kind = "server",
        door,
        route,
        status = Empty,
        verdict = Empty,
        reason = Empty,
        traceparent = Empty
    );
    if let Some(parent) = traceparent(headers) {
        span.record("traceparent", parent);
    }
    span
}

/// A span for one call on a stream, inside the span of the stream.
pub(crate) fn call_span(stream: &Span, route: &'static str) -> Span {
    tracing::info_span!(target: CALLS, parent: stream, "call", otel.name = route, door = "grpc", route, verdict = Empty, reason = Empty)
}

/// A decision is about to leave.
pub(crate) fn decided(reply: &DecideReply) {
    let (verdict, reason) = (reply.verdict.as_str(), reply.reason.as_str());
    Span::current().record("verdict", verdict).record("reason", reason);
    counter!(DECISIONS_TOTAL, "verdict" => verdict, "reason" => reason).increment(1);
}

/// A call was answered.
pub(crate) fn answered(door: &'static str, route: &'static str, method: &'static str, status: String, began: Instant) {
    Span::current().record("status", status.as_str());
    counter!(REQUESTS_TOTAL, "door" => door, "route" => route, "method" => method, "status" => status).increment(1);
    histogram!(REQUEST_SECONDS, "door" => door, "route" => route).record(began.elapsed().as_secs_f64());
}

/// Counts a connection for as long as it is held.
#[derive(Debug)]
pub(crate) struct Connected(&'static str);

impl Connected {
    pub(crate) fn new(door: &'static str) -> Self {
        gauge!(CONNECTIONS, "door" => door).increment(1);
        Self(door)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        gauge!(CONNECTIONS, "door" => self.0).decrement(1);
    }
}

/// A W3C `traceparent`, if it is of version 00 and well formed: anything else is left out of the logs.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let hex = |part: &str, length| part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.split('-');
    let parts = [parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next().unwrap_or_default()];
    let [version, trace, parent, flags, rest] = parts;
    let shaped = version == "00" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2) && rest.is_empty();
    shaped.then_some(text)
}
