//! The node processes of a run: how they are configured, started, ended, and asked.
//! Absent on purpose: names of processes. Whatever is ended is ended by the id of a process that was started here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::clock::Clocks;
use crate::disk::Disks;
use crate::doors::{Doors, HTTP_PORT, Said, text};
use crate::sandbox::{Sandbox, address, relay_address, signal};
use crate::secrets::{self, OPERATE};

/// The port of every node's peer door, and of the relay before it.
pub const PEER_PORT: u16 = 7300;

/// Free space that a node keeps in reserve: little, because a small disk is one of the faults.
const DISK_RESERVE_BYTES: u64 = 32 << 20;

/// How a run's cluster is made.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The `placet` binary.
    pub binary: PathBuf,
    /// Founding members.
    pub nodes: u64,
    /// Peers reach each other through the relays.
    pub relayed: bool,
    /// Log entries between two snapshots, and kept behind one; the defaults of the product without.
    pub snapshots: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Member {
    founder: bool,
    process: Option<(Child, ChildStdin)>,
    stopped: bool,
}

/// A cluster, its folder, and the faults that can be put into its processes.
#[derive(Debug)]
pub struct Cluster {
    sandbox: Sandbox,
    folder: PathBuf,
    shape: Shape,
    members: BTreeMap<u64, Member>,
    /// Clocks of the nodes.
    pub clocks: Clocks,
    /// Disks of the nodes.
    pub disks: Disks,
    /// For the harness's own questions.
    pub doors: Doors,
    /// Nodes that run another program than the others.
    programs: BTreeMap<u64, PathBuf>,
}

/// What one node says about itself and the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub node: u64,
    pub leader: Option<u64>,
    pub term: u64,
    pub evidence: u64,
    pub head: String,
    pub snapshot: u64,
    /// Voters and learners.
    pub roles: BTreeMap<u64, String>,
}

impl Cluster {
    /// Starts all founders and waits until they serve. `prepare`: what to change before the first process starts.
    pub async fn start(
        sandbox: Sandbox,
        folder: &Path,
        shape: Shape,
        prepare: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        secrets::write(folder)?;
        let clocks = Clocks::new(folder);
        let disks = Disks::new(folder);
        let doors = Doors::new(folder, Duration::from_secs(8))?;
        let mut cluster = Self {
            sandbox,
            folder: folder.to_owned(),
            shape,
            members: BTreeMap::new(),
            clocks,
            disks,
            doors,
            programs: BTreeMap::new(),
        };
        prepare(&mut cluster)?;
        for id in 1..=cluster.shape.nodes {
            cluster.add(id, true)?;
        }
        cluster.leader(Duration::from_secs(60)).await.context("the cluster does not start")?;
        Ok(cluster)
    }

    /// Configures a node and starts it.
    pub fn add(&mut self, id: u64, founder: bool) -> anyhow::Result<()> {
        self.members.insert(id, Member { founder, process: None, stopped: false });
        self.write_config(id)?;
        self.spawn(id, &[])
    }

