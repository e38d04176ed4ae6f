//! onedoor, the reference on one SQLite file: its own HTTP service, which does not fsync for each commit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::process::{Server, all_free, wait_for_port};

const PORT: u16 = 28470;

const READY_WITHIN: Duration = Duration::from_secs(30);

const POLICY: &str = "policies:
  - action_type: payments.transfer
    tier: 2
    dry_run: false
    compensating_command: payments.reverse
    cost_param: amount_eur
    caps: {daily_rate: 100000000, eur_day: \"100000000.00\"}
    bounds:
      numeric: {amount_eur: {min: 0.01, max: 500}}
      required: [payee, amount_eur]
      strict_params: true
  - action_type: payments.reverse
    tier: 1
    dry_run: false
    compensating_command: payments.transfer
    bounds: {strict_params: false}
";

/// The service.
#[derive(Debug)]
pub(crate) struct Onedoor {
    _service: Server,
}

/// What a load of it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycles {
    pub(crate) per_second: f64,
    pub(crate) failed: u64,
}

impl Onedoor {
    /// `python`: of an environment in which onedoor, FastAPI and uvicorn are.
    pub(crate) fn start(python: &Path, folder: &Path) -> anyhow::Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let policies: PathBuf = folder.join("policies.yaml");
        std::fs::write(&policies, POLICY)?;
        let mut command = Command::new(python);
        command
            .args(["-m", "uvicorn", "onedoor.service.app:create_app", "--factory", "--log-level", "warning"])
            .args(["--port", &PORT.to_string()])
            .env("ONEDOOR_DB", folder.join("service.db"))
            .env("ONEDOOR_POLICIES", &policies)
            .env("ONEDOOR_DECIDE_KEYS", "dev")
            .env("ONEDOOR_ADMIN_KEYS", "root");
        all_free([PORT])?;
        let mut service = Server::start(&mut command, &folder.join("service.log"))?;
        wait_for_port("onedoor", &mut service, PORT, READY_WITHIN)?;
        Ok(Self { _service: service })
    }

    /// Decide and report, one after the other on each connection. A failed call is counted, not hidden.
    pub(crate) fn cycles(&self, connections: u64, time: Duration) -> anyhow::Result<Cycles> {
        let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let warm = Instant::now() + Duration::from_secs(2);
        let end = warm + time;
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                let (done, failed) = (done.clone(), failed.clone());
                std::thread::spawn(move || -> anyhow::Result<()> {
                    let mut connection = Connection::open()?;
                    while Instant::now() < end {
                        let cycled = connection.cycle();
                        let now = Instant::now();
                        if now >= warm && now < end {
                            if cycled.is_ok() { &done } else { &failed }.fetch_add(1, Ordering::Relaxed);
                        }
                        if cycled.is_err() {
                            connection = Connection::open()?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(Cycles {
            per_second: done.load(Ordering::Relaxed) as f64 / time.as_secs_f64(),
            failed: failed.load(Ordering::Relaxed),
        })
    }
}

/// HTTP/1.1 with keep-alive.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open() -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", PORT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn cycle(&mut self) -> anyhow::Result<()> {
        let decide = json!({
            "request_id": uuid()?, "action_type": "payments.transfer", "rationale": "bench",
            "params": {"payee": "acme", "amount_eur": "1.00"},
        });
        let answer = self.post("/v1/decide", &decide)?;
        let intent = answer.get("intent_audit_id").and_then(Value::as_i64).context("no permit")?;
        self.post("/v1/report", &json!({"intent_audit_id": intent, "outcome": "success"}))?;
        Ok(())
    }

    fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer dev\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(head.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        anyhow::ensure!(line.split(' ').nth(1) == Some("200"), "{line}");
        let mut length = 0;
        loop {
            line.clear();
            anyhow::ensure!(self.0.read_line(&mut line)? > 0, "the connection was closed");
            match line.trim().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// A random UUID, version 4.
fn uuid() -> anyhow::Result<String> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    let number = (u128::from_be_bytes(bits) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}
