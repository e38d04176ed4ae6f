//! A backup as a tar archive: `curl … | tar x` gives the folder that `placet backup verify` checks.

use std::io;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use http::header::CONTENT_TYPE;
use placet_wire::archive::Writer;

use super::Drain;
use super::extract::Params;
use crate::backup;
use crate::edge::Edge;

pub(super) async fn backup(
    State(edge): State<Edge>,
    Extension(Drain(drain)): Extension<Drain>,
    mut params: Params,
) -> Result<Response, crate::reject::Refusal> {
    let local = params.flag("local")?;
    params.end("local")?;
    let parts = backup::parts(&edge, drain, local).await?;
    let archive = stream::unfold(Some((parts, Writer::default())), |state| async move {
        let (mut parts, mut writer) = state?;
        let (bytes, more) = match parts.next().await {
            Some(Ok(part)) => (writer.part(part).map_err(io::Error::other), true),
            Some(Err(refusal)) => {
                tracing::warn!(code = refusal.kind().code(), "a backup broke off");
                (Err(io::Error::other("the backup broke off")), false)
            }
            None => (writer.finish().map_err(io::Error::other), false),
        };
        let next = more.then_some((parts, writer)).filter(|_| bytes.is_ok());
        Some((bytes, next))
    });
    Ok(([(CONTENT_TYPE, "application/x-tar")], Body::from_stream(archive)).into_response())
}
