//! Whether this node is up to date, so that its silence means that nothing happened: from time to time it reads the
//! last entry through the leader, and waits until it has applied that itself. Once for all who watch their permits, and
//! only while somebody does.
//! Absent on purpose: trust in a leader that is known by name. A node that was cut off knows it for long.

use std::sync::Arc;
use std::time::Duration;

use placet_core::cluster::HealthStatus;
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, Query};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::edge::Edge;
use crate::limits::{APPLIED_POLL, PULSE_WITHIN, PULSES_FAILED_MAX, WATCH_POLL};
use crate::reject::{Kind, Refusal};
use crate::shared::Shared;

/// The pulse of a node.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: Arc<Shared<Beat>>,
    /// Somebody waits for the next.
    wanted: Notify,
}

/// What is known after the last beat.
#[derive(Clone, Copy, Debug, Default)]
struct Beat {
    /// Beats that began.
    began: u64,
    /// The last that found this node up to date; 0: none did.
    fresh: u64,
    /// Beats in a row that did not, or not in time.
    failed: u32,
}

/// What one watcher feels of it.
pub(crate) struct Felt {
    beats: watch::Receiver<Beat>,
    /// Beats that had begun before: they say nothing about what this watcher hears.
    before: u64,
}

impl Pulse {
    /// From now on.
    pub(crate) fn feel(self: &Arc<Self>, edge: &Edge) -> Felt {
        let (pulse, edge) = (Arc::clone(self), edge.clone());
        let mut beats = self.beats.join(Beat::default(), |beat| async move { pulse.run(&edge, &beat).await });
        let before = beats.borrow_and_update().began;
        self.wanted.notify_one();
        Felt { beats, before }
    }

    async fn run(&self, edge: &Edge, beats: &watch::Sender<Beat>) {
        loop {
            // Nobody needs to be woken for a beginning.
            beats.send_if_modified(|beat| {
                beat.began += 1;
                false
            });
            let fresh = matches!(timeout(PULSE_WITHIN, up_to_date(edge)).await, Ok(Ok(())));
            beats.send_modify(|beat| match fresh {
                true => (beat.fresh, beat.failed) = (beat.began, 0),
                false => beat.failed = beat.failed.saturating_add(1),
            });
            // After a failure the next beat keeps its time: two quick ones would not be more than one.
            tokio::select! {
                () = sleep(WATCH_POLL) => {}
                () = self.wanted.notified(), if fresh => {}
            }
        }
    }
}

impl Felt {
    /// Waits for the next beat, and tells whether one that began after this watcher found its node up to date.
    pub(crate) async fn next(&mut self) -> Result<bool, Refusal> {
        let lost = || {
            let detail = "this node hears no leader or is behind it; check your permits, watch another";
            Refusal::new(Kind::Unavailable, detail)
        };
        self.beats.changed().await.map_err(|_| lost())?;
        let beat = *self.beats.borrow_and_update();
        if beat.failed >= PULSES_FAILED_MAX { Err(lost()) } else { Ok(beat.fresh > self.before) }
    }
}

async fn up_to_date(edge: &Edge) -> Result<(), Refusal> {
    if edge.health().await.status != HealthStatus::Serving {
        return Err(Refusal::new(Kind::Unavailable, "this node cannot serve"));
    }
    let last = match edge.ask_self(Query::Position).await? {
        Answer::Position(last) => last,
        _ => return Err(Refusal::wrong_answer()),
    };
    let mut pause = Duration::ZERO;
    while edge.cluster().await?.evidence_index < last {
        edge.pdp().evidence_beyond(EvidenceIndex(last.0 - 1)).await;
        sleep(pause).await;
        pause = APPLIED_POLL;
    }
    Ok(())
}
