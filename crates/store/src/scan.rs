//! A full look at a store that nobody uses: every record of the log, every block of the state, every link of the chain.
//! Absent on purpose: changing anything, and a bound on its time; it reads everything that is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use placet_core::evidence;
use placet_core::ids::EvidenceIndex;
use placet_core::search::Summary;
use placet_core::state::Meta;
use placet_replica::bytes::Bytes;
use rocksdb::{DB, IteratorMode, ReadOptions};
use serde::de::IgnoredAny;

use crate::inspect::Staged;
use crate::keys::{self, Family};
use crate::log;
use crate::mark::{self, Found, Manifest, Mark};
use crate::records::Generation;
use crate::tuning::Tuning;
use crate::{OpenError, StoreOptions, inspect, lock, pointer};

/// Faults that are told one by one; the rest is counted.
const TOLD_MAX: usize = 20;

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// What is damaged; empty when nothing is.
    pub findings: Vec<Finding>,
    /// Damages beyond those.
    pub more: u64,
    /// Records of the log that were read.
    pub log_records: u64,
    /// Of these, the ones that are older than checksums.
    pub without_checksum: u64,
    /// Records of the state that were read.
    pub state_records: u64,
    /// Entries of the evidence, each of which follows from the one before.
    pub entries: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
    /// Bytes at the end of the log that were written and never synced: the next start cuts them.
    pub torn: bool,
    /// How far the state has come, as the replica wrote it.
    pub position: Option<Vec<u8>>,
    /// Where the log begins, as the replica wrote it.
    pub last_purged: Option<Vec<u8>>,
}

