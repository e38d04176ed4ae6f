//! Snapshots: checkpoints of the state in a folder each, one at a time (Raft §7).
//! Absent on purpose: transfer (`network`) and anything assembled in memory.
//!
//! ```text
//! <snapshot_dir>/building-…    a checkpoint in the making; removed at start
//! <snapshot_dir>/incoming-…    a transfer in the making; removed at start
//! <snapshot_dir>/backup-…      a checkpoint that is being sent as a backup; removed at start
//! <snapshot_dir>/<term>-<index>/{state/, position}    the snapshot
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::storage::RaftSnapshotBuilder;
use parking_lot::Mutex;

use crate::log_store::invalid;
use crate::network::convert;
use crate::ports::State;
use crate::types::{LogId, Position, Snapshot, SnapshotFolder, Types, WeakFolder};
use crate::work::Work;

const POSITION: &str = "position";
const BUILDING: &str = "building-";
const INCOMING: &str = "incoming-";
const BACKUP: &str = "backup-";

/// The snapshots of one node.
#[derive(Debug)]
pub(crate) struct Snapshots {
    dir: PathBuf,
    state: Arc<dyn State>,
    work: Work,
    current: Mutex<Option<(Position, SnapshotFolder)>>,
    /// Older ones that are being sent, by the index that they cover.
    retired: Mutex<Vec<(u64, WeakFolder)>>,
    /// Held while a snapshot is built or installed: neither takes the folders of the other away.
    working: Mutex<()>,
    /// The state is known to be durable up to this log index.
    durable_index: AtomicU64,
    folders: AtomicU64,
}

