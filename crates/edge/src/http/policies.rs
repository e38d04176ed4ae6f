//! Policies (AADP §8): the document itself is the body, `If-Match` says which policy is meant to be in force before.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::IF_MATCH;
use placet_core::limits::POLICY_BYTES_MAX;
use placet_core::op::{Answer, Op, PolicyDropped, PolicyFacts, PolicyPublished, PolicyView, Query};
use serde::Serialize;

use super::body;
use super::extract::{Params, Segment};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::{Kind, Refusal};

#[derive(Serialize)]
struct Page {
    policies: Vec<PolicyFacts>,
    next: Option<String>,
}

/// The policy in force or the one named; with `all`, a page of what is kept.
pub(super) async fn read(State(edge): State<Edge>, caller: Caller, mut params: Params) -> Result<Response, Refusal> {
    if params.flag("all")? {
        return list(&edge, &caller, params).await;
    }
    let digest = params.read("digest", args::policy_digest)?;
    params.end("digest; with all=true: after, limit")?;
    let view = view(edge.ask(&caller, Op::Query(Query::Policy { digest })).await?)?;
    Ok(view.into_response())
}

async fn list(edge: &Edge, caller: &Caller, mut params: Params) -> Result<Response, Refusal> {
    let after = params.read("after", args::policy_digest)?;
    let limit = params.limit()?;
    params.end("all, after, limit")?;
    match edge.ask(caller, Op::Query(Query::Policies { after, limit })).await? {
        Answer::Policies(policies) => {
            let next = args::last_of_full(&policies, limit).map(|last| last.digest.to_string());
            Ok(Json(Page { policies, next }).into_response())
        }
        _ => Err(Refusal::wrong_answer()),
    }
}

pub(super) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(digest): Segment,
    params: Params,
) -> Result<Json<PolicyView>, Refusal> {
    params.end("none")?;
    let digest = args::policy_digest("digest", &digest)?;
    view(edge.ask(&caller, Op::Query(Query::Policy { digest: Some(digest) })).await?)
}

pub(super) async fn publish(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
    request: Request,
) -> Result<Json<PolicyPublished>, Refusal> {
    let activate = params.flag_or("activate", true)?;
    params.end("activate")?;
    let (head, body) = request.into_parts();
    body::yaml(&head.headers).map_err(|detail| Refusal::new(Kind::MediaType, detail))?;
    let expect = expect(&head.headers)?;
    let document = String::from_utf8(body::read_or_refuse(body, POLICY_BYTES_MAX).await?)
        .map_err(|_| Refusal::invalid("the document is not UTF-8"))?;
    published(edge.ask(&caller, Op::PublishPolicy { document, expect, activate }).await?)
}

pub(super) async fn activate(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(digest): Segment,
    request: Request,
) -> Result<Json<PolicyPublished>, Refusal> {
    let digest = args::policy_digest("digest", &digest)?;
    let expect = expect(request.headers())?;
    body::none(request).await?;
    published(edge.ask(&caller, Op::ActivatePolicy { digest, expect }).await?)
}

/// Named only: there is no call that drops more than one.
pub(super) async fn drop_unused(
    State(edge): State<Edge>,
    caller: Caller,
    Segment(digest): Segment,
    params: Params,
) -> Result<Json<PolicyDropped>, Refusal> {
    params.end("none")?;
    let digest = args::policy_digest("digest", &digest)?;
    match edge.ask(&caller, Op::DropPolicy { digest }).await? {
        Answer::PolicyDropped(dropped) => Ok(Json(dropped)),
        _ => Err(Refusal::wrong_answer()),
    }
}

fn published(answer: Answer) -> Result<Json<PolicyPublished>, Refusal> {
    match answer {
        Answer::PolicyPublished(published) => Ok(Json(published)),
        _ => Err(Refusal::wrong_answer()),
    }
}

fn expect(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let (Some(value), more) = (values.next(), values.next()) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if more.is_some() {
        return Err(Refusal::invalid("`If-Match` appears twice"));
    }
    args::expected_policy("If-Match", text).map(Some)
}

fn view(answer: Answer) -> Result<Json<PolicyView>, Refusal> {
    match answer {
        Answer::Policy(view) => Ok(Json(view)),
        _ => Err(Refusal::wrong_answer()),
    }
}
