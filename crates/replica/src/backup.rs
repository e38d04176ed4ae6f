//! Backups of a node: a checkpoint of the state as a stream of files, the manifest last; and what a stopped node has to
//! do before its state is all that it knows.
//! Absent on purpose: where the files go, and the check of the whole, which is for who receives them.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use placet_core::backup::{BackupFile, LogPosition, MANIFEST_FILE, Manifest, STATE_FOLDER, VERSION};
use placet_core::evaluate::cluster_id;
use placet_core::ids::{EvidenceIndex, Hash, Principal};
use placet_core::merkle;
use placet_core::op::{Answer, Call, Op, Query, Reject};
use placet_core::stamp::Stamp;
use placet_core::state::{List, Tree};
use placet_wire::archive::Part;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::log_store::{LogReader, invalid};
use crate::node::Node;
use crate::options::Clock;
use crate::ports::{Log, LogKey, State};
use crate::snapshot::{Snapshots, position_of};
use crate::state_machine::Applier;
use crate::types::SnapshotFolder;

/// Bytes of one part.
const CHUNK_BYTES: usize = 256 << 10;

/// Parts read ahead of the receiver.
const AHEAD: usize = 8;

/// Entries of the log that are read at once.
const LOG_PAGE: u64 = 1000;

impl Node {
    /// A backup as this node has it: the state's files, then the manifest. Without `local` it holds everything that was
    /// answered anywhere before this call, and needs a quorum. One at a time: each holds disk space.
    pub async fn backup(&self, local: bool) -> Result<impl Stream<Item = io::Result<Part>> + Send + use<>, Reject> {
        let place = self.inner.backups.clone().try_acquire_owned().map_err(|_| Reject::Unavailable {
            detail: "a backup of this node is being taken already; wait for it, or ask another node".to_owned(),
        })?;
        if !local {
            self.catch_up_with_cluster().await?;
        }
        let (inner, taken) = (self.inner.clone(), self.inner.clone());
        let internal = |error: io::Error| {
            tracing::error!(%error, "a backup could not be taken");
            Reject::Internal { detail: format!("the backup could not be taken: {error}") }
        };
        let checkpoint = move || {
            let folder = taken.snapshots.checkpoint()?;
            let copy = taken.records.0.read_copy(&folder.state())?;
            let manifest = manifest(copy.as_ref(), taken.options.node_id, &taken.options.clock)?;
            Ok::<_, io::Error>((folder, manifest))
        };
        let (folder, manifest) = inner.options.work.run(checkpoint).await.flatten().map_err(internal)?;
        tracing::info!(entries = manifest.entries, chain_head = %manifest.chain_head, "sending a backup");
        let (parts, stream) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            if let Err(error) = send(&parts, &folder, manifest).await {
                tracing::warn!(%error, "a backup broke off");
                // Who left does not need to hear.
                let _ = parts.send(Err(error)).await;
            }
            drop(place);
        });
        Ok(ReceiverStream::new(stream))
    }

    /// Waits until this node has applied what the leader had a moment ago.
    async fn catch_up_with_cluster(&self) -> Result<(), Reject> {
        let call = Call { principal: Principal::system(), op: Op::Query(Query::Position) };
        let last = match self.submit(call).await? {
            Answer::Position(last) => last,
            _ => return Err(Reject::Internal { detail: "the leader has no position".to_owned() }),
        };
        let Some(before) = last.0.checked_sub(1).map(EvidenceIndex) else { return Ok(()) };
        let applied = tokio::time::timeout(self.inner.options.deadline, self.evidence_beyond(before));
        let late = |_| Reject::Unavailable { detail: format!("this node has not applied `{last}` yet") };
        applied.await.map_err(late)
    }
}

/// What a copy of the state holds; its files are added by who reads them.
pub fn manifest(copy: &dyn CopiedState, node_id: u64, clock: &Clock) -> io::Result<Manifest> {
    let meta = copy.meta().map_err(invalid)?;
    let entries = meta.next_index.0.saturating_sub(1);
    let applied = position_of(copy.position()?)?.applied;
    Ok(Manifest {
        chain_head: meta.chain_head,
        cluster: cluster_id(&copy, &meta).map_err(invalid)?,
        entries,
        files: Vec::new(),
        last_at: (entries > 0).then_some(meta.last_stamp),
        log: applied.map_or_else(LogPosition::default, |id| LogPosition { index: id.index, term: id.leader_id.term }),
        node_id,
        placet: env!("CARGO_PKG_VERSION").to_owned(),
        root: merkle::root(&Tree(&copy), entries).map_err(invalid)?,
        taken_at: Stamp(clock.now_ms()),
        version: VERSION,
    })
}

type Parts = mpsc::Sender<io::Result<Part>>;

async fn push(parts: &Parts, part: Part) -> io::Result<()> {
    let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the receiver is gone");
    parts.send(Ok(part)).await.map_err(gone)
}

async fn send(parts: &Parts, folder: &SnapshotFolder, mut manifest: Manifest) -> io::Result<()> {
    let mut names = Vec::new();
    let mut listing = tokio::fs::read_dir(folder.state()).await?;
    while let Some(entry) = listing.next_entry().await? {
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    for name in names {
        let mut file = File::open(folder.state().join(&name)).await?;
        let size = file.metadata().await?.len();
        let name = format!("{STATE_FOLDER}/{name}");
        push(parts, Part::File { name: name.clone(), size }).await?;
        let (mut hasher, mut read) = (blake3::Hasher::new(), 0u64);
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
            if file.read_buf(&mut chunk).await? == 0 {
                break;
            }
            hasher.update(&chunk);
            read = read.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            push(parts, Part::Data(chunk.freeze())).await?;
        }
        if read != size {
            return Err(invalid(format!("`{name}` of a checkpoint changed while it was read")));
        }
        manifest.files.push(BackupFile { blake3: Hash(*hasher.finalize().as_bytes()), name, size });
    }
    let bytes = Bytes::from(manifest.encode());
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    push(parts, Part::File { name: MANIFEST_FILE.to_owned(), size }).await?;
    push(parts, Part::Data(bytes)).await
}

/// A copy of a state: records, and how far they have come.
pub trait CopiedState: List + Send + Sync {
    /// The position of the copy.
    fn position(&self) -> io::Result<Option<Vec<u8>>>;
}

/// Applies what a stopped node knows to be committed and has not applied, as its next start would. Then its state alone
/// is all that it has to say.
pub async fn settle(log: Arc<dyn Log>, state: Arc<dyn State>, snapshots: &std::path::Path) -> io::Result<()> {
    let Some(committed) = log.get(LogKey::Committed)? else { return Ok(()) };
    let committed = crate::log_store::decode_log_id(&committed)?;
    let applied = position_of(state.position()?)?.applied;
    let snapshots = Arc::new(Snapshots::open(snapshots, state.clone(), crate::work::Work::threads())?);
    let (notices, _) = tokio::sync::broadcast::channel(1);
    let mut applier = Applier::open(state.clone(), log.clone(), snapshots, notices, Arc::default())?;
    let reader = LogReader::new(log);
    let mut next = applied.map_or(0, |id| id.index.saturating_add(1));
    while next <= committed.index {
        let end = next.saturating_add(LOG_PAGE).min(committed.index.saturating_add(1));
        let entries = reader.page(next..end)?;
        let Some(last) = entries.last().map(|entry| entry.log_id.index) else {
            return Err(invalid(format!("log entry {next} is committed and is not there")));
        };
        applier.replay(entries).await?;
        next = last.saturating_add(1);
    }
    state.flush()
}
