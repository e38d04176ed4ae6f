//! `placet restore`: the data folder of a founding member of a new cluster, from a backup.
//! Absent on purpose: a node, and the new cluster's name, which its first leader draws.
//!
//! ```text
//! backup verified ─► `restoring/` in the data folder ─► files copied and checked again ─► state taken over
//!                ─► log begun anew ─► `restoring/` removed
//! ```
//!
//! A node does not start on a folder in which `restoring/` is left.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, ensure};
use placet_core::backup::{Manifest, STATE_FOLDER};
use placet_core::state::Read;
use placet_replica::ports::State;
use placet_replica::restore::begin_anew;
use placet_store::{RocksState, StoreOptions};
use serde_json::json;

use super::backup::{check, damaged, describe, hash_file, summary};
use super::print;
use crate::cli::{Output, Restore, exit};
use crate::client::Refused;
use crate::config::Config;

/// There while a restore is not complete.
const MARKER: &str = "restoring";

/// What a file system puts at its root by itself.
const NOT_OURS: &str = "lost+found";

pub fn run(output: Output, command: &Restore) -> anyhow::Result<u8> {
    let config = Config::load(&command.config)?;
    ensure!(
        !config.initial_cluster.is_empty(),
        "`initial_cluster` in `{}` is empty; a restored node founds a new cluster with the members that it names",
        command.config.display()
    );
    refuse_used(&config.data)?;
    let manifest = check::check(&command.from, command.verify)?;
    let members: Vec<u64> = config.founders().into_keys().collect();
    if let Err(error) = write(&config, &command.from, &manifest) {
        empty(&config.data).context("what was written cannot be removed; delete the content of the data folder")?;
        return Err(error);
    }
    let body = json!({
        "data": config.data, "node_id": config.node_id, "members": members, "backup": summary(&manifest),
    });
    print(output, &body, |_| {
        let members = members.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let key = config.head_key.as_ref().filter(|path| path.exists()).map_or_else(String::new, |path| {
            format!(
                "\nhead key:    `{}` is kept; if the cluster before still lives, give this one another",
                path.display()
            )
        });
        format!(
            "restored:    {} entries into `{}`, as node {} of {members}\n{}\n\
             lost:        what was recorded after that entry is not in the new cluster: permits and approvals that were\n\
             \x20            given after it are unknown there, and budgets do not count them\n\
             next:        restore the other members from this backup, then start all of them; the new cluster draws a\n\
             \x20            name of its own, and `restored` is its first entry, aud-{}{key}",
            manifest.entries,
            config.data.display(),
            config.node_id,
            describe(&manifest),
            manifest.entries.saturating_add(1),
        )
    });
    Ok(exit::OK)
}

/// A node must not start on half a restore: it would begin an empty cluster, or without what it has to say.
pub fn refuse_unfinished(data: &Path) -> anyhow::Result<()> {
    let unfinished = data.join(MARKER).exists();
    ensure!(
        !unfinished,
        "a restore into `{}` did not come to its end; delete the content of that folder and restore again",
        data.display()
    );
    Ok(())
}

fn content(data: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let at = || format!("cannot read `{}`", data.display());
    let listing = match fs::read_dir(data) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(at),
    };
    let paths = listing.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().with_context(at)?;
    Ok(paths.into_iter().filter(|path| path.file_name().is_none_or(|name| name != NOT_OURS)).collect())
}

fn refuse_used(data: &Path) -> anyhow::Result<()> {
    let found = content(data)?;
    let Some(first) = found.first() else { return Ok(()) };
    let text = format!(
        "data folder `{}` is not empty, it holds `{}`; a restore goes into a new one",
        data.display(),
        first.file_name().unwrap_or_default().display()
    );
    Err(Refused { code: exit::REFUSED, text, body: None }.into())
}

fn empty(data: &Path) -> anyhow::Result<()> {
    for path in content(data)? {
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }?;
    }
    Ok(())
}

fn write(config: &Config, from: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let data = &config.data;
    placet_store::private_folder(data).with_context(|| format!("cannot make `{}`", data.display()))?;
    let marker = data.join(MARKER);
    fs::create_dir(&marker)?;
    sync_folder(data)?;
    copy(from, &marker, manifest)?;
    let store = placet_store::open(data, &StoreOptions::default())?;
    store.state.install(&marker.join(STATE_FOLDER)).context("the state cannot be taken over")?;
    same(&store.state, manifest)?;
    begin_anew(store.log.as_ref(), store.state.as_ref(), &config.founders()).context("the log cannot be begun")?;
    drop(store);
    fs::remove_dir_all(&marker)?;
    sync_folder(data)
}

/// Copies the files of the state. Copies, not links: what the new node does never touches the backup.
fn copy(from: &Path, to: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    fs::create_dir(to.join(STATE_FOLDER))?;
    for file in &manifest.files {
        let target = to.join(&file.name);
        fs::copy(from.join(&file.name), &target).map_err(|error| damaged(&file.name, error))?;
        File::open(&target)?.sync_all()?;
        // What was checked before may have changed, or was read badly this time.
        if hash_file(&target)? != (file.blake3, file.size) {
            return Err(damaged(&file.name, "it was copied and is another"));
        }
    }
    sync_folder(&to.join(STATE_FOLDER))
}

fn same(state: &RocksState, manifest: &Manifest) -> anyhow::Result<()> {
    let meta = state.meta()?;
    let entries = meta.next_index.0.saturating_sub(1);
    ensure!(
        (entries, meta.chain_head) == (manifest.entries, manifest.chain_head),
        "the state that was taken over stands at `aud-{entries}`, {}",
        meta.chain_head
    );
    Ok(())
}

fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot sync `{}`", folder.display()))
}
