//! What a backup says about itself: one line that names every file with its checksum, and that checks itself.
//! Absent on purpose: files. Who has them compares.
//!
//! ```text
//! <backup>/manifest.json     {"blake3":<hash of the manifest's bytes>,"manifest":{…}}
//! <backup>/state/<file>      a checkpoint of the state
//! ```
//!
//! INVARIANT (one spelling): a manifest that could be written in another way is refused, so a change of any byte is found.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::Hash;
use crate::stamp::Stamp;

/// Version of the form of a backup; a new meaning is a new number.
pub const VERSION: u32 = 1;

/// The file that holds the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The folder of the state's files.
pub const STATE_FOLDER: &str = "state";

/// Longest manifest: one line for each file of a state, some hundred bytes each.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// One file of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupFile {
    /// BLAKE3 of its bytes.
    pub blake3: Hash,
    /// `state/` and a bare name.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
}

/// How far the Raft log was applied. Of use to who compares a backup with a cluster that still lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "two numbers that say themselves")]
pub struct LogPosition {
    pub index: u64,
    pub term: u64,
}

/// What a backup holds. Members are in alphabetical order: canonical JSON (AADP §14.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The chain hash of the last entry.
    pub chain_head: Hash,
    /// What names the cluster; `null` when it has recorded nothing.
    pub cluster: Option<Hash>,
    /// How many evidence entries there are; the last one is `aud-<entries>`.
    pub entries: u64,
    /// The files of the state, by name.
    pub files: Vec<BackupFile>,
    /// When the last entry was recorded.
    pub last_at: Option<Stamp>,
    /// How far the log was applied.
    pub log: LogPosition,
    /// The node that it was taken from.
    pub node_id: u64,
    /// The version of Placet that took it.
    pub placet: String,
    /// The root of the tree over all entries.
    pub root: Hash,
    /// When it was taken, by the clock of that node.
    pub taken_at: Stamp,
    /// [`VERSION`].
    pub version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    blake3: Hash,
    manifest: Manifest,
}

/// A manifest that is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ManifestError {
    #[error("it is not a manifest of a backup, or not in its one spelling")]
    Unreadable,
    #[error("its own checksum does not fit")]
    Checksum,
    #[error("it is of version {0}, which this program does not know")]
    Version(u32),
    #[error("it names `{0}`, which is no file of a backup")]
    Name(String),
}

impl Manifest {
    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = sealed(self);
        bytes.push(b'\n');
        bytes
    }

    /// Reads its file.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let Sealed { blake3, manifest } = serde_json::from_slice(bytes).map_err(|_| ManifestError::Unreadable)?;
        if blake3 != digest(&manifest) {
            return Err(ManifestError::Checksum);
        }
        if manifest.encode() != bytes {
            return Err(ManifestError::Unreadable);
        }
        if manifest.version != VERSION {
            return Err(ManifestError::Version(manifest.version));
        }
        let mut names = BTreeSet::new();
        for file in &manifest.files {
            if !is_file_name(&file.name) || !names.insert(&file.name) {
                return Err(ManifestError::Name(file.name.clone()));
            }
        }
        Ok(manifest)
    }
}

/// Whether `name` is `state/` and a bare name: nothing that a backup says leaves its folder.
pub fn is_file_name(name: &str) -> bool {
    let bare = name.strip_prefix(STATE_FOLDER).and_then(|rest| rest.strip_prefix('/'));
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    bare.is_some_and(|bare| !bare.is_empty() && bare != "." && bare != ".." && bare.bytes().all(letter))
}

fn digest(manifest: &Manifest) -> Hash {
    Hash::of(&plain(manifest))
}

fn plain(manifest: &Manifest) -> Vec<u8> {
    // Strings and integers; serialising them to memory has no way to fail.
    serde_json::to_vec(manifest).unwrap_or_default()
}

