//! The cluster that all cases share, and the fixture's policies once per case.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::harness::{Cluster, Http, OPERATE, P1, Settings, request, text};

/// The fixture of AADP §23.1; `@` is the case's prefix.
const POLICIES: &str = r#"
  - { action_type: @read.status, tier: 0 }
  - action_type: @lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: @lamp.restore
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: @lamp.restore
    tier: 1
    dry_run: false
    compensating_command: @lamp.toggle
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: @pay.small
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 500 } }, required: [payee, amount_eur] }
    caps: { daily_rate: 3, eur_day: 100, eur_month: 250 }
  - action_type: @pay.fee
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    caps: { eur_day: 50 }
  - action_type: @pay.back
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
  - action_type: @pay.brief
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { eur_day: 60 }
    obligations: [{ type: execute_within, value: 2s }]
  - action_type: @wire.send
    tier: 3
    dry_run: false
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 5000 } }, required: [amount_eur] }
    caps: { eur_day: 5000 }
  - action_type: @wire.brief
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    approval: { ttl: 2s }
  - action_type: @reh.a
    tier: 1
    compensating_command: @lamp.restore
    bounds: { strict_params: false }
  - action_type: @reh.b
    tier: 2
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { daily_rate: 1, eur_day: 10 }
  - { action_type: @reh.c, tier: 3, bounds: { strict_params: false } }
  - action_type: @net.a
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [@money.egress]
  - action_type: @net.b
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [@money.egress]
  - action_type: @eff.two
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    effects: [@bulk]
  - action_type: @pay.danger
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    effects: [@danger]
"#;

const EFFECTS: &str = r#"
  @money.egress: { caps: { eur_day: 60 } }
  @bulk: { min_tier: 2 }
  @danger: { min_tier: 3 }
"#;

struct Shared {
    cluster: Cluster,
    /// The policies of every case so far.
    cases: Mutex<BTreeMap<String, String>>,
    /// The switch is one for all: who engages it has the cluster to itself.
    switch: RwLock<()>,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

/// Tests have a runtime each, but sockets live in the one that opened them; this one outlives every test.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Runs one case, beside others.
pub fn case(prefix: &str, run: impl AsyncFnOnce(Case)) {
    runtime().block_on(async {
        let shared = shared().await;
        let guard = Guard::Beside(shared.switch.read().await);
        run(Case::new(prefix, shared, guard).await).await;
    });
}

/// Runs one case alone, because it engages the kill switch; the switch is released before it starts.
pub fn case_alone(prefix: &str, run: impl AsyncFnOnce(Case)) {
    runtime().block_on(async {
        let shared = shared().await;
        let guard = Guard::Alone(shared.switch.write().await);
        let case = Case::new(prefix, shared, guard).await;
        // A case that failed may have left it engaged.
        case.switch(false).await;
        run(case).await;
        set_switch(&shared.cluster.http, false).await;
    });
}

async fn shared() -> &'static Shared {
    SHARED
        .get_or_init(async || Shared {
            cluster: Cluster::start(Settings::default()).await,
            cases: Mutex::new(BTreeMap::new()),
            switch: RwLock::new(()),
        })
        .await
}

enum Guard {
    Beside(#[expect(dead_code, reason = "held, never read")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, never read")] RwLockWriteGuard<'static, ()>),
}

/// One case: its prefix and the shared cluster.
pub struct Case {
    prefix: String,
    shared: &'static Shared,
    _guard: Guard,
}

impl Case {
    async fn new(prefix: &str, shared: &'static Shared, guard: Guard) -> Self {
        let case = Self { prefix: format!("{prefix}."), shared, _guard: guard };
        case.edit(|policies| policies).await;
        case
    }

    pub fn http(&self) -> &'static Http {
        &self.shared.cluster.http
    }

    pub fn cluster(&self) -> &'static Cluster {
        &self.shared.cluster
    }

    /// Publishes this case's policies changed by `change`, beside those of the other cases, and returns the digest.
    pub async fn edit(&self, change: impl FnOnce(String) -> String) -> String {
        let mut cases = self.shared.cases.lock().await;
        let before = cases.get(&self.prefix).cloned().unwrap_or_else(|| POLICIES.replace('@', &self.prefix));
        cases.insert(self.prefix.clone(), change(before));
        let effects: String = cases.keys().map(|prefix| EFFECTS.replace('@', prefix)).collect();
        let policies: String = cases.values().cloned().collect();
        self.shared.cluster.publish(&format!("apiVersion: placet/v1\neffects:\n{effects}\npolicies:\n{policies}")).await
    }

    pub fn body(&self, action: &str, params: Value) -> Value {
        request(&format!("{}{action}", self.prefix), params)
    }

    /// P1 asks.
    pub async fn ask(&self, action: &str, params: Value) -> Value {
        self.http().decide(&self.body(action, params)).await
    }

    /// P1 pays.
    pub async fn pay(&self, amount: &str) -> Value {
        self.ask("pay.small", json!({"payee": "x", "amount_eur": amount})).await
    }

    pub async fn report(&self, permit: &str, outcome: &str) -> Value {
        self.http().report_as(P1, &crate::harness::report(permit, outcome)).await
    }

    pub async fn switch(&self, engaged: bool) {
        set_switch(self.http(), engaged).await;
    }

    /// What one budget of this case holds: settled and reserved.
    pub async fn consumed(&self, budget: &str) -> String {
        let budgets = every(self.http(), "/v1/budgets", "budgets").await;
        let name = match budget.strip_prefix("effect:") {
            Some(rest) => format!("effect:{}{rest}", self.prefix),
            None => format!("{}{budget}", self.prefix),
        };
        let found =
            budgets.iter().find(|one| one["name"] == name.as_str()).unwrap_or_else(|| panic!("no budget {name}"));
        text(found, "consumed").to_owned()
    }

    /// The entry behind an evidence id: its kind and its body.
    pub async fn entry(&self, evidence_id: &str) -> (String, Value, Value) {
        let view = self.http().get(&format!("/v1/evidence/{evidence_id}"), crate::harness::AUDIT).await;
        let entry = view["entry"].clone();
        let (kind, body) = entry["body"].as_object().unwrap().iter().next().unwrap();
        (kind.clone(), body.clone(), entry.clone())
    }

    /// Approvals of this case, in any state.
    pub async fn approvals(&self) -> Vec<Value> {
        let all = every(self.http(), "/v1/approvals?all=true", "approvals").await;
        all.into_iter().filter(|one| text(one, "action_type").starts_with(&self.prefix)).collect()
    }
}

async fn set_switch(http: &Http, engaged: bool) {
    let body = json!({"engaged": engaged, "origin": "conformance"});
    let answer = http.call("POST", "/v1/killswitch", OPERATE, Some(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Every page of a listing.
pub async fn every(http: &Http, path: &str, name: &str) -> Vec<Value> {
    let token = if name == "approvals" { crate::harness::A1 } else { OPERATE };
    let joint = if path.contains('?') { '&' } else { '?' };
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = http.get(&format!("{path}{joint}limit=1000{after}"), token).await;
        all.extend(page[name].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", escaped(next)),
            None => return all,
        }
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
