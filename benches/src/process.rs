//! Processes that a run starts: ended with it, by their own ids.
//! Absent on purpose: names of processes.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a server may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A server that listens, and ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts it; what it says goes into `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot write `{}`", log.display()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        Ok(Self { child: command.spawn().with_context(|| format!("`{program}` cannot be started"))? })
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Memory that it holds, in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes * 1024)
    }

    /// SIGTERM, and waits.
    pub(crate) fn end(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // One that is gone already is as good.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let deadline = Instant::now() + ENDS_WITHIN;
        while self.runs() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a command prints, if it succeeds.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("`{program}` cannot be started"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "`{program}` ended with {}: {}{text}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Refuses ports that somebody has already: their answers would be measured for those of whom is started.
pub(crate) fn all_free(ports: impl IntoIterator<Item = u16>) -> anyhow::Result<()> {
    for port in ports {
        anyhow::ensure!(!listens(port), "something listens at port {port} already; end it first");
    }
    Ok(())
}

/// Waits until a server listens; an error when it has ended.
pub(crate) fn wait_for_port(what: &str, server: &mut Server, port: u16, within: Duration) -> anyhow::Result<()> {
    let mut gone = false;
    wait(what, within, || {
        gone = !server.runs();
        gone || listens(port)
    })?;
    anyhow::ensure!(!gone, "{what} has ended; its log says why");
    Ok(())
}

/// Waits until `ready` says so.
pub(crate) fn wait(what: &str, within: Duration, mut ready: impl FnMut() -> bool) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    while !ready() {
        anyhow::ensure!(begun.elapsed() < within, "{what} is not ready after {} s", within.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(begun.elapsed())
}

/// Whether something listens at a port of this machine.
fn listens(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}
