//! What every call passes before its handler: the table of roles, a place in a lane, a span and its metrics.
//! Absent on purpose: anything about one operation. INVARIANT (one table): see [`crate::roles`].

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Extensions, HeaderMap, Method};
use http_body_util::BodyExt;
use tokio::time::timeout;
use tonic::Status;
use tracing::Instrument;

use crate::auth::{Caller, Presented};
use crate::edge::Edge;
use crate::lanes::Place;
use crate::limits::CALL_WITHIN;
use crate::peers::Peer;
use crate::reject::{Kind, Refusal};
use crate::roles::{self, Access, Lane, Row};
use crate::telemetry;

/// Guards the HTTP doors, over TCP and over the Unix socket.
pub(crate) async fn http(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let door = if request.extensions().get::<Peer>().is_some() { "unix" } else { "http" };
    let method = method_word(request.method());
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.as_deref().and_then(known_route);
    let span = telemetry::span(door, route.unwrap_or("none"), request.headers());
    edge.adopt_trace(&span, request.headers());
    async move {
        // Where a route takes GET it takes HEAD.
        let row = route.map(|route| roles::http_row(if method == "HEAD" { "GET" } else { method }, route).ok_or(route));
        let mut response = match row {
            None => next.run(request).await,
            Some(Err(route)) => Refusal::method_not_allowed(roles::methods(route)).into_response(),
            Some(Ok(row)) => match admit(&edge, request.extensions(), request.headers(), row) {
                Err(refusal) => refusal.into_response(),
                Ok((caller, _place)) => {
                    request.extensions_mut().extend(caller.map(extension).unwrap_or_default());
                    caught(next.run(request)).await.unwrap_or_else(IntoResponse::into_response)
                }
            },
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
        telemetry::answered(door, route.unwrap_or("none"), method, response.status().as_str().to_owned(), began);
        response
    }
    .instrument(span)
    .await
}

/// Guards the gRPC door.
pub(crate) async fn grpc(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let row = roles::grpc_row(request.uri().path());
    let route = row.and_then(|row| row.grpc).unwrap_or("none");
    let span = telemetry::span("grpc", route, request.headers());
    edge.adopt_trace(&span, request.headers());
    async move {
        let admitted = match row {
            None => Err(Status::unimplemented("no such method")),
            Some(row) => admit(&edge, request.extensions(), request.headers(), row)
                .map(|(caller, place)| (caller, place, row.lane))
                .map_err(Status::from),
        };
        let response = match admitted {
            Err(status) => status.into_http(),
            Ok((caller, place, lane)) => {
                request.extensions_mut().extend(caller.map(extension).unwrap_or_default());
                let response = called(lane, place, caught(next.run(request))).await;
                response.unwrap_or_else(|refusal| Status::from(refusal).into_http())
            }
        };
        // Trailers come later, so a stream that breaks counts as begun well.
        let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok()).unwrap_or("0");
        telemetry::answered("grpc", route, "POST", status.to_owned(), began);
        response
    }
    .instrument(span)
    .await
}

/// Runs a gRPC call while it holds its place: a stream to its end, another call for a bounded time.
async fn called(
    lane: Lane,
    place: Place,
    response: impl Future<Output = Result<Response, Refusal>>,
) -> Result<Response, Refusal> {
    match lane {
        Lane::Free => response.await,
        Lane::HealthWatch | Lane::Reflection => Ok(response.await?.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &place;
                frame
            }))
        })),
        Lane::Decide | Lane::Admin | Lane::Control => {
            let late = "the call took too long; it may have happened: ask again, for a decide with the same request_id";
            timeout(CALL_WITHIN, response).await.unwrap_or_else(|_| Err(Refusal::new(Kind::Unknown, late)))
        }
    }
}

/// A panic fails its own call, not the others on the same connection.
async fn caught(response: impl Future<Output = Response>) -> Result<Response, Refusal> {
    let detail = "the call failed inside; it may have happened: ask again, for a decide with the same request_id";
    AssertUnwindSafe(response).catch_unwind().await.map_err(|_| {
        tracing::error!("a call panicked");
        Refusal::new(Kind::Unknown, detail)
    })
}

fn admit(
    edge: &Edge,
    extensions: &Extensions,
    headers: &HeaderMap,
    row: &Row,
) -> Result<(Option<Caller>, Place), Refusal> {
    let caller = match edge.presented(extensions, headers) {
        Presented::Known(caller) if caller.may(row.access) => Some(caller.at(row.lane)),
        Presented::Known(caller) => {
            let detail = format!("`{}` holds no role for this; it takes {}", caller.principal, needed(row.access));
            return Err(Refusal::new(Kind::Forbidden, detail));
        }
        Presented::Nothing | Presented::Unmapped { .. } if row.access == Access::Open => None,
        Presented::Nothing => return Err(Refusal::new(Kind::Unauthenticated, "this takes `Authorization: Bearer`")),
        Presented::Unknown => return Err(Refusal::new(Kind::Unauthenticated, "the bearer token is not known here")),
        // Not 401: no credential in a header would help.
        Presented::Unmapped { uid, gid } => {
            let detail = format!("no peer is configured for user {uid} or group {gid}");
            return Err(Refusal::new(Kind::Forbidden, detail));
        }
        Presented::Twice => {
            let detail = "on this socket the connecting process is the identity; send no `Authorization`";
            return Err(Refusal::new(Kind::Unauthenticated, detail));
        }
    };
    let place = edge.lanes().enter(row.lane, caller.as_ref())?;
    Ok((caller, place))
}

fn needed(access: Access) -> String {
    match access {
        Access::AnyOf(roles) => roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or "),
        Access::Open | Access::AnyToken => "any caller".to_owned(),
    }
}

fn extension(caller: Caller) -> http::Extensions {
    let mut extensions = http::Extensions::new();
    extensions.insert(caller);
    extensions
}

/// The route as the table spells it: metrics carry no text of a client.
fn known_route(matched: &str) -> Option<&'static str> {
    roles::TABLE.iter().filter_map(|row| row.http).map(|(_, route)| route).find(|route| *route == matched)
}

fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        _ => "other",
    }
}

/// Handlers take the caller that the guard let in; without one they do not run.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let none = || Refusal::new(Kind::Unauthenticated, "this takes `Authorization: Bearer`");
        parts.extensions.get::<Self>().cloned().ok_or_else(none)
    }
}

/// The caller of a gRPC method.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> Result<Caller, Status> {
    let none = || Refusal::new(Kind::Unauthenticated, "this takes `authorization: Bearer`").into();
    request.extensions().get::<Caller>().cloned().ok_or_else(none)
}
