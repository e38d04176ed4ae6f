//! Backups of living and of stopped nodes, what a restored cluster is, and damage.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use placet_core::backup::Manifest;
use placet_core::ids::Hash;
use serde_json::{Value, json};

use crate::harness::{A1, AUDIT, Client, Cluster, OPERATE, P1, Settings, random, report, request, says, text, with};
use crate::verifier::second;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/payments.yaml");

/// Room for the load of a test, and acts that wait for a human.
const POLICY: &str = r#"
apiVersion: placet/v1
defaults: { execute_within: 2h, approval_ttl: 2h }
budgets:
  large: { kind: value, unit: EUR, limit: "100000000", window: month }
policies:
  - { action_type: pay.out, tier: 2, dry_run: false, compensating_command: pay.back, cost_param: amount_eur,
      draws: [large], bounds: { required: [amount_eur] } }
  - { action_type: pay.much, tier: 3, dry_run: false, cost_param: amount_eur, draws: [large],
      bounds: { required: [amount_eur] } }
  - { action_type: pay.back, tier: 1, dry_run: false, compensating_command: pay.back, bounds: { strict_params: false } }
"#;

/// Runs the CLI and demands an exit code.
fn run(cluster: &Cluster, token: &str, args: &[&str], code: i32) -> (String, String) {
    let (got, out, err) = cluster.cli(token, args);
    assert_eq!(got, code, "placet {args:?}\n{out}\n{err}");
    (out, err)
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Restores every founder of a cluster that was not started, and starts it.
async fn restored(settings: Settings, backup: &str) -> Cluster {
    let mut cluster = Cluster::founded_later(settings);
    for id in cluster.ids() {
        let (out, _) = restore(&cluster, id, backup, 0);
        assert!(out.contains("is not in the new cluster"), "{out}");
    }
    for id in cluster.ids() {
        cluster.spawn(id);
    }
    cluster.leader().await;
    cluster
}

fn restore(cluster: &Cluster, id: u64, backup: &str, code: i32) -> (String, String) {
    let config = cluster.config(id);
    run(cluster, OPERATE, &["restore", "--from", backup, "--config", config.to_str().unwrap()], code)
}

fn manifest(backup: &str) -> Manifest {
    Manifest::decode(&std::fs::read(Path::new(backup).join("manifest.json")).unwrap()).unwrap()
}

fn export(cluster: &Cluster, name: &str) -> (String, Vec<Value>) {
    let file = at(cluster.path(), name);
    run(cluster, AUDIT, &["evidence", "export", "--out", &file], 0);
    let lines = std::fs::read_to_string(&file).unwrap();
    (file, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

async fn load(http: Arc<Client>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let reply = http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await;
        assert_eq!(says(&reply), ("permit", "passed"));
        if random(3) > 0 {
            http.report_as(P1, &report(text(&reply, "permit_id"), "success")).await;
        }
    }
}

async fn name_of(cluster: &Cluster) -> String {
    text(&cluster.http.get("/v1/cluster", OPERATE).await, "cluster").to_owned()
}

/// Goal: a backup of three nodes under load, restored as three others, has the same head at its index; it decides on,
/// what was open stays open, what came after the backup is unknown, and every verifier passes on its evidence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_under_load_is_backed_up_and_lives_again() {
    let mut old = Cluster::start(Settings::default()).await;
    old.publish(POLICY).await;
    let kept = old.http.decide(&request("pay.out", json!({"amount_eur": "7"}))).await;
    let much = with(request("pay.much", json!({"amount_eur": "9"})), json!({"protocol": "aadp/0.2"}));
    let waits = text(&old.http.decide(&much).await, "approval_id").to_owned();
    let head = at(old.path(), "head.json");
    std::fs::write(&head, run(&old, AUDIT, &["evidence", "head"], 0).0).unwrap();
    let (http, stop) = (Arc::new(Client::new(old.http.bases().to_vec(), None)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..8).map(|_| tokio::spawn(load(Arc::clone(&http), Arc::clone(&stop)))).collect();
    tokio::time::sleep(Duration::from_millis(1500)).await;

    let backup = at(old.path(), "backup");
    run(&old, AUDIT, &["backup", "--to", &backup], 3);
    let (out, _) = run(&old, OPERATE, &["backup", "--to", &backup, "--verify", "full"], 0);
    println!("{out}");
    let lost = old.http.decide(&request("pay.out", json!({"amount_eur": "8"}))).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let held = manifest(&backup);
    assert!(held.entries > 50, "the load was no load: {}", held.entries);
    let (_, lines) = export(&old, "old.jsonl");
    let last = usize::try_from(held.entries).unwrap();
    assert_eq!(lines[last]["hash"], held.chain_head.to_string());
    assert!(lines.len() > last + 20, "nothing came after the backup");
    let late = at(old.path(), "late.json");
    std::fs::write(&late, lines.last().unwrap()["signed"].to_string()).unwrap();
    assert_eq!(name_of(&old).await, held.cluster.unwrap().to_string());

    let new = restored(Settings::default(), &backup).await;
    new.agree(&new.ids()).await;
    let (file, lines) = export(&new, "new.jsonl");
    assert_eq!(lines[last]["hash"], held.chain_head.to_string());
    let first = &lines[last + 1]["entry"]["body"]["restored"];
    assert_eq!(first["chain_head"], held.chain_head.to_string());
    assert_eq!(first["previous"], held.cluster.unwrap().to_string());
    assert_eq!(first["cluster"], name_of(&new).await);
    assert_ne!(first["cluster"], first["previous"]);
    for id in 1..=3 {
        let data = old.path().join(format!("node-{id}"));
        assert!(data.exists(), "the old cluster is as it was");
    }

    let done = new.http.report_as(P1, &report(text(&kept, "permit_id"), "success")).await;
    assert_eq!(done["accepted"], true, "{done}");
    let unknown = new.http.report_as(P1, &report(text(&lost, "permit_id"), "success")).await;
    assert_eq!(unknown["accepted"], false, "{unknown}");
    let answer = new.http.resolve(A1, &waits, "grant").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let resumed = with(much.clone(), json!({"request_id": crate::harness::uuid(), "approval_ref": waits}));
    assert_eq!(says(&new.http.decide(&resumed).await).0, "permit");
    for _ in 0..30 {
        assert_eq!(says(&new.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await).0, "permit");
    }
    new.agree(&new.ids()).await;
    let (file_later, _) = export(&new, "new-later.jsonl");
    for file in [&file, &file_later] {
        for command in ["verify", "rederive"] {
            let (out, _) = run(&new, AUDIT, &["evidence", command, file, "--head", &head], 0);
            assert!(out.contains(&format!("from a backup of {} entries", held.entries)), "{out}");
        }
        assert_eq!(second(&[file, "--head", &head]), (0, second(&[file]).1));
        // A head of the life that the backup missed is no head of this one.
        let (_, err) = run(&new, AUDIT, &["evidence", "verify", file, "--head", &late], contradicts(&late, file));
        assert!(err.contains("given head"), "{err}");
    }
    // The old cluster goes on as it was.
    assert_eq!(says(&old.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await).0, "permit");
    // A restored cluster is backed up like any other, and restored as a third.
    let again = at(new.path(), "again");
    run(&new, OPERATE, &["backup", "--to", &again, "--verify", "full"], 0);
    let mut third = restored(Settings { nodes: 1, ..Settings::default() }, &again).await;
    assert_ne!(name_of(&third).await, name_of(&new).await);
    let (file, _) = export(&third, "third.jsonl");
    run(&third, AUDIT, &["evidence", "rederive", &file, "--head", &head], 0);
    third.kill(1);
    third.spawn(1);
    third.leader().await;
    let leader = old.leader().await;
    old.kill(leader);
    old.leader().await;
}

/// A head over more entries than there are is missing entries, and one over fewer contradicts.
fn contradicts(head: &str, export: &str) -> i32 {
    let size = |path: &str| -> Value {
        serde_json::from_str(std::fs::read_to_string(path).unwrap().lines().last().unwrap()).unwrap()
    };
    if size(head)["head"]["size"].as_u64().unwrap() > size(export)["count"].as_u64().unwrap() { 25 } else { 26 }
}

/// The files of a backup, the manifest first.
fn files(backup: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(backup.join("state")).unwrap().map(|entry| entry.unwrap().path());
    std::iter::once(backup.join("manifest.json")).chain(names).collect()
}

/// Goal: every file of a backup that is cut, changed in a byte, gone or too much is named, by the check and by a restore,
/// which leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_named_and_never_restored() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    cluster.publish(&std::fs::read_to_string(EXAMPLE).unwrap()).await;
    for _ in 0..20 {
        cluster.http.decide(&request("payments.transfer", json!({"payee": "a", "amount_eur": "1"}))).await;
    }
    let backup = at(cluster.path(), "backup");
    run(&cluster, OPERATE, &["backup", "--to", &backup], 0);
    let verify = |code: i32| run(&cluster, OPERATE, &["backup", "verify", &backup], code);
    verify(0);
    run(&cluster, OPERATE, &["backup", "verify", &backup, "--verify", "full"], 0);
    let new = Cluster::founded_later(Settings { nodes: 1, ..Settings::default() });
    let refused = |name: &str| {
        let (_, err) = verify(28);
        assert!(err.contains(&format!("`{name}`")), "{name}: {err}");
        let (_, err) = restore(&new, 1, &backup, 28);
        assert!(err.contains(&format!("`{name}`")), "{name}: {err}");
        let left = std::fs::read_dir(new.path().join("node-1")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "a refused restore leaves nothing");
    };
    let root = PathBuf::from(&backup);
    let mut damages = 0;
    for file in files(&root) {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let good = std::fs::read(&file).unwrap();
        let mut bad = vec![[&good[..], b"\0"].concat()];
        if !good.is_empty() {
            bad.push(good[..good.len() - 1].to_vec());
            for at in [0, good.len() / 2, good.len() - 1] {
                let mut changed = good.clone();
                changed[at] ^= 0x10;
                bad.push(changed);
            }
        }
        for bytes in bad {
            std::fs::write(&file, bytes).unwrap();
            refused(&name);
            damages += 1;
        }
        std::fs::remove_file(&file).unwrap();
        refused(&name);
        std::fs::write(&file, good).unwrap();
    }
    println!("{damages} damages of {} files", files(&root).len());
    for name in ["extra", "state/000099.sst"] {
        std::fs::write(root.join(name), "x").unwrap();
        refused(name);
        std::fs::remove_file(root.join(name)).unwrap();
    }
    // Checksums that fit a lie do not help it: the evidence is walked.
    let true_words = std::fs::read(root.join("manifest.json")).unwrap();
    let told = manifest(&backup);
    for lie in [
        Manifest { chain_head: Hash::GENESIS, ..told.clone() },
        Manifest { entries: told.entries - 1, ..told.clone() },
        Manifest { root: Hash::GENESIS, ..told.clone() },
        Manifest { cluster: None, ..told.clone() },
    ] {
        std::fs::write(root.join("manifest.json"), lie.encode()).unwrap();
        refused("manifest.json");
    }
    std::fs::write(root.join("manifest.json"), true_words).unwrap();
    verify(0);

    // Nothing is written over.
    let (_, err) = run(&cluster, OPERATE, &["backup", "--to", &backup], 4);
    assert!(err.contains("is not empty"), "{err}");
    let (_, err) = restore(&cluster, 1, &backup, 4);
    assert!(err.contains("is not empty"), "{err}");
    // Half a restore is no node.
    std::fs::create_dir_all(new.path().join("node-1/restoring")).unwrap();
    let config = new.config(1);
    let (_, err) = run(&new, OPERATE, &["serve", "--config", config.to_str().unwrap()], 1);
    assert!(err.contains("did not come to its end"), "{err}");
    restore(&new, 1, &backup, 4);
    std::fs::remove_dir_all(new.path().join("node-1")).unwrap();
    restore(&new, 1, &backup, 0);
}

/// Goal: what the door sends is a tar archive of a good backup, one at a time, for operators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_and_tar_are_enough() {
    let cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    cluster.publish(&std::fs::read_to_string(EXAMPLE).unwrap()).await;
    let url = format!("{}/v1/cluster/backup", cluster.http.bases()[0]);
    let folder = cluster.path().join("by-hand");
    std::fs::create_dir(&folder).unwrap();
    let mut curl = Command::new("curl")
        .args(["-sS", "--fail", "-H", &format!("Authorization: Bearer {OPERATE}"), &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tar = Command::new("tar").arg("-x").current_dir(&folder).stdin(curl.stdout.take().unwrap()).status().unwrap();
    assert!(tar.success() && curl.wait().unwrap().success());
    run(&cluster, OPERATE, &["backup", "verify", folder.to_str().unwrap()], 0);
    let answer = cluster.http.try_call_at(1, "GET", "/v1/cluster/backup", AUDIT, None).await.unwrap();
    assert_eq!(answer.status, 403);
    let answer = cluster.http.try_call_at(1, "GET", "/v1/cluster/backup?lokal=true", OPERATE, None).await.unwrap();
    assert_eq!(answer.status, 400);
    cluster
        .until("no backup folder left on the node", async || {
            let left = std::fs::read_dir(cluster.path().join("node-1/snapshots")).unwrap().flatten();
            (!left.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("backup-"))).then_some(())
        })
        .await;
}

/// Goal: a node that was killed gives a backup from its folder with everything that it had answered; while it runs it is
/// asked at its door; one that has lost its quorum is asked as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_and_one_without_a_quorum_are_backed_up() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    for _ in 0..40 {
        cluster.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await;
    }
    cluster.agree(&cluster.ids()).await;
    let entries = cluster.http.get("/v1/cluster", OPERATE).await["evidence_index"].as_u64().unwrap();
    let leader = cluster.leader().await;
    let config = cluster.config(leader);
    let (stopped, local) = (at(cluster.path(), "stopped"), at(cluster.path(), "local"));
    let take = ["backup", "--config", config.to_str().unwrap(), "--to", &stopped];
    let (_, err) = run(&cluster, OPERATE, &take, 1);
    assert!(err.contains("in use by another process"), "{err}");
    for id in cluster.ids() {
        if id != leader {
            cluster.kill(id);
        }
    }
    cluster.until("the quorum lost", async || (!cluster.http.decides(leader).await).then_some(())).await;
    let node = cluster.http.bases()[leader as usize - 1].clone();
    run(&cluster, OPERATE, &["--node", &node, "backup", "--to", &local], 5);
    run(&cluster, OPERATE, &["--node", &node, "backup", "--local", "--to", &local], 0);
    cluster.kill(leader);
    run(&cluster, OPERATE, &take, 0);
    for backup in [&stopped, &local] {
        assert!(manifest(backup).entries >= entries, "{} of {entries}", manifest(backup).entries);
        run(&cluster, OPERATE, &["backup", "verify", backup, "--verify", "full"], 0);
    }
    for id in cluster.ids() {
        cluster.spawn(id);
    }
    cluster.leader().await;
    cluster.agree(&cluster.ids()).await;
}

