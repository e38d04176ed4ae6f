//! A backup on its way to one client: read no faster than it is taken, and given up when it is not taken or the door
//! closes.
//! Absent on purpose: what is in it. A backup that breaks off ends with a failure; its manifest is its last file, so that
//! no client takes a part for the whole.

use futures::stream::{self, BoxStream, StreamExt};
use placet_wire::archive::Part;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument;

use crate::edge::Edge;
use crate::listen::told;
use crate::pdp::BackupParts;
use crate::reject::{Kind, Refusal};

/// The parts. A failure is the last element; an end without one is the end of the backup.
pub(crate) async fn parts(
    edge: &Edge,
    drain: watch::Receiver<bool>,
    local: bool,
) -> Result<BoxStream<'static, Result<Part, Refusal>>, Refusal> {
    let source = edge.backup(local).await?;
    let (parts, taken) = mpsc::channel(1);
    let (end, ended) = oneshot::channel();
    let within = edge.taken_within();
    let run = async move {
        // A client that left does not need to hear.
        let _ = end.send(pump(source, parts, drain, within).await);
    };
    tokio::spawn(run.in_current_span());
    let stream = stream::unfold((taken, Some(ended)), |(mut taken, ended)| async move {
        if let Some(part) = taken.recv().await {
            return Some((Ok(part), (taken, ended)));
        }
        let broken = |_| Err(Refusal::new(Kind::Internal, "reading on failed inside"));
        let refusal = ended?.await.unwrap_or_else(broken).err()?;
        Some((Err(refusal), (taken, None)))
    });
    Ok(stream.boxed())
}

async fn pump(
    mut source: BackupParts,
    parts: mpsc::Sender<Part>,
    drain: watch::Receiver<bool>,
    within: std::time::Duration,
) -> Result<(), Refusal> {
    let closes = || Refusal::new(Kind::Unavailable, "this node closes; take the backup from another");
    loop {
        let slot = tokio::select! {
            biased;
            () = told(drain.clone()) => return Err(closes()),
            slot = timeout(within, parts.reserve()) => match slot {
                Ok(Ok(slot)) => slot,
                // The client left.
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err(Refusal::new(Kind::Timeout, "what was sent was not read in time")),
            },
        };
        let part = tokio::select! {
            biased;
            () = told(drain.clone()) => return Err(closes()),
            () = parts.closed() => return Ok(()),
            part = source.next() => part,
        };
        match part {
            Some(Ok(part)) => slot.send(part),
            None => return Ok(()),
            Some(Err(error)) => {
                tracing::error!(%error, "a backup broke off");
                return Err(Refusal::new(Kind::Internal, "the backup broke off inside"));
            }
        }
    }
}
