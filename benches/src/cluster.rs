//! Our three nodes, as they ship: on this machine's disk, with every fsync.
//! Absent on purpose: any option that a user would not have. One differs from the defaults: three nodes share this
//! machine's processors, so each has its part of the threads, as docs/CONFIGURATION.md says.

use std::fmt::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::process::{Server, all_free, output, wait};

/// HTTP at 7601.., gRPC at 7701.., peers at 7801.. .
const PORTS: u16 = 7600;

const NODES: u16 = 3;

const ROLES: [&str; 3] = ["decide", "operate", "policy"];

/// A store of millions of entries must be ready in seconds, but a slow disk is no reason to give up.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A running cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    binary: PathBuf,
    folder: PathBuf,
    nodes: Vec<Server>,
}

/// What a load is to do.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) door: &'static str,
    pub(crate) in_flight: u64,
    /// Without it, the default of the door.
    pub(crate) connections: Option<u64>,
    pub(crate) rate: Option<u64>,
    pub(crate) seconds: u64,
    pub(crate) cycle: bool,
    pub(crate) action: &'static str,
    pub(crate) sessions: u64,
    /// Whether the rate may be more than the cluster carries.
    pub(crate) may_overload: bool,
}

impl Load {
    /// Decides over `door`, `in_flight` at a time.
    pub(crate) fn new(door: &'static str, in_flight: u64, seconds: u64) -> Self {
        Self {
            door,
            in_flight,
            connections: None,
            rate: None,
            seconds,
            cycle: false,
            action: "payments.transfer",
            sessions: 1,
            may_overload: false,
        }
    }
}

/// What a load took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    /// Decides answered per second.
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Calls of the rate that could not even be begun.
    pub(crate) never_begun: u64,
}

