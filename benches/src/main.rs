//! `placet-benches`: measures Placet and its peers in turn, on this machine, and writes it down.
//! Absent on purpose: building and installing; `./dev bench` does that.
#![expect(clippy::float_arithmetic, reason = "figures and ratios; nothing here ships or decides")]

mod cluster;
mod comparison;
mod machine;
mod peers;
mod plot;
mod process;
mod report;
mod results;
mod store;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::comparison::{Place, Which};

/// Measures Placet and its peers in turn, and writes `BASELINE.md`.
#[derive(Debug, Parser)]
#[command(name = "placet-benches")]
struct Command {
    /// What to measure; everything but the large store without it.
    parts: Vec<Which>,
    /// The `placet` binary, as it ships.
    #[arg(long, default_value = "target/release/placet")]
    placet: PathBuf,
    #[arg(long, default_value = "benches/policy.yaml")]
    policy: PathBuf,
    /// Where a folder for the data of all servers is made, and removed again: on the disk that is to be measured.
    #[arg(long, default_value = "target/bench")]
    work: PathBuf,
    #[arg(long, default_value = "target/bench/results")]
    results: PathBuf,
    #[arg(long, default_value = "benches/BASELINE.md")]
    into: PathBuf,
    /// A Python with onedoor, FastAPI and uvicorn.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Runs of each row.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Of each load.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Entries of the large store.
    #[arg(long, default_value_t = 10_000_000)]
    entries: u64,
    /// Writes the report of what was measured before, and measures nothing.
    #[arg(long)]
    report_only: bool,
}

fn main() -> anyhow::Result<()> {
    let command = Command::parse();
    let absolute = |path: &PathBuf| std::path::absolute(path);
    let place = Place {
        binary: absolute(&command.placet)?,
        policy: absolute(&command.policy)?,
        // Emptied before and after; what else is in the folder that was named is somebody's.
        work: absolute(&command.work)?.join("placet-bench-data"),
        results: absolute(&command.results)?,
        python: command.python.as_ref().map(absolute).transpose()?,
        runs: command.runs,
        seconds: command.seconds,
        entries: command.entries,
    };
    if !command.report_only {
        let all: Vec<Which> = Which::value_variants().iter().copied().filter(|which| *which != Which::Store).collect();
        let parts = if command.parts.is_empty() { all } else { command.parts };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        comparison::fresh(&place.work)?;
        for which in parts {
            eprintln!("measuring {which:?}");
            let part = runtime.block_on(comparison::run(&place, which))?;
            for row in &part.rows {
                eprintln!("  {}: {:.2} times {}", row.measure, row.ratio(), row.other);
            }
        }
        comparison::fresh(&place.work)?;
    }
    report::write(&place.results, &command.into)
}
