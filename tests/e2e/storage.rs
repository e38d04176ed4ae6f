//! Disks that lie, lose and fill up, under real processes: what a node says, what its operator does, and what is kept.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Cluster, OPERATE, P1, Settings, report, request, says, text};

const POLICY: &str = "apiVersion: placet/v1\npolicies:\n  - { action_type: act, tier: 1, dry_run: false, compensating_command: act, bounds: { strict_params: false } }\n";

async fn permits(cluster: &Cluster, count: usize) -> Vec<String> {
    let mut permits = Vec::new();
    for _ in 0..count {
        let reply = cluster.http.decide(&request("act", json!({}))).await;
        assert_eq!(says(&reply), ("permit", "passed"));
        permits.push(text(&reply, "permit_id").to_owned());
    }
    permits
}

/// The write-ahead log that a node writes to.
fn last_wal(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "log")).max().unwrap()
}

/// Goal: a node whose synced log was damaged refuses to start and says what to do; that brings it back from its peers,
/// with nothing deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_node_says_so_and_is_repaired_from_its_peers() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.publish(POLICY).await;
    permits(&cluster, 30).await;
    cluster.agree(&cluster.ids()).await;
    let leader = cluster.leader().await;
    let victim = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let config = cluster.path().join(format!("node-{victim}.toml"));
    let config = config.to_str().unwrap().to_owned();
    let repair =
        |cluster: &Cluster, more: &[&str]| cluster.cli("-", &[&["repair", "--config", &config], more].concat());

    let (code, _, told) = repair(&cluster, &[]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("in use") && told.contains("stop the node first"), "{told}");

    cluster.kill(victim);
    let data = cluster.path().join(format!("node-{victim}"));
    let (code, told, _) = repair(&cluster, &[]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("Nothing is damaged."), "{told}");

    let wal = last_wal(&data.join("log"));
    let mut bytes = fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&wal, bytes).unwrap();
    cluster.spawn(victim);
    assert!(!cluster.ended(victim).success());
    let log = cluster.log(victim);
    let name = wal.file_name().unwrap().to_str().unwrap();
    assert!(log.contains(name) && log.contains("is damaged") && log.contains("placet repair --config FILE"), "{log}");

    let (code, told, _) = repair(&cluster, &[]);
    assert_eq!(code, 4, "{told}");
    assert!(told.contains("DAMAGED:") && told.contains(name), "{told}");
    let (code, told, wrong) = repair(&cluster, &["--from-peers"]);
    assert_eq!(code, 0, "{told}{wrong}");
    assert!(told.contains("catches up"), "{told}");
    assert!(data.with_file_name(format!("node-{victim}.damaged-1")).join("log").is_dir(), "nothing is deleted");

    cluster.spawn(victim);
    cluster.agree(&cluster.ids()).await;
    let other = cluster.ids().into_iter().find(|id| *id != victim && *id != leader).unwrap();
    cluster
        .until("full standing", async || {
            let health = cluster.http.try_call_at(victim, "GET", "/v1/health", OPERATE, None).await?;
            health.body.get("detail").is_none().then_some(())
        })
        .await;
    cluster.kill(other);
    let leader = cluster.leader().await;
    let reply = cluster.http.try_call_at(leader, "POST", "/v1/decide", P1, Some(&request("act", json!({})))).await;
    assert_eq!(reply.map(|answer| answer.status), Some(200), "it counts again");
}

/// A small disk of its own; unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this process may not mount.
    fn mount(at: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={mib}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) { Some(Self(at.to_owned())) } else { None }
    }

    /// Fills it until `free` bytes are left.
    fn fill(&self, free: u64) {
        let mut file = File::options().create(true).append(true).open(self.0.join("ballast")).unwrap();
        let left = || {
            let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&self.0).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let numbers = text.split_whitespace().map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>();
            numbers[0] * numbers[1]
        };
        while left() > free {
            if file.write_all(&[7; 16 << 10]).is_err() {
                return;
            }
        }
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// One node on a disk of 24 MiB with a reserve.
async fn on_a_small_disk(reserve: u64) -> Option<(Cluster, Disk)> {
    let mut cluster = Cluster::start(Settings { nodes: 1, ..Settings::default() }).await;
    cluster.kill(1);
    cluster.wipe(1);
    let Some(disk) = Disk::mount(&cluster.path().join("node-1"), 24) else {
        eprintln!("skipped: this process may not mount a small disk");
        return None;
    };
    let path = cluster.path().join("node-1.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("disk_reserve_bytes = {reserve}\n{config}")).unwrap();
    cluster.spawn(1);
    cluster.leader().await;
    cluster.publish(POLICY).await;
    Some((cluster, disk))
}

/// Goal: below the reserve decides are refused with a reason, reports and reads go on, and space that returns is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_low_sheds_decides_and_nothing_else() {
    let Some((cluster, disk)) = on_a_small_disk(4 << 20).await else { return };
    let open = permits(&cluster, 3).await;
    disk.fill(2 << 20);
    let refused = cluster
        .until("a refusal", async || {
            let answer = cluster.http.call("POST", "/v1/decide", P1, Some(&request("act", json!({})))).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
    assert_eq!(refused.status, 503);
    assert!(text(&refused.body, "detail").contains("the disk is low"), "{}", refused.body);
    assert_eq!(cluster.http.report_as(P1, &report(&open[0], "success")).await["accepted"], true);
    let intents = cluster.http.get("/v1/intents", OPERATE).await;
    assert_eq!(intents["intents"].as_array().map(Vec::len), Some(2), "{intents}");
    let health = cluster.http.get("/v1/health", OPERATE).await;
    assert!(text(&health, "detail").contains("the disk is low"), "{health}");
    disk.clear();
    cluster
        .until("decides again", async || {
            let answer = cluster.http.call("POST", "/v1/decide", P1, Some(&request("act", json!({})))).await;
            (answer.status == 200).then_some(())
        })
        .await;
}

/// Goal: a disk that is really full stops the node with a reason and a code; with space again it starts, and every permit
/// that was given is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_stops_the_node_and_loses_nothing() {
    let Some((mut cluster, disk)) = on_a_small_disk(0).await else { return };
    let mut given = permits(&cluster, 3).await;
    disk.fill(64 << 10);
    for _ in 0..5_000 {
        let body = request("act", json!({ "text": "x".repeat(2000) }));
        match cluster.http.try_call_at(1, "POST", "/v1/decide", P1, Some(&body)).await {
            Some(answer) if answer.status == 200 => given.push(text(&answer.body, "permit_id").to_owned()),
            _ => break,
        }
    }
    assert!(!cluster.ended(1).success());
    let log = cluster.log(1);
    assert!(log.contains("the disk is full: make room and start this node again"), "{log}");
    disk.clear();
    cluster.spawn(1);
    cluster.leader().await;
    let known = cluster.http.every(OPERATE, "/v1/intents", "intents").await;
    let known = known.iter().map(|intent| text(intent, "permit_id")).collect::<Vec<_>>();
    let lost = given.iter().filter(|permit| !known.contains(&permit.as_str())).collect::<Vec<_>>();
    assert!(lost.is_empty(), "{} of {} permits are lost", lost.len(), given.len());
    permits(&cluster, 3).await;
}