impl ScanReport {
    fn tell(&mut self, path: &Path, what: impl Into<String>) {
        if self.findings.len() < TOLD_MAX {
            self.findings.push(Finding { path: path.to_owned(), what: what.into() });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    fn take<T>(&mut self, result: Result<T, OpenError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(OpenError::Damaged { path, what }) => {
                self.tell(&path, what);
                None
            }
            Err(OpenError::Folder { path, source }) => {
                self.tell(&path, source.to_string());
                None
            }
            Err(OpenError::Database { path, source }) => {
                self.tell(&path, source.to_string());
                None
            }
            Err(OpenError::InUse(path)) => {
                self.tell(&path, "it is in use");
                None
            }
        }
    }
}

/// Looks at everything in a data folder. An error means that it could not be looked at at all.
pub fn scan(data: &Path, options: &StoreOptions) -> Result<ScanReport, OpenError> {
    let _lock = lock(data)?;
    let tuning = Tuning::new(options, data.join("rocksdb"));
    let mut report = ScanReport::default();
    let mark = match mark::read(data) {
        Ok((Found::Whole(mark), _)) => Some(mark),
        Ok((Found::Nothing, _)) => None,
        Ok((Found::Damaged, _)) => {
            report.tell(&data.join(mark::NAME), "neither of its two slots is whole");
            None
        }
        Err(error) => {
            report.tell(&data.join(mark::NAME), error.to_string());
            None
        }
    };
    scan_log(&mut report, &data.join("log"), &tuning, mark);
    scan_state(&mut report, &data.join("state"), &tuning, mark.unwrap_or_default());
    scan_snapshots(&mut report, &data.join("snapshots"), &tuning);
    Ok(report)
}

fn scan_log(report: &mut ScanReport, folder: &Path, tuning: &Tuning, mark: Option<Mark>) {
    let known = mark.unwrap_or_default();
    let Some(inspected) = report.take(inspect::inspect(folder, known.log, |copy, _| log::peek(copy, tuning, false)))
    else {
        return;
    };
    let may_be_all = report.take(log::judge(folder, &inspected, mark, tuning)).is_some();
    report.torn = may_be_all && inspected.fault.is_some();
    if inspected.fresh {
        return;
    }
    // What RocksDB must not read is left out, here as at a start.
    let staged = inspected.fault.as_ref().map(|fault| Staged::cut(folder, &inspected, fault)).transpose();
    let Ok(staged) = staged else { return report.tell(folder, "it cannot be copied for a look") };
    let path = staged.as_ref().map_or(folder, |staged| staged.0.as_path());
    let db = match log::peek(path, tuning, true) {
        Ok(db) => db,
        Err(error) => return report.tell(folder, error.to_string()),
    };
    match log::serial_in(&db) {
        Ok(last) if may_be_all && last < known.synced => report.tell(folder, log::ends_early(last, known.synced)),
        Ok(_) => {}
        Err(error) => report.tell(folder, error.to_string()),
    }
    match log::bare_below(&db) {
        Ok((bare_below, upgraded)) => {
            if upgraded && mark.is_none() {
                report.tell(
                    &folder.with_file_name(mark::NAME),
                    "it is missing or damaged, so nobody knows what was synced",
                );
            }
            for (name, value) in log::small_values(&db, upgraded) {
                match value {
                    Ok(value) if name == "last_purged" => report.last_purged = Some(value),
                    Ok(_) => {}
                    Err(error) => report.tell(folder, format!("`{name}`: {error}")),
                }
            }
            scan_entries(report, folder, &db, bare_below);
        }
        Err(error) => report.tell(folder, error.to_string()),
    }
}

fn scan_entries(report: &mut ScanReport, folder: &Path, db: &DB, bare_below: u64) {
    let mut expected = None;
    for item in db.iterator_opt(IteratorMode::Start, log::all_entries()) {
        let (key, stored) = match item {
            Ok(found) => found,
            Err(error) => return report.tell(folder, error.to_string()),
        };
        let Some(index) = keys::number(&key, 1) else { continue };
        if let Some(expected) = expected.filter(|expected| *expected != index) {
            report.tell(folder, format!("records {expected} to {} are missing", index.saturating_sub(1)));
        }
        expected = Some(index.saturating_add(1));
        report.log_records = report.log_records.saturating_add(1);
        match log::value_of(index, bare_below, &key, Bytes::from(stored)) {
            Ok((_, true)) => {}
            Ok((_, false)) => report.without_checksum = report.without_checksum.saturating_add(1),
            Err(error) => report.tell(folder, format!("record {index}: {error}")),
        }
    }
}

fn scan_state(report: &mut ScanReport, folder: &Path, tuning: &Tuning, mark: Mark) {
    if !folder.exists() && mark.generation == 0 {
        return;
    }
    let Some(Some(number)) = report.take(pointer::find(folder, mark.generation)) else { return };
    let path = folder.join(number.to_string());
    let known = if mark.generation == number { mark.state } else { Manifest::default() };
    let open = |copy: &Path, whole| crate::records::open_read_only(copy, tuning, whole);
    let Some(inspected) = report.take(inspect::inspect(&path, known, open)) else { return };
    if inspected.fresh {
        return;
    }
    if let Some(fault) = &inspected.fault {
        let last = inspected.wals.last().is_some_and(|(_, last)| *last == fault.file);
        if !last && !fault.seen_by_rocksdb {
            return report.tell(&fault.file, format!("at byte {} it {}", fault.offset, fault.what));
        }
    }
    let tail =
        inspected.fault.as_ref().filter(|fault| inspected.wals.last().is_some_and(|(_, last)| *last == fault.file));
    let staged = tail.map(|fault| Staged::cut(&path, &inspected, fault)).transpose();
    let Ok(staged) = staged else { return report.tell(&path, "it cannot be copied for a look") };
    let look = staged.as_ref().map_or(path.as_path(), |staged| staged.0.as_path());
    match Generation::open_read_only(look, tuning) {
        Ok(generation) => {
            let mut faults = Vec::new();
            let counts = check_all(&generation, &mut |what| faults.push(what));
            faults.into_iter().for_each(|what| report.tell(&path, what));
            (report.state_records, report.entries) = counts;
            report.position = generation.position().ok().flatten();
        }
        Err(error) => report.tell(&path, error.to_string()),
    }
}

fn scan_snapshots(report: &mut ScanReport, folder: &Path, tuning: &Tuning) {
    let Ok(listing) = fs::read_dir(folder) else { return };
    for entry in listing.flatten() {
        let path = entry.path().join("state");
        // What was being built or received is removed at the next start.
        let unfinished =
            entry.file_name().to_str().is_none_or(|name| name.starts_with(|first: char| !first.is_ascii_digit()));
        if unfinished {
            continue;
        }
        report.snapshots = report.snapshots.saturating_add(1);
        match Generation::open_read_only(&path, tuning) {
            Ok(generation) => {
                check_all(&generation, &mut |what| report.tell(&path, what));
            }
            Err(error) => report.tell(&path, error.to_string()),
        }
    }
}

/// Reads a whole state: each block passes its checksum, each record can be read, each entry follows from the one
/// before, and the last is the one that the state names. Returns how many records and entries there are.
pub(crate) fn check_all(generation: &Generation, tell: &mut dyn FnMut(String)) -> (u64, u64) {
    let mut counts = BTreeMap::new();
    for family in Family::ALL.into_iter().filter(|family| generation.has(*family)) {
        let count = match family {
            Family::Evidence => check_evidence(generation, tell),
            _ => check_family(generation, family, tell),
        };
        counts.insert(family.name(), count);
    }
    let entries = counts.get(Family::Evidence.name()).copied().unwrap_or_default();
    (counts.values().sum(), entries)
}

fn records(generation: &Generation, family: Family) -> io::Result<rocksdb::DBIterator<'_>> {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_verify_checksums(true);
    generation.iterator(family, options)
}

