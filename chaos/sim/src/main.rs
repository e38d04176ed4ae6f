//! `placet-sim`: one seed, or many, each in a process of its own.

use std::process::ExitCode;

use clap::Parser;
use placet_sim::batch::{self, Batch};
use placet_sim::run::{Outcome, run};
use placet_sim::trace::Trace;

/// Simulates clusters of Placet.
#[derive(Debug, Parser)]
struct Args {
    /// Runs this seed and prints what became of it.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs this many seeds, from `--from` on.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Milliseconds of simulated time with faults.
    #[arg(long, default_value_t = 15_000)]
    faulty_ms: u64,
    /// Prints everything that happens.
    #[arg(long)]
    trace: bool,
    /// Prints what the nodes log (filter as in RUST_LOG).
    #[arg(long)]
    log: Option<String>,
    /// Plants a bug, and ends at the first seed that finds it.
    #[cfg(feature = "planted")]
    #[arg(long)]
    plant: Option<placet_core::planted::Bug>,
}

fn main() -> anyhow::Result<ExitCode> {
    // Before anything makes a map: its keys come from here.
    let seed = std::env::args().skip_while(|arg| arg != "--seed").nth(1).and_then(|seed| seed.parse().ok());
    if let Some(seed) = seed {
        placet_sim::entropy::replace_system_source(seed);
    }
    let args = Args::parse();
    #[cfg(feature = "planted")]
    if let Some(bug) = args.plant {
        placet_core::planted::plant(bug);
    }
    match args.seed {
        Some(seed) => one(&args, seed),
        None => {
            let batch = Batch { from: args.from, seeds: args.seeds, jobs: args.jobs, arguments: args.passed_on() };
            batch::run(&batch, args.wants_violation())
        }
    }
}

impl Args {
    /// Arguments that every run of a batch gets.
    fn passed_on(&self) -> Vec<String> {
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "a planted bug is passed on"))]
        let mut arguments = vec!["--faulty-ms".to_owned(), self.faulty_ms.to_string()];
        #[cfg(feature = "planted")]
        if let Some(bug) = self.plant {
            arguments.extend(["--plant".to_owned(), bug.name().to_owned()]);
        }
        arguments
    }

    fn wants_violation(&self) -> bool {
        #[cfg(feature = "planted")]
        return self.plant.is_some();
        #[cfg(not(feature = "planted"))]
        false
    }
}

fn one(args: &Args, seed: u64) -> anyhow::Result<ExitCode> {
    if let Some(filter) = &args.log {
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).init();
    }
    let trace = Trace::new(args.trace);
    batch::note_panics();
    // What came before, such as a logger, made maps and drew from the source: a new thread has keys of its own.
    let (faulty_ms, kept) = (args.faulty_ms, trace.clone());
    let alone = std::thread::spawn(move || -> anyhow::Result<Outcome> {
        placet_sim::entropy::replace_system_source(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let outcome = runtime.block_on(run(seed, faulty_ms, kept))?;
        // Tasks that wait for ever are not waited for.
        runtime.shutdown_background();
        Ok(outcome)
    });
    let outcome = alone.join().map_err(|_| anyhow::anyhow!("the run panicked"));
    placet_sim::world::sweep(std::process::id())?;
    let mut outcome = outcome??;
    if let (None, Some(panic)) = (&outcome.violation, batch::panicked()) {
        let at_ms = outcome.simulated_ms;
        outcome.violation = Some(placet_sim::world::Violation { property: "panic".to_owned(), detail: panic, at_ms });
    }
    let Outcome { violation, digest, entries, permits, crashes, frames, simulated_ms, recovered_ms } = outcome;
    println!(
        "seed {seed}: digest {digest:016x} entries {entries} permits {permits} crashes {crashes} frames {frames} \
         simulated_ms {simulated_ms} recovered_ms {}",
        recovered_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string())
    );
    let Some(violation) = violation else { return Ok(ExitCode::SUCCESS) };
    if !args.trace {
        trace.tail().iter().for_each(|line| println!("{line}"));
    }
    println!("VIOLATED {} at {} ms: {}", violation.property, violation.at_ms, violation.detail);
    println!("again: {}", batch::again(seed, &args.passed_on()));
    Ok(ExitCode::FAILURE)
}
