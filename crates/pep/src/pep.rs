//! The enforcement point: what a program holds, and what goes on behind it.
//! Absent on purpose: the steps of a run (run), and of a delivery (delivery).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::action::Action;
use crate::answer::{Decision, Receipt};
use crate::ask::{AskError, Asker, FailClosed, ReportError};
use crate::builder::PepBuilder;
use crate::clock;
use crate::delivery::{self, Gate};
use crate::limits::{STATIC_REFRESH_MAX, STATIC_REFRESH_MIN};
use crate::obligation::Registry;
use crate::outbox::{Outbox, OutboxStatus};
use crate::permit::Permit;
use crate::report::Report;
use crate::run::{Done, RunError};
use crate::sink::{Sink, SinkError};
use crate::static_list::{Cached, StaticListError};

/// What an enforcement point does when no decision point can be reached (AADP §16). Only that: an answer that refuses,
/// or that cannot be understood, stops the act in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nothing governed happens. Recommended.
    FailClosed,
    /// Only what the decision point listed as decidable without it, from a list not older than `max_age`; and, once a
    /// decision point was reachable again, only after everything that was decided here is delivered.
    FailStatic {
        /// Counted from when the list arrived, by this machine's clock. More than zero, at most 31 days.
        max_age: Duration,
    },
    /// Everything happens, and is recorded.
    FailOpen,
}

/// Everything that the builder decided.
pub(crate) struct Settings {
    pub(crate) asker: Asker,
    pub(crate) folder: PathBuf,
    pub(crate) note_refusals: bool,
    pub(crate) check_before_act: bool,
    pub(crate) reads: BTreeSet<String>,
    pub(crate) registry: Registry,
    pub(crate) sink_within: Duration,
    pub(crate) unreachable: Unreachable,
}

/// An enforcement point (AADP §16): nothing governed happens without a permit, and every permit is reported exactly
/// once, whatever happens to the act, to the network or to this process. Clones share it.
///
/// ```
/// use placet_pep::testing::LocalPdp;
/// use placet_pep::{Action, Pep, Unreachable};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("placet-doc-pep-{}", std::process::id()));
/// let pdp = LocalPdp::start(
///     r#"
///     policies:
///       - action_type: lamp.toggle
///         tier: 1
///         dry_run: false
///         compensating_command: lamp.toggle
///         bounds: { enum: { state: ["on", "off"] }, required: [state] }
///     "#,
/// )
/// .await?;
/// let pep = Pep::builder()
///     .endpoint(pdp.url())
///     .bearer_token(pdp.token())
///     .outbox(&folder)
///     .unreachable(Unreachable::FailClosed)
///     .build()?;
///
/// let action = Action::new("lamp.toggle").param("state", "on").rationale("it is dark");
/// let done = pep.run(action, async |permit| Ok(format!("the lamp is {}", permit.params()["state"]))).await?;
/// assert_eq!(done.value, r#"the lamp is "on""#);
///
/// pep.flush().await;
/// assert_eq!(pdp.results(), ["success"]);
/// # pep.close().await;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pep {
    inner: Arc<Inner>,
}

/// The shared part.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) asker: Arc<Asker>,
    pub(crate) gate: Gate,
    pub(crate) note_refusals: bool,
    pub(crate) check_before_act: bool,
    pub(crate) outbox: Outbox,
    pub(crate) reads: BTreeSet<String>,
    pub(crate) registry: Registry,
    pub(crate) sink_within: Duration,
    pub(crate) unreachable: Unreachable,
    statics: Arc<Statics>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The list for `fail_static`, as it is now.
#[derive(Debug)]
struct Statics {
    folder: PathBuf,
    cached: Mutex<Arc<Option<Cached>>>,
    /// One refresh at a time: they write the same file, and the newer list must not be replaced by an older one.
    refreshing: tokio::sync::Mutex<()>,
}

/// Why the list for `fail_static` is not newer than before.
#[derive(Debug, Error)]
pub enum RefreshError {
    /// The old list stays, until it is too old.
    #[error("no decision point gives a list: {0}")]
    NotAnswered(String),
    /// The new list cannot be used, and the old one is not valid any more: there is none.
    #[error("the list was refused")]
    Refused(#[from] StaticListError),
}

impl Pep {
    /// Settings first.
    pub fn builder() -> PepBuilder {
        PepBuilder::default()
    }

