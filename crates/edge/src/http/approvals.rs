//! Approvals (AADP §11).
//! Absent on purpose: approve-and-resume; a proposer resumes with `approval_ref`.

use axum::Json;
use axum::extract::{Request, State};
use placet_core::op::{Answer, ApprovalView, Op, Query};
use serde::Serialize;

use super::body;
use super::extract::{Members, Params, Segment};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::Refusal;

#[derive(Serialize)]
pub(super) struct Page {
    approvals: Vec<ApprovalView>,
    next: Option<String>,
}

pub(super) async fn list(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Json<Page>, Refusal> {
    let all = params.flag("all")?;
    let after = params.read("after", args::approval_id)?;
    let limit = params.limit()?;
    params.end("all, after, limit")?;
    match edge.ask(&caller, Op::Query(Query::Approvals { all, after, limit })).await? {
        Answer::Approvals(approvals) => {
            let next = args::last_of_heavy(&approvals, limit, |one| one.params.len() + one.rationale.len())
                .map(|last| last.approval_id.to_string());
            Ok(Json(Page { approvals, next }))
        }
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    params: Params,
) -> Result<Json<ApprovalView>, Refusal> {
    params.end("none")?;
    let id = args::approval_id("id", &id)?;
    one(edge.ask(&caller, Op::Query(Query::Approval { id })).await?)
}

pub(super) async fn grant(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    request: Request,
) -> Result<Json<ApprovalView>, Refusal> {
    resolve(&edge, &caller, &id, request, true).await
}

pub(super) async fn deny(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    request: Request,
) -> Result<Json<ApprovalView>, Refusal> {
    resolve(&edge, &caller, &id, request, false).await
}

async fn resolve(
    edge: &Edge,
    caller: &Caller,
    id: &str,
    request: Request,
    grant: bool,
) -> Result<Json<ApprovalView>, Refusal> {
    let id = args::approval_id("id", id)?;
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    let note = if body.is_empty() { None } else { note(&body)? };
    one(edge.ask(caller, Op::ResolveApproval { id, grant, note }).await?)
}

fn note(body: &[u8]) -> Result<Option<String>, Refusal> {
    let mut members = Members::parse(body)?;
    let note = members.text("note")?;
    members.end("note")?;
    note.map(|note| args::label("note", note)).transpose()
}

fn one(answer: Answer) -> Result<Json<ApprovalView>, Refusal> {
    match answer {
        Answer::Approval(view) => Ok(Json(view)),
        _ => Err(Refusal::wrong_answer()),
    }
}
