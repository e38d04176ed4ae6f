//! The enforcement point's SDK against a real cluster (AADP §16): the leader dies, the cluster is away, and still every
//! act has one permit or one local record, and one report.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use placet_pep::{Action, Basis, FailClosed, Pep, RunError, Unreachable};
use serde_json::{Value, json};

use crate::harness::{A1, AUDIT, Cluster, OPERATE, P1, Settings, text};

const POLICY: &str = r#"apiVersion: placet/v1
budgets:
  eur: { kind: value, unit: EUR, limit: "1000000", window: month }
policies:
  - { action_type: lamp, tier: 1, dry_run: false, compensating_command: lamp, bounds: { enum: { state: ["on", "off"] }, required: [state] } }
  - action_type: pay
    tier: 2
    dry_run: false
    compensating_command: lamp
    cost: { param: amount }
    draws: [eur]
    bounds: { required: [amount] }
  - { action_type: wire, tier: 3, dry_run: false, bounds: { required: [amount] } }
"#;

fn pep(cluster: &Cluster, folder: &std::path::Path, mode: Unreachable) -> Pep {
    let builder = cluster.http.bases().iter().fold(Pep::builder(), |builder, base| builder.endpoint(base.clone()));
    builder.bearer_token(P1).outbox(folder).unreachable(mode).build().unwrap()
}

/// Every entry of one kind, by its body.
async fn entries(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut after = "aud-0".to_owned();
    loop {
        let page = cluster.http.get(&format!("/v1/evidence?limit=1000&after={after}"), AUDIT).await;
        for one in page["evidence"].as_array().unwrap() {
            found.extend(one["entry"]["body"].get(kind).cloned());
        }
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return found,
        }
    }
}

/// Goal: two hundred acts while the leader is killed twice: each happened on a permit of its own and has one result.
#[test]
fn acts_survive_the_leader() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(Settings::default()).await;
        cluster.publish(POLICY).await;
        let folder = tempfile::tempdir().unwrap();
        let pep = Arc::new(pep(&cluster, folder.path(), Unreachable::FailClosed));
        let acted = Arc::new(AtomicUsize::new(0));
        let mut done = BTreeSet::new();
        for round in 0..4 {
            let runs = (0..50).map(|_| {
                let (pep, acted) = (Arc::clone(&pep), Arc::clone(&acted));
                tokio::spawn(async move {
                    let action = Action::new("pay").param("amount", "1.50").rationale("test");
                    pep.run(action, async move |_| {
                        acted.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    })
                    .await
                })
            });
            let runs: Vec<_> = runs.collect();
            let killed = if round % 2 == 0 { Some(cluster.leader().await) } else { None };
            if let Some(id) = killed {
                cluster.kill(id);
            }
            for run in runs {
                let finished = run.await.unwrap().unwrap();
                assert_eq!(finished.basis, Basis::Permitted);
                assert!(done.insert(finished.request_id.to_string()));
            }
            if let Some(id) = killed {
                cluster.spawn(id);
                cluster.leader().await;
            }
        }
        tokio::time::timeout(Duration::from_secs(60), pep.flush()).await.expect("every report is delivered");
        assert_eq!(acted.load(Ordering::Relaxed), 200);
        let results = entries(&cluster, "exec_result").await;
        let reported: BTreeSet<String> = results.iter().map(|one| text(one, "request_id").to_owned()).collect();
        assert_eq!((results.len(), &reported), (200, &done), "one result for each act");
        assert!(results.iter().all(|one| one["outcome"] == "success"));
        let open = cluster.http.get("/v1/intents", OPERATE).await;
        assert_eq!(open["intents"], json!([]));
    });
}

