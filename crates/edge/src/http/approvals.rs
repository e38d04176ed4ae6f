//! Approvals (AADP §11): granted for the proposer to resume, or granted and resumed at once; and the mandate
//! authority's word.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use placet_core::event::MandateSet;
use placet_core::op::{Answer, ApprovalView, MandateView, Op, Query};
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

/// 200 and the decision; 202 and the approval while it needs more votes.
pub(super) async fn approve(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    request: Request,
) -> Result<Response, Refusal> {
    let id = args::approval_id("id", &id)?;
    let note = read_note(request).await?;
    match edge.ask(&caller, Op::ResumeApproval { id, note }).await? {
        Answer::Decide(reply) => Ok(Json(reply).into_response()),
        Answer::Approval(view) => Ok((StatusCode::ACCEPTED, Json(view)).into_response()),
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn ratify(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    request: Request,
) -> Result<Json<ApprovalView>, Refusal> {
    let id = args::approval_id("id", &id)?;
    let (head, body) = request.into_parts();
    let mut members = Members::parse(&body::read_small(&head.headers, body).await?)?;
    let approved = members.flag("approved")?;
    let signature = args::signature("signature", members.required("signature")?)?;
    members.end("approved, signature")?;
    one(edge.ask(&caller, Op::RatifyApproval { id, approved, signature }).await?)
}

pub(super) async fn set_mandate(
    State(edge): State<Edge>,
    caller: Caller,
    request: Request,
) -> Result<Json<MandateView>, Refusal> {
    let (head, body) = request.into_parts();
    let mut members = Members::parse(&body::read_small(&head.headers, body).await?)?;
    let action_type = args::action_type("action_type", &members.required("action_type")?)?;
    let denied = members.flag("denied")?;
    let serial = members.integer("serial")?;
    let signature = args::signature("signature", members.required("signature")?)?;
    members.end("action_type, denied, serial, signature")?;
    match edge
        .ask(&caller, Op::SetMandate(MandateSet { action_type, authority: None, denied, serial, signature }))
        .await?
    {
        Answer::Mandate(mandate) => Ok(Json(mandate)),
        _ => Err(Refusal::wrong_answer()),
    }
}

async fn resolve(
    edge: &Edge,
    caller: &Caller,
    id: &str,
    request: Request,
    grant: bool,
) -> Result<Json<ApprovalView>, Refusal> {
    let id = args::approval_id("id", id)?;
    let note = read_note(request).await?;
    one(edge.ask(caller, Op::ResolveApproval { id, grant, note }).await?)
}

async fn read_note(request: Request) -> Result<Option<String>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    if body.is_empty() {
        return Ok(None);
    }
    let mut members = Members::parse(&body)?;
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
