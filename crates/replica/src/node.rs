//! A node: the handle that doors hold. Any node takes any call; the leader judges it.
//! Absent on purpose: Raft's types in the interface, and retries of what may have happened twice.

mod admin;
mod submit;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Config, Instant as _, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use placet_core::cluster::{ClockView, ClusterView, Health, HealthStatus, MemberAddresses, MemberRole, MemberView};
use placet_core::evaluate::cluster_id;
use placet_core::ids::EvidenceIndex;
use placet_core::notice::Notice;
use placet_core::op::Reject;
use placet_core::stamp::Stamp;
use placet_core::state::Read;
use placet_wire::peer::peer_server::PeerServer;
use thiserror::Error;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::task::JoinHandle;

use crate::bootstrap::{self, Gate};
use crate::decider::{Decider, Proposal};
use crate::fuse::{Fuse, FusedLog, FusedState};
use crate::judged::Judged;
use crate::log_store::{LogStore, last_log_id};
use crate::network::client::Peers;
use crate::network::server::PeerService;
use crate::options::{LOG_BYTES_MAX_LEAST, LOG_FORMATS, Options, PeerTls};
use crate::ports::{Log, Records, State};
use crate::retention::{self, LogUse};
use crate::snapshot::Snapshots;
use crate::space;
use crate::state_machine::{Applier, FENCED_RUN_MAX, FatalReason, Progress};
use crate::types::Raft;
use crate::watch::PeerWatch;

/// A node could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// An option is out of its range.
    #[error("an option cannot be: {0}")]
    Option(String),
    /// The disk could not be read or does not hold together.
    #[error("the storage cannot be used")]
    Storage(#[source] io::Error),
    /// Raft found its log or state unusable.
    #[error("the log and the state do not fit together: {0}")]
    Recovery(String),
}

/// How often whoever waits for this node's end looks for itself.
const STOP_LOOKED_FOR_EVERY: Duration = Duration::from_secs(1);

/// Notices that a slow listener may be behind: a batch that expires a thousand permits fits.
const NOTICES_KEPT: usize = 4096;

/// Why this node has no answer itself.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not lead, and nothing happened.
    NotLeader {
        /// What to tell a caller that has waited long enough.
        detail: String,
    },
    /// To be told to the caller.
    Final(Reject),
}

/// What the parts of a node share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Arc<Options>,
    pub(crate) raft: Raft,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) records: Records,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) log_use: Arc<LogUse>,
    pub(crate) peers: Peers,
    pub(crate) gate: Arc<Gate>,
    pub(crate) watch: Arc<PeerWatch>,
    pub(crate) progress: watch::Receiver<Progress>,
    notices: broadcast::Sender<Arc<Notice>>,
    fatal: FatalReason,
    queue: mpsc::Sender<Proposal>,
    /// Held while a backup is taken.
    pub(crate) backups: Arc<Semaphore>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A running node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

fn config(options: &Options, elect: bool) -> Result<Config, StartError> {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "placet".to_owned(),
        heartbeat_interval: ms(options.heartbeat),
        election_timeout_min: ms(options.election.0),
        election_timeout_max: ms(options.election.1),
        install_snapshot_timeout: ms(options.snapshot_timeout),
        snapshot_policy: options.snapshot_every.map_or(SnapshotPolicy::Never, SnapshotPolicy::LogsSinceLast),
        max_in_snapshot_log_to_keep: options.log_kept,
        replication_lag_threshold: options.replication_lag_max,
        enable_elect: elect,
        enable_pre_vote: Some(true),
        // A restarted leader takes a new term: only then does an applied entry of its term prove that everything
        // before it is applied, which the Decider relies on.
        enable_leader_restore: Some(false),
        // Only a member that lost its disk comes back with a shorter log, and the gate keeps it harmless until it has
        // caught up (INVARIANT (amnesia)).
        allow_log_reversion: Some(true),
        ..Config::default()
    };
    config.validate().map_err(|error| StartError::Option(error.to_string()))
}