fn check_family(generation: &Generation, family: Family, tell: &mut dyn FnMut(String)) -> u64 {
    let name = family.name();
    let records = match records(generation, family) {
        Ok(records) => records,
        Err(error) => {
            tell(format!("`{name}`: {error}"));
            return 0;
        }
    };
    let mut count = 0u64;
    for item in records {
        let (key, value) = match item {
            Ok(found) => found,
            Err(error) => {
                tell(format!("`{name}` behind record {count}: {error}"));
                break;
            }
        };
        count = count.saturating_add(1);
        let readable = match (family, keys::rest(&key, 0)) {
            (Family::Merkle, _) => value.len() == 32,
            (Family::Search, _) => Summary::from_bytes(&value).is_some(),
            // An index of what is open, a policy's text, and the position are no JSON of this crate.
            (Family::Permits | Family::Approvals, Some([keys::OPEN, ..])) => true,
            (Family::Policies, Some([first, ..])) if *first != keys::RECORD => std::str::from_utf8(&value).is_ok(),
            (Family::Meta, Some(b"position")) => true,
            _ => serde_json::from_slice::<IgnoredAny>(&value).is_ok(),
        };
        if !readable {
            tell(format!("`{name}` record {count} cannot be read"));
        }
    }
    count
}

fn check_evidence(generation: &Generation, tell: &mut dyn FnMut(String)) -> u64 {
    let meta: Meta = match generation.read_meta() {
        Ok(meta) => meta,
        Err(error) => {
            tell(format!("`meta`: {error}"));
            return 0;
        }
    };
    let records = match records(generation, Family::Evidence) {
        Ok(records) => records,
        Err(error) => {
            tell(format!("`evidence`: {error}"));
            return 0;
        }
    };
    let (mut next, mut head) = (EvidenceIndex(1), None);
    for item in records {
        let (key, bytes) = match item {
            Ok(found) => found,
            Err(error) => {
                tell(format!("`evidence` from `{next}` on: {error}"));
                return next.0.saturating_sub(1);
            }
        };
        let index = EvidenceIndex(keys::number(&key, 0).unwrap_or_default());
        if index != next {
            tell(format!("evidence entry `{next}` is missing, `{index}` follows"));
        }
        match (evidence::decode(&bytes), head) {
            (Ok(entry), Some(head)) if entry.prev != head => {
                tell(format!("entry `{index}` follows {}, and the entry before it has hash {head}", entry.prev));
            }
            (Err(error), _) => tell(format!("entry `{index}` cannot be read: {error}")),
            _ => {}
        }
        head = Some(evidence::hash(&bytes));
        next = index.next();
    }
    if meta.next_index > EvidenceIndex(1) && (next != meta.next_index || head != Some(meta.chain_head)) {
        let head = head.map_or_else(|| "none".to_owned(), |head| head.to_string());
        tell(format!(
            "the evidence ends before `{next}` with hash {head}, and the state says before `{}` with {}",
            meta.next_index, meta.chain_head
        ));
    }
    next.0.saturating_sub(1)
}
