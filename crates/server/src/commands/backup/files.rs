//! The files of a backup on disk, against its manifest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use placet_core::backup::{BackupFile, MANIFEST_BYTES_MAX, MANIFEST_FILE, Manifest, STATE_FOLDER};
use placet_core::ids::Hash;
use serde_json::json;

use crate::cli::exit;
use crate::client::Refused;

/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A file of a backup that is not what it must be.
pub(in crate::commands) fn damaged(file: &str, detail: impl std::fmt::Display) -> anyhow::Error {
    let detail = detail.to_string();
    let text = format!("the backup is damaged: `{file}`: {detail}");
    Refused { code: exit::DAMAGED, text, body: Some(json!({"code": "damaged", "file": file, "detail": detail})) }.into()
}

/// Reads the manifest of a backup.
pub(super) fn manifest(folder: &Path) -> anyhow::Result<Manifest> {
    fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let file = match File::open(folder.join(MANIFEST_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged(MANIFEST_FILE, "it is missing")),
        Err(error) => return Err(damaged(MANIFEST_FILE, error)),
    };
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| damaged(MANIFEST_FILE, error))?;
    Manifest::decode(&bytes).map_err(|error| damaged(MANIFEST_FILE, error))
}

/// Checks that exactly the files of the manifest are there, each with its size and checksum.
pub(super) fn compare(folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let mut wanted: BTreeMap<&str, &BackupFile> =
        manifest.files.iter().map(|file| (file.name.as_str(), file)).collect();
    let mut found = Vec::new();
    for name in listing(folder)? {
        match name.as_str() {
            MANIFEST_FILE => {}
            STATE_FOLDER => {
                let inside = listing(&folder.join(STATE_FOLDER))?;
                found.extend(inside.into_iter().map(|name| format!("{STATE_FOLDER}/{name}")));
            }
            other => return Err(damaged(other, "it is not in the manifest")),
        }
    }
    for name in &found {
        let Some(file) = wanted.remove(name.as_str()) else { return Err(damaged(name, "it is not in the manifest")) };
        let path = folder.join(name);
        let facts = fs::symlink_metadata(&path).map_err(|error| damaged(name, error))?;
        if !facts.is_file() {
            return Err(damaged(name, "it is not a plain file"));
        }
        let (hash, size) = hash_file(&path).map_err(|error| damaged(name, error))?;
        if size != file.size {
            return Err(damaged(name, format!("it has {size} bytes, the manifest says {}", file.size)));
        }
        if hash != file.blake3 {
            return Err(damaged(name, "its checksum is another than the manifest says"));
        }
    }
    match wanted.first_key_value() {
        Some((name, _)) => Err(damaged(name, "it is missing")),
        None => Ok(()),
    }
}

/// The names in a folder, in order.
pub(super) fn listing(folder: &Path) -> anyhow::Result<Vec<String>> {
    let at = || format!("cannot read `{}`", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(at)? {
        names.push(entry.with_context(at)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// BLAKE3 and size of a file.
pub(in crate::commands) fn hash_file(path: &Path) -> io::Result<(Hash, u64)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut size, mut chunk) = (blake3::Hasher::new(), 0u64, vec![0; CHUNK_BYTES]);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((Hash(*hasher.finalize().as_bytes()), size));
        }
        hasher.update(chunk.get(..read).unwrap_or_default());
        size = size.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot sync `{}`", folder.display()))
}
