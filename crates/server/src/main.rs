//! The `placet` binary: a node, or an operator's command against one.
//! The one place where every part is visible: [`serve`] joins doors, replica and store.

mod cli;
mod client;
mod commands;
mod config;
mod keys;
mod serve;
mod telemetry;
mod upkeep;
mod webhook;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Runtime;

use crate::cli::{Cli, Command, Output, exit};
use crate::client::Refused;
use crate::config::Config;

/// Judging and folding are many small allocations: under load the system's allocator took a quarter of the processor.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One provider for every door and client of this process; only a second call could fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(explain(&cli, &error)),
    }
}

fn run(cli: &Cli) -> anyhow::Result<u8> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all();
    let Command::Serve(command) = &cli.command else {
        return finish(runtime.build()?, commands::run(cli));
    };
    // The runtime is what the file says, so the file is read first.
    let config = Config::load(&command.config)?;
    if let Some(threads) = config.worker_threads {
        runtime.worker_threads(threads);
    }
    finish(runtime.build()?, serve::serve(command, config))
}

fn finish(runtime: Runtime, work: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    let result = runtime.block_on(work);
    // Whatever still waits for a disk or a name has had its time.
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

/// Prints why nothing was done, and chooses the exit code.
fn explain(cli: &Cli, error: &anyhow::Error) -> u8 {
    let refused = error.downcast_ref::<Refused>();
    if let (Output::Json, Some(body)) = (cli.target.output, refused.and_then(|refused| refused.body.as_ref()))
        && !body.is_null()
    {
        println!("{body}");
    }
    eprintln!("placet: {error:#}");
    refused.map_or(exit::FAILED, |refused| refused.code)
}
