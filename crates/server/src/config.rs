//! The configuration file of a node: what an operator decides about it.
//! Absent on purpose: policy, which is published to the cluster, and everything that may differ between two starts
//! of one node without a reason.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use placet_core::cluster::MemberAddresses;
use placet_edge::{PeerEntry, Peers, SocketMode};
use placet_replica::options::{LOG_BYTES_MAX_LEAST, LOG_FORMATS};
use placet_store::StoreOptions;
use serde::Deserialize;

/// A whole file. Unknown names are mistakes: a misspelt limit is a limit that does not hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Unique in the cluster, from 1, for the life of the node.
    pub node_id: u64,
    /// Folder of log and state; one process at a time.
    pub data: PathBuf,
    /// The keyring: who may call, with which roles.
    pub tokens: PathBuf,
    pub http: Door,
    pub grpc: Door,
    pub peer: PeerDoor,
    /// The HTTP door on a Unix socket; none unless it is named here.
    pub unix: Option<UnixDoor>,
    /// The founding members, this node included; empty for a node that is added later.
    #[serde(default)]
    pub initial_cluster: Vec<Founder>,
    #[serde(default)]
    pub raft: Raft,
    #[serde(default)]
    pub store: Store,
    /// Threads that calls are served on; as many as processors without it. Fewer where nodes share a machine.
    pub worker_threads: Option<usize>,
    /// A file with 64 hex digits, the same on every node: what a policy redacts is kept as digests under it.
    pub redaction_key: Option<PathBuf>,
    /// A file with 64 hex digits that this node signs heads of the evidence with; made at the first start.
    pub head_key: Option<PathBuf>,
    /// Between two signed heads while evidence grows; 0 for none but those that are asked for.
    #[serde(default = "sign_heads_every_ms_default")]
    pub sign_heads_every_ms: u64,
    /// Free space below which this node refuses decides, so that the rest can still be written; 0: nobody looks.
    #[serde(default = "disk_reserve_bytes_default")]
    pub disk_reserve_bytes: u64,
    /// How far two nodes' clocks may be apart and still agree; a node that agrees with no majority does not decide.
    #[serde(default = "clock_skew_max_ms_default")]
    pub clock_skew_max_ms: u64,
    /// Between "not ready" and closed doors on a planned stop: as long as a balancer needs to look elsewhere.
    #[serde(default = "drain_ms_default")]
    pub drain_ms: u64,
    /// Where approvers hear of proposals.
    pub webhook: Option<Webhook>,
    /// Address of an OpenTelemetry collector (gRPC), such as `http://127.0.0.1:4317`.
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Door {
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerDoor {
    pub listen: SocketAddr,
    pub tls: Option<PeerTls>,
}

/// The door for processes of this host, which the kernel identifies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnixDoor {
    pub path: PathBuf,
    /// `0600`, or `0660` with a group.
    #[serde(default)]
    pub mode: FileMode,
    /// Number of the file's group.
    pub gid: Option<u32>,
    /// Name of the file's group.
    pub group: Option<String>,
    /// Who may call, with which roles.
    pub peers: Vec<PeerEntry>,
}

/// Modes that keep other users out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum FileMode {
    #[default]
    #[serde(rename = "0600")]
    Owner,
    #[serde(rename = "0660")]
    Group,
}

/// An address that approvers' events are sent to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `https://…`; plain `http://` on loopback only.
    pub url: String,
    /// A file with the secret that signs what is sent.
    pub secret: PathBuf,
}

fn disk_reserve_bytes_default() -> u64 {
    256 << 20
}

fn sign_heads_every_ms_default() -> u64 {
    60_000
}

fn clock_skew_max_ms_default() -> u64 {
    1000
}

fn drain_ms_default() -> u64 {
    2000
}

/// Certificate files in PEM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Clients must hold a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

/// Mutual TLS between nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTls {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The name in every node's certificate; without it, the host of the peer's address.
    pub domain: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founder {
    pub id: u64,
    pub peer: String,
    pub http: String,
    pub grpc: String,
}

