//! Requests, parsed at the door (AADP §10.1, §10.3): inside, a request cannot be malformed.
//! Absent on purpose: judgement. A body that cannot be parsed becomes a [`Malformed`], which is itself recorded.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Decided, LocalDecision, LocalMode};
use crate::exact::Amount;
use crate::ids::{ActionType, ApprovalId, Hash, PermitId, PolicyDigest, RequestId, hex};
use crate::json::{self, Json, JsonError, Member, Members, clip};
use crate::limits::{
    ACTION_TYPE_BYTES_MAX, BODY_BYTES_MAX, LOCAL_DECISIONS_MAX, MALFORMED_KEPT_BYTES_MAX, OPAQUE_BYTES_MAX,
};
use crate::reply::Protocol;
use crate::stamp::Stamp;

/// How many times longer than itself a received number can be in canonical form: `9e64` has 65 digits.
const CANONICAL_GROWTH_MAX: usize = 17;

/// Who built the request (AADP §3.1); informational.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the table of AADP §3.1 is the documentation")]
pub enum Source {
    Scheduler,
    Rule,
    Llm,
    Ui,
    Undo,
    System,
}

impl Source {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "scheduler" => Self::Scheduler,
            "rule" => Self::Rule,
            "llm" => Self::Llm,
            "ui" => Self::Ui,
            "undo" => Self::Undo,
            "system" => Self::System,
            _ => return None,
        })
    }
}

/// A decide request that is well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of AADP §10.1 is the documentation")]
pub struct DecideRequest {
    pub protocol: Protocol,
    pub request_id: RequestId,
    pub action_type: ActionType,
    /// The arguments, by name.
    pub params: BTreeMap<String, Json>,
    /// The arguments exactly as received.
    pub params_raw: String,
    pub source: Source,
    pub rationale: String,
    pub session_id: Option<String>,
    pub cost_eur: Option<Amount>,
    pub created_at: Stamp,
    pub parent_id: Option<String>,
    pub approval_ref: Option<ApprovalId>,
    pub presented_audience: Option<String>,
}

impl DecideRequest {
    /// Reads the body of `POST /v1/decide`.
    pub fn parse(body: &[u8]) -> Result<Self, Box<Malformed>> {
        let members = json::parse_members(body).map_err(|error| Box::new(Malformed::json(body, &error)))?;
        let malformed = |detail| Malformed::field(body, detail);
        let request = Self::from_fields(Fields { members }).map_err(|detail| Box::new(malformed(detail)))?;
        if canonical_is_too_large(&request.params_raw, || request.params_canonical().len()) {
            let detail = format!(
                "`params` is larger than {BODY_BYTES_MAX} bytes in its canonical form, which writes exponents out"
            );
            return Err(Box::new(Malformed { kind: "size".to_owned(), ..malformed(detail) }));
        }
        Ok(request)
    }

    /// The request behind a recorded decision; `None` where the record holds no arguments.
    pub fn of_record(protocol: Protocol, decided: &Decided) -> Option<Self> {
        let Ok(Json::Object(params)) = json::parse_record(decided.params.as_bytes()) else { return None };
        Some(Self {
            protocol,
            request_id: decided.request_id.clone(),
            action_type: decided.action_type.clone(),
            params,
            params_raw: decided.params.clone(),
            source: decided.source,
            rationale: decided.rationale.clone(),
            session_id: decided.session_id.clone(),
            cost_eur: decided.cost_eur,
            created_at: decided.created_at,
            parent_id: decided.parent_id.clone(),
            approval_ref: decided.approval_ref.clone(),
            presented_audience: decided.presented_audience.clone(),
        })
    }

    fn from_fields(mut fields: Fields<'_>) -> Result<Self, String> {
        let protocol = fields.protocol()?;
        let request_id = fields.request_id()?;
        let action_type = fields.action_type()?;
        let (params, params_raw) = fields.params()?;
        let source = fields.source()?;
        fields.required("rationale")?;
        let rationale = fields.take("rationale")?.unwrap_or_default();
        let cost_eur = match fields
            .text("cost_eur")
            .map_err(|_| "`cost_eur` is not a string; money is a decimal string such as \"40.00\"".to_owned())?
        {
            None => None,
            Some(text) => Some(Amount::parse(text).filter(|amount| !amount.is_negative()).ok_or_else(|| {
                format!("`cost_eur` is `{}`, not a decimal string of zero or more that fits 28 digits", clip(text))
            })?),
        };
        let approval_ref = match fields.opaque("approval_ref")? {
            Some("") => return Err("`approval_ref` is empty".into()),
            other => other.map(ApprovalId::new),
        };
        Ok(Self {
            protocol,
            request_id,
            action_type,
            params,
            params_raw,
            source,
            rationale,
            session_id: fields.take_opaque("session_id")?,
            cost_eur,
            created_at: fields.instant("created_at")?,
            parent_id: fields.take_opaque("parent_id")?,
            approval_ref,
            presented_audience: fields.take_opaque("presented_audience")?,
        })
    }

