//! What the doors share: the decision point, the keyring, the bounds, and how a call is made.
//! Absent on purpose: bytes of any protocol.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use placet_core::cluster::{ClusterView, Health, HealthStatus, MembershipChange};
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Query, Reject};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::auth::{Caller, Keyring, Presented};
use crate::covered::Scans;
use crate::lanes::Lanes;
use crate::limits::{
    ADMIN_IN_FLIGHT_MAX, ANSWER_WITHIN, DECIDE_IN_FLIGHT_MAX, HEAD_WITHIN, HEALTH_POLL, TAILS_MAX, TAKEN_WITHIN,
    WATCHERS_MAX,
};
use crate::pdp::{BackupParts, Pdp};
use crate::peers::Peer;
use crate::pulse::{Felt, Pulse};
use crate::reject::{Kind, Refusal};
use crate::roles::Lane;
use crate::shared::Shared;
use crate::telemetry;

/// Renders all metrics as Prometheus text.
pub type RenderMetrics = dyn Fn() -> String + Send + Sync;

/// Makes a span the child of the trace that a request's headers name.
pub type AdoptTrace = dyn Fn(&tracing::Span, &HeaderMap) + Send + Sync;

/// The state of the doors; cheap to clone.
#[derive(Clone)]
pub struct Edge {
    pdp: Arc<dyn Pdp>,
    keyring: Arc<RwLock<Arc<Keyring>>>,
    render_metrics: Option<Arc<RenderMetrics>>,
    adopt_trace: Option<Arc<AdoptTrace>>,
    lanes: Lanes,
    tails: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    scans: Arc<Scans>,
    pulse: Arc<Pulse>,
    healths: Arc<Shared<HealthStatus>>,
    taken_within: Duration,
    head_within: Duration,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("keyring", &self.keyring).finish_non_exhaustive()
    }
}

impl Edge {
    /// Doors to `pdp` for the callers in `keyring`.
    pub fn new(pdp: Arc<dyn Pdp>, keyring: Keyring) -> Self {
        Self {
            pdp,
            keyring: Arc::new(RwLock::new(Arc::new(keyring))),
            render_metrics: None,
            adopt_trace: None,
            lanes: Lanes::new(DECIDE_IN_FLIGHT_MAX, ADMIN_IN_FLIGHT_MAX),
            tails: Arc::new(Semaphore::new(TAILS_MAX)),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            scans: Arc::default(),
            pulse: Arc::default(),
            healths: Arc::default(),
            taken_within: TAKEN_WITHIN,
            head_within: HEAD_WITHIN,
        }
    }

    /// What `GET /metrics` answers; without it the route is not found.
    #[must_use]
    pub fn with_metrics(mut self, render: Arc<RenderMetrics>) -> Self {
        self.render_metrics = Some(render);
        self
    }

    /// How a `traceparent` header becomes the parent of a request's span; without it the header is only recorded.
    #[must_use]
    pub fn with_trace_parent(mut self, adopt: Arc<AdoptTrace>) -> Self {
        self.adopt_trace = Some(adopt);
        self
    }

    /// Other bounds on calls in work than the usual ones.
    #[must_use]
    pub fn with_in_flight_max(mut self, decides: usize, admin: usize) -> Self {
        self.lanes = Lanes::new(decides, admin);
        self
    }

    /// Other bounds on streams that stay open than the usual ones.
    #[must_use]
    pub fn with_open_max(mut self, tails: usize, watchers: usize) -> Self {
        self.tails = Arc::new(Semaphore::new(tails));
        self.watchers = Arc::new(Semaphore::new(watchers));
        self
    }

    /// Another bound than the usual ones on streams that take no token, of each kind.
    #[must_use]
    pub fn with_public_max(mut self, open: usize) -> Self {
        self.lanes = self.lanes.with_public_max(open);
        self
    }

    /// Another bound than the usual one on how long a client may take to begin.
    #[must_use]
    pub fn with_head_within(mut self, head_within: Duration) -> Self {
        self.head_within = head_within;
        self
    }

    /// Another bound than the usual one on how long a client may take over a page.
    #[must_use]
    pub fn with_taken_within(mut self, taken_within: Duration) -> Self {
        self.taken_within = taken_within;
        self
    }

    pub(crate) fn taken_within(&self) -> Duration {
        self.taken_within
    }

    pub(crate) fn head_within(&self) -> Duration {
        self.head_within
    }

    /// Replaces the keyring: calls that start from now on are judged by the new one.
    pub fn replace_keyring(&self, keyring: Keyring) {
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
    }

