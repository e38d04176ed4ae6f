//! The log is kept within its size, on disk, under load; evidence is not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{AUDIT, Client, Cluster, OPERATE, P1, Settings, request, says};

const POLICY: &str = "apiVersion: placet/v1\npolicies:\n  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, bounds: { strict_params: false } }\n";

const LOG_BYTES_MAX: u64 = 4 << 20;

/// What the log's folder may take: the entries, tables that are not merged yet, and the write-ahead log.
const FOLDER_BYTES_MAX: u64 = 4 * LOG_BYTES_MAX;

/// Bytes of the files in a folder; a file that goes meanwhile counts for nothing.
fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// The most that was seen while the load went on.
#[derive(Debug, Default)]
struct Seen {
    log: AtomicU64,
    snapshots: AtomicU64,
}

/// Clients that decide, each with arguments of some kilobytes, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    decided: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(http: &Arc<Client>) -> Self {
        let (stop, decided) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..16).map(|_| {
            let (http, stop, decided) = (Arc::clone(http), Arc::clone(&stop), Arc::clone(&decided));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let mut noise = vec![0u8; 8 << 10];
                    getrandom::fill(&mut noise).unwrap();
                    let noise: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
                    let body = request("act", json!({"noise": noise}));
                    loop {
                        match http.try_call_at(http.turn(), "POST", "/v1/decide", P1, Some(&body)).await {
                            Some(answer) if answer.status == 200 => break assert_eq!(says(&answer.body).0, "permit"),
                            _ => tokio::time::sleep(Duration::from_millis(20)).await,
                        }
                    }
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { tasks: tasks.collect(), stop, decided }
    }

    /// Waits for so many more decides; a busy machine may be slow and must not stand still.
    async fn go_on(&self, cluster: &Cluster, decides: u64) {
        let from = self.decided.load(Ordering::Relaxed);
        for tenth in 1..=10 {
            let wanted = from + decides * tenth / 10;
            let there = async || (self.decided.load(Ordering::Relaxed) >= wanted).then_some(());
            cluster.until("more written", there).await;
        }
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.decided.load(Ordering::Relaxed)
    }
}

/// Goal: ten times the bound is written; the folder of the log stays bounded on every node, one snapshot is kept beside
/// one in the making or in transfer, a node that was away catches up while the purging goes on, and every entry of the
/// evidence is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_within_its_size_and_the_evidence_is_whole() {
    let settings = Settings { log_bytes_max: Some(LOG_BYTES_MAX), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    cluster.publish(POLICY).await;
    let folders: Vec<_> = cluster.ids().iter().map(|id| cluster.path().join(format!("node-{id}"))).collect();
    let seen = Arc::new(Seen::default());
    let watcher = tokio::spawn({
        let (seen, folders) = (Arc::clone(&seen), folders.clone());
        async move {
            loop {
                for folder in &folders {
                    seen.log.fetch_max(size(&folder.join("log")), Ordering::Relaxed);
                    let snapshots = std::fs::read_dir(folder.join("snapshots")).map_or(0, Iterator::count);
                    seen.snapshots.fetch_max(snapshots as u64, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    let http = Arc::new(Client::new(cluster.http.bases().to_vec(), None));
    let load = Load::start(&http);
    let half = 5 * LOG_BYTES_MAX / (16 << 10);
    load.go_on(&cluster, half).await;

    let leader = cluster.leader().await;
    let away = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.kill(away);
    load.go_on(&cluster, half).await;
    let missed = cluster.view(leader).await.unwrap()["snapshot_index"].as_u64().unwrap();
    cluster.spawn(away);
    cluster
        .until("the node that was away on its way again", async || {
            (cluster.view(away).await?["applied_index"].as_u64()? >= missed).then_some(())
        })
        .await;
    cluster.leader().await;
    let decided = load.end().await;
    cluster.agree(&cluster.ids()).await;
    watcher.abort();
    let (log, snapshots) = (seen.log.load(Ordering::Relaxed), seen.snapshots.load(Ordering::Relaxed));
    let written = decided * (16 << 10);
    println!("{decided} decides, {written} bytes of arguments; log folder {log} bytes at most, {snapshots} snapshots");
    assert!(written > 9 * LOG_BYTES_MAX, "the load was no load: {written}");
    assert!(log < FOLDER_BYTES_MAX, "the folder of a log took {log} bytes");
    assert!(snapshots <= 3, "{snapshots} snapshots");

    let export = cluster.path().join("export.jsonl");
    let (code, _, err) = cluster.cli(AUDIT, &["evidence", "export", "--no-sign", "--out", export.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    let export = std::fs::read_to_string(export).unwrap();
    let intents = export.lines().filter(|line| line.contains("\"body\":{\"exec_intent\"")).count();
    assert_eq!(intents as u64, decided);
    let last: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    let at = cluster.http.get("/v1/cluster", OPERATE).await["evidence_index"].as_u64().unwrap();
    assert!(last["count"].as_u64().unwrap() <= at);
    // A new start counts from what is on disk, and the bound holds on.
    cluster.kill(leader);
    cluster.spawn(leader);
    cluster.leader().await;
    cluster.agree(&cluster.ids()).await;
}
