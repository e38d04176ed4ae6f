//! The kill switch (AADP §7).

use axum::Json;
use axum::extract::{Request, State};
use placet_core::event::SwitchScope;
use placet_core::op::{Answer, KillSwitchView, Op, Query};

use super::body;
use super::extract::{Members, Params};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::Refusal;

pub(super) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    params: Params,
) -> Result<Json<KillSwitchView>, Refusal> {
    params.end("none")?;
    view(edge.ask(&caller, Op::Query(Query::KillSwitch)).await?)
}

pub(super) async fn set(
    State(edge): State<Edge>,
    caller: Caller,
    request: Request,
) -> Result<Json<KillSwitchView>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read_small(&head.headers, body).await?;
    let mut members = Members::parse(&body)?;
    let engaged = members.flag("engaged")?;
    let origin = args::label("origin", members.text("origin")?.unwrap_or_default())?;
    let note = members.text("note")?.map(|note| args::label("note", note)).transpose()?;
    let scope = members.maybe_object("scope")?.map(scope).transpose()?;
    members.end("engaged, origin, note, scope")?;
    view(edge.ask(&caller, Op::SetKillSwitch { engaged, origin, note, scope }).await?)
}

fn scope(mut members: Members) -> Result<SwitchScope, Refusal> {
    let mut found = None;
    for kind in args::SCOPES {
        let Some(text) = members.text(kind)? else { continue };
        if found.replace(args::switch_scope(kind, &text)?).is_some() {
            return Err(args::no_scope());
        }
    }
    members.end("action_type, effect, principal")?;
    found.ok_or_else(args::no_scope)
}

fn view(answer: Answer) -> Result<Json<KillSwitchView>, Refusal> {
    match answer {
        Answer::KillSwitch(view) => Ok(Json(view)),
        _ => Err(Refusal::wrong_answer()),
    }
}
