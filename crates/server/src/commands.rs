//! The operator commands: each asks a node over HTTP and prints the answer.

mod changes;
mod decisions;
mod listings;

use serde_json::Value;

use crate::cli::{Cli, Command, Output, exit};

/// Runs one command and returns its exit code.
pub async fn run(cli: &Cli) -> anyhow::Result<u8> {
    let target = &cli.target;
    match &cli.command {
        Command::Serve(_) => Ok(exit::FAILED),
        Command::Decide(command) => decisions::decide(target, command).await,
        Command::Report(command) => decisions::report(target, command).await,
        Command::Approvals(command) => changes::approvals(target, command).await,
        Command::Kill(command) => changes::kill(target, command).await,
        Command::Policy(command) => changes::policy(target, command).await,
        Command::Evidence(command) => listings::evidence(target, command).await,
        Command::Intents => listings::intents(target).await,
        Command::Budgets => listings::budgets(target).await,
        Command::Cluster(command) => listings::cluster(target, command).await,
    }
}

/// Prints the node's JSON, or lines for people.
fn print(output: Output, body: &Value, human: impl FnOnce(&Value) -> String) {
    match output {
        Output::Json => println!("{body}"),
        Output::Human => {
            let text = human(body);
            println!("{}", text.trim_end());
        }
    }
}

/// A member as text, `-` when it is not there.
fn field(body: &Value, name: &str) -> String {
    match body.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Columns of equal width; a heading first.
fn table(heading: &[&str], rows: &[Vec<String>], empty: &str) -> String {
    if rows.is_empty() {
        return empty.to_owned();
    }
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    all.into_iter().map(line).collect::<Vec<_>>().join("\n")
}