    /// The canonical text of the arguments (AADP §11.4): spelling removed, values kept.
    pub fn params_canonical(&self) -> String {
        json::canonical_object(&self.params)
    }

    /// What a replay must repeat (AADP §12): action type, params, cost, parent and approval reference.
    pub fn digest(&self, params_canonical: &str) -> Hash {
        let cost = self.cost_eur.map(|cost| cost.to_string());
        let parts = [
            Some(self.action_type.as_str()),
            Some(params_canonical),
            cost.as_deref(),
            self.parent_id.as_deref(),
            self.approval_ref.as_ref().map(ApprovalId::as_str),
        ];
        digest_parts("placet/request/1", &parts)
    }
}

/// What the enforcement point says happened (AADP §10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the list of AADP §10.5 is the documentation")]
pub enum Outcome {
    Success,
    Failure,
    Timeout,
    NotAttempted,
}

/// Which decision a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportSubject {
    /// A permit: the report settles it.
    Permit(PermitId),
    /// A decision without a permit: the report is kept as information (AADP §10.5).
    Request(RequestId),
}

/// A report request that is well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of AADP §10.3 is the documentation")]
pub struct ReportRequest {
    pub protocol: Protocol,
    pub subject: ReportSubject,
    pub outcome: Outcome,
    /// The payload exactly as received.
    pub payload_raw: Option<String>,
    pub error: Option<String>,
    pub completed_at: Stamp,
    pub no_effect: bool,
}

impl ReportRequest {
    /// Reads the body of `POST /v1/report`.
    pub fn parse(body: &[u8]) -> Result<Self, Box<Malformed>> {
        let members = json::parse_members(body).map_err(|error| Box::new(Malformed::json(body, &error)))?;
        let malformed = |detail| Malformed { request_id: None, ..Malformed::field(body, detail) };
        Self::from_fields(Fields { members }).map_err(|detail| Box::new(malformed(detail)))
    }

    fn from_fields(mut fields: Fields<'_>) -> Result<Self, String> {
        let protocol = fields.protocol()?;
        let subject = match (fields.opaque("permit_id")?, fields.opaque("request_id")?) {
            (Some(""), _) => return Err("`permit_id` is empty".into()),
            (Some(permit), _) => ReportSubject::Permit(PermitId::new(permit)),
            (None, Some(request)) => ReportSubject::Request(
                RequestId::parse(request).ok_or_else(|| format!("`request_id` is `{}`, not a UUID", clip(request)))?,
            ),
            (None, None) => return Err("`permit_id` is missing".into()),
        };
        let outcome = fields.outcome()?;
        let payload_raw = match fields.members.get("payload") {
            None | Some(Member { value: Json::Null, .. }) => None,
            Some(Member { value: Json::Object(_), raw }) => Some((*raw).to_owned()),
            Some(_) => return Err("`payload` is neither an object nor null".into()),
        };
        let no_effect = match fields.members.get("no_effect").map(|member| &member.value) {
            None | Some(Json::Null) => false,
            Some(Json::Bool(flag)) => *flag,
            Some(_) => return Err("`no_effect` is neither true nor false".into()),
        };
        Ok(Self {
            protocol,
            subject,
            outcome,
            payload_raw,
            error: fields.take("error")?,
            completed_at: fields.instant("completed_at")?,
            no_effect,
        })
    }
}

/// What an enforcement point delivers of its own decisions (AADP §16).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of the message")]
pub struct LocalReport {
    pub protocol: Protocol,
    pub entries: Vec<LocalDecision>,
}

