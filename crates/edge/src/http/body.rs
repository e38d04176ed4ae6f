//! Bodies: read in bounded time and space, and only in a media type that the route takes.
//! Absent on purpose: compression. A compressed body is refused by its encoding, so no bound can be inflated past.

use axum::body::Body;
use axum::extract::Request;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::limits::{ADMIN_BODY_BYTES_MAX, BODY_WITHIN, DISCARD_BYTES_MAX};
use crate::reject::{Kind, Refusal};

/// A body, or the beginning of one that was too large.
pub(super) enum Read {
    Whole(Vec<u8>),
    TooLarge(Vec<u8>),
}

/// Reads at most `max` bytes. Of a larger body the first `max` are kept, and some of the rest is thrown away so that
/// its sender comes to read the answer.
pub(super) async fn read(body: Body, max: usize) -> Result<Read, Refusal> {
    let late = |_| Refusal::new(Kind::Timeout, "the body did not arrive in time; nothing happened");
    timeout(BODY_WITHIN, read_all(body, max)).await.map_err(late)?
}

async fn read_all(mut body: Body, max: usize) -> Result<Read, Refusal> {
    let mut kept = Vec::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::invalid("the body broke off; nothing happened"))?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        let room = max.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(data.get(..room).unwrap_or_default());
        if total > max.saturating_add(DISCARD_BYTES_MAX) {
            break;
        }
    }
    Ok(if total > max { Read::TooLarge(kept) } else { Read::Whole(kept) })
}

/// Reads a small JSON body of an operator call; empty stays empty.
pub(super) async fn read_small(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Refusal> {
    let bytes = read_or_refuse(body, ADMIN_BODY_BYTES_MAX).await?;
    if !bytes.is_empty() {
        json(headers).map_err(|detail| Refusal::new(Kind::MediaType, detail))?;
    }
    Ok(bytes)
}

/// Makes sure that a call has no body.
pub(super) async fn none(request: Request) -> Result<(), Refusal> {
    if read_or_refuse(request.into_body(), ADMIN_BODY_BYTES_MAX).await?.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid("this call has no body"))
}

/// Reads a body whose size is an error like any other.
pub(super) async fn read_or_refuse(body: Body, max: usize) -> Result<Vec<u8>, Refusal> {
    match read(body, max).await? {
        Read::Whole(bytes) => Ok(bytes),
        Read::TooLarge(_) => Err(Refusal::new(Kind::TooLarge, format!("the body is larger than {max} bytes"))),
    }
}

/// Whether a body is JSON by its headers; without a content type it is taken to be.
pub(super) fn json(headers: &HeaderMap) -> Result<(), String> {
    media(headers, &["application/json"])
}

/// Whether a body is YAML by its headers.
pub(super) fn yaml(headers: &HeaderMap) -> Result<(), String> {
    media(headers, &["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"])
}

fn media(headers: &HeaderMap, accepted: &[&str]) -> Result<(), String> {
    let plain = headers.get(CONTENT_ENCODING).is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !plain {
        return Err("the body has a content encoding; it must be sent plain".to_owned());
    }
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Ok(()) };
    let fits = |text: &str| {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        accepted.iter().any(|accepted| name.eq_ignore_ascii_case(accepted))
            && parts.filter(|part| !part.is_empty()).all(|part| {
                part.split_once('=').is_some_and(|(name, value)| {
                    name.eq_ignore_ascii_case("charset") && value.trim_matches('"').eq_ignore_ascii_case("utf-8")
                })
            })
    };
    if more.is_none() && value.to_str().is_ok_and(fits) {
        return Ok(());
    }
    Err(format!("the content type is not {} in UTF-8", accepted.first().copied().unwrap_or_default()))
}
