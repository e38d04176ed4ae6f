//! Explores the worlds and says what it saw; exit 1 and the shortest history when a property does not hold.
//! Absent on purpose: settings that would make a search smaller in silence. What ended a search is printed.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use placet_model::explore::{Limits, explore};
use placet_model::subject::Core;
use placet_model::worlds;

/// Exhaustive exploration of small histories of the decision core.
#[derive(Debug, Parser)]
struct Options {
    /// Steps in one history; without it each world is explored as far as its test does.
    #[arg(long)]
    depth: Option<usize>,
    /// Only this world.
    #[arg(long)]
    world: Option<String>,
    /// States in all for each world.
    #[arg(long, default_value_t = 20_000_000)]
    states: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut held = true;
    println!(
        "{:<20} {:>5} {:>9} {:>11} {:>9} {:>8} {:>9} {:>8}  ended by",
        "world", "depth", "states", "transitions", "histories", "longest", "judged", "seconds"
    );
    let all = worlds::all();
    let chosen: Vec<_> =
        all.iter().filter(|world| options.world.as_deref().is_none_or(|name| name == world.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = all.iter().map(|world| world.name).collect();
        eprintln!("there is no such world; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    for world in chosen {
        let limits = Limits { depth: options.depth.unwrap_or(world.short_depth), states: options.states };
        let begun = Instant::now();
        let found = match explore(world, Core, limits) {
            Ok(found) => found,
            Err(stopped) => {
                eprintln!("{}: {}", world.name, stopped.0);
                return ExitCode::from(2);
            }
        };
        let seconds = begun.elapsed().as_millis();
        let ended = match (found.complete, found.states >= limits.states) {
            (true, _) => "the world's bounds",
            (false, true) => "--states",
            (false, false) => "--depth",
        };
        println!(
            "{:<20} {:>5} {:>9} {:>11} {:>9} {:>8} {:>9} {:>5}.{:02}  {ended}",
            world.name,
            found.depth,
            found.states,
            found.transitions,
            found.histories,
            found.longest_histories,
            found.judgements,
            seconds / 1000,
            seconds % 1000 / 10,
        );
        if let Some(violation) = found.violation {
            held = false;
            println!("\n{violation}");
        }
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