    pub fn ids(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    /// The founding members.
    pub fn founders(&self) -> Vec<u64> {
        (1..=self.shape.nodes).collect()
    }

    /// Nodes whose process runs and is not held.
    pub fn alive(&self) -> Vec<u64> {
        self.members.iter().filter(|(_, one)| one.process.is_some() && !one.stopped).map(|(id, _)| *id).collect()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn binary(&self) -> &Path {
        &self.shape.binary
    }

    /// A node runs this program from its next start on; the one of the others without.
    pub fn run_program(&mut self, id: u64, program: Option<PathBuf>) {
        match program {
            Some(program) => self.programs.insert(id, program),
            None => self.programs.remove(&id),
        };
    }

    pub fn relayed(&self) -> bool {
        self.shape.relayed
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub fn data(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node-{id}"))
    }

    /// What other nodes and clients are told about a node.
    pub fn addresses(&self, id: u64) -> Value {
        let peer = if self.shape.relayed { relay_address(id) } else { address(id) };
        json!({
            "peer": format!("{peer}:{PEER_PORT}"), "http": format!("https://{}:{HTTP_PORT}", address(id)),
            "grpc": format!("https://{}:7200", address(id)),
        })
    }

    fn write_config(&self, id: u64) -> anyhow::Result<()> {
        let at = address(id);
        let tls = "cert = \"node.pem\", key = \"node.key\"";
        let mut out = format!(
            "node_id = {id}\ndata = \"node-{id}\"\ntokens = \"tokens.json\"\nsign_heads_every_ms = 0\n\
             disk_reserve_bytes = {DISK_RESERVE_BYTES}\n\
             [http]\nlisten = \"{at}:{HTTP_PORT}\"\ntls = {{ {tls} }}\n\
             [grpc]\nlisten = \"127.0.0.1:7200\"\n\
             [peer]\nlisten = \"{at}:{PEER_PORT}\"\ntls = {{ ca = \"ca.pem\", {tls}, domain = \"localhost\" }}\n"
        );
        if let Some((every, kept)) = self.shape.snapshots {
            write!(out, "[raft]\nsnapshot_every = {every}\nlog_kept = {kept}\n")?;
        }
        if self.members.get(&id).is_some_and(|member| member.founder) {
            for founder in 1..=self.shape.nodes {
                let of = self.addresses(founder);
                let (peer, http, grpc) = (text(&of, "peer"), text(&of, "http"), text(&of, "grpc"));
                write!(
                    out,
                    "[[initial_cluster]]\nid = {founder}\npeer = \"{peer}\"\nhttp = \"{http}\"\ngrpc = \"{grpc}\"\n"
                )?;
            }
        }
        std::fs::write(self.folder.join(format!("node-{id}.toml")), out)?;
        Ok(())
    }

    /// Starts a node that is not running. `env`: how it differs from the others.
    pub fn spawn(&mut self, id: u64, env: &[(&str, String)]) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path(id))?;
        let mut command = self.sandbox.command(id, self.programs.get(&id).unwrap_or(&self.shape.binary));
        command
            .args(["serve", "--until-stdin-closes", "--config"])
            .arg(self.folder.join(format!("node-{id}.toml")))
            .envs(self.clocks.environment(id))
            .envs(env.iter().map(|(name, value)| (*name, value.clone())))
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        let preloads: Vec<String> = [self.clocks.library(), self.disks.library()]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        if !preloads.is_empty() {
            command.env("LD_PRELOAD", preloads.join(":"));
        }
        command.envs(self.disks.environment(id));
        let mut child = command.spawn().with_context(|| format!("node {id} cannot be started"))?;
        let stdin = child.stdin.take().context("no pipe to the node")?;
        let member = self.members.get_mut(&id).with_context(|| format!("node {id} is not configured"))?;
        if member.process.replace((child, stdin)).is_some() {
            bail!("node {id} was running already");
        }
        member.stopped = false;
        Ok(())
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, id: u64) -> anyhow::Result<()> {
        if let Some((mut child, stdin)) = self.members.get_mut(&id).and_then(|member| member.process.take()) {
            child.kill()?;
            child.wait()?;
            drop(stdin);
        }
        Ok(())
    }

    /// Asks a node to end, and waits for it.
    pub async fn terminate(&mut self, id: u64, within: Duration) -> anyhow::Result<()> {
        let Some((mut child, stdin)) = self.members.get_mut(&id).and_then(|member| member.process.take()) else {
            return Ok(());
        };
        signal(child.id(), Signal::SIGTERM);
        let deadline = Instant::now() + within;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("node {id} did not end within {} s of SIGTERM", within.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stdin);
        Ok(())
    }

    /// SIGSTOP: the process is there, and does nothing.
    pub fn hold(&mut self, id: u64) {
        self.tell(id, Signal::SIGSTOP, true);
    }

    /// SIGCONT.
    pub fn resume(&mut self, id: u64) {
        self.tell(id, Signal::SIGCONT, false);
    }

    fn tell(&mut self, id: u64, what: Signal, stopped: bool) {
        if let Some(member) = self.members.get_mut(&id)
            && let Some((child, _)) = &member.process
        {
            signal(child.id(), what);
            member.stopped = stopped;
        }
    }

    /// How a node's process ended by itself, if it did; it is forgotten then, and can be started again.
    pub fn ended(&mut self, id: u64) -> anyhow::Result<Option<ExitStatus>> {
        let Some(member) = self.members.get_mut(&id) else { return Ok(None) };
        let Some((child, _)) = &mut member.process else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            member.process = None;
        }
        Ok(status)
    }

