//! Network namespaces for one run: a hub with a bridge, and one namespace for each node, all named after this process.
//! Absent on purpose: anything outside them. The harness runs again inside the hub, whose mount namespace is private
//! too, so every address, filter rule and mount of a run ends with its processes.
//!
//! ```text
//!   placet-nemesis (outside) ── makes, waits, removes
//!        └─ ip netns exec pln<pid>-hub placet-nemesis (inside): 10.77.0.254 on bridge `br0`
//!               ├─ ip netns exec pln<pid>-1 placet serve: 10.77.0.1 on `eth0`
//!               ├─ ip netns exec pln<pid>-2 placet serve: 10.77.0.2 on `eth0`
//! ```

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Nodes that a run can have: the namespaces are made before the first of them starts.
pub const NODES_MAX: u64 = 5;

/// Tells a process that it is inside, and how its namespaces are called.
const INSIDE: &str = "PLACET_NEMESIS_SANDBOX";

const PREFIX: &str = "pln";

/// Where a node listens.
pub fn address(id: u64) -> String {
    format!("10.77.0.{id}")
}

/// Where the relay in front of a node's peer door listens.
pub fn relay_address(id: u64) -> String {
    format!("10.77.0.{}", 100 + id)
}

/// The namespaces that this process runs in.
#[derive(Clone, Debug)]
pub struct Sandbox {
    prefix: String,
}

impl Sandbox {
    /// The sandbox around this process, if it is inside one.
    pub fn around() -> Option<Self> {
        std::env::var(INSIDE).ok().map(|prefix| Self { prefix })
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.prefix)
    }

    /// The namespace of a node.
    pub fn node(&self, id: u64) -> String {
        self.name(&id.to_string())
    }

    /// A command in the namespace of a node. `ip` becomes the program, so the process id is the program's.
    pub fn command(&self, id: u64, program: impl Into<OsString>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.node(id)]).arg(program.into());
        command
    }
}

/// Runs this program again, inside, with the same arguments, and removes everything afterwards. Returns its exit code.
pub fn run_inside() -> anyhow::Result<u8> {
    sweep();
    let sandbox = Sandbox { prefix: format!("{PREFIX}{}", std::process::id()) };
    let lock = File::create(lock_of(&sandbox.prefix)).context("this needs root")?;
    lock.try_lock().with_context(|| format!("another run has the name {}", sandbox.prefix))?;
    let result = make(&sandbox).and_then(|()| watch(&sandbox));
    remove(&sandbox.prefix);
    result
}

/// Locked for as long as a run lives, however it ends.
fn lock_of(prefix: &str) -> PathBuf {
    PathBuf::from(format!("/run/placet-nemesis-{prefix}.lock"))
}

fn make(sandbox: &Sandbox) -> anyhow::Result<()> {
    let hub = sandbox.name("hub");
    // A namespace is there for whoever names it only after its own command.
    let mut names = format!("netns add {hub}\n");
    let mut links = format!("-n {hub} link set lo up\n");
    for id in 1..=NODES_MAX {
        writeln!(names, "netns add {}", sandbox.node(id))?;
    }
    ip_batch(&["-batch", "-"], &names).context("network namespaces cannot be made; this needs root")?;
    links.clear();
    writeln!(links, "link add br0 type bridge\nlink set lo up\nlink set br0 up\naddr add 10.77.0.254/24 dev br0")?;
    for id in 1..=NODES_MAX {
        writeln!(links, "addr add {}/24 dev br0", relay_address(id))?;
        writeln!(links, "link add n{id} type veth peer name eth0 netns {}", sandbox.node(id))?;
        writeln!(links, "link set n{id} master br0\nlink set n{id} up")?;
    }
    ip_batch(&["-n", &hub, "-batch", "-"], &links)?;
    for id in 1..=NODES_MAX {
        let inner = format!("link set lo up\naddr add {}/24 dev eth0\nlink set eth0 up\n", address(id));
        ip_batch(&["-n", &sandbox.node(id), "-batch", "-"], &inner)?;
    }
    Ok(())
}

fn ip_batch(args: &[&str], lines: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip").args(args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no pipe to ip")?.write_all(lines.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Waits for the inner process. It holds a pipe of ours and ends when that closes, so it never outlives this process.
fn watch(sandbox: &Sandbox) -> anyhow::Result<u8> {
    let mut child = Command::new("ip")
        .args(["netns", "exec", &sandbox.name("hub")])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, &sandbox.prefix)
        .stdin(Stdio::piped())
        .spawn()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut told = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return anyhow::Ok(status);
            }
            let asked = tokio::select! {
                _ = terminate.recv() => true,
                _ = tokio::signal::ctrl_c() => true,
                () = tokio::time::sleep(Duration::from_millis(50)) => false,
            };
            if asked && !told {
                told = true;
                end(&mut child);
            }
        }
    })?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(130))
}

/// Asks a child to end by closing its standard input, and insists after a while.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    let pid = child.id();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(10));
        signal(pid, Signal::SIGKILL);
    });
}

/// Sends a signal to a process that this harness started. One that is gone needs none.
pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn namespaces() -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&listed).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Removes what earlier runs left that were killed: namespaces whose run holds no lock any more.
fn sweep() {
    for name in namespaces() {
        let Some(owner) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        let Ok(pid) = owner.parse::<u32>() else { continue };
        let prefix = format!("{PREFIX}{pid}");
        let lives = File::open(lock_of(&prefix)).is_ok_and(|lock| lock.try_lock().is_err());
        if !lives {
            remove(&prefix);
        }
    }
}

/// Ends every process in the namespaces of a run, by its id, and removes them.
fn remove(prefix: &str) {
    let mine = format!("{prefix}-");
    for name in namespaces().into_iter().filter(|name| name.starts_with(&mine)) {
        let pids = Command::new("ip").args(["netns", "pids", &name]).output().map(|output| output.stdout);
        let pids = String::from_utf8_lossy(&pids.unwrap_or_default()).into_owned();
        for pid in pids.lines().filter_map(|line| line.trim().parse().ok()) {
            signal(pid, Signal::SIGKILL);
        }
        if let Err(error) = Command::new("ip").args(["netns", "del", &name]).status() {
            eprintln!("placet-nemesis: {name} could not be removed: {error}");
        }
    }
    // Without one there is nothing to remove.
    let _ = std::fs::remove_file(lock_of(prefix));
}
