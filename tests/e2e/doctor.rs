//! `placet doctor` against real clusters: healthy, with a node gone, with the switch engaged, and on this machine.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::{Cluster, OPERATE, P1, Settings};

fn doctor(cluster: &Cluster, token: &str, args: &[&str]) -> (i32, Value) {
    let args: Vec<&str> = ["doctor", "--output", "json"].into_iter().chain(args.iter().copied()).collect();
    let (code, out, err) = cluster.cli(token, &args);
    (code, serde_json::from_str(&out).unwrap_or(Value::String(err)))
}

fn bad(report: &Value) -> Vec<(String, String, String)> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|one| one["level"] != "ok")
        .map(|one| (text(one, "level"), text(one, "check"), text(one, "text")))
        .collect()
}

/// Goal: all is well, one voter is missing, a majority is missing, the switch is engaged: each is said, by the exit code,
/// in one line, as JSON; whoever may not ask is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_finds_what_is_wrong_with_a_cluster() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.agree(&cluster.ids()).await;
    let healthy = cluster
        .until("healthy cluster", async || {
            let (code, report) = doctor(&cluster, OPERATE, &["--all"]);
            (code == 0).then_some(report)
        })
        .await;
    assert_eq!((healthy["worst"].as_str(), bad(&healthy)), (Some("ok"), vec![]));
    for check in ["health", "fsync", "quorum", "lag", "clock", "versions", "switch", "evidence"] {
        assert!(healthy["findings"].as_array().unwrap().iter().any(|one| one["check"] == check), "{check}");
    }
    let (code, out, _) = cluster.cli(OPERATE, &["doctor"]);
    assert!(code == 0 && out.ends_with("checks: 0 problems, 0 warnings\n"), "{out}");
    assert_eq!(doctor(&cluster, P1, &[]).0, 3);
    assert_eq!(cluster.cli(OPERATE, &["doctor", "--local"]).0, 2);

    assert_eq!(cluster.cli(OPERATE, &["kill", "engage"]).0, 0);
    let (code, report) = doctor(&cluster, OPERATE, &[]);
    assert_eq!((code, bad(&report).len()), (30, 1), "{report}");
    assert_eq!(bad(&report)[0].1, "switch");
    assert_eq!(cluster.cli(OPERATE, &["kill", "release"]).0, 0);

    cluster.kill(3);
    cluster
        .until("missing voter", async || {
            let (code, report) = doctor(&cluster, OPERATE, &[]);
            let found = bad(&report).iter().any(|(level, check, text)| {
                level == "warning"
                    && check == "quorum"
                    && text.contains("2 of 3 voters answer")
                    && text.contains("silent: 3")
            });
            (code == 30 && found).then_some(())
        })
        .await;
    let (code, report) = doctor(&cluster, OPERATE, &["--all"]);
    assert!(
        code == 31 && bad(&report).iter().any(|(level, check, _)| level == "problem" && check == "reach"),
        "{report}"
    );
    cluster.kill(2);
    cluster
        .until("missing majority", async || {
            let (code, report) = doctor(&cluster, OPERATE, &[]);
            let problems: Vec<String> =
                bad(&report).into_iter().filter(|one| one.0 == "problem").map(|one| one.1).collect();
            (code == 31 && problems == ["health", "quorum"]).then_some(())
        })
        .await;
}

/// Goal: this machine's part: folders, secrets and certificates of a node that really runs with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_looks_at_this_machine() {
    let cluster = Cluster::start(Settings { nodes: 1, tls: true, ..Settings::default() }).await;
    let config = cluster.path().join("node-1.toml");
    let here = ["--local", "--config", config.to_str().unwrap()];
    for name in ["tokens.json", "node.key"] {
        std::fs::set_permissions(cluster.path().join(name), PermissionsExt::from_mode(0o600)).unwrap();
    }
    // How full the disk of this machine is, is not this test's.
    let found = |report: &Value| bad(report).into_iter().filter(|one| one.1 != "disk").collect::<Vec<_>>();
    let (_, report) = doctor(&cluster, OPERATE, &here);
    assert_eq!(found(&report), vec![], "{report}");
    let certificates = report["findings"].as_array().unwrap().iter().filter(|one| one["check"] == "certificates");
    assert_eq!(certificates.count(), 4, "http, grpc, peer and the peers' authority: {report}");
    std::fs::set_permissions(cluster.path().join("node-1/head.key"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(cluster.path().join("node.pem"), "no certificate").unwrap();
    let (code, report) = doctor(&cluster, OPERATE, &here);
    let found = found(&report);
    assert_eq!(code, 31, "{report}");
    assert!(found.iter().any(|(_, check, text)| check == "secrets" && text.contains("head_key")), "{found:?}");
    assert_eq!(found.iter().filter(|(_, check, _)| check == "certificates").count(), 3, "{found:?}");
    assert_eq!(doctor(&cluster, OPERATE, &["--local", "--config", "nowhere.toml"]).0, 31);
}
