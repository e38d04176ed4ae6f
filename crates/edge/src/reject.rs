//! Calls without an answer: one table from code to HTTP and gRPC status, and both wire forms (AADP §15.1).
//! Absent on purpose: denials. A denial is an answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use placet_core::op::Reject;
use placet_core::policy::Mistake;
use placet_wire::v1;
use prost::Message;
use serde::Serialize;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::limits::MISTAKES_METADATA_BYTES_MAX;

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table below says what each is")]
pub enum Kind {
    Unavailable,
    Unknown,
    NotFound,
    Conflict,
    Forbidden,
    Invalid,
    PolicyMistakes,
    Internal,
    Unauthenticated,
    MethodNotAllowed,
    Timeout,
    TooLarge,
    MediaType,
    Missed,
}

struct Row {
    kind: Kind,
    code: &'static str,
    http: StatusCode,
    grpc: Code,
    /// Whether the same call may be sent again soon.
    again: bool,
}

const fn row(kind: Kind, code: &'static str, http: StatusCode, grpc: Code, again: bool) -> Row {
    Row { kind, code, http, grpc, again }
}

/// The table. `unavailable`: nothing happened. `unknown`: it may have happened; ask again with the same request id.
/// `missed`: a stream was not told everything.
const TABLE: [Row; 14] = [
    row(Kind::Unavailable, "unavailable", StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, true),
    row(Kind::Unknown, "unknown", StatusCode::SERVICE_UNAVAILABLE, Code::DeadlineExceeded, true),
    row(Kind::NotFound, "not_found", StatusCode::NOT_FOUND, Code::NotFound, false),
    row(Kind::Conflict, "conflict", StatusCode::CONFLICT, Code::FailedPrecondition, false),
    row(Kind::Forbidden, "forbidden", StatusCode::FORBIDDEN, Code::PermissionDenied, false),
    row(Kind::Invalid, "invalid", StatusCode::BAD_REQUEST, Code::InvalidArgument, false),
    row(Kind::PolicyMistakes, "policy_mistakes", StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidArgument, false),
    row(Kind::Internal, "internal", StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, false),
    row(Kind::Unauthenticated, "unauthenticated", StatusCode::UNAUTHORIZED, Code::Unauthenticated, false),
    row(Kind::MethodNotAllowed, "method_not_allowed", StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, false),
    row(Kind::Timeout, "timeout", StatusCode::REQUEST_TIMEOUT, Code::Cancelled, false),
    row(Kind::TooLarge, "too_large", StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, false),
    row(Kind::MediaType, "media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, false),
    row(Kind::Missed, "missed", StatusCode::GONE, Code::DataLoss, false),
];

const INTERNAL: Row = row(Kind::Internal, "internal", StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, false);

impl Kind {
    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.kind == self).unwrap_or(&INTERNAL)
    }

    /// The stable code.
    pub fn code(self) -> &'static str {
        self.row().code
    }

    /// Its HTTP status.
    pub fn http(self) -> StatusCode {
        self.row().http
    }

    /// Its gRPC status.
    pub fn grpc(self) -> Code {
        self.row().grpc
    }
}

/// A call without an answer, for either door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: Kind,
    detail: String,
    mistakes: Vec<Mistake>,
    allow: Option<String>,
}

impl Refusal {
    /// A refusal by the door.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), mistakes: Vec::new(), allow: None }
    }

    /// An argument that is wrong.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, detail)
    }

    /// A method that this route does not have.
    pub fn method_not_allowed(allow: String) -> Self {
        let detail = format!("this route takes {allow}");
        Self { allow: Some(allow), ..Self::new(Kind::MethodNotAllowed, detail) }
    }

    /// The decision point broke its contract with the door.
    pub fn wrong_answer() -> Self {
        tracing::error!("the decision point answered another operation than the one asked");
        Self::new(Kind::Internal, "the answer does not belong to this operation")
    }

    /// The same, as an element of a stream.
    pub fn into_message(self) -> v1::Error {
        v1::Error { code: self.kind.code().to_owned(), detail: self.detail }
    }

    /// Which.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Self {
        let detail = reject.detail();
        let kind = match reject {
            Reject::Unavailable { .. } => Kind::Unavailable,
            Reject::Unknown { .. } => Kind::Unknown,
            Reject::NotFound { .. } => Kind::NotFound,
            Reject::Conflict { .. } => Kind::Conflict,
            Reject::Forbidden { .. } => Kind::Forbidden,
            Reject::Invalid { .. } => Kind::Invalid,
            Reject::PolicyMistakes { mistakes } => {
                return Self { mistakes, ..Self::new(Kind::PolicyMistakes, detail) };
            }
            Reject::Internal { .. } => Kind::Internal,
        };
        Self::new(kind, detail)
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[Mistake]>::is_empty")]
    mistakes: &'a [Mistake],
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let row = self.kind.row();
        let body = ErrorBody { code: row.code, detail: &self.detail, mistakes: &self.mistakes };
        let mut response = (row.http, Json(body)).into_response();
        let headers = response.headers_mut();
        if row.again {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.kind == Kind::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let row = refusal.kind.row();
        let mut metadata = MetadataMap::new();
        metadata.insert("placet-code", MetadataValue::from_static(row.code));
        if !refusal.mistakes.is_empty() {
            let mistakes = clipped(&refusal.mistakes).encode_to_vec();
            metadata.insert_bin("placet-mistakes-bin", MetadataValue::from_bytes(&mistakes));
        }
        Self::with_metadata(row.grpc, refusal.detail, metadata)
    }
}

/// The first mistakes that fit into metadata, and how many did not.
fn clipped(mistakes: &[Mistake]) -> v1::PolicyMistakes {
    let mut room = MISTAKES_METADATA_BYTES_MAX;
    let mut kept = v1::PolicyMistakes::default();
    for mistake in mistakes {
        let message = v1::Mistake { line: mistake.line, column: mistake.column, message: mistake.message.clone() };
        let Some(rest) = room.checked_sub(message.encoded_len() + 4) else { break };
        room = rest;
        kept.mistakes.push(message);
    }
    kept.left_out = u32::try_from(mistakes.len() - kept.mistakes.len()).unwrap_or(u32::MAX);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reject_has_its_row() {
        let detail = || "d".to_owned();
        for (reject, http, grpc) in [
            (Reject::Unavailable { detail: detail() }, 503, Code::Unavailable),
            (Reject::Unknown { detail: detail() }, 503, Code::DeadlineExceeded),
            (Reject::NotFound { detail: detail() }, 404, Code::NotFound),
            (Reject::Conflict { detail: detail() }, 409, Code::FailedPrecondition),
            (Reject::Forbidden { detail: detail() }, 403, Code::PermissionDenied),
            (Reject::Invalid { detail: detail() }, 400, Code::InvalidArgument),
            (Reject::PolicyMistakes { mistakes: Vec::new() }, 422, Code::InvalidArgument),
            (Reject::Internal { detail: detail() }, 500, Code::Internal),
        ] {
            let code = reject.code();
            let kind = Refusal::from(reject).kind();
            assert_eq!((kind.code(), kind.http().as_u16(), kind.grpc()), (code, http, grpc));
        }
    }

    #[test]
    fn mistakes_in_metadata_are_bounded() {
        let mistake = Mistake { line: 1, column: 2, message: "x".repeat(300) };
        let kept = clipped(&vec![mistake; 100]);
        assert!(kept.encoded_len() <= MISTAKES_METADATA_BYTES_MAX + 8);
        assert_eq!(kept.mistakes.len() + kept.left_out as usize, 100);
        assert!(kept.left_out > 0);
    }
}
