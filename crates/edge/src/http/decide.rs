//! `POST /v1/decide` and `POST /v1/report` (AADP §10, §15.1).
//! Absent on purpose: parsing. The body goes on as it came; what the door cannot pass on is still recorded, and still
//! answered with a verdict.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use placet_core::limits::BODY_BYTES_MAX;
use placet_core::op::{Answer, Op};
use placet_core::request::Malformed;

use super::body::{self, Read};
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::Refusal;

pub(super) async fn decide(State(edge): State<Edge>, caller: Caller, request: Request) -> Result<Response, Refusal> {
    message(&edge, &caller, request, "decide", Op::Decide).await
}

pub(super) async fn report(State(edge): State<Edge>, caller: Caller, request: Request) -> Result<Response, Refusal> {
    message(&edge, &caller, request, "report", Op::Report).await
}

async fn message(
    edge: &Edge,
    caller: &Caller,
    request: Request,
    operation: &str,
    op: fn(Vec<u8>) -> Op,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let media = body::json(&head.headers);
    let refused = |body: &[u8], kind: &str, detail: &str| Op::Malformed {
        operation: operation.to_owned(),
        request: Malformed::refused(body, kind, detail),
    };
    let (status, op) = match (body::read(body, BODY_BYTES_MAX).await?, media) {
        (Read::Whole(bytes), Ok(())) => (StatusCode::OK, op(bytes)),
        (Read::Whole(bytes), Err(detail)) => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, refused(&bytes, "media_type", &detail))
        }
        (Read::TooLarge(head), _) => {
            let detail = format!(
                "the body is larger than 1 MiB; `bytes`, `digest` and `received` are about its first {} bytes",
                head.len()
            );
            (StatusCode::PAYLOAD_TOO_LARGE, refused(&head, "size", &detail))
        }
    };
    match edge.ask(caller, op).await? {
        Answer::Decide(reply) => Ok((status, Json(reply)).into_response()),
        Answer::Report(reply) => Ok((status, Json(reply)).into_response()),
        _ => Err(Refusal::wrong_answer()),
    }
}