/// Goal: with the whole cluster away, what it listed goes on and is on record afterwards, what it did not list stops; and
/// under an engaged kill switch the list holds nothing.
#[test]
fn listed_acts_go_on_without_the_cluster() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(Settings::default()).await;
        let policy = cluster.publish(POLICY).await;
        let folder = tempfile::tempdir().unwrap();
        let pep = pep(&cluster, folder.path(), Unreachable::FailStatic { max_age: Duration::from_secs(600) });
        pep.refresh_static().await.unwrap();
        let ids = cluster.ids();
        ids.iter().for_each(|id| cluster.kill(*id));
        let lamp = || Action::new("lamp").param("state", "on").rationale("dark");
        let alone = pep.run(lamp(), async |_| Ok(())).await.unwrap();
        assert_eq!(alone.basis, Basis::FailStatic);
        let refused = pep.run(Action::new("pay").param("amount", "1"), async |_| Ok(())).await;
        assert!(matches!(refused, Err(RunError::Unreachable { .. })), "{refused:?}");
        ids.iter().for_each(|id| cluster.spawn(*id));
        cluster.leader().await;
        tokio::time::timeout(Duration::from_secs(60), pep.flush()).await.expect("the local act is delivered");
        let local = entries(&cluster, "local_decision").await;
        assert_eq!(local.len(), 1);
        assert_eq!(text(&local[0], "request_id"), alone.request_id.to_string());
        assert_eq!((text(&local[0], "mode"), text(&local[0], "policy")), ("fail_static", policy.as_str()));
        // The act is not a verdict of the cluster.
        assert_eq!(entries(&cluster, "exec_intent").await.len(), 0);

        let engage = json!({"engaged": true, "origin": "drill"});
        assert_eq!(cluster.http.call("POST", "/v1/killswitch", OPERATE, Some(&engage)).await.status, 200);
        pep.refresh_static().await.unwrap();
        assert!(matches!(pep.run(lamp(), async |_| Ok(())).await, Err(RunError::Denied { .. })));
        ids.iter().for_each(|id| cluster.kill(*id));
        let stopped = pep.run(lamp(), async |_| Ok(())).await;
        assert!(matches!(stopped, Err(RunError::Unreachable { .. })), "{stopped:?}");
    });
}

/// Goal: an approver grants and resumes; the proposer collects that permit, acts once, and reports it. Under a kill switch
/// that was engaged in between, the next one is given back.
#[test]
fn a_resumption_by_the_approver_is_collected_once() {
    runtime().block_on(async {
        let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
        cluster.publish(POLICY).await;
        let folder = tempfile::tempdir().unwrap();
        let pep = pep(&cluster, folder.path(), Unreachable::FailClosed);
        let wire = |amount: &str| Action::new("wire").param("amount", amount).rationale("test");
        let resumed = async |amount: &str| {
            let Err(RunError::Proposed(proposal)) = pep.run(wire(amount), async |_| Ok(())).await else { panic!() };
            let approval_id = proposal.approval_id.unwrap();
            let path = format!("/v1/approvals/{approval_id}");
            assert_eq!(cluster.http.call("POST", &format!("{path}/approve"), A1, Some(&json!({}))).await.status, 200);
            let approval = cluster.http.get(&path, A1).await;
            wire(amount).resumed(text(&approval, "resumed_request"), approval_id)
        };
        let action = resumed("400").await;
        let done = pep.run(action.clone(), async |_| Ok(())).await.unwrap();
        assert_eq!(done.basis, Basis::Permitted);
        let again = pep.run(action, async |_| Ok(())).await;
        assert!(matches!(again, Err(RunError::FailClosed(FailClosed::Repeated(_)))), "{again:?}");

        let action = resumed("500").await;
        let engage = json!({"engaged": true, "origin": "drill"});
        assert_eq!(cluster.http.call("POST", "/v1/killswitch", OPERATE, Some(&engage)).await.status, 200);
        let stopped = pep.run(action, async |_| Ok(())).await;
        let says = |why: &str| why.contains("kill_switch");
        assert!(matches!(&stopped, Err(RunError::NotAttempted { why, .. }) if says(why)), "{stopped:?}");
        tokio::time::timeout(Duration::from_secs(60), pep.flush()).await.expect("both reports are delivered");
        let results = entries(&cluster, "exec_result").await;
        let outcomes: Vec<&str> = results.iter().map(|one| text(one, "outcome")).collect();
        assert_eq!(outcomes, ["success", "not_attempted"]);
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