impl Node {
    /// Starts a node on its storage. It takes part as soon as its peer door is served.
    pub async fn start(options: Options, log: Arc<dyn Log>, state: Arc<dyn State>) -> Result<Self, StartError> {
        let options = Arc::new(options);
        let lag = options.snapshot_every.is_some_and(|every| every >= options.replication_lag_max);
        if lag {
            return Err(StartError::Option("`replication_lag_max` must exceed `snapshot_every`".to_owned()));
        }
        if !LOG_FORMATS.contains(&options.log_format_max) {
            let (oldest, newest) = LOG_FORMATS.into_inner();
            return Err(StartError::Option(format!("`log_format_max` is from {oldest} to {newest}")));
        }
        if options.log_bytes_max.is_some_and(|max| max < LOG_BYTES_MAX_LEAST) {
            return Err(StartError::Option(format!("`log_bytes_max` is {LOG_BYTES_MAX_LEAST} or more")));
        }
        if options.in_flight_batches_max >= usize::try_from(FENCED_RUN_MAX).unwrap_or(usize::MAX) {
            return Err(StartError::Option(format!("`in_flight_batches_max` is below {FENCED_RUN_MAX}")));
        }
        if !log.durable() {
            tracing::warn!("fsync is off: this node may lose what it promised; for tests only");
        }
        let fatal = FatalReason::default();
        let fuse = Fuse::new(fatal.clone());
        let log: Arc<dyn Log> = Arc::new(FusedLog { log, fuse: fuse.clone() });
        let state: Arc<dyn State> = Arc::new(FusedState { state, fuse: fuse.clone() });
        let (notices, _) = broadcast::channel(NOTICES_KEPT);
        let founder = options.initial_cluster.len() > 1 && options.initial_cluster.contains_key(&options.node_id);
        let work = &options.work;
        let judged = Arc::new(Judged::default());
        let opened = Snapshots::open(&options.snapshot_dir, state.clone(), work.clone()).and_then(|snapshots| {
            let snapshots = Arc::new(snapshots);
            snapshots.cover_hole(last_log_id(log.as_ref())?)?;
            let gate = Gate::open(log.clone(), state.clone(), founder)?;
            let log_use = Arc::new(LogUse::open(log.as_ref(), options.log_bytes_max)?);
            let store = LogStore::new(log.clone(), snapshots.clone(), log_use.clone(), work)?;
            let applier = Applier::open(state.clone(), log.clone(), snapshots.clone(), notices.clone(), fatal.clone())?;
            let applier = applier.knowing(judged.clone());
            Ok((snapshots, gate, log_use, store, applier))
        });
        let (snapshots, gate, log_use, store, applier) = opened.map_err(StartError::Storage)?;
        let progress = applier.progress();
        let peers = Peers::new(&options, log_use.clone());
        let config = Arc::new(config(&options, gate.is_open())?);
        let raft = Raft::build(options.node_id, config, peers.clone(), store, applier)
            .await
            .map_err(|error| StartError::Recovery(error.to_string()))?;
        let gate = Arc::new(gate);
        let watch = Arc::new(PeerWatch::new(options.clone(), raft.clone(), peers.clone(), gate.clone()));
        let (queue, waiting) = mpsc::channel(options.queue_max);
        let decider = Decider {
            options: options.clone(),
            raft: raft.clone(),
            records: Records(state.clone()),
            watch: watch.clone(),
            progress: progress.clone(),
            judged: judged.clone(),
            queue: waiting,
        };
        let inner = Arc::new(Inner {
            options,
            raft,
            log,
            records: Records(state),
            snapshots,
            log_use,
            peers,
            gate,
            watch,
            progress,
            notices,
            fatal,
            queue,
            backups: Arc::new(Semaphore::new(1)),
            tasks: Mutex::default(),
        });
        inner.raft.run();
        let watched = inner.clone();
        let judging = async move {
            // A leader that cannot judge must not go on leading.
            if std::panic::AssertUnwindSafe(decider.run()).catch_unwind().await.is_err() {
                watched.stop_for("the Decider panicked; its message is above".to_owned()).await;
            }
        };
        let burned = inner.raft.clone();
        let watching = async move {
            fuse.blown().await;
            // What Raft notices by itself it has noticed; a record of the state that cannot be read it has not.
            if let Err(error) = burned.shutdown().await {
                tracing::error!(%error, "the consensus task did not end cleanly");
            }
        };
        let tasks = vec![
            tokio::spawn(judging),
            tokio::spawn(bootstrap::run(inner.clone())),
            tokio::spawn(retention::run(inner.clone())),
            tokio::spawn(inner.watch.clone().run()),
            tokio::spawn(watching),
            tokio::spawn(space::watch(inner.clone())),
        ];
        inner.tasks.lock().extend(tasks);
        Ok(Self { inner })
    }

