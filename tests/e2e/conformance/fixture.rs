//! The cluster that all cases share, each door to it, and the fixture's policies once per case and door.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, RwLock};

use super::policies::{EFFECTS, GROUPS, POLICIES};
use crate::harness::{
    A1, AUDIT, Client, Cluster, Door, OPERATE, P1, Settings, can_become_others, report, request, text,
};

const DOORS: &[Door] = &[Door::Http, Door::Grpc, Door::Unix];

/// For bodies that no message of `placet.v1` can carry: not JSON, no object, a member twice or of another type, a
/// member without a field.
pub const JSON_DOORS: &[Door] = &[Door::Http, Door::Unix];

struct Shared {
    cluster: Cluster,
    grpc: Client,
    unix: Option<Client>,
    /// The policies of every case that runs.
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

/// Runs one case through each door in turn, beside other cases.
pub fn case(name: &str, run: impl AsyncFn(Case)) {
    through(name, DOORS, false, run);
}

/// Runs one case through these doors.
pub fn case_at(name: &str, doors: &[Door], run: impl AsyncFn(Case)) {
    through(name, doors, false, run);
}

/// Runs one case alone, because it engages the kill switch or needs the policy for itself; the switch is released
/// before it starts.
pub fn case_alone(name: &str, run: impl AsyncFn(Case)) {
    through(name, DOORS, true, run);
}

/// Runs one case alone through these doors.
pub fn case_alone_at(name: &str, doors: &[Door], run: impl AsyncFn(Case)) {
    through(name, doors, true, run);
}

fn through(name: &str, doors: &[Door], alone: bool, run: impl AsyncFn(Case)) {
    runtime().block_on(async {
        let shared = shared().await;
        for door in doors {
            let Some(client) = shared.client(*door) else { continue };
            // Fair: who waits to be alone is next.
            let _guard = if alone {
                (Some(shared.switch.write().await), None)
            } else {
                (None, Some(shared.switch.read().await))
            };
            if alone {
                // A case that failed may have left it engaged.
                set_switch(&shared.cluster.http, false).await;
            }
            let letter = match door {
                Door::Http => 'h',
                Door::Grpc => 'g',
                Door::Unix => 'u',
            };
            let case = Case { prefix: format!("{name}{letter}."), client: client.clone(), shared };
            let prefix = case.prefix.clone();
            case.edit(|policies| policies).await;
            let ran = AssertUnwindSafe(run(case)).catch_unwind().await;
            // The next publication leaves this case's policies out.
            shared.cases.lock().await.remove(&prefix);
            if alone {
                set_switch(&shared.cluster.http, false).await;
            }
            if let Err(cause) = ran {
                let said = cause.downcast_ref::<String>().map(String::as_str);
                panic!(
                    "{name} through the {door:?} door: {}",
                    said.or(cause.downcast_ref::<&str>().copied()).unwrap_or("?")
                );
            }
        }
    });
}

async fn shared() -> &'static Shared {
    SHARED
        .get_or_init(async || {
            let unix = can_become_others();
            if !unix {
                // Past the capture of output: a run that leaves a door out says so.
                let _ = writeln!(std::io::stderr(), "the Unix door is left out: only root can call as several users");
            }
            let settings = Settings { unix, sign_heads_every_ms: Some(0), ..Settings::default() };
            let cluster = Cluster::start(settings).await;
            let (grpc, unix) = (cluster.grpc(), cluster.unix());
            Shared { cluster, grpc, unix, cases: Mutex::new(BTreeMap::new()), switch: RwLock::new(()) }
        })
        .await
}

impl Shared {
    fn client(&self, door: Door) -> Option<&Client> {
        match door {
            Door::Http => Some(&self.cluster.http),
            Door::Grpc => Some(&self.grpc),
            Door::Unix => self.unix.as_ref(),
        }
    }
}