    /// Waits for a node's process to end by itself.
    pub async fn end_of(&mut self, id: u64, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            let status = self.ended(id)?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether a node has a process.
    pub fn runs(&self, id: u64) -> bool {
        self.members.get(&id).is_some_and(|member| member.process.is_some())
    }

    /// Waits until a node says who leads; whether it does.
    pub async fn serves(&self, id: u64, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if self.view(id).await.is_some_and(|view| view.leader.is_some()) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Waits until these nodes have everything that they need to vote: none of them is catching up after a lost disk.
    /// Data may be deleted only then, since a majority that lost its data is no majority.
    pub async fn whole(&self, ids: &[u64], within: Duration) -> bool {
        let deadline = Instant::now() + within;
        for id in ids {
            loop {
                let health = self.doors.get(*id, "/v1/health", OPERATE).await;
                if health.is_some_and(|health| !text(&health, "detail").contains("lost its data")) {
                    break;
                }
                if Instant::now() > deadline {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        true
    }

    /// The furthest position in the evidence that any node tells.
    pub async fn furthest(&self) -> u64 {
        let mut furthest = 0;
        for id in self.alive() {
            furthest = self.view(id).await.map_or(0, |view| view.evidence).max(furthest);
        }
        furthest
    }

    /// Waits until a node knows a leader and lacks no more than `lag` entries; how it ended, if it does meanwhile.
    pub async fn caught_up(&mut self, id: u64, lag: u64, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let furthest = self.furthest().await;
            let view = self.view(id).await;
            if let Some(dead) = self.ended(id)? {
                return Ok(Some(dead));
            }
            if view.is_some_and(|view| view.leader.is_some() && view.evidence + lag >= furthest) {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("node {id} does not catch up")
    }

    /// Deletes a stopped node's data.
    pub fn wipe(&self, id: u64) -> anyhow::Result<()> {
        let data = self.data(id);
        for entry in std::fs::read_dir(&data).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
        }
        Ok(())
    }

    pub fn log_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node-{id}.log"))
    }

    /// The last lines that a node wrote.
    pub fn log_tail(&self, id: u64, lines: usize) -> String {
        let log = std::fs::read(self.log_path(id)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let mut tail: Vec<&str> = log.lines().rev().take(lines).collect();
        tail.reverse();
        tail.join("\n")
    }

    /// What one node says about the cluster.
    pub async fn view(&self, id: u64) -> Option<View> {
        view(&self.doors, id).await
    }

    /// The node that leads and answers decides, once there is one.
    pub async fn leader(&self, within: Duration) -> anyhow::Result<u64> {
        let deadline = Instant::now() + within;
        loop {
            for id in self.alive() {
                if let Some(view) = self.view(id).await
                    && view.leader == Some(id)
                    && self.decides(id).await
                {
                    return Ok(id);
                }
            }
            if Instant::now() > deadline {
                bail!("no node leads after {} s", within.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether a node answers a decide; the action is one that no policy names.
    pub async fn decides(&self, id: u64) -> bool {
        let body = crate::requests::decide("harness.probe", &json!({}), None);
        let said = self.doors.call(id, "POST", "/v1/decide", &secrets::token(0), Some(&body)).await;
        matches!(said, Said::Answer(200, _))
    }

    /// Hands the leadership to a node, trying again while nobody leads.
    pub async fn transfer(&self, to: u64, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        let body = json!({"to": to});
        loop {
            for id in self.alive() {
                let said = self.doors.call(id, "POST", "/v1/cluster/leader", OPERATE, Some(&body)).await;
                if matches!(&said, Said::Answer(200, view) if view.get("leader_id").and_then(Value::as_u64) == Some(to))
                {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    bail!("node {to} could not be made the leader: {said:?}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What one node says about the cluster.
pub async fn view(doors: &Doors, id: u64) -> Option<View> {
    let body = doors.get(id, "/v1/cluster", OPERATE).await?;
    let number = |name: &str| body.get(name).and_then(Value::as_u64).unwrap_or_default();
    let evidence = body.get("evidence_index")?;
    let evidence = evidence.as_u64().or_else(|| evidence.as_str()?.trim_start_matches("aud-").parse().ok())?;
    let members = body.get("members")?.as_array()?;
    let roles = members.iter().filter_map(|one| Some((one.get("id")?.as_u64()?, text(one, "role").to_owned())));
    Some(View {
        node: id,
        leader: body.get("leader_id").and_then(Value::as_u64),
        term: number("term"),
        evidence,
        head: text(&body, "chain_head").to_owned(),
        snapshot: number("snapshot_index"),
        roles: roles.collect(),
    })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            if let Some((mut child, stdin)) = member.process.take() {
                drop(stdin);
                // A process that is gone already is as good.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
