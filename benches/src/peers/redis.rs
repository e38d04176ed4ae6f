//! Redis: one node, an fsync for every write, and a script that checks a limit, counts, and notes the request. It has no
//! evidence and no second host; it is what a hurried team would take.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::process::{Server, all_free, output, wait_for_port};

/// Neither Redis' own nor its sentinel's.
const PORT: u16 = 26479;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// What is spent, and by how much each reservation moves it.
const COUNTER: &str = "budget";
const AMOUNT: u64 = 100;

/// KEYS: the counter, the request. Refuses beyond the limit.
const SCRIPT: &str = "local spent = redis.call('INCRBY', KEYS[1], 100) \
     if spent > 10000000000000 then redis.call('DECRBY', KEYS[1], 100) return 0 end \
     redis.call('HSET', KEYS[2], 'verdict', 'permit', 'amount', '1.00', 'payee', 'acme') return 1";

/// A running node.
#[derive(Debug)]
pub(crate) struct Redis {
    _node: Server,
    script: String,
}

impl Redis {
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &PORT.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(folder);
        all_free([PORT])?;
        let mut node = Server::start(&mut command, &folder.join("redis.log"))?;
        wait_for_port("redis", &mut node, PORT, READY_WITHIN)?;
        let script = cli(&["SCRIPT", "LOAD", SCRIPT])?;
        let is_digest = script.len() == 40 && script.bytes().all(|byte| byte.is_ascii_hexdigit());
        anyhow::ensure!(is_digest, "Redis does not take the script: {script}");
        Ok(Self { _node: node, script })
    }

    /// What it says of its version.
    pub(crate) fn version(&self) -> anyhow::Result<String> {
        let info = cli(&["INFO", "server"])?;
        let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(line.context("Redis does not tell its version")?.trim().to_owned())
    }

    /// Reservations per second over `connections`.
    pub(crate) fn reservations_per_second(&self, connections: u64, calls: u64) -> anyhow::Result<f64> {
        let before = spent()?;
        let said = output(
            Command::new("redis-benchmark")
                .args(["-p", &PORT.to_string(), "-c", &connections.to_string(), "-n", &calls.to_string()])
                .args(["-r", "1000000000", "--csv", "EVALSHA", &self.script, "2", COUNTER, "request:__rand_int__"]),
        )?;
        // "test","rps","avg_latency_ms",… and one line of values.
        let line = said.lines().last().context("redis-benchmark says nothing")?;
        let rate = line.split("\",\"").nth(1).with_context(|| format!("no rate in `{line}`"))?;
        // redis-benchmark takes an error for an answer.
        let done = (spent()? - before) / AMOUNT;
        anyhow::ensure!(done >= calls, "Redis made {done} of {calls} reservations");
        Ok(rate.trim_matches('"').parse()?)
    }
}

/// What the counter says.
fn spent() -> anyhow::Result<u64> {
    let said = cli(&["GET", COUNTER])?;
    if said.is_empty() { Ok(0) } else { said.parse().with_context(|| format!("the counter is `{said}`")) }
}

fn cli(arguments: &[&str]) -> anyhow::Result<String> {
    let port = PORT.to_string();
    Ok(output(Command::new("redis-cli").args(["-p", &port]).args(arguments))?.trim().to_owned())
}
