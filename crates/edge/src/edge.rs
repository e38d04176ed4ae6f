//! What the doors share: the decision point, the keyring, the bounds, and how a call is made.
//! Absent on purpose: bytes of any protocol.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use placet_core::cluster::{ClusterView, Health, MembershipChange};
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Query, Reject};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{Caller, Keyring, Presented};
use crate::covered::Scans;
use crate::limits::{ADMIN_IN_FLIGHT_MAX, ANSWER_WITHIN, DECIDE_IN_FLIGHT_MAX, HEAD_WITHIN, TAILS_MAX, WATCHERS_MAX};
use crate::pdp::Pdp;
use crate::peers::Peer;
use crate::reject::{Kind, Refusal};
use crate::roles::Lane;
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
    decides: Arc<Semaphore>,
    admin: Arc<Semaphore>,
    tails: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    scans: Arc<Scans>,
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
            decides: Arc::new(Semaphore::new(DECIDE_IN_FLIGHT_MAX)),
            admin: Arc::new(Semaphore::new(ADMIN_IN_FLIGHT_MAX)),
            tails: Arc::new(Semaphore::new(TAILS_MAX)),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            scans: Arc::default(),
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
        self.decides = Arc::new(Semaphore::new(decides));
        self.admin = Arc::new(Semaphore::new(admin));
        self
    }

    /// Other bounds on streams that stay open than the usual ones.
    #[must_use]
    pub fn with_open_max(mut self, tails: usize, watchers: usize) -> Self {
        self.tails = Arc::new(Semaphore::new(tails));
        self.watchers = Arc::new(Semaphore::new(watchers));
        self
    }

    /// Another bound than the usual one on how long a client may take to begin.
    #[must_use]
    pub fn with_head_within(mut self, head_within: Duration) -> Self {
        self.head_within = head_within;
        self
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

    /// A place in a lane, or a refusal at once.
    pub(crate) fn enter(&self, lane: Lane) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let lane = match lane {
            Lane::Decide => &self.decides,
            Lane::Admin => &self.admin,
            Lane::Free => return Ok(None),
        };
        let busy = |_| Refusal::new(Kind::Unavailable, "too many calls are in work; nothing happened, try again");
        Arc::clone(lane).try_acquire_owned().map(Some).map_err(busy)
    }

    /// A place in the lane of decides, when there is one: a stream waits, so that its client slows down.
    pub(crate) async fn enter_decide(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.decides).acquire_owned().await.ok()
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

    /// Asks the decision point, for a bounded time. A read that takes longer is `unavailable`; anything else may
    /// have happened.
    pub(crate) async fn ask(&self, caller: &Caller, op: Op) -> Result<Answer, Refusal> {
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
        bounded(false, self.pdp.change_membership(change)).await
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
