//! Signed heads: one signature over how far the evidence goes, its chain and its tree, so that whoever keeps a head can
//! later show that history was rewritten (AADP §14.7; the idea of a signed tree head is RFC 6962 §3.5).
//! Absent on purpose: randomness (Ed25519 needs none to sign), key storage, and trust: a head that verifies is
//! consistent in itself, and only a key that is vouched for elsewhere makes it more.

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::ids::{Hash, hex};
use crate::stamp::Stamp;

/// Precedes every signed head, so that these signatures mean nothing elsewhere.
const MESSAGE_TAG: &[u8] = b"placet/head/1\0";

/// How far the evidence goes. Members are in alphabetical order: canonical JSON (AADP §14.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// When it was signed.
    pub at: Stamp,
    /// The chain hash of the last entry.
    pub chain_head: Hash,
    /// The root of the tree over all entries.
    pub root: Hash,
    /// How many entries there are.
    pub size: u64,
}

impl Head {
    /// The bytes that a signature covers.
    fn message(&self) -> Vec<u8> {
        // A head is strings and an integer; serialising it to memory has no way to fail.
        [MESSAGE_TAG, &serde_json::to_vec(self).unwrap_or_default()].concat()
    }
}

/// A head with the signature of the node that made it. Unknown members are refused: nothing unsigned rides along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedHead {
    /// What is signed.
    pub head: Head,
    /// The Ed25519 public key, 64 lowercase hex digits.
    pub key: String,
    /// The signature, 128 lowercase hex digits.
    pub signature: String,
}

impl SignedHead {
    /// Whether the holder of `key` signed exactly this head. Whether `key` is to be trusted is the caller's question.
    pub fn verify(&self) -> bool {
        verify_signature(&self.key, &self.head.message(), &self.signature)
    }
}

/// Whether the holder of `key` signed exactly `message`: Ed25519, key and signature in lowercase hex.
pub fn verify_signature(key: &str, message: &[u8], signature: &str) -> bool {
    let Some(key) = verifying_key(key) else { return false };
    let Some(signature) = unhex(signature).map(|bytes| Signature::from_bytes(&bytes)) else { return false };
    // Strict: under a weak key, one signature would fit many messages.
    key.verify_strict(message, &signature).is_ok()
}

/// Whether `text` is an Ed25519 public key, 64 lowercase hex digits.
pub fn is_public_key(text: &str) -> bool {
    verifying_key(text).is_some_and(|key| !key.is_weak())
}

fn verifying_key(text: &str) -> Option<VerifyingKey> {
    unhex(text).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok())
}

/// Signs heads with one key. The secret is erased from memory when the signer is dropped.
pub struct HeadSigner {
    key: SigningKey,
}

impl HeadSigner {
    /// The signer whose Ed25519 secret key (RFC 8032 §5.1.5) is `secret`.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(secret) }
    }

    /// The public key, 64 lowercase hex digits.
    pub fn public_key(&self) -> String {
        hex(self.key.verifying_key().as_bytes())
    }

    /// Signs a head.
    pub fn sign(&self, head: Head) -> SignedHead {
        let signature = hex(&self.key.sign(&head.message()).to_bytes());
        SignedHead { head, key: self.public_key(), signature }
    }
}

impl fmt::Debug for HeadSigner {
    /// Shows whose signer it is, never the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadSigner").field("public_key", &self.public_key()).finish_non_exhaustive()
    }
}

