//! Evidence (AADP §14). An entry is shown as the JSON that it is, byte for byte: its hash can be computed from the
//! answer.

use axum::Json;
use axum::extract::State;
use placet_core::ids::Hash;
use placet_core::op::{Answer, EvidenceFilter, EvidencePage, EvidenceView, Op, Query};
use serde::Serialize;
use serde_json::value::RawValue;

use super::extract::{Params, Segment};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::{Kind, Refusal};

#[derive(Serialize)]
pub(super) struct Shown {
    evidence_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    hash: Hash,
    entry: Box<RawValue>,
}

#[derive(Serialize)]
pub(super) struct Page {
    evidence: Vec<Shown>,
    next: Option<String>,
}

pub(super) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<Shown>, Refusal> {
    params.end("none")?;
    let index = args::evidence_id("id", &id)?;
    match edge.ask(&caller, Op::Query(Query::Evidence { index })).await? {
        Answer::Evidence(view) => shown(view).map(Json),
        _ => Err(Refusal::wrong_answer()),
    }
}

/// All entries, or those that match. A page of a search may be empty and have more behind it: `next` tells.
pub(super) async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Json<Page>, Refusal> {
    let after = params.read("after", args::evidence_after)?.unwrap_or_default();
    let limit = params.limit()?;
    let reconcile = params.flag("reconcile")?;
    let filter = args::evidence_filter(reconcile, |name| params.text(name))?;
    params.end(&format!("after, limit, {}", args::FILTERS))?;
    let query = if filter == EvidenceFilter::default() {
        Query::EvidenceTail { after, limit }
    } else {
        Query::EvidenceFind { after, limit, filter }
    };
    let (views, next) = match edge.ask(&caller, Op::Query(query)).await? {
        Answer::EvidenceTail(views) => {
            let next = args::evidence_next(&views, limit);
            (views, next)
        }
        Answer::EvidencePage(EvidencePage { entries, next }) => (entries, next),
        _ => return Err(Refusal::wrong_answer()),
    };
    let evidence = views.into_iter().map(shown).collect::<Result<_, _>>()?;
    Ok(Json(Page { evidence, next: next.map(|next| next.to_string()) }))
}

fn shown(view: EvidenceView) -> Result<Shown, Refusal> {
    let EvidenceView { evidence_id, entry, hash } = view;
    let kind = args::entry_kind(&entry);
    let entry = RawValue::from_string(entry).map_err(|error| {
        tracing::error!(%evidence_id, %error, "an evidence entry is not JSON");
        Refusal::new(Kind::Internal, format!("entry `{evidence_id}` is not JSON; verify the evidence of this node"))
    })?;
    Ok(Shown { evidence_id: evidence_id.to_string(), kind, hash, entry })
}