impl Snapshots {
    /// Finds the newest snapshot and removes what a crash left behind.
    pub(crate) fn open(dir: &Path, state: Arc<dyn State>, work: Work) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut newest: Option<(Position, PathBuf)> = None;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let unfinished = [BUILDING, INCOMING, BACKUP].iter().any(|prefix| name.starts_with(prefix));
            let found = if unfinished { None } else { read_position(&path).ok() };
            match found {
                Some(position) if newest.as_ref().is_none_or(|(best, _)| best.applied < position.applied) => {
                    if let Some((_, older)) = newest.replace((position, path)) {
                        fs::remove_dir_all(older)?;
                    }
                }
                _ => fs::remove_dir_all(&path)?,
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            state,
            work,
            current: Mutex::new(newest.map(|(position, path)| (position, SnapshotFolder::new(path)))),
            retired: Mutex::default(),
            working: Mutex::default(),
            durable_index: AtomicU64::new(0),
            folders: AtomicU64::new(0),
        })
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn current(&self) -> Option<Snapshot> {
        let current = self.current.lock();
        current.as_ref().map(|(position, folder)| Snapshot { meta: position.meta(), snapshot: folder.clone() })
    }

    /// The index that the oldest snapshot covers which is still being sent, besides the current one.
    pub(crate) fn oldest_in_use(&self) -> Option<u64> {
        let mut retired = self.retired.lock();
        retired.retain(|(_, folder)| folder.in_use());
        retired.iter().map(|(covers, _)| *covers).min()
    }

    /// A crash between the installation of a snapshot and its adoption leaves a state that is further than the log, and a
    /// snapshot of before. The log is about to begin anew behind the state, and what it does not hold a snapshot must.
    pub(crate) fn cover_hole(&self, last_log: Option<LogId>) -> io::Result<()> {
        let applied = position_of(self.state.position()?)?.applied;
        let covered = self.current.lock().as_ref().and_then(|(position, _)| position.applied);
        if applied > last_log && covered < applied {
            tracing::warn!(
                ?applied,
                ?last_log,
                ?covered,
                "the state is further than log and snapshot; taking a snapshot"
            );
            self.build()?;
        }
        Ok(())
    }

    /// Makes the state durable up to a log index, before the log forgets it.
    pub(crate) fn ensure_durable(&self, index: u64) -> io::Result<()> {
        if self.durable_index.load(Ordering::Acquire) >= index {
            return Ok(());
        }
        let applied = position_of(self.state.position()?)?;
        self.state.flush()?;
        self.note_durable(&applied);
        Ok(())
    }

    fn note_durable(&self, position: &Position) {
        let index = position.applied.map_or(0, |id| id.index);
        self.durable_index.fetch_max(index, Ordering::AcqRel);
    }

    /// A new folder for a transfer.
    pub(crate) fn incoming(&self) -> io::Result<SnapshotFolder> {
        let path = self.fresh(INCOMING)?;
        fs::create_dir(path.join("state"))?;
        Ok(SnapshotFolder::new(path))
    }

    fn fresh(&self, prefix: &str) -> io::Result<PathBuf> {
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{prefix}{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Opens what was received and returns its position; the last check before Raft hears of it, because a failed
    /// installation stops the node.
    pub(crate) fn verify(&self, folder: &SnapshotFolder) -> io::Result<Position> {
        position_of(self.state.verify(&folder.state())?)
    }

    /// A checkpoint for a backup, apart from the snapshots; it goes with its handle.
    pub(crate) fn checkpoint(&self) -> io::Result<SnapshotFolder> {
        let folder = SnapshotFolder::new(self.fresh(BACKUP)?);
        folder.retire();
        self.state.checkpoint(&folder.state())?;
        Ok(folder)
    }

    /// Takes a checkpoint of the state. Blocks for as long as the disk needs.
    pub(crate) fn build(&self) -> io::Result<Snapshot> {
        let _working = self.working.lock();
        let building = self.fresh(BUILDING)?;
        let position = position_of(self.state.checkpoint(&building.join("state"))?)?;
        crate::crash::point("during_snapshot_build");
        // The copy is durable; the live state, which the log is purged for, has to be made so.
        self.state.flush()?;
        self.note_durable(&position);
        self.adopt(&building, position)
    }

    /// Replaces the state by a received snapshot, which becomes the current one.
    pub(crate) fn install(&self, folder: &SnapshotFolder) -> io::Result<Position> {
        let _working = self.working.lock();
        let position = position_of(self.state.peek(&folder.state())?)?;
        self.state.install(&folder.state())?;
        crate::crash::point("after_snapshot_install");
        self.note_durable(&position);
        self.adopt(folder.path(), position.clone())?;
        Ok(position)
    }

    /// Moves a complete folder to its place and retires the one before.
    fn adopt(&self, from: &Path, position: Position) -> io::Result<Snapshot> {
        let (term, index) = position.applied.map_or((0, 0), |id| (id.leader_id.term, id.index));
        let place = self.dir.join(format!("{term}-{index}"));
        let mut current = self.current.lock();
        if from != place {
            if place.exists() {
                fs::remove_dir_all(from)?;
            } else {
                let mut file = File::create(from.join(POSITION))?;
                file.write_all(&convert::encode_position(&position))?;
                file.sync_all()?;
                sync_dir(from)?;
                fs::rename(from, &place)?;
                sync_dir(&self.dir)?;
            }
        }
        let meta = position.meta();
        match current.as_ref() {
            Some((_, folder)) if folder.path() == place => Ok(Snapshot { meta, snapshot: folder.clone() }),
            _ => {
                let folder = SnapshotFolder::new(place);
                if let Some((covers, older)) = current.replace((position, folder.clone())) {
                    older.retire();
                    self.retired.lock().push((covers.applied.map_or(0, |id| id.index), older.downgrade()));
                }
                Ok(Snapshot { meta, snapshot: folder })
            }
        }
    }
}

/// What a state says about itself; before its first entry it says nothing.
pub(crate) fn position_of(bytes: Option<Vec<u8>>) -> io::Result<Position> {
    bytes.map_or_else(|| Ok(Position::default()), |bytes| convert::decode_position(&bytes).map_err(invalid))
}

fn read_position(folder: &Path) -> io::Result<Position> {
    convert::decode_position(&fs::read(folder.join(POSITION))?).map_err(invalid)
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Builds one snapshot beside the task that applies.
#[derive(Debug)]
pub(crate) struct Builder(pub(crate) Arc<Snapshots>);

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = SnapshotFolder;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let snapshots = self.0.clone();
        let begun = std::time::Instant::now();
        let work = snapshots.work.clone();
        let built = work.run(move || snapshots.build()).await.flatten();
        metrics::histogram!("placet_snapshot_build_seconds").record(begun.elapsed());
        built
    }
}
