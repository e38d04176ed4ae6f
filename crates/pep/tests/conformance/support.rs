//! A decision point, an enforcement point with its outbox in a temporary folder, and a sink that counts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use placet_pep::testing::LocalPdp;
use placet_pep::{Action, Pep, PepBuilder, Permit, SinkError, Unreachable};
use serde_json::Value;
use tempfile::TempDir;

/// Actions of AADP §23.1 that an enforcement point can tell apart, and some that carry obligations.
pub const POLICIES: &str = r#"
apiVersion: placet/v1
timezone: UTC
budgets:
  day: { kind: value, unit: EUR, limit: "100", window: day }
policies:
  - { action_type: read.status, tier: 0 }
  - action_type: lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: lamp.toggle
    bounds: { required: [state], enum: { state: ["on", "off"] } }
  - action_type: pay.small
    tier: 2
    dry_run: false
    compensating_command: pay.small
    cost: { param: amount_eur, unit: EUR }
    draws: [day]
    bounds: { required: [payee, amount_eur], numeric: { amount_eur: { min: "0.01", max: "500" } } }
  - { action_type: wire.send, tier: 3, dry_run: false, bounds: { strict_params: false } }
  - { action_type: reh.a, tier: 1, compensating_command: lamp.toggle, bounds: { strict_params: false } }
  - action_type: beam.up
    tier: 1
    dry_run: false
    compensating_command: beam.up
    obligations: [{ type: x-acme.audit, value: full }, { type: x-acme.teleport }]
  - action_type: log.audit
    tier: 1
    dry_run: false
    compensating_command: log.audit
    obligations: [{ type: x-acme.audit, value: full }]
  - action_type: cell.open
    tier: 1
    dry_run: false
    compensating_command: cell.open
    obligations: [{ type: isolate, value: cell-1 }]
  - action_type: card.charge
    tier: 1
    dry_run: false
    compensating_command: card.charge
    obligations: [{ type: idempotency_key }]
"#;

pub struct House {
    pub pdp: LocalPdp,
    pub pep: Pep,
    pub folder: TempDir,
}

/// Short waits, so that a cluster that is gone is known to be gone soon.
pub fn builder(folder: &Path) -> PepBuilder {
    Pep::builder()
        .outbox(folder)
        .attempts(2)
        .attempt_within(Duration::from_millis(600))
        .decide_within(Duration::from_secs(3))
        .sink_within(Duration::from_millis(400))
}

impl House {
    pub async fn open() -> Self {
        Self::with(Unreachable::FailClosed, |builder| builder).await
    }

    pub async fn with(mode: Unreachable, change: impl FnOnce(PepBuilder) -> PepBuilder) -> Self {
        let pdp = LocalPdp::start(POLICIES).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let builder = builder(folder.path()).endpoint(pdp.url()).bearer_token(pdp.token()).unreachable(mode);
        let pep = change(builder).build().unwrap();
        Self { pdp, pep, folder }
    }

    /// Waits until everything is delivered.
    pub async fn flush(&self) {
        flush(&self.pep).await;
    }

    /// What was reported, as it arrived.
    pub fn reports(&self) -> Vec<Value> {
        self.pdp.received("/v1/report")
    }

    /// Runs with a sink that must not be called; returns the outcome of the refusal and its text.
    pub async fn refused(&self, action: Action) -> String {
        let sink = CountingSink::default();
        let result = self.pep.run(action, sink.act()).await;
        assert_eq!(sink.calls(), 0, "the sink was called: {result:?}");
        let error = result.unwrap_err();
        assert_eq!(error.outcome(), placet_pep::Outcome::NotAttempted, "{error:?}");
        format!("{error}: {error:?}")
    }

    /// The only report, which must have this outcome.
    pub async fn only_report(&self, outcome: &str) -> Value {
        self.flush().await;
        let reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:#?}");
        assert_eq!(reports[0]["outcome"], outcome, "{reports:#?}");
        assert_eq!(self.pdp.results(), [outcome]);
        reports[0].clone()
    }
}

pub async fn flush(pep: &Pep) {
    tokio::time::timeout(Duration::from_secs(20), pep.flush()).await.expect("the outbox was not delivered");
}

pub fn lamp() -> Action {
    Action::new("lamp.toggle").param("state", "on").rationale("t")
}

/// A sink that counts its calls.
#[derive(Clone, Default)]
pub struct CountingSink(Arc<AtomicU32>);

impl CountingSink {
    pub fn calls(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn act(&self) -> impl FnOnce(Permit) -> BoxedAct + use<> {
        let count = self.0.clone();
        move |_permit: Permit| -> BoxedAct {
            Box::pin(async move {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        }
    }
}

type BoxedAct = std::pin::Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send>>;

/// Changes the obligations of every permit on its way.
pub fn with_obligations(pdp: &LocalPdp, change: impl Fn(&mut Vec<Value>) + Send + Sync + 'static) {
    pdp.rewrite_decisions(move |decision| {
        if let Some(list) = decision["obligations"].as_array_mut() {
            change(list);
        }
    });
}

/// Replaces `execute_within` of every permit.
pub fn with_deadline(pdp: &LocalPdp, deadline: impl Fn() -> String + Send + Sync + 'static) {
    with_obligations(pdp, move |list| {
        for obligation in list.iter_mut().filter(|obligation| obligation["type"] == "execute_within") {
            obligation["value"] = deadline().into();
        }
    });
}

/// A moment from now, as a decision point writes it.
pub fn in_ms(ms: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    placet_pep::Stamp(i64::try_from(now).unwrap() + ms).to_string()
}