    pub(crate) fn start(settings: Settings, outbox: Outbox, thread: thread::JoinHandle<()>, runtime: &Handle) -> Self {
        let asker = Arc::new(settings.asker);
        let statics = Arc::new(Statics {
            folder: settings.folder,
            cached: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        });
        let mut tasks = vec![runtime.spawn(delivery::run(outbox.clone(), asker.clone()))];
        if let Unreachable::FailStatic { max_age } = settings.unreachable {
            match Cached::load(&statics.folder) {
                Ok(cached) => statics.set(cached),
                Err(error) => tracing::error!(%error, "the cached list for fail_static is refused"),
            }
            tasks.push(runtime.spawn(refresh_for_ever(statics.clone(), asker.clone(), max_age)));
        }
        let inner = Inner {
            asker,
            gate: Gate::default(),
            note_refusals: settings.note_refusals,
            check_before_act: settings.check_before_act,
            outbox,
            reads: settings.reads,
            registry: settings.registry,
            sink_within: settings.sink_within,
            unreachable: settings.unreachable,
            statics,
            tasks: Mutex::new(tasks),
            thread: Mutex::new(Some(thread)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Asks, acts if it is permitted, and reports. The sink is called at most once, with a permit that ends with it.
    ///
    /// The sink returns a value or a [`SinkError`]. Any error becomes one with `?`, and then nobody knows whether the act
    /// happened: that it failed, had no effect or never began must be said. It is cut off by `sink_within` and before
    /// `execute_within`, and nobody knows either. Dropping the run in the middle of the act means the same. What nobody
    /// knows is `timeout`, and is not begun again.
    ///
    /// Errors: [`RunError`]; its [`RunError::outcome`] says whether the act happened.
    pub async fn run<T, F, Fut>(&self, action: Action, act: F) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        self.run_sink(action, Sink::new(act)).await
    }

    /// The same for a sink that declares something about itself.
    ///
    /// ```
    /// use placet_pep::testing::Scene;
    /// use placet_pep::{Action, RunError, Sink};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scene = Scene::open().await?;
    /// # let pep = &scene.pep;
    /// let payment = Action::new("pay.small").param("payee", "acme").param("amount_eur", "60.00");
    /// // This sink does not say that it sends the key which the permit demands.
    /// let refused = pep.run(payment.clone(), async |_| Ok(())).await;
    /// assert!(matches!(refused, Err(RunError::NotAttempted { .. })));
    ///
    /// let sink = Sink::new(async |permit| {
    ///     let key = permit.idempotency_key().unwrap_or_default().to_owned();
    ///     // … send the payment with this key …
    ///     permit.discharged("idempotency_key", serde_json::json!({ "acknowledgement": "tx-17" }));
    ///     Ok(key)
    /// });
    /// let done = pep.run_sink(payment, sink.sends_idempotency_key()).await?;
    /// assert!(!done.value.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_sink<T, F, Fut>(&self, action: Action, sink: Sink<F>) -> Result<Done<T>, RunError>
    where
        F: FnOnce(Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        self.inner.run(action.ask(), sink).await
    }

    /// Only asks. For a minimal enforcement point (AADP §13): act on [`crate::Verdict::Permit`] alone, satisfy every
    /// obligation, and report exactly once; [`Pep::run`] does all of this. The mode does not apply here. The permit of
    /// an [`Action::resumed`] is given out once.
    ///
    /// ```
    /// use placet_pep::testing::Scene;
    /// use placet_pep::{Action, Outcome, Report, Verdict};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scene = Scene::open().await?;
    /// # let pep = &scene.pep;
    /// let decision = pep.decide(Action::new("lamp.toggle").param("state", "on")).await?;
    /// if decision.verdict == Verdict::Permit
    ///     && let Some(permit_id) = decision.permit_id
    /// {
    ///     // … satisfy the obligations, act …
    ///     let receipt = pep.report(&Report::new(permit_id, Outcome::Success)).await?;
    ///     assert!(receipt.accepted);
    /// }
    /// let decision = pep.decide(Action::new("wire.send")).await?;
    /// assert!(decision.verdict == Verdict::Propose && decision.approval_id.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn decide(&self, action: Action) -> Result<Decision, AskError> {
        let asked = action.ask().map_err(FailClosed::Malformed)?;
        self.inner.decide(asked).await
    }

    /// Only reports, and is not durable: repeat the same report until there is a receipt.
    pub async fn report(&self, report: &Report) -> Result<Receipt, ReportError> {
        let body = report.body().map_err(|error| ReportError::Refused(error.to_string()))?;
        self.inner.asker.report(&body).await
    }

    /// Waits until everything that is over was delivered, however long that takes; wrap it in a timeout. What the
    /// decision point will not take does not count.
    pub async fn flush(&self) {
        let mut changed = self.inner.outbox.watch();
        // A closed outbox has nothing that could still be delivered from here.
        if self.inner.outbox.settle().wait().await.is_err() {
            return;
        }
        delivery::hurry(&self.inner.outbox);
        while !self.outbox().is_delivered() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// What is not delivered.
    pub fn outbox(&self) -> OutboxStatus {
        self.inner.outbox.status()
    }

    /// Fetches the list for `fail_static` now. It is fetched in the background anyway, four times within its age.
    pub async fn refresh_static(&self) -> Result<(), RefreshError> {
        self.inner.statics.refresh(&self.inner.asker).await
    }

    /// Stops delivering and gives the outbox up to the next process. What is not delivered stays in it; an act that
    /// still goes on will be `timeout` there. Nothing new begins here.
    pub async fn close(self) {
        let tasks: Vec<_> = lock(&self.inner.tasks).drain(..).collect();
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            let _ = task.await;
        }
        self.inner.outbox.close();
        let thread = lock(&self.inner.thread).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Inner {
    pub(crate) fn static_list(&self) -> Arc<Option<Cached>> {
        lock(&self.statics.cached).clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in lock(&self.tasks).drain(..) {
            task.abort();
        }
        self.outbox.close();
    }
}

impl Statics {
    fn set(&self, cached: Option<Cached>) {
        *lock(&self.cached) = Arc::new(cached);
    }

    async fn refresh(&self, asker: &Asker) -> Result<(), RefreshError> {
        let _turn = self.refreshing.lock().await;
        let body = asker.get("/v1/static").await.map_err(RefreshError::NotAnswered)?;
        match Cached::fresh(&self.folder, &body) {
            Ok(cached) => {
                self.set(Some(cached));
                Ok(())
            }
            Err(error) => {
                Cached::forget(&self.folder);
                self.set(None);
                Err(error.into())
            }
        }
    }
}

async fn refresh_for_ever(statics: Arc<Statics>, asker: Arc<Asker>, max_age: Duration) {
    let pause = (max_age / 4).clamp(STATIC_REFRESH_MIN, STATIC_REFRESH_MAX);
    let mut failures = 0u32;
    loop {
        let wait = match statics.refresh(&asker).await {
            Ok(()) => {
                failures = 0;
                pause
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, failures, "the list for fail_static is not refreshed");
                clock::backoff(STATIC_REFRESH_MIN, pause, failures)
            }
        };
        sleep(wait).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