/// Consensus, where the defaults do not fit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raft {
    pub heartbeat_ms: Option<u64>,
    pub election_ms: Option<(u64, u64)>,
    /// Log entries between two snapshots.
    pub snapshot_every: Option<u64>,
    /// Log entries kept behind a snapshot.
    pub log_kept: Option<u64>,
    /// Bytes of entries in the log, whatever the two above say.
    pub log_bytes_max: Option<u64>,
    /// The newest format of log records that this node lets the cluster write.
    pub log_format_max: Option<u32>,
    /// How long a caller waits before the answer is "unknown".
    pub deadline_ms: Option<u64>,
}

/// How much memory the store takes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// For what is read from disk: blocks, indexes and filters, of log and state together.
    pub block_cache_bytes: Option<usize>,
    /// For records of the state that are not on disk yet, before all of them are written there.
    pub write_buffer_bytes: Option<usize>,
}

/// Least memory that the store can work with.
const STORE_BYTES_LEAST: usize = 4 << 20;

/// More threads than this are a mistake in the file.
const WORKER_THREADS_MAX: usize = 1024;

impl Founder {
    fn addresses(&self) -> MemberAddresses {
        MemberAddresses { peer: self.peer.clone(), http: self.http.clone(), grpc: self.grpc.clone() }
    }
}

impl UnixDoor {
    /// The table of peers, its names looked up.
    pub fn peers(&self) -> anyhow::Result<Peers> {
        Peers::new(&self.peers).context("`unix.peers`")
    }

    /// The mode of the file, its group looked up.
    pub fn socket_mode(&self) -> anyhow::Result<SocketMode> {
        match (self.mode, self.gid, &self.group) {
            (FileMode::Owner, None, None) => Ok(SocketMode::Owner),
            (FileMode::Group, Some(gid), None) => Ok(SocketMode::Group(gid)),
            (FileMode::Group, None, Some(name)) => match placet_edge::peers::group_id(name) {
                Ok(gid) => Ok(SocketMode::Group(gid)),
                Err(detail) => bail!("`unix` {detail}"),
            },
            _ => bail!("`unix` takes the mode 0600 without a group, or 0660 with one of `gid` and `group`"),
        }
    }
}