impl Cluster {
    /// Starts a new cluster in `folder`, which is emptied, and publishes the policy.
    pub(crate) fn start(binary: &Path, folder: &Path, policy: &Path) -> anyhow::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let tokens: Vec<Value> = ROLES
            .iter()
            .map(|role| json!({"principal": format!("bench:{role}"), "roles": [role], "token": token(role)}))
            .collect();
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o600).open(folder.join("tokens.json"))?;
        serde_json::to_writer(file, &tokens)?;
        for id in 1..=NODES {
            std::fs::write(folder.join(format!("node-{id}.toml")), configuration(id)?)?;
        }
        let mut cluster = Self { binary: binary.to_owned(), folder: folder.to_owned(), nodes: Vec::new() };
        cluster.launch()?;
        output(cluster.command("policy").args(["policy", "publish"]).arg(policy))?;
        Ok(cluster)
    }

    /// Starts all nodes on what their folders hold; the time until each of them serves.
    pub(crate) fn launch(&mut self) -> anyhow::Result<Duration> {
        all_free((1..=NODES).flat_map(|id| [PORTS + id, PORTS + 100 + id, PORTS + 200 + id]))?;
        let begun = Instant::now();
        for id in 1..=NODES {
            let mut command = Command::new(&self.binary);
            command.arg("serve").arg("--config").arg(self.folder.join(format!("node-{id}.toml")));
            self.nodes.push(Server::start(&mut command, &self.folder.join(format!("node-{id}.log")))?);
        }
        for id in 1..=NODES {
            let knows_a_leader = |view: Value| view.get("leader_id").is_some_and(Value::is_u64);
            let ready = wait(&format!("node {id}"), READY_WITHIN, || self.view_of(id).is_ok_and(knows_a_leader));
            ready.with_context(|| format!("its log is in {}", self.folder.display()))?;
        }
        // Ready is a decision, not an open port.
        wait("the cluster", READY_WITHIN, || {
            let mut probe = self.command("decide");
            probe.args(["decide", "no.such.action", "--output", "json"]);
            probe.output().is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\"verdict\""))
        })?;
        Ok(begun.elapsed())
    }

    /// Ends all nodes, each in its own time.
    pub(crate) fn stop(&mut self) {
        self.nodes.clear();
    }

    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(&self.binary);
        let all: Vec<String> = (1..=NODES).map(http_of).collect();
        command.env("PLACET_HTTP", all.join(",")).env("PLACET_TOKEN", token(role));
        command
    }

    /// Who leads.
    pub(crate) fn leader(&self) -> anyhow::Result<u16> {
        Ok(u16::try_from(self.view()?.get("leader_id").and_then(Value::as_u64).context("nobody leads")?)?)
    }

    fn view(&self) -> anyhow::Result<Value> {
        self.view_of(1)
    }

    /// What one node says about the cluster.
    fn view_of(&self, id: u16) -> anyhow::Result<Value> {
        let mut command = self.command("operate");
        let said = output(command.args(["cluster", "status", "--output", "json", "--node"]).arg(http_of(id)))?;
        let said: Value = serde_json::from_str(&said)?;
        said.pointer("/nodes/0/view").cloned().with_context(|| format!("node {id} does not say how it is"))
    }

    /// How many entries the evidence has.
    pub(crate) fn entries(&self) -> anyhow::Result<u64> {
        let view = self.view()?;
        let index = view.get("evidence_index").context("no evidence_index")?;
        let number = index.as_u64().or_else(|| index.as_str()?.trim_start_matches("aud-").parse().ok());
        number.context("evidence_index is no number")
    }

    /// Memory of the node that holds the most, in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let mut most = 0;
        for node in &self.nodes {
            most = node.resident()?.max(most);
        }
        Ok(most)
    }

    /// Bytes of one node's data on disk: its log, and its state.
    pub(crate) fn disk(&self) -> anyhow::Result<(u64, u64)> {
        let data = self.folder.join("data-1");
        Ok((size_of(&data.join("log"))?, size_of(&data.join("state"))?))
    }

    /// Loads the node that leads. A load with failed calls is an error.
    pub(crate) fn load(&self, load: &Load) -> anyhow::Result<Took> {
        let leader = self.leader()?;
        let mut command = self.command("decide");
        command
            .args(["bench", "--output", "json", "--door", load.door])
            .args(["--in-flight", &load.in_flight.to_string(), "--seconds", &load.seconds.to_string()])
            .args(["--work", if load.cycle { "cycle" } else { "decide" }, "--action-type", load.action])
            .args(["--sessions", &load.sessions.to_string()])
            .args(["--node", &http_of(leader), "--grpc", &format!("127.0.0.1:{}", PORTS + 100 + leader)]);
        if let Some(connections) = load.connections {
            command.args(["--connections", &connections.to_string()]);
        }
        if let Some(rate) = load.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        let said: Value = serde_json::from_str(&output(&mut command)?)?;
        let verdicts = said.get("verdicts").and_then(Value::as_object).context("no verdicts")?;
        anyhow::ensure!(verdicts.keys().all(|word| word == "permit"), "not every verdict is a permit: {said}");
        // A cycle is done when its report is.
        let kind = if load.cycle { "report" } else { "decide" };
        let number = |pointer: String| said.pointer(&pointer).and_then(Value::as_f64).with_context(|| pointer.clone());
        let never_begun = said.get("never_begun").and_then(Value::as_u64).unwrap_or_default();
        anyhow::ensure!(never_begun == 0 || load.may_overload, "{never_begun} calls of this rate were never begun");
        Ok(Took {
            per_second: number(format!("/calls/{kind}/per_second"))?,
            p50_us: number("/calls/decide/latency_us/p50".to_owned())?,
            p99_us: number("/calls/decide/latency_us/p99".to_owned())?,
            p999_us: number("/calls/decide/latency_us/p99.9".to_owned())?,
            never_begun,
        })
    }
}

fn token(role: &str) -> String {
    format!("bench-{role}-token-0123456789")
}

fn http_of(id: u16) -> String {
    format!("http://127.0.0.1:{}", PORTS + id)
}

fn configuration(id: u16) -> anyhow::Result<String> {
    let threads = std::thread::available_parallelism()?.get().div_euclid(usize::from(NODES)).max(1);
    let mut out =
        format!("node_id = {id}\ndata = \"data-{id}\"\ntokens = \"tokens.json\"\nworker_threads = {threads}\n");
    for (door, base) in [("http", PORTS), ("grpc", PORTS + 100), ("peer", PORTS + 200)] {
        writeln!(out, "[{door}]\nlisten = \"127.0.0.1:{}\"", base + id)?;
    }
    for other in 1..=NODES {
        let (http, grpc, peer) = (http_of(other), PORTS + 100 + other, PORTS + 200 + other);
        writeln!(
            out,
            "[[initial_cluster]]\nid = {other}\npeer = \"127.0.0.1:{peer}\"\nhttp = \"{http}\"\ngrpc = \"http://127.0.0.1:{grpc}\""
        )?;
    }
    Ok(out)
}

fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        size += if metadata.is_dir() { size_of(&entry.path())? } else { metadata.len() };
    }
    Ok(size)
}