/// Reads exactly `N` bytes of lowercase hex: one spelling only, so that no other text passes for the same signature.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut out = [0u8; N];
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(out)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn head() -> Head {
        let at = Stamp::parse("2026-08-17T09:00:00.5Z").unwrap();
        Head { at, chain_head: Hash::of(b"chain"), root: Hash::of(b"root"), size: 1042 }
    }

    fn signed() -> SignedHead {
        HeadSigner::new(&SECRET).sign(head())
    }

    /// `bytes` with one bit changed, once for each byte.
    fn neighbours<const N: usize>(bytes: [u8; N]) -> impl Iterator<Item = [u8; N]> {
        (0..N).map(move |at| {
            let mut changed = bytes;
            changed[at] ^= 1 << (at % 8);
            changed
        })
    }

    #[test]
    fn a_head_survives_the_journey() {
        let signer = HeadSigner::new(&SECRET);
        let signed = signer.sign(head());
        assert!(signed.verify());
        assert_eq!((&signed.head, &signed.key), (&head(), &signer.public_key()));
        let text = serde_json::to_string(&signed).unwrap();
        let back: SignedHead = serde_json::from_str(&text).unwrap();
        assert_eq!(back, signed);
        assert!(back.verify());
        assert_eq!(signer.sign(head()), signed, "the same head has one signature");
    }

    /// These bytes are never edited: a head that was signed once must verify for good.
    #[test]
    fn golden_bytes() {
        let canonical = concat!(
            r#"{"at":"2026-08-17T09:00:00.5Z","#,
            r#""chain_head":"ed2314e8b37e504072414a91c8c56aaccfb48f5d3aac7ac45ccf275f2984ebee","#,
            r#""root":"92a2b787a06d7272df43eaf87acc3b9c1d315d79d599d61c285983483e431998","#,
            r#""size":1042}"#
        );
        assert_eq!(head().message(), [b"placet/head/1\0", canonical.as_bytes()].concat());
        assert_eq!(signed().key, "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c");
        assert_eq!(
            signed().signature,
            concat!(
                "7f8363331e29bdea3f395b20f8a88efb598090351e76096b4ae7475dc1aebe04",
                "c8e6fdd0ce56fccc10d9c28c5756b968fb2ed44d6048f004bad121183f117a0a"
            )
        );
    }

    #[test]
    fn a_change_of_any_value_fails() {
        let good = signed();
        let refused = |change: &dyn Fn(&mut SignedHead)| {
            let mut changed = good.clone();
            change(&mut changed);
            assert_ne!(changed, good);
            assert!(!changed.verify(), "{changed:?}");
        };
        for bytes in neighbours(good.head.at.0.to_be_bytes()) {
            refused(&|it| it.head.at = Stamp(i64::from_be_bytes(bytes)));
        }
        for bytes in neighbours(good.head.size.to_be_bytes()) {
            refused(&|it| it.head.size = u64::from_be_bytes(bytes));
        }
        for bytes in neighbours(good.head.chain_head.0) {
            refused(&|it| it.head.chain_head = Hash(bytes));
        }
        for bytes in neighbours(good.head.root.0) {
            refused(&|it| it.head.root = Hash(bytes));
        }
        for bytes in neighbours(unhex::<32>(&good.key).unwrap()) {
            refused(&|it| it.key = hex(&bytes));
        }
        for bytes in neighbours(unhex::<64>(&good.signature).unwrap()) {
            refused(&|it| it.signature = hex(&bytes));
        }
        refused(&|it| std::mem::swap(&mut it.head.root, &mut it.head.chain_head));
    }

    #[test]
    fn a_change_of_any_byte_of_the_text_fails() {
        let text = serde_json::to_vec(&signed()).unwrap();
        for at in 0..text.len() {
            for byte in [text[at] ^ 1, text[at] ^ 0x20, text[at] ^ 0x80, b'\\'] {
                let mut changed = text.clone();
                changed[at] = byte;
                if changed != text {
                    let verified = serde_json::from_slice::<SignedHead>(&changed).is_ok_and(|it| it.verify());
                    assert!(!verified, "byte {at}: {}", String::from_utf8_lossy(&changed));
                }
            }
        }
    }

    #[test]
    fn hex_has_one_spelling() {
        let good = signed();
        for (key, signature) in [
            (good.key.to_uppercase(), good.signature.clone()),
            (good.key.clone(), good.signature.to_uppercase()),
            (format!("{} ", good.key), good.signature.clone()),
            (format!("0{}", good.key), good.signature.clone()),
            (good.key.clone(), format!("{}00", good.signature)),
            (good.key.clone(), good.signature.get(2..).unwrap().to_owned()),
            (good.key.clone(), good.signature.get(1..).unwrap().to_owned()),
            (String::new(), String::new()),
            ("é".repeat(32), good.signature.clone()),
        ] {
            let changed = SignedHead { head: head(), key, signature };
            assert!(!changed.verify(), "{changed:?}");
        }
    }

    /// The neutral point as key and as first half of the signature fits every message unless verification is strict.
    #[test]
    fn a_weak_key_signs_nothing() {
        let neutral = format!("01{}", "00".repeat(31));
        let forged =
            SignedHead { head: head(), key: neutral.clone(), signature: format!("{neutral}{}", "00".repeat(32)) };
        let key = VerifyingKey::from_bytes(&unhex(&forged.key).unwrap()).unwrap();
        let signature = Signature::from_bytes(&unhex(&forged.signature).unwrap());
        assert!(ed25519_dalek::Verifier::verify(&key, &head().message(), &signature).is_ok());
        assert!(!forged.verify());
    }

    #[test]
    fn another_key_is_another_signer() {
        let other = HeadSigner::new(&[8; 32]).sign(head());
        assert!(other.verify());
        assert!(!SignedHead { key: signed().key, ..other }.verify());
    }

    #[test]
    fn unknown_members_are_refused() {
        let text = serde_json::to_string(&signed()).unwrap();
        for changed in [text.replacen("\"size\"", "\"note\":1,\"size\"", 1), text.replacen('{', "{\"note\":1,", 1)] {
            assert!(serde_json::from_str::<SignedHead>(&changed).is_err(), "{changed}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let signer = HeadSigner::new(&SECRET);
        let shown = format!("{signer:?} {signer:#?}");
        assert!(shown.contains(&signer.public_key()));
        assert!(!shown.contains(&hex(&SECRET)) && !shown.contains("7, 7") && !shown.contains("SigningKey"), "{shown}");
    }
}