impl Config {
    /// Reads and checks a file; a relative path in it is relative to it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut config: Self = toml::from_str(&text).with_context(|| format!("in `{}`", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for file in config.paths() {
            *file = folder.join(&file);
        }
        config.check().with_context(|| format!("in `{}`", path.display()))?;
        Ok(config)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let mut paths = vec![&mut self.data, &mut self.tokens];
        for tls in [&mut self.http.tls, &mut self.grpc.tls].into_iter().flatten() {
            paths.extend([&mut tls.cert, &mut tls.key]);
            paths.extend(&mut tls.client_ca);
        }
        if let Some(tls) = &mut self.peer.tls {
            paths.extend([&mut tls.ca, &mut tls.cert, &mut tls.key]);
        }
        paths.extend(self.unix.as_mut().map(|unix| &mut unix.path));
        paths.extend(self.redaction_key.as_mut());
        paths.extend(self.head_key.as_mut());
        paths.extend(self.webhook.as_mut().map(|webhook| &mut webhook.secret));
        paths
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.node_id > 0, "`node_id` is 1 or more");
        let mut ids: Vec<u64> = self.initial_cluster.iter().map(|founder| founder.id).collect();
        ids.sort_unstable();
        ensure!(ids.windows(2).all(|pair| pair.first() != pair.last()), "`initial_cluster` names an id twice");
        ensure!(
            ids.is_empty() || ids.contains(&self.node_id),
            "`initial_cluster` does not name this node, {}; leave it empty for a node that is added later",
            self.node_id
        );
        for founder in &self.initial_cluster {
            founder.addresses().check().map_err(|detail| anyhow::anyhow!("founder {}: {detail}", founder.id))?;
        }
        let skew = self.clock_skew_max_ms;
        ensure!((10..=600_000).contains(&skew), "`clock_skew_max_ms` is 10 to 600000, not {skew}");
        ensure!(self.drain_ms <= 600_000, "`drain_ms` is at most 600000, not {}", self.drain_ms);
        let peer = self.peer.listen;
        ensure!(
            self.peer.tls.is_some() || peer.ip().is_loopback(),
            "the peer door listens on {peer}, beyond this machine, without `peer.tls`: nodes speak plain text on \
             loopback only"
        );
        if let Some(unix) = &self.unix {
            unix.socket_mode()?;
            unix.peers()?;
        }
        if let Some(webhook) = &self.webhook {
            crate::webhook::check_url(&webhook.url)?;
        }
        let threads = self.worker_threads.unwrap_or(1);
        ensure!(
            (1..=WORKER_THREADS_MAX).contains(&threads),
            "`worker_threads` is 1 to {WORKER_THREADS_MAX}, not {threads}"
        );
        for (name, bytes) in
            [("block_cache_bytes", self.store.block_cache_bytes), ("write_buffer_bytes", self.store.write_buffer_bytes)]
        {
            ensure!(bytes.is_none_or(|bytes| bytes >= STORE_BYTES_LEAST), "`{name}` is {STORE_BYTES_LEAST} or more");
        }
        let bytes = self.raft.log_bytes_max;
        ensure!(
            bytes.is_none_or(|bytes| bytes >= LOG_BYTES_MAX_LEAST),
            "`log_bytes_max` is {LOG_BYTES_MAX_LEAST} or more: batches in flight need room"
        );
        let (oldest, newest) = LOG_FORMATS.into_inner();
        let format = self.raft.log_format_max.unwrap_or(newest);
        ensure!(LOG_FORMATS.contains(&format), "`log_format_max` is from {oldest} to {newest}");
        if let Some((low, high)) = self.raft.election_ms {
            let heartbeat = self.raft.heartbeat_ms.unwrap_or(100);
            ensure!(heartbeat < low && low < high, "`election_ms` is [low, high], both above `heartbeat_ms`");
        }
        Ok(())
    }

    pub fn founders(&self) -> BTreeMap<u64, MemberAddresses> {
        self.initial_cluster.iter().map(|founder| (founder.id, founder.addresses())).collect()
    }

    /// The store's options, beside those of the replica.
    pub fn store_options(&self, replica: &placet_replica::Options, unsafe_no_fsync: bool) -> StoreOptions {
        let usual = StoreOptions::default();
        StoreOptions {
            unsafe_no_fsync,
            block_cache_bytes: self.store.block_cache_bytes.unwrap_or(usual.block_cache_bytes),
            write_buffer_bytes: self.store.write_buffer_bytes.unwrap_or(usual.write_buffer_bytes),
            log_bytes_max: replica.log_bytes_max,
        }
    }

    /// The replica's options.
    pub fn options(&self) -> anyhow::Result<placet_replica::Options> {
        let mut options = placet_replica::Options::new(self.node_id, self.data.join("snapshots"));
        options.initial_cluster = self.founders();
        if let Some(tls) = &self.peer.tls {
            options.tls = Some(placet_replica::PeerTls {
                ca: read(&tls.ca)?,
                cert: read(&tls.cert)?,
                key: read(&tls.key)?,
                domain: tls.domain.clone(),
            });
        }
        options.clock_skew_max = Duration::from_millis(self.clock_skew_max_ms);
        options.keys = Arc::new(crate::keys::load(self)?);
        if self.disk_reserve_bytes > 0 {
            let data = self.data.clone();
            options.disk = placet_replica::DiskSpace::watched(self.disk_reserve_bytes, move || free_bytes(&data));
        }
        let raft = &self.raft;
        if let Some(ms) = raft.heartbeat_ms {
            options.heartbeat = Duration::from_millis(ms);
        }
        if let Some((low, high)) = raft.election_ms {
            options.election = (Duration::from_millis(low), Duration::from_millis(high));
        }
        if let Some(entries) = raft.snapshot_every {
            options.snapshot_every = Some(entries.max(1));
            options.replication_lag_max = entries.saturating_mul(2).max(2);
        }
        if let Some(entries) = raft.log_kept {
            options.log_kept = entries;
        }
        if let Some(bytes) = raft.log_bytes_max {
            options.log_bytes_max = Some(bytes);
        }
        if let Some(format) = raft.log_format_max {
            options.log_format_max = format;
        }
        if let Some(ms) = raft.deadline_ms {
            options.deadline = Duration::from_millis(ms);
        }
        Ok(options)
    }
}

/// What a process without privileges may still write where `path` is.
fn free_bytes(path: &Path) -> std::io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(path).map_err(std::io::Error::from)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Config, SocketMode};

    const GOOD: &str = r#"