fn sealed(manifest: &Manifest) -> Vec<u8> {
    let digest = digest(manifest).to_string();
    [b"{\"blake3\":\"", digest.as_bytes(), b"\",\"manifest\":", &plain(manifest), b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |name: &str| BackupFile { blake3: Hash::of(name.as_bytes()), name: name.to_owned(), size: 7 };
        Manifest {
            chain_head: Hash::of(b"head"),
            cluster: Some(Hash::of(b"cluster")),
            entries: 12,
            files: vec![file("state/000012.sst"), file("state/CURRENT"), file("state/MANIFEST-000005")],
            last_at: Stamp::parse("2026-08-17T09:00:00Z"),
            log: LogPosition { index: 30, term: 2 },
            node_id: 1,
            placet: "0.1.0".to_owned(),
            root: Hash::of(b"root"),
            taken_at: Stamp(1_786_957_200_000),
            version: VERSION,
        }
    }

    /// These bytes are never edited: a backup that was taken once must be readable for good.
    #[test]
    fn golden_bytes() {
        let text = String::from_utf8(manifest().encode()).unwrap();
        let golden = concat!(
            r#"{"blake3":"d80d982fc30db4d993a314c834c98bc3044c9b40712187c4738352a746063dc7","#,
            r#""manifest":{"chain_head":"35f1ea002bfb00c125884e650f864046b687e0a48a6edc1a591c459f8c341da5","#,
            r#""cluster":"63004c53991e2bc55c0bd5c4ce378a79638a2ed014007f31c93ad64fc05d2234","entries":12,"#,
            r#""files":[{"blake3":"9748e4284a3a673ed0a10329ccc3c2adac1b25a86d96fd0553dc74ed0ee234fa","#,
            r#""name":"state/000012.sst","size":7},"#,
            r#"{"blake3":"ff182e5b5cca3d0dab2ad68bd68d0d1d8e57312a0fff68132917e43239bf16e1","#,
            r#""name":"state/CURRENT","size":7},"#,
            r#"{"blake3":"72a49c69dec32267a7111f6272db39a9421eff61881ea7b364f95cc3950c4ecb","#,
            r#""name":"state/MANIFEST-000005","size":7}],"last_at":"2026-08-17T09:00:00Z","#,
            r#""log":{"index":30,"term":2},"node_id":1,"placet":"0.1.0","#,
            r#""root":"92a2b787a06d7272df43eaf87acc3b9c1d315d79d599d61c285983483e431998","#,
            r#""taken_at":"2026-08-17T09:00:00Z","version":1}}"#,
            "\n"
        );
        assert_eq!(text, golden);
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(manifest()));
    }

    #[test]
    fn a_change_of_any_byte_is_found() {
        let bytes = manifest().encode();
        for at in 0..bytes.len() {
            for byte in [bytes[at] ^ 1, bytes[at] ^ 0x20, bytes[at] ^ 0x80, b' ', b'0'] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                assert!(changed == bytes || Manifest::decode(&changed).is_err(), "byte {at}");
            }
            assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(Manifest::decode(&[&bytes[..], b"\n"].concat()), Err(ManifestError::Unreadable));
    }

    #[test]
    fn what_leaves_the_folder_or_is_newer_is_refused() {
        for name in ["state/../x", "state/..", "state/", "../state/x", "/etc/passwd", "state/a/b", "manifest.json", ""]
        {
            let mut odd = manifest();
            odd.files[1].name = name.to_owned();
            assert_eq!(Manifest::decode(&odd.encode()), Err(ManifestError::Name(name.to_owned())));
        }
        let mut twice = manifest();
        twice.files[1].name = twice.files[0].name.clone();
        assert!(matches!(Manifest::decode(&twice.encode()), Err(ManifestError::Name(_))));
        let newer = Manifest { version: 2, ..manifest() };
        assert_eq!(Manifest::decode(&newer.encode()), Err(ManifestError::Version(2)));
    }
}
