//! Signed heads, and proofs that lead to them (AADP §14.7, RFC 9162).

use axum::Json;
use axum::extract::{Request, State};
use placet_core::op::{Answer, Op, ProofView, Query, SignedHeadView};

use super::body;
use super::extract::{Params, Segment};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::Refusal;

pub(super) async fn sign_head(
    State(edge): State<Edge>,
    caller: Caller,
    request: Request,
) -> Result<Json<SignedHeadView>, Refusal> {
    body::none(request).await?;
    match edge.ask(&caller, Op::SignHead).await? {
        Answer::Head(head) => Ok(Json(head)),
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn inclusion(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(id): Segment,
    mut params: Params,
) -> Result<Json<ProofView>, Refusal> {
    let index = args::evidence_id("id", &id)?;
    let size = params.required("size", args::size)?;
    params.end("size")?;
    proof(edge.ask(&caller, Op::Query(Query::InclusionProof { index, size })).await?)
}

pub(super) async fn consistency(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<ProofView>, Refusal> {
    let (from, to) = (params.required("from", args::size)?, params.required("to", args::size)?);
    params.end("from, to")?;
    let (from, to) = args::heads(from, to)?;
    proof(edge.ask(&caller, Op::Query(Query::ConsistencyProof { from, to })).await?)
}

fn proof(answer: Answer) -> Result<Json<ProofView>, Refusal> {
    match answer {
        Answer::Proof(proof) => Ok(Json(proof)),
        _ => Err(Refusal::wrong_answer()),
    }
}