/// One case at one door: its prefix, its turns, and the shared cluster.
pub struct Case {
    prefix: String,
    client: Client,
    shared: &'static Shared,
}

impl Case {
    /// Through the door of this case.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Through another door; `None` where it is left out.
    pub fn other(&self, door: Door) -> Option<Client> {
        self.shared.client(door).cloned()
    }

    pub fn cluster(&self) -> &'static Cluster {
        &self.shared.cluster
    }

    /// A name of this case's own.
    pub fn name(&self, name: &str) -> String {
        match name.strip_prefix("effect:") {
            Some(rest) => format!("effect:{}{rest}", self.prefix),
            None => format!("{}{name}", self.prefix),
        }
    }

    /// Publishes this case's policies changed by `change`, beside those of the other cases, and returns the digest.
    pub async fn edit(&self, change: impl FnOnce(String) -> String) -> String {
        let mut cases = self.shared.cases.lock().await;
        let before = cases.get(&self.prefix).cloned().unwrap_or_else(|| POLICIES.replace('@', &self.prefix));
        cases.insert(self.prefix.clone(), change(before));
        let answer = self.client.publish(&document(&cases)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        text(&answer.body, "digest").to_owned()
    }

    /// What is in force, as text.
    pub async fn document(&self) -> String {
        document(&*self.shared.cases.lock().await)
    }

    pub fn body(&self, action: &str, params: Value) -> Value {
        request(&self.name(action), params)
    }

    /// P1 asks.
    pub async fn ask(&self, action: &str, params: Value) -> Value {
        self.client.decide(&self.body(action, params)).await
    }

    /// P1 pays.
    pub async fn pay(&self, amount: &str) -> Value {
        self.ask("pay.small", json!({"payee": "x", "amount_eur": amount})).await
    }

    pub async fn report(&self, permit: &str, outcome: &str) -> Value {
        self.client.report_as(P1, &report(permit, outcome)).await
    }

    pub async fn switch(&self, engaged: bool) {
        set_switch(&self.client, engaged).await;
    }

    /// What one budget of this case holds: settled and reserved.
    pub async fn consumed(&self, budget: &str) -> String {
        let budgets = self.client.every(OPERATE, "/v1/budgets", "budgets").await;
        let name = self.name(budget);
        let found =
            budgets.iter().find(|one| one["name"] == name.as_str()).unwrap_or_else(|| panic!("no budget {name}"));
        text(found, "consumed").to_owned()
    }

    /// The entry behind an evidence id: its kind, its body, and all of it.
    pub async fn entry(&self, evidence_id: &str) -> (String, Value, Value) {
        let view = self.client.get(&format!("/v1/evidence/{evidence_id}"), AUDIT).await;
        let entry = view["entry"].clone();
        let (kind, body) = entry["body"].as_object().unwrap().iter().next().unwrap();
        (kind.clone(), body.clone(), entry.clone())
    }

    /// Approvals of this case, in any state.
    pub async fn approvals(&self) -> Vec<Value> {
        let all = self.client.every(A1, "/v1/approvals?all=true", "approvals").await;
        all.into_iter().filter(|one| text(one, "action_type").starts_with(&self.prefix)).collect()
    }
}

fn document(cases: &BTreeMap<String, String>) -> String {
    let of = |template: &str| cases.keys().map(|prefix| template.replace('@', prefix)).collect::<String>();
    let policies: String = cases.values().cloned().collect();
    let (effects, groups, key) = (of(EFFECTS), of(GROUPS), super::mandates::public_key());
    format!(
        "apiVersion: placet/v1\nmandate: {{ authority: \"{key}\" }}\neffects:\n{effects}\napprovers:\n{groups}\npolicies:\n{policies}"
    )
}

async fn set_switch(client: &Client, engaged: bool) {
    let body = json!({"engaged": engaged, "origin": "conformance"});
    client.done("POST", "/v1/killswitch", OPERATE, Some(&body)).await;
}