    /// The service of the peer door, for a server that also serves something else there.
    pub fn peer_service(&self) -> PeerServer<PeerService> {
        PeerService::new(self.inner.clone())
    }

    pub(crate) fn peer_tls(&self) -> Option<&PeerTls> {
        self.inner.options.tls.as_ref()
    }

    /// This node's id.
    pub fn id(&self) -> u64 {
        self.inner.options.node_id
    }

    /// The state as applied here, for reads that need not be the latest (metrics, exports).
    pub fn records(&self) -> Records {
        self.inner.records.clone()
    }

    /// The moment that the next entry recorded here would carry.
    pub fn now(&self) -> Stamp {
        self.inner.now()
    }

    /// The first index that this node's log may still hold; what is before it was purged behind a snapshot.
    pub fn log_begins(&self) -> u64 {
        let metrics = self.inner.raft.metrics();
        let purged = metrics.borrow_watched().purged;
        purged.map_or(0, |id| id.index.saturating_add(1))
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<(u64, MemberAddresses)> {
        self.inner.leader()
    }

    /// Whether this node leads and judges.
    pub fn leads(&self) -> bool {
        self.inner.leads()
    }

    /// The cluster as this node sees it.
    pub fn cluster(&self) -> Result<ClusterView, Reject> {
        self.inner.cluster()
    }

    /// Whether this node can serve.
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// Returns when this node has applied an entry behind `after`, or will not apply any more.
    pub async fn evidence_beyond(&self, after: EvidenceIndex) {
        let mut progress = self.inner.progress.clone();
        // The Applier is gone: whoever waits looks for itself and sees that nothing comes.
        let _ = progress.wait_for(|now| now.next > after.next()).await;
    }

    /// What is told as it is applied here. A receiver that falls behind is told so, and looks for itself.
    pub fn notices(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.inner.notices.subscribe()
    }

    /// Resolves when this node has stopped for good, with the reason. The process should end then.
    pub async fn stopped(&self) -> String {
        // Raft's whole metrics change several times with every batch; these with the term, and they end with Raft.
        let mut changes = self.inner.raft.server_metrics();
        loop {
            if let Some(reason) = self.inner.stop_reason() {
                return reason;
            }
            if let Ok(Err(_)) = tokio::time::timeout(STOP_LOOKED_FOR_EVERY, changes.changed()).await {
                let said = self.inner.stop_reason().or_else(|| self.inner.fatal.get().cloned());
                return said.unwrap_or_else(|| "the consensus task has ended".to_owned());
            }
        }
    }

    /// A planned stop begins: health says so, calls are still answered, and this node is not elected and not chosen to
    /// lead any more.
    pub fn retire(&self) {
        self.inner.watch.retire();
    }

    /// Hands the leadership over, if this node has it, so that a planned stop costs milliseconds. Returns once another
    /// node leads, or after the election timeout.
    pub async fn step_down(&self) {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        if metrics.state != ServerState::Leader {
            return;
        }
        let Some(next) = self.inner.watch.best_to_lead(&metrics) else { return };
        if self.inner.raft.trigger().transfer_leader(next).await.is_ok() {
            let limit = self.inner.options.election.1;
            let waiting = self.inner.raft.wait(Some(limit));
            if let Err(error) = waiting.metrics(|now| now.vote > metrics.vote, "step down").await {
                tracing::warn!(%error, "the leadership was not taken over in time");
            }
        }
    }

    /// Stops this node. Its storage may be closed when this returns and all handles are dropped.
    pub async fn shutdown(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "the consensus task did not end cleanly");
        }
        let tasks = std::mem::take(&mut *self.inner.tasks.lock());
        for task in tasks {
            task.abort();
            // Aborted on purpose; a task that had ended before is as good.
            let _ = task.await;
        }
    }
}

