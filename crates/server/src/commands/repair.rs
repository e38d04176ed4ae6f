//! `placet repair`: what is damaged in the data of a stopped node, and a way back that harms nobody.
//! Absent on purpose: mending. Damaged data is moved aside whole, and the other members have all that was promised.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use placet_core::cluster::MemberAddresses;
use placet_replica::{check_state_reaches_log, forget, members_in};
use placet_store::{OpenError, ScanReport, StoreOptions};
use serde_json::{Value, json};

use super::print;
use crate::cli::{Output, Repair, exit};
use crate::config::Config;
use crate::keys::HEAD_KEY;

type Members = BTreeMap<u64, MemberAddresses>;

pub fn run(output: Output, command: &Repair) -> anyhow::Result<u8> {
    let config = Config::load(&command.config)?;
    let mut named = command.peer.iter().map(|text| parse_peer(text)).collect::<anyhow::Result<Members>>()?;
    let report = if config.data.exists() { look(&config.data)? } else { ScanReport::default() };
    let whole = report.findings.is_empty();
    let mut body = describe(&report);
    if !command.from_peers {
        print(output, &body, lines);
        return Ok(if whole { exit::OK } else { exit::REFUSED });
    }
    let mut members = report.position.as_deref().map(members_in).transpose().unwrap_or_default().unwrap_or_default();
    members.extend(config.founders());
    members.append(&mut named);
    members.remove(&config.node_id);
    ensure!(
        !members.is_empty(),
        "the old data names no other member and the configuration has no founders; name one with --peer ID=HOST:PORT"
    );
    let aside = replace(&config.data, &members)?;
    if let Value::Object(fields) = &mut body {
        fields.insert("moved_to".to_owned(), json!(aside));
        fields.insert("asks".to_owned(), json!(members.keys().collect::<Vec<_>>()));
    }
    print(output, &body, |body| {
        let moved = aside.as_ref().map_or_else(
            || "There was no data.".to_owned(),
            |aside| format!("The old data is in {}; delete it when nobody needs it any more.", aside.display()),
        );
        let asks = members.keys().map(u64::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "{}\n{moved}\nStart this node: it asks members {asks} what it may have promised, catches up, and votes \
             again then.",
            lines(body)
        )
    });
    Ok(exit::OK)
}

/// A member whose other addresses are not known here; they are not needed to ask it.
fn parse_peer(text: &str) -> anyhow::Result<(u64, MemberAddresses)> {
    let (id, peer) = text.split_once('=').with_context(|| format!("`{text}` is not ID=HOST:PORT"))?;
    let id = id.parse().with_context(|| format!("`{id}` is not a node's id"))?;
    let known = MemberAddresses { peer: peer.to_owned(), http: "http://-".to_owned(), grpc: "http://-".to_owned() };
    known.check().map_err(|detail| anyhow::anyhow!("`{text}`: {detail}"))?;
    Ok((id, known))
}

fn look(data: &Path) -> anyhow::Result<ScanReport> {
    let mut report = match placet_store::scan(data, &StoreOptions::default()) {
        Ok(report) => report,
        Err(OpenError::InUse(path)) => bail!("`{}` is in use: stop the node first", path.display()),
        Err(error) => return Err(error.into()),
    };
    let fits = check_state_reaches_log(report.last_purged.as_deref(), report.position.clone());
    if let Err(error) = fits
        && report.findings.is_empty()
    {
        report.findings.push(placet_store::Finding { path: data.join("state"), what: error.to_string() });
    }
    Ok(report)
}

fn describe(report: &ScanReport) -> Value {
    let findings = report.findings.iter().map(|one| json!({ "path": one.path, "what": one.what }));
    json!({
        "damaged": findings.collect::<Vec<_>>(),
        "more": report.more,
        "log_records": report.log_records,
        "without_checksum": report.without_checksum,
        "torn_tail": report.torn,
        "state_records": report.state_records,
        "evidence_entries": report.entries,
        "snapshots": report.snapshots,
    })
}

fn lines(body: &Value) -> String {
    let number = |name: &str| body.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut lines = vec![
        format!("log:       {} records, {} older than checksums", number("log_records"), number("without_checksum")),
        format!("state:     {} records", number("state_records")),
        format!("evidence:  {} entries", number("evidence_entries")),
        format!("snapshots: {}", number("snapshots")),
    ];
    if body.get("torn_tail") == Some(&json!(true)) {
        lines.push("The log ends in a write that was never synced; the next start cuts it.".to_owned());
    }
    let damaged = body.get("damaged").and_then(Value::as_array);
    for one in damaged.into_iter().flatten() {
        let text = |name: &str| one.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        lines.push(format!("DAMAGED:   {}: {}", text("path"), text("what")));
    }
    match (damaged.is_none_or(Vec::is_empty), number("more")) {
        (true, _) => lines.push("Nothing is damaged.".to_owned()),
        (false, 0) => {}
        (false, more) => lines.push(format!("           and {more} more")),
    }
    lines.join("\n")
}

/// Puts a new folder, which knows that there was another, in the place of the old one, and tells where that is now.
/// The new one is whole before the old one moves: a node that forgets that it had data would vote as if it never had.
fn replace(data: &Path, members: &Members) -> anyhow::Result<Option<PathBuf>> {
    let name = data.file_name().context("`data` names no folder")?.to_string_lossy().into_owned();
    let new = data.with_file_name(format!("{name}.new"));
    {
        let store = placet_store::open(&new, &StoreOptions::default())?;
        forget(store.log.as_ref(), members.clone())?;
    }
    // The key that signs heads is the node's, and nothing that the log or the state is made of.
    let key = data.join(HEAD_KEY);
    if key.exists() {
        std::fs::copy(&key, new.join(HEAD_KEY)).with_context(|| format!("`{}` could not be kept", key.display()))?;
    }
    let aside = if data.exists() {
        let free = (1u32..10_000).map(|number| data.with_file_name(format!("{name}.damaged-{number}")));
        let aside = free.into_iter().find(|path| !path.exists()).context("no free name beside the data folder")?;
        std::fs::rename(data, &aside).with_context(|| {
            let (from, to) = (data.display(), aside.display());
            format!(
                "`{from}` cannot be moved to `{to}`: a mount point must be moved by hand, to try this again without it"
            )
        })?;
        Some(aside)
    } else {
        None
    };
    std::fs::rename(&new, data).with_context(|| format!("`{}` cannot be moved into its place", new.display()))?;
    if let Some(parent) = data.parent() {
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(aside)
}
