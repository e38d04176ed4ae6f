//! TLS on every door and mutual TLS between nodes.

use serde_json::json;

use crate::harness::{Cluster, OPERATE, Settings, request, says};

/// Goal: with certificates everywhere the cluster forms, decides and forwards; plain text is not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_certificates() {
    let mut cluster = Cluster::start(Settings { tls: true, ..Settings::default() }).await;
    for _ in 0..3 {
        let reply = cluster.http.decide(&request("act", json!({}))).await;
        assert_eq!(says(&reply), ("deny", "default_deny"));
    }
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.leader().await;
    cluster.spawn(leader);
    cluster.agree(&cluster.ids()).await;

    let plain = cluster.http.bases()[0].replacen("https", "http", 1);
    let client = crate::harness::Client::new(vec![plain], None);
    assert!(client.try_call_at(1, "GET", "/v1/health", "", None).await.is_none());

    let ca = cluster.path().join("ca.pem");
    let (code, out, err) = cluster.cli(OPERATE, &["--ca", ca.to_str().unwrap(), "cluster", "status"]);
    assert_eq!(code, 0, "{err}");
    // Every node's view, then the members as one node knows them.
    assert_eq!(out.split("\n\n").map(|table| table.lines().count()).collect::<Vec<_>>(), [4, 5], "{out}");
}