    /// The decision point.
    pub fn pdp(&self) -> &Arc<dyn Pdp> {
        &self.pdp
    }

    /// Who calls: what the connection knows (its extensions), or else what the headers show.
    pub(crate) fn presented(&self, extensions: &Extensions, headers: &HeaderMap) -> Presented {
        if let Some(peer) = extensions.get::<Peer>() {
            return peer.presented(headers);
        }
        let keyring = Arc::clone(&self.keyring.read().unwrap_or_else(PoisonError::into_inner));
        Presented::read(headers, &keyring)
    }

    pub(crate) fn render_metrics(&self) -> Option<String> {
        self.render_metrics.as_ref().map(|render| render())
    }

    pub(crate) fn adopt_trace(&self, span: &tracing::Span, headers: &HeaderMap) {
        if let Some(adopt) = &self.adopt_trace {
            adopt(span, headers);
        }
    }

    /// The bounds on calls in work.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(crate) fn enter_tail(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let busy = |_| Refusal::new(Kind::Unavailable, "too many tails are open on this node; try another");
        Arc::clone(&self.tails).try_acquire_owned().map_err(busy)
    }

    pub(crate) fn enter_watch(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let busy = |_| Refusal::new(Kind::Unavailable, "too many watch their permits on this node; try another");
        Arc::clone(&self.watchers).try_acquire_owned().map_err(busy)
    }

    /// Which open permits a switch covers, read once for all who ask about the same engagement.
    pub(crate) fn scans(&self) -> &Arc<Scans> {
        &self.scans
    }

    /// Whether this node is up to date, asked once for all who watch their permits.
    pub(crate) fn feel(&self) -> Felt {
        self.pulse.feel(self)
    }

    /// Whether this node can serve, from time to time, asked once for all who watch it.
    pub(crate) fn watch_health(&self, first: HealthStatus) -> watch::Receiver<HealthStatus> {
        let edge = self.clone();
        self.healths.join(first, |status| async move {
            loop {
                let now = edge.health().await.status;
                status.send_if_modified(|last| std::mem::replace(last, now) != now);
                tokio::time::sleep(HEALTH_POLL).await;
            }
        })
    }

    /// Asks the decision point, for a bounded time. A read that takes longer is `unavailable`; anything else may
    /// have happened.
    pub(crate) async fn ask(&self, caller: &Caller, op: Op) -> Result<Answer, Refusal> {
        let _place = self.lanes.work(caller.lane)?;
        self.ask_as(caller.principal.clone(), op).await
    }

    /// The same in the name of the cluster, for what serves many callers at once.
    pub(crate) async fn ask_self(&self, query: Query) -> Result<Answer, Refusal> {
        self.ask_as(Principal::system(), Op::Query(query)).await
    }

    async fn ask_as(&self, principal: Principal, op: Op) -> Result<Answer, Refusal> {
        let reads = op.is_query();
        let call = Call { principal, op };
        let answer = bounded(reads, self.pdp.submit(call)).await?;
        match answer {
            // An attempt that is on record and has no other answer.
            Answer::Refused(reject) => Err(reject.into()),
            Answer::Decide(reply) => {
                telemetry::decided(&reply);
                Ok(Answer::Decide(reply))
            }
            other => Ok(other),
        }
    }

    pub(crate) async fn change_membership(&self, change: MembershipChange) -> Result<ClusterView, Refusal> {
        let _place = self.lanes.work(Lane::Admin)?;
        bounded(false, self.pdp.change_membership(change)).await
    }

    /// Not bounded in time: a checkpoint takes what the disk takes, and one at a time is taken.
    pub(crate) async fn backup(&self, local: bool) -> Result<BackupParts, Refusal> {
        self.pdp.backup(local).await.map_err(Refusal::from)
    }

    pub(crate) async fn cluster(&self) -> Result<ClusterView, Refusal> {
        self.pdp.cluster().await.map_err(Refusal::from)
    }

    pub(crate) async fn health(&self) -> Health {
        self.pdp.health().await
    }
}

async fn bounded<T>(reads: bool, answer: impl Future<Output = Result<T, Reject>>) -> Result<T, Refusal> {
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(answer) => answer.map_err(Refusal::from),
        Err(_) if reads => Err(Refusal::new(Kind::Unavailable, "no answer in time; try again")),
        Err(_) => Err(Refusal::new(
            Kind::Unknown,
            "no answer in time; it may have happened: ask again, for a decide with the same request_id",
        )),
    }
}
