//! The check of a backup: its files, then the evidence in them from the first entry to the head of the manifest, and on
//! request whether the records are what the entries add up to.
//! Absent on purpose: trust in the manifest. It is compared with what is there.

use std::path::{Path, PathBuf};

use anyhow::Context;
use placet_core::backup::{MANIFEST_FILE, Manifest, STATE_FOLDER};
use placet_core::evaluate::{Rederivation, cluster_id};
use placet_core::evidence;
use placet_core::export::{Failure, HEADER, Kind, Line, Verifier, entry_line};
use placet_core::ids::EvidenceIndex;
use placet_core::state::{List, MemState, Read};
use placet_store::RocksState;

use super::files::{self, damaged};
use crate::cli::Level;
use crate::commands::evidence::failed;
use crate::commands::evidence::progress::Progress;

/// Records read at once.
const PAGE: usize = 1000;

/// Checks the backup in `folder`, and returns its manifest.
pub(in crate::commands) fn check(folder: &Path, level: Level) -> anyhow::Result<Manifest> {
    let manifest = files::manifest(folder)?;
    files::compare(folder, &manifest)?;
    let own_logs = OwnLogs::new()?;
    let copy = placet_store::open_copy(&folder.join(STATE_FOLDER), &own_logs.0);
    let copy = copy.map_err(|error| damaged(STATE_FOLDER, format!("it cannot be opened: {error}")))?;
    records(&copy, &manifest, level)?;
    Ok(manifest)
}

/// Checks what a copy of a state holds.
pub(in crate::commands) fn records(copy: &RocksState, manifest: &Manifest, level: Level) -> anyhow::Result<()> {
    let mut verifier = Verifier::default();
    let mut derived = (level == Level::Full).then(Rederivation::default);
    let mut progress = Progress::new(None);
    let (mut after, mut bytes) = (EvidenceIndex(0), 0u64);
    let take = |verifier: &mut Verifier, derived: &mut Option<Rederivation>, line: &[u8]| {
        let found = verifier.line(line).map_err(|failure| failed(&failure))?;
        if let (Line::Entry(entry, entry_bytes), Some(derived)) = (found, derived) {
            let index = entry.index;
            derived.step(entry, entry_bytes.to_vec()).map_err(|difference| differs(Some(index), difference))?;
        }
        anyhow::Ok(())
    };
    take(&mut verifier, &mut derived, HEADER)?;
    loop {
        let page = copy.entries(after, PAGE).context("the evidence cannot be read")?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (_, entry) in page {
            take(&mut verifier, &mut derived, &entry_line(&entry, &evidence::hash(&entry)))?;
            bytes = bytes.saturating_add(u64::try_from(entry.len()).unwrap_or(u64::MAX));
            progress.at(bytes, verifier.entries());
        }
    }
    let closing = verifier.closing_line();
    take(&mut verifier, &mut derived, &closing)?;
    let verified = verifier.finish().map_err(|failure| failed(&failure))?;
    let meta = copy.meta()?;
    let cluster = cluster_id(copy, &meta)?;
    let says = (manifest.entries, manifest.chain_head, manifest.root, manifest.last_at, manifest.cluster);
    let holds = (verified.entries, verified.chain_head, verified.root, verified.to, cluster);
    if says != holds {
        return Err(damaged(MANIFEST_FILE, format!("it says {says:?}, the evidence is {holds:?}")));
    }
    if (meta.next_index.0, meta.chain_head) != (verified.entries.saturating_add(1), verified.chain_head) {
        return Err(damaged(STATE_FOLDER, "its records stand at another entry than its evidence"));
    }
    derived.map_or(Ok(()), |derived| same_records(copy, derived.state()))
}

fn differs(entry: Option<EvidenceIndex>, detail: impl std::fmt::Display) -> anyhow::Error {
    failed(&Failure { kind: Kind::Difference, entry, line: 0, detail: detail.to_string() })
}

/// Compares every record with what the entries add up to. Permits are known there by their digests.
fn same_records(copy: &RocksState, derived: &MemState) -> anyhow::Result<()> {
    let same = |what: &str, equal: bool| {
        let detail = || format!("the {what} are not what the entries add up to");
        if equal { Ok(()) } else { Err(differs(None, detail())) }
    };
    let mut meta = copy.meta()?;
    // What a restored node has still to say is in no entry.
    meta.restoring = false;
    same("state's totals", meta == derived.meta)?;
    let counters = every(|after| copy.counters(after, PAGE), |(key, _)| key.clone())?;
    same("counters", counters.into_iter().eq(derived.counters.clone()))?;
    let approvals = every(|after| copy.approvals(after, PAGE), |approval| approval.approval_id.clone())?;
    same("approvals", approvals.iter().eq(derived.approvals.values()))?;
    let policies = every(|after| copy.policies(after, PAGE), |(digest, _)| digest.clone())?;
    same("policies", policies.into_iter().eq(derived.policy_records.clone()))?;
    for (id, wanted) in &derived.requests {
        let found = copy.request(id)?;
        let found = found.filter(|found| {
            (found.index, found.digest, &found.principal) == (wanted.index, wanted.digest, &wanted.principal)
        });
        let Some(found) = found else {
            return Err(differs(Some(wanted.index), format!("request `{id}` is not there")));
        };
        let permit = found.permit_id.as_ref().map(|permit| Ok::<_, anyhow::Error>((permit, copy.permit(permit)?)));
        let permit = permit.transpose()?;
        let known = wanted.permit_id.as_ref().map(|stand_in| (stand_in, derived.permits.get(stand_in)));
        let equal = match (&permit, &known) {
            (None, None) => true,
            (Some((permit, found)), Some((stand_in, wanted))) => {
                stand_in.as_str() == format!("digest:{}", permit.digest()) && found.as_ref() == *wanted
            }
            _ => false,
        };
        if !equal {
            return Err(differs(Some(wanted.index), format!("the permit of request `{id}` is another")));
        }
    }
    Ok(())
}

/// All pages of a listing.
fn every<T, K>(
    page: impl Fn(Option<&K>) -> Result<Vec<T>, placet_core::state::ReadError>,
    key: impl Fn(&T) -> K,
) -> anyhow::Result<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let after = all.last().map(&key);
        let next = page(after.as_ref())?;
        if next.is_empty() {
            return Ok(all);
        }
        all.extend(next);
    }
}

/// Where a database that is only read writes about itself.
struct OwnLogs(PathBuf);

impl OwnLogs {
    fn new() -> anyhow::Result<Self> {
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
        let path = std::env::temp_dir().join(format!("placet-{:016x}", u64::from_be_bytes(random)));
        placet_store::private_folder(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for OwnLogs {
    fn drop(&mut self) {
        // Nobody reads them.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
