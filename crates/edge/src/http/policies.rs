//! Policies (AADP §8): the document itself is the body, `If-Match` says what it is meant to replace.

use axum::Json;
use axum::extract::{Request, State};
use http::HeaderMap;
use http::header::IF_MATCH;
use placet_core::limits::POLICY_BYTES_MAX;
use placet_core::op::{Answer, Op, PolicyPublished, PolicyView, Query};

use super::body;
use super::extract::{Params, Segment};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::{Kind, Refusal};

pub(super) async fn active(
    State(edge): State<Edge>,
    caller: Caller,
    mut params: Params,
) -> Result<Json<PolicyView>, Refusal> {
    let digest = params.read("digest", args::policy_digest)?;
    params.end("digest")?;
    view(edge.ask(&caller, Op::Query(Query::Policy { digest })).await?)
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
    request: Request,
) -> Result<Json<PolicyPublished>, Refusal> {
    let (head, body) = request.into_parts();
    body::yaml(&head.headers).map_err(|detail| Refusal::new(Kind::MediaType, detail))?;
    let expect = expect(&head.headers)?;
    let document = String::from_utf8(body::read_or_refuse(body, POLICY_BYTES_MAX).await?)
        .map_err(|_| Refusal::invalid("the document is not UTF-8"))?;
    match edge.ask(&caller, Op::PublishPolicy { document, expect, activate: true }).await? {
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
