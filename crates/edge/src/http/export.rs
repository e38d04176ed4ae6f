//! The evidence as JSON Lines (AADP §14): one entry per line, byte for byte what its hash covers.
//! Absent on purpose: paging, see [`crate::follow`]. An export that breaks ends without its last chunk, so that no
//! client takes a part for the whole.

use std::io;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use placet_core::export::entry_line;
use placet_core::op::{Answer, Op, Query};

use super::Drain;
use super::extract::Params;
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::follow::{Follow, Page};
use crate::reject::Refusal;

pub(super) async fn export(
    State(edge): State<Edge>,
    Extension(Drain(drain)): Extension<Drain>,
    caller: Caller,
    mut params: Params,
) -> Result<Response, Refusal> {
    let after = params.read("after", args::evidence_after)?.unwrap_or_default();
    params.end("after")?;
    let follow = Follow::new(&edge, caller.clone(), drain, after)?;
    // What comes later is another export's.
    let until = match edge.ask(&caller, Op::Query(Query::Position)).await? {
        Answer::Position(last) => last,
        _ => return Err(Refusal::wrong_answer()),
    };
    let pages = follow.until(until).pages().map(|page| page.map(|page| lines(&page)).map_err(broken));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages)).into_response())
}

fn lines(page: &Page) -> Bytes {
    let mut lines = Vec::new();
    for view in page {
        lines.extend_from_slice(&entry_line(view.entry.as_bytes(), &view.hash));
    }
    lines.into()
}

fn broken(refusal: Refusal) -> io::Error {
    tracing::warn!(code = refusal.kind().code(), "an export broke off");
    io::Error::other("the export broke off")
}
