//! Newtypes for every identifier, so that none can stand in for another. Text is shared: a decision copies its
//! identifiers into its entry, its records and its answer.
//! Absent on purpose: a source of randomness; capability identifiers are built from bytes that the caller brings.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps text that is already known to be such an identifier.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text as it travels.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parsed(|text| Some(Self(Arc::from(text))), "a string"))
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
        let lower = || {
            if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
                text.to_ascii_lowercase().into()
            } else {
                text.into()
            }
        };
        shaped.then(|| Self(lower()))
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
        Self::new(format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)))
    }
}

impl PermitId {
    /// A new identifier from 128 random bits.
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self::new(format!("pmt-{}", hex(&bits)))
    }

    /// What evidence shows instead of the capability.
    pub fn digest(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl ApprovalId {
    /// A new identifier from 128 random bits.
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self::new(format!("apr-{}", hex(&bits)))
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
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut out = [0u8; 32];
        if pairs.len() != out.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in out.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(out))
    }

    /// Shows its digits without a string of its own: every entry has some.
    fn digits<T>(&self, show: impl FnOnce(&str) -> T) -> T {
        let mut digits = [0u8; 64];
        for ([high, low], byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            (*high, *low) = (hex_digit(byte >> 4), hex_digit(byte & 15));
        }
        show(str::from_utf8(&digits).unwrap_or_default())
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::GENESIS
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits(|digits| f.write_str(digits))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digits(|digits| serializer.serialize_str(digits))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(Self::parse, "64 lowercase hex digits"))
    }
}

/// Reads a value from a string where it stands: a string of its own for each would be most of the work.
pub(crate) struct Parsed<T>(pub(crate) fn(&str) -> Option<T>, pub(crate) &'static str);

impl<T> serde::de::Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).ok_or_else(|| E::custom(self.1))
    }
}

/// Lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        digits.push(char::from(hex_digit(byte >> 4)));
        digits.push(char::from(hex_digit(byte & 15)));
    }
    digits
}

fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble }
}
