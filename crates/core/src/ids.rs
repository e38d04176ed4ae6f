//! Newtypes for every identifier, so that none can stand in for another.
//! Absent on purpose: a source of randomness; capability identifiers are built from bytes that the caller brings.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps text that is already known to be such an identifier.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text as it travels.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The authenticated identity of a caller; it comes from the channel, never from a body (AADP §2).
    Principal
}
text_id! {
    /// Idempotency key of a decide: a UUID in lowercase hyphenated form (AADP §10.1).
    RequestId
}
text_id! {
    /// Exact key into the policy (AADP §3.1).
    ActionType
}
text_id! {
    /// Capability to report: `pmt-` and 128 random bits (AADP §10.2, §12).
    PermitId
}
text_id! {
    /// Capability to resume: `apr-` and 128 random bits (AADP §10.2, §12).
    ApprovalId
}
text_id! {
    /// SHA-256 of a policy's canonical form, lowercase hex (AADP §8.1).
    PolicyDigest
}

impl Principal {
    /// The identity under which the cluster itself records expiry.
    pub fn system() -> Self {
        Self::new("placet:system")
    }
}

impl RequestId {
    /// Reads a UUID; `None` when the text is not one. Case is spelling, so the result is lowercase.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let shaped = bytes.len() == 36
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        shaped.then(|| Self(text.to_ascii_lowercase()))
    }
}

impl RequestId {
    /// A new version 4 UUID from 128 random bits.
    pub fn from_random(mut bits: [u8; 16]) -> Self {
        let [.., six, _, eight, _, _, _, _, _, _, _] = &mut bits;
        *six = (*six & 0x0f) | 0x40;
        *eight = (*eight & 0x3f) | 0x80;
        let digits = hex(&bits);
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        Self(format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)))
    }
}

impl PermitId {
    /// A new identifier from 128 random bits.
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self(format!("pmt-{}", hex(&bits)))
    }

    /// What evidence shows instead of the capability.
    pub fn digest(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl ApprovalId {
    /// A new identifier from 128 random bits.
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self(format!("apr-{}", hex(&bits)))
    }
}

/// Random bytes for one decide, from the operating system; an argument, so that evaluation stays a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entropy {
    /// Becomes the permit identifier, if one is issued.
    pub permit: [u8; 16],
    /// Becomes the approval identifier, if one is opened.
    pub approval: [u8; 16],
    /// Becomes the request identifier of a resumption that the decision point drives.
    pub request: [u8; 16],
}

/// Position of an entry in the evidence, from 1. On the wire: `aud-<ordinal>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EvidenceIndex(pub u64);

impl EvidenceIndex {
    /// The position after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Reads `aud-<ordinal>`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("aud-")?;
        let plain = !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if plain { digits.parse().ok().map(Self) } else { None }
    }
}

impl fmt::Display for EvidenceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aud-{}", self.0)
    }
}

/// A BLAKE3 hash; lowercase hex wherever it is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first entry names as its predecessor.
    pub const GENESIS: Self = Self([0; 32]);

    /// BLAKE3 of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads 64 lowercase hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0u8; 32];
        if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self(out))
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::GENESIS
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a hash is 64 lowercase hex digits"))
    }
}

/// Lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
