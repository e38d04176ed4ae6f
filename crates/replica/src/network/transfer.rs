//! Snapshot transfer: the files of a checkpoint, one after the other, each with its size and BLAKE3.
//! Absent on purpose: resuming. A transfer that breaks begins again; hard links make the sender's copy free.
//!
//! A snapshot is handed to Raft only when every file arrived whole, is on disk, and the copy opens at the position
//! that its header names: a failed installation stops the node.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures::Stream;
use openraft::raft::SnapshotResponse;
use placet_wire::peer;
use placet_wire::peer::snapshot_part::Part;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::convert;
use crate::snapshot::{Snapshots, sync_dir};
use crate::types::{Position, Raft, Snapshot, SnapshotFolder, Types, Vote};
use crate::work::Work;

/// Bytes of one message: large enough to be cheap, small enough to share a connection.
const CHUNK_BYTES: usize = 256 << 10;

/// Messages read ahead of the network.
const AHEAD: usize = 8;

/// The parts of a snapshot, read while they are sent. A file that cannot be read ends the stream early, and the
/// receiver refuses what has no end.
pub(super) fn send(
    vote: &Vote,
    snapshot: Snapshot,
    work: Work,
) -> impl Stream<Item = peer::SnapshotPart> + Send + 'static {
    let (parts, stream) = mpsc::channel(AHEAD);
    let position = Position { applied: snapshot.meta.last_log_id, membership: snapshot.meta.last_membership.clone() };
    let header = peer::SnapshotHeader { vote: Some(convert::vote(vote)), position: Some(convert::position(&position)) };
    tokio::spawn(async move {
        if let Err(error) = send_files(&parts, header, &snapshot.snapshot, &work).await {
            tracing::warn!(%error, "a snapshot could not be sent");
        }
    });
    ReceiverStream::new(stream)
}

async fn push(parts: &mpsc::Sender<peer::SnapshotPart>, part: Part) -> io::Result<()> {
    let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the receiver is gone");
    parts.send(peer::SnapshotPart { part: Some(part) }).await.map_err(gone)
}

async fn send_files(
    parts: &mpsc::Sender<peer::SnapshotPart>,
    header: peer::SnapshotHeader,
    folder: &SnapshotFolder,
    work: &Work,
) -> io::Result<()> {
    push(parts, Part::Header(header)).await?;
    let state = folder.state();
    let listing = work.run(move || list(&state)).await.flatten()?;
    let files = listing.len() as u64;
    for path in listing {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        push(parts, Part::Start(peer::FileStart { name })).await?;
        let mut file = work.run(move || File::open(path)).await.flatten()?;
        let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
        loop {
            let (back, chunk) = work.run(move || read_chunk(file)).await.flatten()?;
            file = back;
            if chunk.is_empty() {
                break;
            }
            hasher.update(&chunk);
            size += chunk.len() as u64;
            push(parts, Part::Data(chunk)).await?;
            crate::crash::point("during_snapshot_send");
        }
        let blake3 = Bytes::copy_from_slice(hasher.finalize().as_bytes());
        push(parts, Part::End(peer::FileEnd { blake3, size })).await?;
    }
    push(parts, Part::Finish(peer::SnapshotEnd { files })).await
}

/// The files of a folder, by name.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The next bytes of a file, none at its end.
fn read_chunk(file: File) -> io::Result<(File, Bytes)> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    (&file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok((file, Bytes::from(chunk)))
}

/// A file that is arriving.
struct Arriving {
    file: File,
    hasher: blake3::Hasher,
    size: u64,
}

/// Receives a snapshot and installs it. What arrives damaged is removed, and this node goes on as before.
pub(super) async fn receive(
    raft: &Raft,
    snapshots: std::sync::Arc<Snapshots>,
    mut parts: Streaming<peer::SnapshotPart>,
    admit: impl Fn(&Vote) -> Result<(), Status>,
) -> Result<SnapshotResponse<Types>, Status> {
    let Some(Part::Header(header)) = parts.message().await?.and_then(|part| part.part) else {
        return Err(Status::invalid_argument("a snapshot begins with its header"));
    };
    let vote = convert::vote_back(header.vote).map_err(|error| Status::invalid_argument(error.to_string()))?;
    admit(&vote)?;
    let position = header.position.ok_or_else(|| Status::invalid_argument("a snapshot has a position"))?;
    let position = convert::position_back(position).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let folder = snapshots.incoming().map_err(failed)?;
    let complete = receive_files(&mut parts, &folder, snapshots.work()).await;
    let checked = match complete {
        Ok(()) => check(snapshots, folder.clone(), &position).await,
        Err(status) => Err(status),
    };
    if let Err(status) = checked {
        folder.retire();
        tracing::warn!(%status, "a snapshot that arrived was refused");
        return Err(status);
    }
    let snapshot = Snapshot { meta: position.meta(), snapshot: folder.clone() };
    let installed = raft.install_full_snapshot(vote, snapshot).await;
    // Installing moves the folder to its place; what Raft had no use for is removed.
    folder.retire();
    installed.map_err(|error| Status::unavailable(error.to_string()))
}

async fn check(
    snapshots: std::sync::Arc<Snapshots>,
    folder: SnapshotFolder,
    position: &Position,
) -> Result<(), Status> {
    let work = snapshots.work().clone();
    let opened = work.run(move || {
        sync_dir(&folder.state())?;
        snapshots.verify(&folder)
    });
    let found = opened.await.flatten().map_err(failed)?;
    if &found == position {
        Ok(())
    } else {
        Err(Status::data_loss("the snapshot holds another position than its header"))
    }
}

async fn receive_files(
    parts: &mut Streaming<peer::SnapshotPart>,
    folder: &SnapshotFolder,
    work: &Work,
) -> Result<(), Status> {
    let (mut arriving, mut files) = (None::<Arriving>, 0u64);
    while let Some(part) = parts.message().await? {
        match (part.part, arriving.take()) {
            (Some(Part::Start(start)), None) => {
                let path = path_of(&folder.state(), &start.name)?;
                let create = move || File::options().write(true).create_new(true).open(path);
                let file = work.run(create).await.flatten().map_err(failed)?;
                arriving = Some(Arriving { file, hasher: blake3::Hasher::new(), size: 0 });
            }
            (Some(Part::Data(data)), Some(mut into)) => {
                into.hasher.update(&data);
                into.size += data.len() as u64;
                crate::crash::point("during_snapshot_receive");
                let writing = move || (&into.file).write_all(&data).map(|()| into);
                arriving = Some(work.run(writing).await.flatten().map_err(failed)?);
            }
            (Some(Part::End(end)), Some(done)) => {
                let hash = done.hasher.finalize();
                if hash.as_bytes().as_slice() != end.blake3.as_ref() || done.size != end.size {
                    return Err(Status::data_loss("a file of the snapshot arrived damaged"));
                }
                work.run(move || done.file.sync_all()).await.flatten().map_err(failed)?;
                files += 1;
            }
            (Some(Part::Finish(end)), None) if end.files == files => return Ok(()),
            _ => return Err(Status::invalid_argument("the parts of a snapshot are out of order")),
        }
    }
    Err(Status::data_loss("the snapshot ended early"))
}

/// Where a file goes by its bare name: nothing that a peer says may leave the folder.
fn path_of(folder: &Path, name: &str) -> Result<PathBuf, Status> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(bare)), None) => Ok(folder.join(bare)),
        _ => Err(Status::invalid_argument("a file of a snapshot has a bare name")),
    }
}

fn failed(error: io::Error) -> Status {
    Status::internal(error.to_string())
}
