//! `placet-nemesis`: campaigns of real faults against real clusters.
//! Absent on purpose: building what it runs; `./dev` does that.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use placet_nemesis::campaign::{self, Place};
use placet_nemesis::dice::Dice;
use placet_nemesis::report;
use placet_nemesis::sandbox::{self, Sandbox};
use placet_nemesis::summary::Summary;

/// Real faults against real clusters, in network namespaces.
#[derive(Debug, Parser)]
#[command(name = "placet-nemesis")]
struct Command {
    /// The `placet` binary.
    #[arg(long, default_value = "target/release/placet")]
    placet: PathBuf,
    /// A build of it with debug assertions and the feature `crash-points`.
    #[arg(long, default_value = "target/sim/placet")]
    placet_crash_points: PathBuf,
    /// Where the files of runs go.
    #[arg(long, default_value = "target/chaos/runs")]
    out: PathBuf,
    /// Of the schedule of faults; random without.
    #[arg(long)]
    seed: Option<u64>,
    #[command(subcommand)]
    campaign: Campaign,
}

#[derive(Debug, Subcommand)]
enum Campaign {
    /// `kill -9` of random nodes under load.
    Kills {
        #[arg(long, default_value_t = 1000)]
        count: u64,
    },
    /// One of each fault, in some minutes.
    Short,
    /// Random faults.
    Mixed {
        #[arg(long, default_value_t = 30)]
        minutes: u64,
    },
    /// How long decides fail when the leader dies.
    LeaderLoss {
        #[arg(long, default_value_t = 100)]
        count: u64,
    },
    /// All nodes are restarted, one after the other.
    Rolling {
        #[arg(long, default_value_t = 10)]
        rounds: u64,
    },
    /// Nodes of the version before become this one, one after the other, under load.
    Upgrade {
        /// The `placet` binary of the version before.
        #[arg(long)]
        from: PathBuf,
    },
    /// An old leader is cut off, and the kill switch engaged behind its back.
    CutOff {
        #[arg(long, default_value_t = 20)]
        count: u64,
    },
    /// A node dies at each crash point.
    CrashPoints {
        #[arg(long, default_value_t = 20)]
        each: u64,
    },
    /// Writes the section of a report out of the summaries of runs.
    Report {
        #[arg(long, default_value = "chaos/REPORT.md")]
        into: PathBuf,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("placet-nemesis: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<u8> {
    let command = Command::parse();
    if let Campaign::Report { into } = &command.campaign {
        report::write(&command.out, into)?;
        return Ok(0);
    }
    if Sandbox::around().is_none() {
        return sandbox::run_inside();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let summaries = runtime.block_on(async {
        tokio::select! {
            summaries = campaigns(command) => summaries,
            () = outside_is_gone() => anyhow::bail!("stopped"),
        }
    })?;
    let mut code = 0;
    for summary in summaries {
        print!("{}", summary.told());
        code |= u8::from(!summary.clean());
    }
    Ok(code)
}

async fn campaigns(command: Command) -> anyhow::Result<Vec<Summary>> {
    let absolute = |path: PathBuf| std::path::absolute(path);
    let place = Place {
        binary: absolute(command.placet)?,
        crashing: absolute(command.placet_crash_points)?,
        out: absolute(command.out)?,
        seed: command.seed.unwrap_or_else(Dice::seed),
    };
    let summary = match command.campaign {
        Campaign::Kills { count } => campaign::kills::run(&place, count).await?,
        Campaign::Short => campaign::mixed::short(&place).await?,
        Campaign::Mixed { minutes } => campaign::mixed::long(&place, minutes).await?,
        Campaign::LeaderLoss { count } => campaign::leader_loss::run(&place, count).await?,
        Campaign::Rolling { rounds } => campaign::rolling::run(&place, rounds).await?,
        Campaign::Upgrade { from } => campaign::upgrade::run(&place, absolute(from)?).await?,
        Campaign::CutOff { count } => campaign::cut_off::run(&place, count).await?,
        Campaign::CrashPoints { each } => return campaign::crash_points::run(&place, each).await,
        Campaign::Report { .. } => return Ok(Vec::new()),
    };
    Ok(vec![summary])
}

/// Ends when the process outside does, so that a run never outlives it.
async fn outside_is_gone() {
    let (gone, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut thrown_away = [0u8; 64];
        while std::io::stdin().read(&mut thrown_away).is_ok_and(|read| read > 0) {}
        // Nobody waits any more if the campaign ended first.
        let _ = gone.send(());
    });
    let _ = told.await;
}