impl LocalReport {
    /// Reads the body of `POST /v1/local`; the error says which member of which entry is wrong.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let mut fields = Fields { members: json::parse_members(body).map_err(|error| error.to_string())? };
        let protocol = fields.protocol()?;
        let Some(Member { value: Json::Array(items), .. }) = fields.members.remove("entries") else {
            return Err("`entries` is missing; it is a list".to_owned());
        };
        if items.is_empty() || items.len() > LOCAL_DECISIONS_MAX {
            return Err(format!("`entries` has {} members; it has 1 to {LOCAL_DECISIONS_MAX}", items.len()));
        }
        let mut canonical = 0usize;
        let mut entries = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let Json::Object(members) = item else { return Err(format!("entry {at}: it is not an object")) };
            let members = members.into_iter().map(|(name, value)| (Cow::Owned(name), Member { value, raw: "" }));
            let fields = Fields { members: members.collect() };
            let entry = local(fields).map_err(|detail| format!("entry {at}: {detail}"))?;
            canonical = canonical.saturating_add(entry.params.len());
            if canonical > BODY_BYTES_MAX {
                return Err(format!("entry {at}: `params` of the entries are larger than 1 MiB in canonical form"));
            }
            entries.push(entry);
        }
        let mut ids: Vec<&RequestId> = entries.iter().map(|entry| &entry.request_id).collect();
        ids.sort();
        if ids.array_windows().any(|[one, next]| one == next) {
            return Err("two entries have one `request_id`".to_owned());
        }
        Ok(Self { protocol, entries })
    }
}

fn local(mut fields: Fields<'_>) -> Result<LocalDecision, String> {
    let mode = match fields.required("mode")? {
        "fail_static" => LocalMode::FailStatic,
        "fail_open" => LocalMode::FailOpen,
        other => return Err(format!("`mode` is `{}`; it is fail_static or fail_open", clip(other))),
    };
    let policy = match fields.opaque("policy")? {
        Some(text) if Hash::parse(text).is_none() => return Err("`policy` is not a policy digest".to_owned()),
        other => other.map(PolicyDigest::new),
    };
    Ok(LocalDecision {
        action_type: fields.action_type()?,
        completed_at: fields.instant("completed_at")?,
        decided_at: fields.instant("decided_at")?,
        error: fields.take("error")?,
        mode,
        outcome: fields.outcome()?,
        params: json::canonical_object(&fields.params()?.0),
        policy,
        rationale: fields.required("rationale").map(str::to_owned)?,
        redacted: Vec::new(),
        request_id: fields.request_id()?,
        source: fields.source()?,
    })
}

/// A body that is not a request. Recorded with the digest of its bytes (AADP §6.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malformed {
    /// Length of the whole body.
    pub bytes: u64,
    /// Which field, what was found, which form is accepted.
    pub detail: String,
    /// BLAKE3 of the whole body.
    pub digest: Hash,
    /// `field`, or a kind of [`JsonError`].
    pub kind: String,
    /// The negotiated version, if one could be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub protocol: Option<Protocol>,
    /// The beginning of the body, as text, or as `hex:` where it is not UTF-8.
    pub received: String,
    /// Whether `received` holds less than the whole body.
    pub received_clipped: bool,
    /// The request id, if one could be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<RequestId>,
}

impl Malformed {
    /// A body that was never read whole or has a media type that is not JSON: what arrived, and why it was refused.
    pub fn refused(body: &[u8], kind: &str, detail: &str) -> Self {
        let head = body.get(..body.len().min(MALFORMED_KEPT_BYTES_MAX)).unwrap_or_default();
        let received = match std::str::from_utf8(head) {
            Ok(text) => text.to_owned(),
            // Clipping may cut one character in two; what precedes it is still text.
            Err(error) if head.len() < body.len() && error.error_len().is_none() => {
                String::from_utf8_lossy(head.get(..error.valid_up_to()).unwrap_or_default()).into_owned()
            }
            Err(_) => format!("hex:{}", hex(head)),
        };
        Self {
            bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
            detail: detail.to_owned(),
            digest: Hash::of(body),
            kind: kind.to_owned(),
            protocol: None,
            received,
            received_clipped: head.len() < body.len(),
            request_id: None,
        }
    }

    fn json(body: &[u8], error: &JsonError) -> Self {
        Self::refused(body, error.kind, &error.to_string())
    }

    /// JSON whose members are not those of a request; what can be read of it all the same is read again.
    fn field(body: &[u8], detail: String) -> Self {
        let fields = Fields { members: json::parse_members(body).unwrap_or_default() };
        Self {
            protocol: fields.protocol().ok(),
            request_id: fields.text("request_id").ok().flatten().and_then(RequestId::parse),
            ..Self::refused(body, "field", &detail)
        }
    }
}

