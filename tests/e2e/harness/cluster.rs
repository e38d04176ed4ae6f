//! Node processes. Each holds the read end of a pipe of this process and stops when it closes, so a test that dies
//! leaves nothing behind.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::unix::{self, Relay};
use super::{Client, OPERATE, PRINCIPALS, random};

/// How a test's cluster differs from the usual one.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub nodes: u64,
    /// Log entries between two snapshots, and kept behind one.
    pub snapshots: Option<(u64, u64)>,
    /// Bytes of entries in the log.
    pub log_bytes_max: Option<u64>,
    /// Certificates on every door.
    pub tls: bool,
    /// A Unix socket, with every principal as a user.
    pub unix: bool,
    /// A key to redact with.
    pub redaction: bool,
    /// Between two signed heads.
    pub sign_heads_every_ms: Option<u64>,
    /// The port of a webhook on this machine.
    pub webhook: Option<u16>,
    /// Between "not ready" and closed doors.
    pub drain_ms: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 3,
            snapshots: None,
            log_bytes_max: None,
            tls: false,
            unix: false,
            redaction: false,
            sign_heads_every_ms: None,
            webhook: None,
            drain_ms: None,
        }
    }
}

/// What signs the webhook's messages.
pub const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Debug)]
struct Member {
    ports: [u16; 3],
    process: Option<(Child, ChildStdin)>,
}

#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    settings: Settings,
    members: Vec<Member>,
    pub http: Client,
}

/// The binary under test, from the folder that this test was built into.
fn placet() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join("placet");
    assert!(path.exists(), "{} is not built; `./dev test` builds it first", path.display());
    path
}

/// Ports for one node, below the range that outgoing connections are given: a killed node finds its own free again.
fn free_ports() -> [u16; 3] {
    const FIRST: u64 = 20_000;
    const COUNT: u64 = 12_000;
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU64::new(random(COUNT)));
    [(); 3].map(|()| {
        loop {
            let port = u16::try_from(FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT).unwrap();
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    })
}

impl Cluster {
    /// Starts all nodes and waits for a leader.
    pub async fn start(settings: Settings) -> Self {
        let mut cluster = Self::founded_later(settings);
        for id in cluster.ids() {
            cluster.spawn(id);
        }
        cluster.leader().await;
        cluster
    }

    /// The founders' configurations and nothing that runs.
    pub fn founded_later(settings: Settings) -> Self {
        let folder = tempfile::Builder::new().prefix("placet-e2e-").tempdir().unwrap();
        let members: Vec<Member> = (0..settings.nodes).map(|_| Member { ports: free_ports(), process: None }).collect();
        secrets(folder.path(), settings);
        let scheme = if settings.tls { "https" } else { "http" };
        let ca = settings.tls.then(|| folder.path().join("ca.pem"));
        let bases = members.iter().map(|member| format!("{scheme}://localhost:{}", member.ports[0])).collect();
        let http = Client::new(bases, ca.as_deref());
        let cluster = Self { folder, settings, members, http };
        let founders: Vec<u64> = (1..=settings.nodes).collect();
        for id in 1..=settings.nodes {
            cluster.write_config(id, &founders);
        }
        cluster
    }

    /// A node's configuration file.
    pub fn config(&self, id: u64) -> PathBuf {
        self.path().join(format!("node-{id}.toml"))
    }

    /// A further node that founds nothing; returns its id.
    pub fn add_member(&mut self) -> u64 {
        self.members.push(Member { ports: free_ports(), process: None });
        let id = self.members.len() as u64;
        self.write_config(id, &[]);
        self.spawn(id);
        self.http.add(format!("http://localhost:{}", self.members[id as usize - 1].ports[0]));
        id
    }

    pub fn addresses(&self, id: u64) -> Value {
        let [http, grpc, peer] = self.member(id).ports;
        let scheme = if self.settings.tls { "https" } else { "http" };
        json!({
            "peer": format!("localhost:{peer}"), "http": format!("{scheme}://localhost:{http}"),
            "grpc": format!("{scheme}://localhost:{grpc}"),
        })
    }

