//! A store with a known content, copied while it was open: what a kill leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use placet_core::evaluate::evaluate;
use placet_core::fold::fold;
use placet_core::ids::{Entropy, EvidenceIndex, Principal, RequestId};
use placet_core::op::{Call, Op};
use placet_core::stamp::Stamp;
use placet_core::state::{Changes, Overlay};
use placet_replica::bytes::Bytes;
use placet_replica::ports::{Log, LogKey, State};
use placet_store::{Store, StoreOptions, open};

const POLICY: &str = r#"apiVersion: placet/v1
defaults: { execute_within: 10m }
budgets:
  calls: { kind: rate, limit: 100000, window: day }
policies:
  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, draws: [calls], bounds: { strict_params: false } }
"#;

pub(crate) fn options() -> StoreOptions {
    StoreOptions { unsafe_no_fsync: false, block_cache_bytes: 4 << 20, ..StoreOptions::default() }
}

/// A folder in memory where there is one: thousands of opens, each with its syncs.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// What a store held when its files were copied.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    /// Entries from 1 to this one were synced.
    pub(crate) synced: u64,
    /// Entries from 1 to this one were written.
    written: u64,
    vote: Vec<u8>,
    /// Batches that the state had applied and written to disk.
    pub(crate) flushed: u64,
    /// Length of the last write-ahead log at the last sync.
    pub(crate) synced_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Model {
    _root: tempfile::TempDir,
    pub(crate) moments: Vec<Moment>,
    /// With entries behind the last sync.
    pub(crate) unsynced: Moment,
    /// Everything that can be read from the state after so many batches.
    states: BTreeMap<u64, String>,
}

pub(crate) fn entry(index: u64) -> Bytes {
    let len = 40 + usize::try_from(index * 37 % 900).unwrap() + if index.is_multiple_of(17) { 40_000 } else { 0 };
    let bytes = (0..len).map(|at| u8::try_from((at as u64 * 7 + index * 13) % 256).unwrap());
    Bytes::from(bytes.collect::<Vec<_>>())
}

fn request(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn decide(number: u64) -> Op {
    Op::Decide(
        format!(
            r#"{{"protocol":"aadp/0.2","request_id":"{}","action_type":"act","params":{{}},"source":"llm",
            "rationale":"test","created_at":"2026-08-17T09:00:00Z"}}"#,
            request(number)
        )
        .into_bytes(),
    )
}

/// Everything that the state's ports show.
fn dump(state: &dyn State, requests: u64) -> Result<String, String> {
    let read = || -> Result<String, placet_core::state::ReadError> {
        let mut records = Vec::new();
        for number in 0..=requests {
            let found = state.request(&RequestId::new(request(number)))?;
            records.push(format!("{found:?}"));
        }
        for (id, _) in state.open_permits(None, 10_000)? {
            records.push(format!("{:?}", state.permit(&id)?));
        }
        for index in 0..40 {
            records.push(format!("{:?}", state.merkle((1, index))?));
        }
        let entries = state.entries(EvidenceIndex(0), 10_000)?;
        let (meta, permits) = (state.meta()?, state.open_permits(None, 10_000)?);
        let (counters, policies) = (state.counters(None, 10_000)?, state.policies(None, 10_000)?);
        let text = meta.active_policy.as_ref().map(|digest| state.policy(digest)).transpose()?;
        let text = text.flatten().map(|policy| policy.canonical().to_owned());
        Ok(format!("{meta:?}\n{permits:?}\n{counters:?}\n{policies:?}\n{text:?}\n{records:?}\n{entries:?}"))
    };
    read().map_err(|error| error.to_string())
}

struct Making {
    store: Option<Store>,
    data: PathBuf,
    written: u64,
    applied: u64,
    flushed: u64,
    vote: u64,
    states: BTreeMap<u64, String>,
}

