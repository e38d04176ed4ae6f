//! `placet-conformance totals [--whole] [--without DOOR] LOG`: the totals of a run of `cargo test` whose output is in LOG.
//! With `--whole` it fails when a case that has tests did not run; `--without` names a door that the run left out.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use placet_conformance::cases::Table;
use placet_conformance::log::Run;
use placet_conformance::root;
use placet_conformance::sources::{Door, Sources};

fn main() -> Result<ExitCode> {
    let (table, mut sources) = (Table::load(&root())?, Sources::scan(&root())?);
    let mut args = std::env::args().skip(1);
    let (mut whole, mut log) = (false, None);
    if args.next().as_deref() != Some("totals") {
        bail!("usage: placet-conformance totals [--whole] [--without DOOR] LOG");
    }
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--whole" => whole = true,
            "--without" => sources.leave_out(Door::parse(&args.next().unwrap_or_default())?),
            _ => log = Some(arg),
        }
    }
    let log = log.context("no log is named")?;
    let text = std::fs::read(&log).with_context(|| log.clone())?;
    let (line, problems) = Run::read(&sources, &String::from_utf8_lossy(&text)).totals(&table, &sources, whole);
    for problem in &problems {
        eprintln!("{problem}");
    }
    println!("{line}");
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