/// `^[A-Za-z_][A-Za-z0-9_.:-]*$`, at most 255 octets (AADP §3.1).
pub fn is_action_type(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'));
    first && rest && text.len() <= ACTION_TYPE_BYTES_MAX
}

/// Whether the canonical form of `raw` is beyond what a record may hold. It is made only where it could be.
fn canonical_is_too_large(raw: &str, canonical_len: impl FnOnce() -> usize) -> bool {
    raw.len() > BODY_BYTES_MAX / CANONICAL_GROWTH_MAX && canonical_len() > BODY_BYTES_MAX
}

/// BLAKE3 over tagged parts, each absent or preceded by its length, so that no two lists of parts share bytes.
pub(crate) fn digest_parts(tag: &str, parts: &[Option<&str>]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(tag.as_bytes());
    for part in parts {
        match part {
            None => hasher.update(&[0]),
            Some(text) => hasher
                .update(&[1])
                .update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes())
                .update(text.as_bytes()),
        };
    }
    Hash(*hasher.finalize().as_bytes())
}

/// The members of a message, asked for by name. `null` is absence (AADP §10).
struct Fields<'a> {
    members: Members<'a>,
}

impl Fields<'_> {
    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.members.get(name).map(|member| &member.value) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` is not a string")),
        }
    }

    /// The same, without a copy; the member is gone then.
    fn take(&mut self, name: &str) -> Result<Option<String>, String> {
        self.text(name)?;
        match self.members.remove(name).map(|member| member.value) {
            Some(Json::String(text)) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    fn take_opaque(&mut self, name: &str) -> Result<Option<String>, String> {
        self.opaque(name)?;
        self.take(name)
    }

    fn required(&self, name: &str) -> Result<&str, String> {
        self.text(name)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn opaque(&self, name: &str) -> Result<Option<&str>, String> {
        let text = self.text(name)?;
        match text {
            Some(long) if long.len() > OPAQUE_BYTES_MAX => {
                Err(format!("`{name}` is longer than {OPAQUE_BYTES_MAX} bytes"))
            }
            other => Ok(other),
        }
    }

    fn protocol(&self) -> Result<Protocol, String> {
        let text = self.required("protocol")?;
        Protocol::negotiate(text)
            .ok_or_else(|| format!("`protocol` is `{}`; this decision point speaks aadp/0.1 and aadp/0.2", clip(text)))
    }

    fn request_id(&self) -> Result<RequestId, String> {
        let text = self.required("request_id")?;
        RequestId::parse(text)
            .ok_or_else(|| format!("`request_id` is `{}`, not a UUID such as `0d9c1f3e-…`", clip(text)))
    }

    fn action_type(&self) -> Result<ActionType, String> {
        let text = self.required("action_type")?;
        if !is_action_type(text) {
            return Err(format!(
                "`action_type` is `{}`; it is 1 to {ACTION_TYPE_BYTES_MAX} ASCII characters, a letter or `_` first, \
                 then letters, digits, `_`, `.`, `:` or `-`",
                clip(text)
            ));
        }
        Ok(ActionType::new(text))
    }

    /// The arguments, parsed and as received; the member is gone then.
    fn params(&mut self) -> Result<(BTreeMap<String, Json>, String), String> {
        match self.members.remove("params") {
            Some(Member { value: Json::Object(params), raw }) => Ok((params, raw.to_owned())),
            Some(Member { value: Json::Null, .. }) | None => Err("`params` is missing; it is an object".into()),
            Some(_) => Err("`params` is not an object".into()),
        }
    }

    fn source(&self) -> Result<Source, String> {
        let text = self.required("source")?;
        Source::parse(text)
            .ok_or_else(|| format!("`source` is `{}`; it is scheduler, rule, llm, ui, undo or system", clip(text)))
    }

    fn outcome(&self) -> Result<Outcome, String> {
        Ok(match self.required("outcome")? {
            "success" => Outcome::Success,
            "failure" => Outcome::Failure,
            "timeout" => Outcome::Timeout,
            "not_attempted" => Outcome::NotAttempted,
            other => {
                return Err(format!(
                    "`outcome` is `{}`; it is success, failure, timeout or not_attempted",
                    clip(other)
                ));
            }
        })
    }

    fn instant(&self, name: &str) -> Result<Stamp, String> {
        let text = self.required(name)?;
        Stamp::parse(text)
            .ok_or_else(|| format!("`{name}` is `{}`, not an instant in UTC such as 2026-08-17T09:00:00Z", clip(text)))
    }
}
