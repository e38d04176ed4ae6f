//! Strict readers of paths, query strings and small JSON bodies: what is not understood is refused by name.
//! Absent on purpose: defaults; each route states its own.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use placet_core::json::{self, Json};

use crate::args;
use crate::reject::Refusal;

/// The one variable segment of a route.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| Refusal::invalid("the path is not percent-encoded UTF-8"))?;
        Ok(Self(text))
    }
}

/// A node id in a path.
pub(super) fn member_id(text: &str) -> Result<u64, Refusal> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = plain.then(|| text.parse().ok()).flatten();
    id.ok_or_else(|| Refusal::invalid("the member id in the path is not an integer of zero or more"))
}

/// The query string, taken apart one parameter at a time.
pub(super) struct Params(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| Refusal::invalid("the query string is not `name=value` pairs"))?;
        let mut params = BTreeMap::new();
        for (name, value) in pairs {
            if params.contains_key(&name) {
                return Err(Refusal::invalid(format!("query parameter `{}` appears twice", clip(&name))));
            }
            params.insert(name, value);
        }
        Ok(Self(params))
    }
}

impl Params {
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(super) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &str) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        self.text(name).map(|text| read(name, &text)).transpose()
    }

    pub(super) fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, &str) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.read(name, read)?.ok_or_else(|| Refusal::invalid(format!("query parameter `{name}` is missing")))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        self.flag_or(name, false)
    }

    pub(super) fn flag_or(&mut self, name: &str, absent: bool) -> Result<bool, Refusal> {
        match self.text(name).as_deref() {
            None => Ok(absent),
            Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Refusal::invalid(format!("`{name}` is neither `true` nor `false`"))),
        }
    }

    pub(super) fn limit(&mut self) -> Result<u32, Refusal> {
        let text = self.text("limit");
        // Text that is no number is as wrong as zero.
        args::limit(text.map(|text| text.parse().unwrap_or(0)))
    }

    /// Whatever was not asked for is a mistake.
    pub(super) fn end(self, known: &str) -> Result<(), Refusal> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Refusal::invalid(format!("query parameter `{}` is unknown here; known: {known}", clip(name))))
            }
        }
    }
}

/// The members of a small JSON object.
pub(super) struct Members {
    of: BTreeMap<String, Json>,
}

impl Members {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        match json::parse(body) {
            Ok(Json::Object(of)) => Ok(Self { of }),
            Ok(_) => Err(Refusal::invalid("the body is not a JSON object")),
            Err(error) => Err(Refusal::invalid(error.to_string())),
        }
    }

    /// A nested object.
    pub(super) fn object(&mut self, name: &str) -> Result<Self, Refusal> {
        let missing = || Refusal::invalid(format!("`{name}` is missing or not an object"));
        self.maybe_object(name)?.ok_or_else(missing)
    }

    pub(super) fn maybe_object(&mut self, name: &str) -> Result<Option<Self>, Refusal> {
        match self.of.remove(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Object(of)) => Ok(Some(Self { of })),
            Some(_) => Err(Refusal::invalid(format!("`{name}` is not an object"))),
        }
    }

    pub(super) fn required(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| Refusal::invalid(format!("`{name}` is missing")))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.of.remove(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::invalid(format!("`{name}` is not a string"))),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.of.remove(name) {
            Some(Json::Bool(flag)) => Ok(flag),
            _ => Err(Refusal::invalid(format!("`{name}` is missing or neither true nor false"))),
        }
    }

    pub(super) fn integer(&mut self, name: &str) -> Result<u64, Refusal> {
        let missing = || Refusal::invalid(format!("`{name}` is missing or not an integer of zero or more"));
        self.maybe_integer(name)?.ok_or_else(missing)
    }

    pub(super) fn maybe_integer(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let token = match self.of.remove(name) {
            None | Some(Json::Null) => return Ok(None),
            Some(Json::Number(token)) => token,
            Some(_) => String::new(),
        };
        let id = token.parse().map_err(|_| Refusal::invalid(format!("`{name}` is not an integer of zero or more")))?;
        Ok(Some(id))
    }

    pub(super) fn end(self, known: &str) -> Result<(), Refusal> {
        match self.of.keys().next() {
            None => Ok(()),
            Some(name) => Err(Refusal::invalid(format!("member `{}` is unknown here; known: {known}", clip(name)))),
        }
    }
}

/// A client's text in a message: short, whatever was sent.
fn clip(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
