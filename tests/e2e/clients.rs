//! Clients that are not ours: `curl`, and gRPC stubs that another language generates from the .proto files.

use std::process::Command;

use crate::harness::{A1, AUDIT, Cluster, OPERATE, P1, POLICY, Settings};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn run(cluster: &Cluster, program: &str, script: &str) {
    let grpc: Vec<String> = cluster.ids().iter().map(|id| format!("localhost:{}", cluster.grpc_port(*id))).collect();
    let output = Command::new(program)
        .arg(format!("{CLIENTS}/{script}"))
        .env("PLACET_HTTP", cluster.http.bases().join(","))
        .env("PLACET_GRPC", grpc.join(","))
        .env("PLACET_DECIDE_TOKEN", P1)
        .env("PLACET_APPROVE_TOKEN", A1)
        .env("PLACET_OPERATE_TOKEN", OPERATE)
        .env("PLACET_POLICY_TOKEN", POLICY)
        .env("PLACET_AUDIT_TOKEN", AUDIT)
        .env("PLACET_PROTO", format!("{ROOT}/proto"))
        .env("PLACET_POLICY", format!("{ROOT}/examples/payments.yaml"))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with("complete\n"), "{}", text(&output.stdout));
}

/// Goal: publish, decide, report, propose, grant, resume and stop with nothing but `curl`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_curl_completes_the_flow() {
    let cluster = Cluster::start(Settings::default()).await;
    run(&cluster, "bash", "curl.sh");
}

/// Goal: the same over gRPC, with stubs that `grpcio` generates from the .proto files at this moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_grpc_client_completes_the_flow() {
    let python = std::env::var("PLACET_TEST_PYTHON")
        .expect("PLACET_TEST_PYTHON names a Python with grpcio and grpcio-tools; `./dev test` sets it");
    let cluster = Cluster::start(Settings::default()).await;
    run(&cluster, &python, "grpc_flow.py");
}
