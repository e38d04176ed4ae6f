//! What enforcement points ask beside decisions (AADP §16): whether to start, what to decide alone, and where to put
//! what was decided alone.

use axum::Json;
use axum::extract::{Request, State};
use placet_core::limits::BODY_BYTES_MAX;
use placet_core::op::{Answer, LocalRecorded, Op, PermitCheck, Query, StaticActions};

use super::body;
use super::extract::{Members, Params};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::{Kind, Refusal};

/// A permit is a capability: it travels in the body, because paths end up in logs.
pub(super) async fn check(
    State(edge): State<Edge>,
    caller: Caller,
    request: Request,
) -> Result<Json<PermitCheck>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    let mut members = Members::parse(&body)?;
    let permit_id = args::permit_id("permit_id", &members.required("permit_id")?)?;
    members.end("permit_id")?;
    match edge.ask(&caller, Op::Query(Query::CheckPermit { permit_id })).await? {
        Answer::Permit(check) => Ok(Json(check)),
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn statics(
    State(edge): State<Edge>,
    caller: Caller,
    params: Params,
) -> Result<Json<StaticActions>, Refusal> {
    params.end("none")?;
    match edge.ask(&caller, Op::Query(Query::StaticActions)).await? {
        Answer::Static(actions) => Ok(Json(actions)),
        _ => Err(Refusal::wrong_answer()),
    }
}

/// As with decide, the body goes on as it came. It is no decide: what is wrong with it is an error.
pub(super) async fn local(
    State(edge): State<Edge>,
    caller: Caller,
    request: Request,
) -> Result<Json<LocalRecorded>, Refusal> {
    let (head, body) = request.into_parts();
    let media = body::json(&head.headers);
    let body = body::read_or_refuse(body, BODY_BYTES_MAX).await?;
    media.map_err(|detail| Refusal::new(Kind::MediaType, detail))?;
    match edge.ask(&caller, Op::RecordLocal(body)).await? {
        Answer::Local(recorded) => Ok(Json(recorded)),
        _ => Err(Refusal::wrong_answer()),
    }
}
