//! Members, open permits and counters.

use axum::Json;
use axum::extract::{Request, State};
use placet_core::cluster::{ClusterView, MemberAddresses, MembershipChange};
use placet_core::op::{Answer, BudgetView, IntentView, Op, Query};
use serde::Serialize;

use super::body;
use super::extract::{Members, Params, Segment, member_id};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::Refusal;

#[derive(Serialize)]
pub(super) struct Intents {
    intents: Vec<IntentView>,
    next: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Budgets {
    budgets: Vec<BudgetView>,
    next: Option<String>,
}

pub(super) async fn intents(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<Intents>, Refusal> {
    let after = params.read("after", args::evidence_after)?;
    let limit = params.limit()?;
    params.end("after, limit")?;
    match edge.ask(&caller, Op::Query(Query::Intents { after, limit })).await? {
        Answer::Intents(intents) => {
            let next = args::last_of_full(&intents, limit).map(|last| last.evidence_id.to_string());
            Ok(Json(Intents { intents, next }))
        }
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn budgets(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<Budgets>, Refusal> {
    let after = params.read("after", args::budget_cursor)?;
    let limit = params.limit()?;
    params.end("after, limit")?;
    match edge.ask(&caller, Op::Query(Query::Budgets { after, limit })).await? {
        Answer::Budgets(budgets) => {
            let next = args::budget_next(&budgets, limit);
            Ok(Json(Budgets { budgets, next }))
        }
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn status(State(edge): State<Edge>, params: Params) -> Result<Json<ClusterView>, Refusal> {
    params.end("none")?;
    Ok(Json(edge.cluster().await?))
}

pub(super) async fn add_learner(State(edge): State<Edge>, request: Request) -> Result<Json<ClusterView>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    let mut members = Members::parse(&body)?;
    let id = members.integer("id")?;
    let addresses = addresses(members.object("addresses")?)?;
    members.end("id, addresses")?;
    change(&edge, MembershipChange::AddLearner { id, addresses }).await
}

pub(super) async fn promote(
    State(edge): State<Edge>,
    Segment(id): Segment,
    request: Request,
) -> Result<Json<ClusterView>, Refusal> {
    body::none(request).await?;
    change(&edge, MembershipChange::Promote { id: member_id(&id)? }).await
}

pub(super) async fn remove(State(edge): State<Edge>, Segment(id): Segment) -> Result<Json<ClusterView>, Refusal> {
    change(&edge, MembershipChange::Remove { id: member_id(&id)? }).await
}

pub(super) async fn transfer_leader(State(edge): State<Edge>, request: Request) -> Result<Json<ClusterView>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    let mut to = None;
    if !body.is_empty() {
        let mut members = Members::parse(&body)?;
        to = members.maybe_integer("to")?;
        members.end("to")?;
    }
    change(&edge, MembershipChange::TransferLeader { to }).await
}

fn addresses(mut members: Members) -> Result<MemberAddresses, Refusal> {
    let mut text = |name: &str| {
        let missing = || Refusal::invalid(format!("`addresses.{name}` is missing or empty"));
        members.text(name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    };
    let addresses = MemberAddresses { peer: text("peer")?, http: text("http")?, grpc: text("grpc")? };
    members.end("peer, http, grpc")?;
    Ok(addresses)
}

async fn change(edge: &Edge, change: MembershipChange) -> Result<Json<ClusterView>, Refusal> {
    edge.change_membership(change).await.map(Json)
}
