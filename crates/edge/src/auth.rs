//! Callers, and the bearer tokens that show who they are (AADP §2, §15.1).
//! Absent on purpose: tokens. A keyring keeps BLAKE3 digests and looks up by digest, so no comparison of secrets can
//! leak through its timing; and a principal never comes from a body.

use std::collections::BTreeMap;
use std::path::Path;

use placet_core::ids::{Hash, Principal};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::limits::{PRINCIPAL_BYTES_MAX, TOKEN_CHARS_MAX, TOKEN_CHARS_MIN};
use crate::roles::{Access, Lane, Role};

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    roles: Vec<Role>,
    /// Which bound its call counts against once its body was read; the guard knows.
    pub(crate) lane: Lane,
}

impl Caller {
    /// A caller of this name with these roles, as a file spells them; or what is wrong with them.
    pub(crate) fn new(principal: &str, words: &[String]) -> Result<Self, String> {
        check_principal(principal)?;
        let mut roles = Vec::new();
        for word in words {
            let role = Role::parse(word).ok_or_else(|| {
                format!("has the unknown role `{word}`; roles are decide, approve, operate, policy and audit")
            })?;
            if roles.contains(&role) {
                return Err(format!("has the role `{word}` twice"));
            }
            roles.push(role);
        }
        if roles.is_empty() {
            return Err("has no role".to_owned());
        }
        Ok(Self { principal: Principal::new(principal), roles, lane: Lane::Free })
    }

    /// The same, in a call that counts against `lane`.
    pub(crate) fn at(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// Whether this caller may use an operation.
    pub fn may(&self, access: Access) -> bool {
        match access {
            Access::Open | Access::AnyToken => true,
            Access::AnyOf(roles) => roles.iter().any(|role| self.roles.contains(role)),
        }
    }
}

/// Known tokens.
///
/// The file is a JSON array of entries:
/// `{ "principal": "billing-agent", "roles": ["decide"], "token": "…" }`, or with `"token_blake3": "<64 hex digits>"`
/// instead of the token. One principal may have several entries, each with its own roles.
#[derive(Clone, Default)]
pub struct Keyring {
    callers: BTreeMap<Hash, Caller>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("entries", &self.callers.len()).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Reads a keyring from a file.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyringError::Unreadable { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads a keyring from its text.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let entries: Vec<&RawValue> = serde_json::from_str(text).map_err(|source| KeyringError::Syntax { source })?;
        if entries.is_empty() {
            return Err(KeyringError::Empty);
        }
        let mut keyring = Self::default();
        let mut seen = BTreeMap::new();
        for (at, raw) in entries.iter().enumerate() {
            let number = at + 1;
            let (digest, caller) = read_entry(raw.get()).map_err(|problem| problem.at(number))?;
            if let Some(first) = seen.insert(digest, number) {
                let detail = format!("has the same token as entry {first}");
                return Err(Problem { principal: Some(caller.principal.to_string()), detail }.at(number));
            }
            keyring.callers.insert(digest, caller);
        }
        Ok(keyring)
    }

    /// Who holds `token`.
    pub fn find(&self, token: &str) -> Option<&Caller> {
        self.callers.get(&Hash::of(token.as_bytes()))
    }
}

/// Why a keyring cannot be used.
#[derive(Debug, Error)]
pub enum KeyringError {
    /// The file cannot be read.
    #[error("the keyring `{path}` cannot be read")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not an array.
    #[error("the keyring is not a JSON array of entries")]
    Syntax {
        /// Where.
        source: serde_json::Error,
    },
    /// Nobody could call.
    #[error("the keyring has no entry")]
    Empty,
    /// An entry is wrong.
    #[error("entry {number} of the keyring{of} {detail}")]
    Entry {
        /// From 1.
        number: usize,
        /// The principal in parentheses, if it could be read.
        of: String,
        /// What is wrong and which form is accepted.
        detail: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    principal: String,
    roles: Vec<String>,
    token: Option<String>,
    token_blake3: Option<String>,
}

struct Problem {
    principal: Option<String>,
    detail: String,
}

impl Problem {
    fn at(self, number: usize) -> KeyringError {
        let of = self.principal.map(|principal| format!(" (`{principal}`)")).unwrap_or_default();
        KeyringError::Entry { number, of, detail: self.detail }
    }
}

fn read_entry(text: &str) -> Result<(Hash, Caller), Problem> {
    let raw: RawEntry = serde_json::from_str(text)
        .map_err(|error| Problem { principal: None, detail: format!("is not an entry: {error}") })?;
    let problem = |detail: String| Problem { principal: Some(raw.principal.clone()), detail };
    let caller = Caller::new(&raw.principal, &raw.roles).map_err(&problem)?;
    let digest = match (&raw.token, &raw.token_blake3) {
        (Some(token), None) => {
            check_token(token).map_err(&problem)?;
            Hash::of(token.as_bytes())
        }
        (None, Some(hex)) => Hash::parse(hex)
            .ok_or_else(|| problem("has a `token_blake3` that is not 64 lowercase hex digits".to_owned()))?,
        (None, None) => return Err(problem("has neither `token` nor `token_blake3`".to_owned())),
        (Some(_), Some(_)) => return Err(problem("has both `token` and `token_blake3`".to_owned())),
    };
    Ok((digest, caller))
}

fn check_principal(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > PRINCIPAL_BYTES_MAX {
        return Err("has a principal that is empty or longer than 255 bytes");
    }
    if name.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Err("has a principal with a space or a control character");
    }
    // The cluster records its own acts under this prefix.
    if name.starts_with("placet:") {
        return Err("has a principal that starts with `placet:`, which is reserved");
    }
    Ok(())
}

fn check_token(token: &str) -> Result<(), String> {
    let chars = token.chars().count();
    if chars < TOKEN_CHARS_MIN {
        return Err(format!("has a token of {chars} characters; {TOKEN_CHARS_MIN} is the least"));
    }
    if chars > TOKEN_CHARS_MAX {
        return Err(format!("has a token of {chars} characters; {TOKEN_CHARS_MAX} is the most"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a token with characters that cannot travel in a header; visible ASCII can".to_owned());
    }
    Ok(())
}

/// What a request shows of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presented {
    /// No credential.
    Nothing,
    /// A token that is not known, or a header that is not of the form `Bearer <token>`.
    Unknown,
    /// A known token, or the process at the other end of a socket.
    Known(Caller),
    /// A process that no entry knows.
    Unmapped {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A token, from a process whom the socket identifies already.
    Twice,
}

impl Presented {
    /// Reads the `Authorization` header. Two headers are not a credential: which one would count?
    pub fn read(headers: &http::HeaderMap, keyring: &Keyring) -> Self {
        let mut values = headers.get_all(http::header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return if headers.contains_key(http::header::AUTHORIZATION) { Self::Unknown } else { Self::Nothing };
        };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
        });
        match token.and_then(|token| keyring.find(token)) {
            Some(caller) => Self::Known(caller.clone()),
            None => Self::Unknown,
        }
    }
}
