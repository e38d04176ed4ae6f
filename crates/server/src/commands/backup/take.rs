//! Taking a backup: from a living node through its door, or from the data folder of a stopped one.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use placet_core::backup::{BackupFile, MANIFEST_FILE, STATE_FOLDER, is_file_name};
use placet_replica::backup::{manifest, settle};
use placet_replica::options::Clock;
use placet_replica::ports::State;
use placet_store::StoreOptions;
use placet_wire::archive::{Part, Reader};

use super::files::{self, hash_file};
use crate::cli::exit;
use crate::client::{Client, Refused};
use crate::config::Config;

/// Writes the files that a node sends into `folder`.
pub(super) async fn living(client: &Client, local: bool, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder.join(STATE_FOLDER))?;
    let path = if local { "/v1/cluster/backup?local=true" } else { "/v1/cluster/backup" };
    let mut stream = client.stream(path).await?;
    let (mut reader, mut open) = (Reader::default(), None::<File>);
    while let Some(chunk) = stream.next().await? {
        for part in reader.feed(&chunk).context("the node sent something else than a backup")? {
            match (part, &mut open) {
                (Part::File { name, .. }, _) => {
                    close(open.take())?;
                    ensure!(name == MANIFEST_FILE || is_file_name(&name), "the node sent `{name}`");
                    let path = folder.join(&name);
                    let made = File::options().write(true).create_new(true).open(&path);
                    open = Some(made.with_context(|| format!("cannot write `{}`", path.display()))?);
                }
                (Part::Data(data), Some(file)) => file.write_all(&data).context("cannot write the backup")?,
                (Part::Data(_), None) => anyhow::bail!("the node sent bytes of no file"),
            }
        }
    }
    close(open)?;
    if !reader.ended() {
        let text = "the backup ended early; take it again".to_owned();
        return Err(Refused { code: exit::UNAVAILABLE, text, body: None }.into());
    }
    files::sync_folder(&folder.join(STATE_FOLDER))
}

fn close(file: Option<File>) -> anyhow::Result<()> {
    file.map_or(Ok(()), |file| file.sync_all()).context("cannot sync the backup")
}

/// Copies the state of a node that is stopped.
pub(super) async fn stopped(config: &Path, folder: &Path) -> anyhow::Result<()> {
    let config = Config::load(config)?;
    let data = &config.data;
    ensure!(data.join("state").exists(), "`{}` holds no node's data", data.display());
    let store = placet_store::open(data, &StoreOptions::default())?;
    settle(store.log.clone(), store.state.clone(), &store.snapshot_dir).await.context("the log cannot be applied")?;
    let copied = folder.join(STATE_FOLDER);
    store.state.checkpoint(&copied).context("the state cannot be copied")?;
    let copy = store.state.read_copy(&copied)?;
    let mut manifest = manifest(copy.as_ref(), config.node_id, &Clock::system())?;
    drop(copy);
    for name in files::listing(&copied)? {
        let (blake3, size) = hash_file(&copied.join(&name))?;
        manifest.files.push(BackupFile { blake3, name: format!("{STATE_FOLDER}/{name}"), size });
    }
    let mut file = File::create(folder.join(MANIFEST_FILE))?;
    file.write_all(&manifest.encode())?;
    close(Some(file))
}
