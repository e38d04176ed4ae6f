//! etcd: three local nodes, puts over gRPC. The client is the one that our own load uses, so that its cost is the same.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::process::{Server, all_free, output, wait_for_port};

/// Clients at 23790, 23791, 23792; peers ten above.
const PORT: u16 = 23790;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// `etcdserverpb.PutRequest`, as far as it is used.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: bytes::Bytes,
}

/// `etcdserverpb.PutResponse`; what it holds is not read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct PutResponse {}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct StatusRequest {}

/// `etcdserverpb.ResponseHeader`, as far as it is used.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// `etcdserverpb.StatusResponse`, as far as it is used.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// Three running nodes.
#[derive(Debug)]
pub(crate) struct Etcd {
    _nodes: Vec<Server>,
}

impl Etcd {
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let peer = |n: u16| format!("http://127.0.0.1:{}", PORT + 10 + n);
        let all: Vec<String> = (0..3).map(|n| format!("n{n}={}", peer(n))).collect();
        all_free((0..3).flat_map(|n| [PORT + n, PORT + 10 + n]))?;
        let mut nodes = Vec::new();
        for n in 0..3 {
            let client = format!("http://127.0.0.1:{}", PORT + n);
            let mut command = Command::new("etcd");
            command
                .args(["--name", &format!("n{n}"), "--log-level", "error", "--initial-cluster-state", "new"])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer(n), "--initial-advertise-peer-urls", &peer(n)])
                .args(["--initial-cluster", &all.join(","), "--data-dir"])
                .arg(folder.join(format!("n{n}")));
            nodes.push(Server::start(&mut command, &folder.join(format!("n{n}.log")))?);
        }
        for (n, node) in (0..).zip(&mut nodes) {
            wait_for_port("etcd", node, PORT + n, READY_WITHIN)?;
        }
        Ok(Self { _nodes: nodes })
    }

    /// What the program says of its version.
    pub(crate) fn version() -> anyhow::Result<String> {
        let said = output(Command::new("etcd").arg("--version"))?;
        let line = said.lines().find_map(|line| line.strip_prefix("etcd Version:"));
        Ok(line.context("etcd does not tell its version")?.trim().to_owned())
    }

    /// Puts per second of `clients` that each wait for their answer, at the node that leads.
    pub(crate) async fn puts_per_second(&self, clients: u64, value: usize, time: Duration) -> anyhow::Result<f64> {
        let leader = leader().await?;
        let done = Arc::new(AtomicU64::new(0));
        let value = bytes::Bytes::from(vec![b'v'; value]);
        let warm = Instant::now() + Duration::from_secs(2);
        let end = warm + time;
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..clients {
            let (done, value, mut grpc) = (done.clone(), value.clone(), connect(leader).await?);
            tasks.spawn(async move {
                let mut number = 0u64;
                while Instant::now() < end {
                    let key = bytes::Bytes::from(format!("{client:08x}-{number:016x}"));
                    number += 1;
                    let request = PutRequest { key, value: value.clone() };
                    let _: PutResponse = unary(&mut grpc, "/etcdserverpb.KV/Put", request).await?;
                    let now = Instant::now();
                    if now >= warm && now < end {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(done.load(Ordering::Relaxed) as f64 / time.as_secs_f64())
    }
}

async fn connect(n: u16) -> anyhow::Result<Grpc<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", PORT + n))?.tcp_nodelay(true);
    Ok(Grpc::new(endpoint.connect().await?))
}

async fn leader() -> anyhow::Result<u16> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        for n in 0..3 {
            let mut grpc = connect(n).await?;
            let status: StatusResponse = unary(&mut grpc, "/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
            if status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader) {
                return Ok(n);
            }
        }
        anyhow::ensure!(Instant::now() < deadline, "no node of etcd leads");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn unary<A, B>(grpc: &mut Grpc<Channel>, path: &'static str, message: A) -> anyhow::Result<B>
where
    A: prost::Message + Send + Sync + 'static,
    B: prost::Message + Default + Send + Sync + 'static,
{
    grpc.ready().await?;
    let codec: ProstCodec<A, B> = ProstCodec::default();
    Ok(grpc.unary(tonic::Request::new(message), PathAndQuery::from_static(path), codec).await?.into_inner())
}
