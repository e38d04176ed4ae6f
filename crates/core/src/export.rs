//! Exports: the evidence as JSON Lines that anyone can check without a node (AADP §14), in one spelling.
//!
//! ```text
//! {"placet_export":1}
//! {"entry":<canonical bytes of aud-1>,"hash":"<its chain hash>"}
//! ...
//! {"chain_head":"<hash>","count":<entries>,"root":"<Merkle root>","signed":<newest signed head, or null>}
//! ```
//!
//! Absent on purpose: files, and trust: whose signature counts is what the auditor brings in [`Trust`].
//! INVARIANT (one spelling): every byte of an export means something; a line that could be written in another way is
//! refused, so a change of any byte is found. Memory does not grow with the export.

mod verifier;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::Entry;
use crate::head::SignedHead;
use crate::ids::{EvidenceIndex, Hash};
use crate::stamp::Stamp;

pub use verifier::Verifier;

/// The first line.
pub const HEADER: &[u8] = b"{\"placet_export\":1}\n";

/// Longest line. The largest entry holds a policy: a document of 1 MiB, whose canonical form spells every default.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Begins every line that holds an entry.
const ENTRY: &[u8] = b"{\"entry\":";

/// Stands between an entry and its hash.
const ENTRY_HASH: &[u8] = b",\"hash\":\"";

/// Ends a line that holds an entry.
const ENTRY_END: &[u8] = b"\"}\n";

/// Begins the last line.
const TRAILER: &[u8] = b"{\"chain_head\":";

/// The line of one entry.
pub fn entry_line(entry: &[u8], hash: &Hash) -> Vec<u8> {
    [ENTRY, entry, ENTRY_HASH, hash.to_string().as_bytes(), ENTRY_END].concat()
}

/// What the last line says. Members are in alphabetical order: canonical JSON (AADP §14.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trailer {
    /// The hash of the last entry.
    pub chain_head: Hash,
    /// How many entries there are.
    pub count: u64,
    /// The root of the tree over all of them.
    pub root: Hash,
    /// The newest head that was signed: the one in the last `head_signed` entry, or one over all entries.
    pub signed: Option<SignedHead>,
}

impl Trailer {
    /// The last line.
    pub fn line(&self) -> Vec<u8> {
        // Strings and an integer; serialising them to memory has no way to fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// What the auditor knows from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Heads that were kept: the export must continue each of them.
    pub heads: Vec<SignedHead>,
    /// Keys whose signatures count, 64 lowercase hex digits each; without any, no signature vouches for anything.
    pub keys: Vec<String>,
}

/// What one line was.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every line is an entry")]
pub enum Line<'a> {
    /// The first.
    Header,
    /// An entry and its canonical bytes.
    Entry(Entry, &'a [u8]),
    /// The last.
    Trailer,
}

/// An export that is what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The hash of the last entry.
    pub chain_head: Hash,
    /// How many entries there are.
    pub entries: u64,
    /// When the first was recorded.
    pub from: Option<Stamp>,
    /// Signed heads among the entries; each fits what stands before it.
    pub heads: u64,
    /// The auditor's heads; the export continues each of them.
    pub heads_given: u64,
    /// Entries in which values were replaced by digests: verifiable, and not readable.
    pub redacted: u64,
    /// How many entries the newest backup held that the cluster was restored from. A head of the cluster before over
    /// more than that is of entries that this one does not have.
    pub restored: Option<u64>,
    /// The root of the tree over all entries.
    pub root: Hash,
    /// When the last was recorded.
    pub to: Option<Stamp>,
    /// How many entries, from the first, are under a head signed by a trusted key. Without trusted keys the export is
    /// consistent in itself, and nobody vouches for it.
    pub vouched: Option<u64>,
}

/// What kind of check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A line is not one of an export.
    Unreadable,
    /// An entry is not the one that follows.
    Chain,
    /// An entry has another hash than the line says.
    Hash,
    /// The tree has another root.
    Tree,
    /// A signature does not fit, or none is by a trusted key.
    Signature,
    /// Entries are missing at the end.
    Truncated,
    /// A signed head says something else about the entries before it.
    Contradiction,
    /// An entry does not follow from those before it.
    Difference,
}

impl Kind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Chain => "chain",
            Self::Hash => "hash",
            Self::Tree => "tree",
            Self::Signature => "signature",
            Self::Truncated => "truncated",
            Self::Contradiction => "contradiction",
            Self::Difference => "difference",
        }
    }

    /// The exit code of every verifier.
    pub fn code(self) -> u8 {
        match self {
            Self::Unreadable => 20,
            Self::Chain => 21,
            Self::Hash => 22,
            Self::Tree => 23,
            Self::Signature => 24,
            Self::Truncated => 25,
            Self::Contradiction => 26,
            Self::Difference => 27,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The first thing that is wrong with an export.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Failure {
    /// Which check.
    pub kind: Kind,
    /// Where in the evidence; `None` when it is about no entry: the first line, the last, or a given head.
    pub entry: Option<EvidenceIndex>,
    /// Where in the file, from 1; 0 before the first line.
    pub line: u64,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(index) => write!(f, "entry `{index}` (line {}): {}: {}", self.line, self.kind, self.detail),
            None if self.line > 0 => write!(f, "line {}: {}: {}", self.line, self.kind, self.detail),
            None => write!(f, "{}: {}", self.kind, self.detail),
        }
    }
}
