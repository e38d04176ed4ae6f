//! The list for `fail_static` (AADP §16): which actions may run, with which arguments, while no decision point
//! answers. Fetched while one does, kept in a file, and refused when it is old or says anything beyond that.
//! Absent on purpose: budgets, approvals, obligations. An entry that needs one has no place here.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use placet_core::evaluate::within_bounds;
use placet_core::ids::Hash;
use placet_core::json::{self, Json};
use placet_core::policy::Bounds;
use placet_core::stamp::Stamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock;
use crate::limits::{ANSWER_BYTES_MAX, STATIC_ACTIONS_MAX};
use crate::outbox::write_whole;

/// Name of the file beside the outbox.
const FILE: &str = "static.json";

/// Why a list is not used.
#[derive(Debug, Error)]
pub enum StaticListError {
    /// It is not the JSON of a list, or an entry says more than a type, a tier and bounds.
    #[error("the list cannot be read: {0}")]
    Unreadable(String),
    /// An entry is not statically decidable.
    #[error("`{action_type}` has tier {tier}; only tiers 0 and 1 are decided without a decision point")]
    Tier {
        /// Of the entry.
        action_type: String,
        /// Of the entry.
        tier: u8,
    },
    /// An action type appears twice.
    #[error("`{0}` is listed twice")]
    Twice(String),
    /// More entries than the bound allows.
    #[error("the list has more than {STATIC_ACTIONS_MAX} entries")]
    TooLong,
    /// The file.
    #[error("the cached list cannot be used")]
    Io(#[from] io::Error),
}

/// A list that was checked.
///
/// ```
/// use placet_pep::StaticList;
///
/// let bounds = r#"{"enum":{},"numeric":{},"required":[],"strict_params":true}"#;
/// let list = |extra| {
///     let entry = format!(r#"{{"action_type":"lamp.toggle","tier":1,"params":{bounds}{extra}}}"#);
///     StaticList::read(format!(r#"{{"policy":"d","as_of":"2026-08-17T09:00:00Z","actions":[{entry}]}}"#).as_bytes())
/// };
/// assert!(list("").is_ok());
/// assert!(list(r#","approval":true"#).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct StaticList {
    policy: String,
    as_of: Stamp,
    actions: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Document {
    policy: String,
    as_of: Stamp,
    actions: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    action_type: String,
    tier: u8,
    params: Bounds,
}

impl StaticList {
    /// Reads the answer of `GET /v1/static`.
    pub fn read(body: &[u8]) -> Result<Self, StaticListError> {
        json::parse(body).map_err(|error| StaticListError::Unreadable(error.to_string()))?;
        let document: Document =
            serde_json::from_slice(body).map_err(|error| StaticListError::Unreadable(error.to_string()))?;
        if document.actions.len() > STATIC_ACTIONS_MAX {
            return Err(StaticListError::TooLong);
        }
        let mut actions = BTreeMap::new();
        for entry in document.actions {
            let action_type = entry.action_type.clone();
            if entry.tier > 1 {
                return Err(StaticListError::Tier { action_type, tier: entry.tier });
            }
            if actions.insert(action_type.clone(), entry).is_some() {
                return Err(StaticListError::Twice(action_type));
            }
        }
        Ok(Self { policy: document.policy, as_of: document.as_of, actions })
    }

    /// Digest of the policy that the list was derived from.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// When the decision point derived it, by its clock.
    pub fn as_of(&self) -> Stamp {
        self.as_of
    }

    /// How many action types are on it.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The tier under which this action may run, or why it may not.
    pub(crate) fn permits(&self, action_type: &str, params: &BTreeMap<String, Json>) -> Result<u8, String> {
        let entry = self.actions.get(action_type).ok_or_else(|| format!("`{action_type}` is not on the list"))?;
        within_bounds(&entry.params, params)?;
        Ok(entry.tier)
    }
}

/// A list and when it arrived here. Its age counts from there, by this machine's clock.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) list: StaticList,
    fetched_at: Stamp,
}

/// The file: what arrived, when, and a checksum over both.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    checksum: Hash,
    fetched_at: Stamp,
    list: String,
}

fn checksum(fetched_at: Stamp, list: &str) -> Hash {
    Hash::of(format!("{fetched_at}\n{list}").as_bytes())
}

impl Cached {
    /// Takes a fresh answer, and keeps it in `folder`.
    pub(crate) fn fresh(folder: &Path, body: &[u8]) -> Result<Self, StaticListError> {
        let list = StaticList::read(body)?;
        let text = String::from_utf8_lossy(body).into_owned();
        let fetched_at = clock::now();
        let file = File { checksum: checksum(fetched_at, &text), fetched_at, list: text };
        let bytes = serde_json::to_vec(&file).map_err(io::Error::from)?;
        write_whole(folder, FILE, &bytes)?;
        Ok(Self { list, fetched_at })
    }

    /// Takes what an earlier life kept in `folder`; `None` when it kept nothing.
    pub(crate) fn load(folder: &Path) -> Result<Option<Self>, StaticListError> {
        let bytes = match fs::read(folder.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if bytes.len() > ANSWER_BYTES_MAX.saturating_mul(2) {
            return Err(StaticListError::TooLong);
        }
        let file: File =
            serde_json::from_slice(&bytes).map_err(|error| StaticListError::Unreadable(error.to_string()))?;
        let list = StaticList::read(file.list.as_bytes())?;
        if file.checksum != checksum(file.fetched_at, &file.list) {
            return Err(StaticListError::Unreadable("it was changed after it was written".to_owned()));
        }
        Ok(Some(Self { list, fetched_at: file.fetched_at }))
    }

    /// Removes what was kept, so that the next life does not use it either.
    pub(crate) fn forget(folder: &Path) {
        if let Err(error) = fs::remove_file(folder.join(FILE))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(%error, "an old list for fail_static cannot be removed");
        }
    }

    /// Whether it is young enough. A clock that was turned back makes it unusable, not younger.
    pub(crate) fn is_usable(&self, max_age: Duration) -> bool {
        let age_ms = clock::now().0.saturating_sub(self.fetched_at.0);
        u128::try_from(age_ms).is_ok_and(|age| age <= max_age.as_millis())
    }
}
