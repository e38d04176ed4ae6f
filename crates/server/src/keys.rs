//! Key files: 64 hex digits, readable by their owner alone.
//! Absent on purpose: keys in the configuration itself, which gets copied and shown.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, ensure};
use placet_core::evaluate::Keys;
use placet_core::head::HeadSigner;
use placet_core::ids::Hash;
use placet_core::redact::RedactionKey;

use crate::config::Config;

/// The node's own signing key in its data folder, unless the configuration names another place.
pub const HEAD_KEY: &str = "head.key";

/// The secrets of a node. Its own signing key is made at the first start; a redaction key is shared by the cluster, so it
/// must be there.
pub fn load(config: &Config) -> anyhow::Result<Keys> {
    let redaction = config.redaction_key.as_deref().map(read).transpose()?.map(RedactionKey::new);
    let head = match &config.head_key {
        Some(path) => read(path)?,
        None => {
            let path = config.data.join(HEAD_KEY);
            if !path.exists() {
                placet_store::private_folder(&config.data)
                    .with_context(|| format!("cannot make `{}`", config.data.display()))?;
                create(&path)?;
            }
            read(&path)?
        }
    };
    Ok(Keys::new(redaction, Some(HeadSigner::new(&head))))
}

/// Writes a new random key; an existing file stays as it is and is an error.
pub fn create(path: &Path) -> anyhow::Result<()> {
    let mut key = [0u8; 32];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    // Whole or not at all: a crash between the two must not leave half a key.
    let new = path.with_extension("key.new");
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .with_context(|| format!("cannot write `{}`", new.display()))?;
    writeln!(file, "{}", placet_core::redact::format_key(key))?;
    file.sync_all()?;
    // A link, unlike a rename, never replaces a key that is in use.
    let linked = std::fs::hard_link(&new, path).with_context(|| format!("cannot write `{}`", path.display()));
    std::fs::remove_file(&new)?;
    linked
}

fn read(path: &Path) -> anyhow::Result<[u8; 32]> {
    let at = || format!("key file `{}`", path.display());
    let mode = std::fs::metadata(path).with_context(at)?.permissions().mode();
    ensure!(mode & 0o077 == 0, "{} is open to others than its owner; chmod 600", at());
    let text = std::fs::read_to_string(path).with_context(at)?;
    let key = Hash::parse(text.trim()).with_context(|| format!("{} does not hold 64 lowercase hex digits", at()))?;
    Ok(key.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a key file is private, whole, and never replaced.
    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head.key");
        create(&path).unwrap();
        let first = read(&path).unwrap();
        assert!(create(&path).is_err());
        assert_eq!(read(&path).unwrap(), first);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, "abc").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("64 lowercase hex digits"));
    }
}