node_id = 1
data = "node-1"
tokens = "tokens.json"
http = { listen = "127.0.0.1:7101" }
grpc = { listen = "127.0.0.1:7201" }
peer = { listen = "127.0.0.1:7301" }
[[initial_cluster]]
id = 1
peer = "127.0.0.1:7301"
http = "http://127.0.0.1:7101"
grpc = "http://127.0.0.1:7201"
"#;

    fn load(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).map_err(|error| format!("{error:#}"))
    }

    /// Goal: the socket is private unless a group is named, and every peer is somebody.
    #[test]
    fn a_socket_is_read_whole_or_refused() {
        let root = r#"peers = [{ user = "root", principal = "agent", roles = ["decide"] }]"#;
        let with = |lines: &str| load(&GOOD.replacen("[[initial", &format!("[unix]\n{lines}\n[[initial"), 1));
        let unix = |lines: &str| with(&format!("path = \"placet.sock\"\n{lines}\n{root}")).map(|it| it.unix.unwrap());
        let private = unix("").unwrap();
        assert!(private.path.is_absolute() && private.path.ends_with("placet.sock"));
        assert_eq!(private.socket_mode().unwrap(), SocketMode::Owner);
        assert!(private.peers().unwrap().find(0, 7).is_some() && private.peers().unwrap().find(7, 0).is_none());
        let shared = unix("mode = \"0660\"\ngid = 7").unwrap();
        assert_eq!(shared.socket_mode().unwrap(), SocketMode::Group(7));
        assert!(load(GOOD).unwrap().unix.is_none());
        for (lines, part) in [
            ("mode = \"0666\"", "unknown variant `0666`"),
            ("mode = \"0660\"", "or 0660 with one of"),
            ("gid = 7", "or 0660 with one of"),
            ("mode = \"0660\"\ngid = 7\ngroup = \"seven\"", "or 0660 with one of"),
            ("mode = \"0660\"\ngroup = \"no-such-group\"", "`no-such-group`, which this host does not know"),
            ("owner = 7", "unknown field `owner`"),
        ] {
            let error = unix(lines).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        for (peers, part) in [
            ("", "missing field `peers`"),
            ("peers = []", "nobody could call"),
            (r#"peers = [{ principal = "a", roles = ["decide"] }]"#, "exactly one of"),
            (r#"peers = [{ uid = 1, principal = "a", roles = ["admin"] }]"#, "unknown role `admin`"),
            (r#"peers = [{ uid = 1, pid = 1, principal = "a", roles = ["audit"] }]"#, "unknown field `pid`"),
        ] {
            let error = with(&format!("path = \"placet.sock\"\n{peers}")).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let config = load(GOOD).unwrap();
        assert!(config.data.is_absolute() && config.tokens.is_absolute());
        for (from, to, part) in [
            ("node_id = 1", "node_id = 0", "1 or more"),
            ("node_id = 1", "node_id = 2", "does not name this node"),
            ("tokens =", "token =", "unknown field `token`"),
            ("tokens =", "clock_skew_max_ms = 9\ntokens =", "10 to 600000"),
            ("tokens =", "worker_threads = 0\ntokens =", "1 to 1024"),
            ("[[initial", "[store]\nblock_cache_bytes = 100\n[[initial", "`block_cache_bytes` is 4194304 or more"),
            ("[[initial", "[store]\nwrite_buffer_bytes = 100\n[[initial", "`write_buffer_bytes` is 4194304 or more"),
            ("[[initial", "[store]\ncache = 100\n[[initial", "unknown field `cache`"),
            ("tokens =", "drain_ms = 600001\ntokens =", "at most 600000"),
            ("http://127.0.0.1:7101", "127.0.0.1:7101", "not a URL"),
            ("peer = \"127.0.0.1:7301\"", "peer = \"localhost\"", "not HOST:PORT"),
            ("peer = { listen = \"127.0.0.1:7301\" }", "peer = { listen = \"0.0.0.0:7301\" }", "without `peer.tls`"),
            ("[[initial", "[raft]\nelection_ms = [50, 60]\n[[initial", "above `heartbeat_ms`"),
            ("[[initial", "[raft]\nlog_bytes_max = 1000\n[[initial", "`log_bytes_max` is 4194304 or more"),
            ("[[initial", "[raft]\nlog_format_max = 9\n[[initial", "`log_format_max` is from 1 to 2"),
        ] {
            let error = load(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
