//! The evidence as JSON Lines (AADP §14): one entry per line, byte for byte what its hash covers.
//! Absent on purpose: a task per export, and more than one page in memory. The next page is read when the client has
//! taken the one before; a client that leaves ends it. An export that breaks ends without its last chunk, so that no
//! client takes a part for the whole.

use std::io;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use placet_core::export::entry_line;
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, EvidenceView, Op, Query};
use tokio::sync::OwnedSemaphorePermit;

use super::extract::Params;
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::limits::{CATCH_UP_PAGES_MAX, EXPORT_PAGE};
use crate::reject::Refusal;

pub(super) async fn export(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Refusal> {
    let after = params.read("after", args::evidence_after)?.unwrap_or_default();
    params.end("after")?;
    let _place = edge.enter_tail()?;
    let until = last(&edge, &caller).await?;
    let export = Export { edge, caller, after, until, _place };
    let pages = stream::try_unfold(export, Export::page);
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages)).into_response())
}

struct Export {
    edge: Edge,
    caller: Caller,
    /// The last entry that was handed out.
    after: EvidenceIndex,
    /// The last entry when the request began: what comes later is another export's.
    until: EvidenceIndex,
    _place: OwnedSemaphorePermit,
}

impl Export {
    async fn page(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.after >= self.until {
            return Ok(None);
        }
        let views = tail(&self.edge, &self.caller, self.after).await.map_err(|refusal| {
            tracing::warn!(after = %self.after, code = refusal.kind().code(), "an export broke off");
            io::Error::other("the export broke off")
        })?;
        let mut lines = Vec::new();
        for view in views.iter().take_while(|view| view.evidence_id <= self.until) {
            if view.evidence_id != self.after.next() {
                break;
            }
            lines.extend_from_slice(&entry_line(view.entry.as_bytes(), &view.hash));
            self.after = view.evidence_id;
        }
        if lines.is_empty() {
            tracing::error!(after = %self.after, until = %self.until, "entries are missing; verify this evidence");
            return Err(io::Error::other("entries are missing"));
        }
        Ok(Some((lines.into(), self)))
    }
}

/// The last entry now. This node may be a little behind the leader, so it asks for what follows its own last.
async fn last(edge: &Edge, caller: &Caller) -> Result<EvidenceIndex, Refusal> {
    let mut last = edge.cluster().await?.evidence_index;
    for _ in 0..CATCH_UP_PAGES_MAX {
        let ahead = tail(edge, caller, last).await?;
        last = ahead.last().map_or(last, |view| view.evidence_id);
        if args::evidence_next(&ahead, EXPORT_PAGE).is_none() {
            break;
        }
    }
    Ok(last)
}

async fn tail(edge: &Edge, caller: &Caller, after: EvidenceIndex) -> Result<Vec<EvidenceView>, Refusal> {
    match edge.ask(caller, Op::Query(Query::EvidenceTail { after, limit: EXPORT_PAGE })).await? {
        Answer::EvidenceTail(views) => Ok(views),
        _ => Err(Refusal::wrong_answer()),
    }
}