    pub fn grpc_port(&self, id: u64) -> u16 {
        self.member(id).ports[1]
    }

    /// A client of the gRPC doors.
    pub fn grpc(&self) -> Client {
        let ports: Vec<u16> = self.ids().into_iter().map(|id| self.grpc_port(id)).collect();
        Client::grpc(&ports)
    }

    /// A client of the Unix doors; `None` where this process cannot become other users.
    pub fn unix(&self) -> Option<Client> {
        let sockets: Vec<PathBuf> = self.ids().into_iter().map(|id| unix::socket(self.path(), id)).collect();
        self.settings.unix.then(|| Client::unix(Relay::start(&sockets)))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn ids(&self) -> Vec<u64> {
        (1..=self.members.len() as u64).collect()
    }

    fn member(&self, id: u64) -> &Member {
        &self.members[id as usize - 1]
    }

    fn write_config(&self, id: u64, founders: &[u64]) {
        let [http, grpc, peer] = self.member(id).ports;
        let settings = &self.settings;
        let mut text = format!("node_id = {id}\ndata = \"node-{id}\"\ntokens = \"tokens.json\"\n");
        if settings.redaction {
            text.push_str("redaction_key = \"redaction.key\"\n");
        }
        if let Some(ms) = settings.sign_heads_every_ms {
            text.push_str(&format!("sign_heads_every_ms = {ms}\n"));
        }
        if let Some(ms) = settings.drain_ms {
            text.push_str(&format!("drain_ms = {ms}\n"));
        }
        for (door, port, mutual) in [("http", http, false), ("grpc", grpc, false), ("peer", peer, true)] {
            let tls = match (settings.tls, mutual) {
                (false, _) => "",
                (true, false) => "tls = { cert = \"node.pem\", key = \"node.key\" }\n",
                (true, true) => {
                    "tls = { ca = \"ca.pem\", cert = \"node.pem\", key = \"node.key\", domain = \"localhost\" }\n"
                }
            };
            text.push_str(&format!("[{door}]\nlisten = \"127.0.0.1:{port}\"\n{tls}"));
        }
        if settings.snapshots.is_some() || settings.log_bytes_max.is_some() {
            text.push_str("[raft]\n");
        }
        if let Some((every, kept)) = settings.snapshots {
            text.push_str(&format!("snapshot_every = {every}\nlog_kept = {kept}\n"));
        }
        if let Some(bytes) = settings.log_bytes_max {
            text.push_str(&format!("log_bytes_max = {bytes}\n"));
        }
        if settings.unix {
            text.push_str(&unix::config(self.path(), id));
        }
        if let Some(port) = settings.webhook {
            text.push_str(&format!("[webhook]\nurl = \"http://127.0.0.1:{port}/hook\"\nsecret = \"webhook.secret\"\n"));
        }
        for founder in founders {
            let addresses = self.addresses(*founder);
            let of = |name: &str| addresses[name].as_str().unwrap().to_owned();
            text.push_str(&format!(
                "[[initial_cluster]]\nid = {founder}\npeer = \"{}\"\nhttp = \"{}\"\ngrpc = \"{}\"\n",
                of("peer"),
                of("http"),
                of("grpc")
            ));
        }
        std::fs::write(self.folder.path().join(format!("node-{id}.toml")), text).unwrap();
    }

    /// Starts a node that is not running.
    pub fn spawn(&mut self, id: u64) {
        let log = self.folder.path().join(format!("node-{id}.log"));
        let log: File = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = Command::new(placet())
            .arg("serve")
            .arg("--config")
            .arg(self.folder.path().join(format!("node-{id}.toml")))
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        self.members[id as usize - 1].process = Some((child, stdin));
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self, id: u64) {
        let (mut child, _stdin) = self.members[id as usize - 1].process.take().expect("the node runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a node a signal, such as `TERM`.
    pub fn signal(&self, id: u64, signal: &str) {
        let (child, _) = self.member(id).process.as_ref().expect("the node runs");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for a node's process to end by itself; its exit code and how long that took.
    pub async fn drained(&mut self, id: u64) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        let (mut child, stdin) = self.members[id as usize - 1].process.take().expect("the node runs");
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                drop(stdin);
                return (status.code(), begun.elapsed());
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "node {id} does not end:\n{}", self.log(id));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether a node's process has ended by itself.
    pub fn exited(&mut self, id: u64) -> bool {
        match &mut self.members[id as usize - 1].process {
            Some((child, _)) => child.try_wait().unwrap().is_some(),
            None => true,
        }
    }

    /// Waits until a node's process has ended by itself.
    pub fn ended(&mut self, id: u64) -> ExitStatus {
        let (mut child, _stdin) = self.members[id as usize - 1].process.take().expect("the node runs");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("node {id} still runs:\n{}", self.log(id));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Deletes a stopped node's data.
    pub fn wipe(&self, id: u64) {
        std::fs::remove_dir_all(self.folder.path().join(format!("node-{id}"))).unwrap();
    }

    pub fn log(&self, id: u64) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("node-{id}.log"))).unwrap_or_default()
    }

    /// The node that leads and that the others follow, once there is one.
    pub async fn leader(&self) -> u64 {
        self.until("a leader", async || {
            for id in self.ids() {
                if let Some(view) = self.view(id).await
                    && view["leader_id"].as_u64() == Some(id)
                    && self.http.decides(id).await
                {
                    return Some(id);
                }
            }
            None
        })
        .await
    }

    /// What one node says about the cluster; `None` when it does not answer.
    pub async fn view(&self, id: u64) -> Option<Value> {
        self.member(id).process.as_ref()?;
        let answer = self.http.try_call_at(id, "GET", "/v1/cluster", OPERATE, None).await?;
        (answer.status == 200).then_some(answer.body)
    }

    /// Waits until these nodes hold the same evidence, and returns its head.
    pub async fn agree(&self, ids: &[u64]) -> String {
        self.until("one chain head on every node", async || {
            let mut heads = Vec::new();
            for id in ids {
                let view = self.view(*id).await?;
                heads.push((view["evidence_index"].as_u64()?, view["chain_head"].as_str()?.to_owned()));
            }
            let first = heads.first()?.clone();
            heads.iter().all(|head| *head == first).then_some(first.1)
        })
        .await
    }

    /// Waits for something to become true; a minute is long for everything that a test waits for.
    pub async fn until<T>(&self, what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            if Instant::now() > deadline {
                for id in self.ids() {
                    let log = self.log(id);
                    let tail: Vec<&str> = log.lines().rev().take(25).collect();
                    eprintln!("--- node {id}, newest first\n{}", tail.join("\n"));
                    eprintln!("--- view {:?}", self.view(id).await);
                }
                panic!("no {what} after a minute");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Publishes a policy document.
    pub async fn publish(&self, document: &str) -> String {
        let answer = self.http.publish(document).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["digest"].as_str().unwrap().to_owned()
    }

    /// Runs the CLI against all nodes.
    pub fn cli(&self, token: &str, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(placet())
            .args(args)
            .env_clear()
            .env("PLACET_HTTP", self.http.bases().join(","))
            .env("PLACET_TOKEN", token)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some((mut child, stdin)) = member.process.take() {
                drop(stdin);
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The keyring, and the keys that all nodes share.
fn secrets(folder: &Path, settings: Settings) {
    let entry = |(principal, role, token): &(&str, &str, &str)| json!({"principal": principal, "roles": [role], "token": token});
    let tokens: Value = PRINCIPALS.iter().map(entry).collect();
    std::fs::write(folder.join("tokens.json"), tokens.to_string()).unwrap();
    if settings.tls {
        certificates(folder);
    }
    if settings.unix {
        // Other users walk through both.
        for folder in [folder.to_owned(), folder.join("run")] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    for (name, text) in [("redaction.key", "5e".repeat(32)), ("webhook.secret", WEBHOOK_SECRET.to_owned())] {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

/// An authority and one certificate for `localhost`, which every node of a test shares.
fn certificates(folder: &Path) {
    let mut authority = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = authority.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let node = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    std::fs::write(folder.join("node.pem"), node.pem()).unwrap();
    std::fs::write(folder.join("node.key"), key.serialize_pem()).unwrap();
}
