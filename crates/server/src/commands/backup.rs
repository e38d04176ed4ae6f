//! `placet backup`: everything that a cluster needs to live again, in a folder, verified before the command says so.
//! INVARIANT (whole): under the name that was asked for there is a whole, verified backup, or nothing.

pub(super) mod check;
mod files;
mod take;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use placet_core::backup::Manifest;
use serde_json::{Value, json};

use super::print;
use crate::cli::{Backup, BackupCommand, Output, Target, exit};
use crate::client::{Client, Refused, Role};

pub(super) use files::{damaged, hash_file};

pub async fn run(target: &Target, command: &Backup) -> anyhow::Result<u8> {
    if let Some(BackupCommand::Verify { folder, verify }) = &command.command {
        let manifest = check::check(folder, *verify)?;
        told(target.output, "verified", folder, &manifest);
        return Ok(exit::OK);
    }
    // The command line asks for it.
    let to = command.to.as_deref().context("`--to` names the folder of the backup")?;
    refuse_used(to)?;
    let partial = Partial::beside(to)?;
    match &command.config {
        Some(config) => take::stopped(config, &partial.0).await?,
        None => take::living(&Client::new(target, Role::Operate)?, command.local, &partial.0).await?,
    }
    let manifest = check::check(&partial.0, command.verify)?;
    files::sync_folder(&partial.0)?;
    fs::rename(&partial.0, to).with_context(|| format!("cannot make `{}`", to.display()))?;
    files::sync_folder(parent(to))?;
    told(target.output, "backed up", to, &manifest);
    Ok(exit::OK)
}

fn told(output: Output, what: &str, folder: &Path, manifest: &Manifest) {
    let body = json!({ "folder": folder, "manifest": summary(manifest) });
    let size = manifest.files.iter().map(|file| file.size).sum::<u64>();
    print(output, &body, |_| {
        format!(
            "{what}: {}\n{}\nfiles:       {} of {size} bytes together\ntaken:       {} from node {}, by placet {}",
            folder.display(),
            describe(manifest),
            manifest.files.len(),
            manifest.taken_at,
            manifest.node_id,
            manifest.placet,
        )
    });
}

/// A manifest without its list of files.
pub(super) fn summary(manifest: &Manifest) -> Value {
    let mut body = json!(manifest);
    if let Value::Object(members) = &mut body {
        members.insert("files".to_owned(), json!(manifest.files.len()));
    }
    body
}

/// Which evidence it holds, for people.
pub(super) fn describe(manifest: &Manifest) -> String {
    let last =
        manifest.last_at.map_or_else(|| "none".to_owned(), |at| format!("aud-{}, recorded {at}", manifest.entries));
    let cluster = manifest.cluster.map_or_else(|| "none yet".to_owned(), |name| name.to_string());
    format!("last entry:  {last}\nchain head:  {}\ncluster:     {cluster}", manifest.chain_head)
}

/// A backup never goes over something else.
fn refuse_used(to: &Path) -> anyhow::Result<()> {
    let used = match fs::read_dir(to) {
        Ok(mut listing) => listing.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("cannot use `{}`", to.display())),
    };
    if !used {
        return Ok(());
    }
    let text = format!("`{}` is not empty; a backup goes into a new folder", to.display());
    Err(Refused { code: exit::REFUSED, text, body: None }.into())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A folder that is not whole yet; whatever goes wrong, it does not stay.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> anyhow::Result<Self> {
        let mut name = path.file_name().context("`--to` ends with a name")?.to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let path = path.with_file_name(name);
        anyhow::ensure!(!path.exists(), "`{}` is in the way", path.display());
        // It holds permits: for its owner alone.
        placet_store::private_folder(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Once it has its name, there is nothing to remove.
        let _ = fs::remove_dir_all(&self.0);
    }
}