impl Inner {
    /// Stops this node for good; the process ends with this reason.
    pub(crate) async fn stop_for(&self, reason: String) {
        tracing::error!(reason, "this node stops");
        self.fatal.get_or_init(|| reason);
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the consensus task did not end cleanly");
        }
    }

    pub(crate) fn now(&self) -> Stamp {
        let last = self.records.meta().map_or(Stamp::default(), |meta| meta.last_stamp);
        Stamp(self.options.clock.now_ms()).max(last)
    }

    pub(crate) fn leads(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.state == ServerState::Leader && metrics.running_state.is_ok()
    }

    pub(crate) fn leader(&self) -> Option<(u64, MemberAddresses)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let id = metrics.current_leader?;
        let addresses = metrics.membership_config.get_node(&id)?;
        Some((id, addresses.clone()))
    }

    fn stop_reason(&self) -> Option<String> {
        let running = self.raft.metrics().borrow_watched().running_state.clone();
        running.err().map(|fatal| self.fatal.get().cloned().unwrap_or_else(|| fatal.to_string()))
    }

    pub(crate) fn cluster(&self) -> Result<ClusterView, Reject> {
        let meta = self.records.meta()?;
        let metrics = self.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters = membership.voter_ids().collect::<Vec<_>>();
        let members = membership.nodes().map(|(id, addresses)| {
            let matched = match &metrics.replication {
                Some(_) if *id == metrics.id => metrics.last_log_index,
                Some(all) => all.get(id).copied().flatten().map(|at| at.index),
                None => None,
            };
            let role = if voters.contains(id) { MemberRole::Voter } else { MemberRole::Learner };
            let heard = self.watch.heard(*id);
            MemberView { id: *id, role, addresses: addresses.clone(), matched_index: matched, heard }
        });
        let (state, offset_ms) = self.watch.clock_state();
        let bound_ms = u64::try_from(self.options.clock_skew_max.as_millis()).unwrap_or(u64::MAX);
        let ahead = meta.last_stamp.0.saturating_sub(self.options.clock.now_ms());
        let stamp_ahead_ms = u64::try_from(ahead).unwrap_or_default();
        Ok(ClusterView {
            node_id: metrics.id,
            leader_id: metrics.current_leader,
            term: metrics.current_term,
            members: members.collect(),
            last_log_index: metrics.last_log_index.unwrap_or_default(),
            applied_index: metrics.last_applied.map_or(0, |at| at.index),
            snapshot_index: metrics.snapshot.map_or(0, |at| at.index),
            evidence_index: EvidenceIndex(meta.next_index.0.saturating_sub(1)),
            chain_head: meta.chain_head,
            clock: ClockView { state, offset_ms, bound_ms, stamp_ahead_ms },
            version: crate::VERSION.to_owned(),
            log_format: self.options.log_format_max,
            cluster: cluster_id(&self.records, &meta)?,
        })
    }

    pub(crate) fn health(&self) -> Health {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let meta = self.records.meta();
        let stopped = self.stop_reason();
        // A voter that is alone is its own quorum, and nobody acknowledges anything to it.
        let alone = metrics.membership_config.voter_ids().all(|id| id == metrics.id);
        let lost_quorum = metrics.state == ServerState::Leader
            && !alone
            && metrics.last_quorum_acked.as_ref().is_some_and(|at| at.elapsed() > self.options.election.1);
        let clock_off = self.watch.unhealthy();
        let (status, detail) = match (&stopped, &meta, metrics.current_leader) {
            (Some(reason), ..) => (HealthStatus::Fatal, Some(reason.clone())),
            (_, Err(error), _) => (HealthStatus::Fatal, Some(error.to_string())),
            _ if self.watch.stopping() => (HealthStatus::Stopping, Some("this node was told to stop".to_owned())),
            (_, _, None) => (HealthStatus::NoLeader, Some("no leader is known".to_owned())),
            _ if lost_quorum => (HealthStatus::NoLeader, Some("the leader has no quorum".to_owned())),
            _ if clock_off.is_some() => (HealthStatus::ClockOff, clock_off),
            _ if !self.gate.is_open() => {
                (HealthStatus::Serving, Some("this node lost its data and is catching up".to_owned()))
            }
            _ => (HealthStatus::Serving, self.options.disk.complaint()),
        };
        Health {
            status,
            node_id: metrics.id,
            leader_id: metrics.current_leader,
            kill_switch: meta.as_ref().is_ok_and(|meta| meta.kill_switch.engaged),
            pending_intents: meta.as_ref().map_or(0, |meta| meta.open_permits),
            late_reports: meta.as_ref().map_or(0, |meta| meta.late_reports),
            durable: self.log.durable(),
            detail,
        }
    }
}
