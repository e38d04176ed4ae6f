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

use crate::cli::{Cli, Command, Output, exit};
use crate::client::Refused;

/// Judging and folding are many small allocations: under load the system's allocator took a quarter of the processor.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One provider for every door and client of this process; only a second call could fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let run = async {
        match &cli.command {
            Command::Serve(command) => serve::serve(command).await,
            _ => commands::run(&cli).await,
        }
    };
    let result =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from).and_then(
            |runtime| {
                let result = runtime.block_on(run);
                // Whatever still waits for a disk or a name has had its time.
                runtime.shutdown_timeout(Duration::from_secs(2));
                result
            },
        );
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(explain(&cli, &error)),
    }
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