/// Goal: founders begin only when all of them are restored from one backup; one that is restored again later is taken
/// for a member that lost its data, and catches up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founders_are_restored_from_one_backup_or_do_not_begin() {
    let old = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    old.publish(POLICY).await;
    let (early, late) = (at(old.path(), "early"), at(old.path(), "late"));
    run(&old, OPERATE, &["backup", "--to", &early], 0);
    old.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await;
    run(&old, OPERATE, &["backup", "--to", &late], 0);

    let mut new = Cluster::founded_later(Settings::default());
    restore(&new, 1, &late, 0);
    restore(&new, 2, &late, 0);
    (1..=3).for_each(|id| new.spawn(id));
    let told = async |new: &Cluster, words: &str| {
        new.until(words, async || new.log(1).contains(words).then_some(())).await;
        for id in 1..=3 {
            assert!(!new.http.decides(id).await, "node {id} decides");
        }
    };
    told(&new, "founding member 3 is empty and this one is restored").await;
    new.kill(3);
    new.wipe(3);
    restore(&new, 3, &early, 0);
    new.spawn(3);
    told(&new, "founding member 3 was restored from another backup").await;
    new.kill(3);
    new.wipe(3);
    restore(&new, 3, &late, 0);
    new.spawn(3);
    new.leader().await;
    for _ in 0..10 {
        new.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await;
    }
    let head = new.agree(&[1, 2, 3]).await;

    new.kill(2);
    new.wipe(2);
    restore(&new, 2, &late, 0);
    new.spawn(2);
    assert_eq!(new.agree(&[1, 2, 3]).await, head, "nothing was recorded, and nothing was renamed");
    new.until("node 2 back in its place", async || new.log(2).contains("CatchingUp").then_some(())).await;
    new.kill(1);
    new.leader().await;
    new.http.decide(&request("pay.out", json!({"amount_eur": "1"}))).await;
}