impl Making {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            self.written += 1;
            self.store().log.append(&[(self.written, entry(self.written))]).unwrap();
        }
    }

    fn vote(&mut self) {
        self.vote += 1;
        self.store().log.put(LogKey::Vote, format!("vote {}", self.vote).as_bytes(), true).unwrap();
    }

    fn apply(&mut self, count: u64) {
        for _ in 0..count {
            let changes = self.next_changes();
            self.applied += 1;
            self.store().state.apply(changes, self.applied.to_string().as_bytes()).unwrap();
            let dump = dump(self.store().state.as_ref(), 60).unwrap();
            self.states.insert(self.applied, dump);
        }
    }

    fn next_changes(&self) -> Changes {
        let op = match self.applied {
            0 => Op::PublishPolicy { document: POLICY.to_owned(), expect: None, activate: true },
            number => decide(number),
        };
        let mut overlay = Overlay::new(self.store().state.clone());
        let call = Call { principal: Principal::new("agent:test"), op };
        let seed = u8::try_from(self.applied).unwrap();
        let entropy = Entropy { permit: [seed; 16], approval: [seed; 16], request: [seed; 16] };
        let outcome = evaluate(&overlay, &call, Stamp(1_786_957_200_000), entropy, &Default::default()).unwrap();
        outcome.events.iter().for_each(|event| fold(&mut overlay, event).unwrap());
        overlay.into_changes()
    }

    /// What one start of a node writes: the log in a write-ahead log until the next start, the state in tables or not yet.
    fn round(&mut self) {
        self.append(12);
        self.store().log.sync().unwrap();
        self.vote();
        self.apply(4);
        self.store().state.flush().unwrap();
        self.flushed = self.applied;
        self.append(9);
        self.vote();
        self.append(5);
        self.store().log.sync().unwrap();
        self.apply(3);
    }

    fn reopen(&mut self) {
        self.close();
        self.store = Some(open(&self.data, &options()).unwrap());
    }

    /// An orderly end writes everything.
    fn close(&mut self) {
        self.store = None;
        self.flushed = self.applied;
    }

    fn moment(&self, name: &str, root: &Path, synced: u64, synced_bytes: u64) -> Moment {
        let image = root.join(name);
        super::copy(&self.data, &image);
        let vote = format!("vote {}", self.vote).into_bytes();
        let (written, flushed) = (self.written, self.flushed);
        Moment { name: name.to_owned(), image, synced, written, vote, flushed, synced_bytes }
    }
}

fn wal_bytes(data: &Path) -> u64 {
    let logs = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|kind| kind == "log"));
    logs.map(|path| fs::metadata(path).unwrap().len()).sum()
}

impl Model {
    pub(crate) fn make() -> Self {
        let root = folder();
        let data = root.path().join("made");
        let store = Some(open(&data, &options()).unwrap());
        let mut making = Making { store, data, written: 0, applied: 0, flushed: 0, vote: 0, states: BTreeMap::new() };
        let mut moments = Vec::new();
        making.round();
        moments.push(making.moment("killed in its first run", root.path(), making.written, 0));
        making.reopen();
        making.round();
        moments.push(making.moment("killed in its second run", root.path(), making.written, 0));
        making.reopen();
        making.round();
        making.reopen();
        making.close();
        moments.push(making.moment("closed", root.path(), making.written, 0));
        making.reopen();
        making.append(10);
        making.store().log.sync().unwrap();
        let (synced, bytes) = (making.written, wal_bytes(&making.data));
        making.append(40);
        let unsynced = making.moment("killed with a tail", root.path(), synced, bytes);
        let states = std::mem::take(&mut making.states);
        drop(making);
        Self { _root: root, moments, unsynced, states }
    }

    /// What was synced is there, and nothing is there that was not written.
    pub(crate) fn check_log(&self, store: &Store, moment: &Moment) -> Result<(), String> {
        let found = store.log.read(0..u64::MAX, usize::MAX).map_err(|error| error.to_string())?;
        let last = u64::try_from(found.len()).unwrap();
        if last < moment.synced || last > moment.written {
            return Err(format!("{last} entries, {} synced, {} written", moment.synced, moment.written));
        }
        for (at, (index, bytes)) in (1..).zip(&found) {
            if *index != at || *bytes != entry(at) {
                return Err(format!("entry {at} is another one"));
            }
        }
        let vote = store.log.get(LogKey::Vote).map_err(|error| error.to_string())?;
        if vote.as_ref() != Some(&moment.vote) {
            return Err(format!("the vote is {vote:?}"));
        }
        Ok(())
    }

    /// The state is what it was after some batch. Which one: the log brings it up to date.
    pub(crate) fn check_state(&self, store: &Store) -> Result<u64, String> {
        let position = store.state.position().map_err(|error| format!("state cannot be read: {error}"))?;
        let at = position.map_or(0, |bytes| String::from_utf8(bytes).unwrap().parse::<u64>().unwrap());
        let dump = dump(store.state.as_ref(), 60)?;
        if at == 0 {
            return if dump.contains("aud-") {
                Err("a state without a position has entries".to_owned())
            } else {
                Ok(0)
            };
        }
        if self.states.get(&at) == Some(&dump) { Ok(at) } else { Err(format!("the state at {at} is another one")) }
    }
}
