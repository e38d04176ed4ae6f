//! The operator commands: each asks a node over HTTP and prints the answer, or works on documents without one.

mod approvals;
mod backup;
mod bench;
mod decisions;
mod doctor;
mod evidence;
mod kill;
mod listings;
mod permits;
mod policy;
mod repair;
pub mod restore;

use std::io::Write;

use serde_json::{Value, json};

use crate::cli::{Cli, Command, Keys, Output, exit};

/// Runs one command and returns its exit code.
pub async fn run(cli: &Cli) -> anyhow::Result<u8> {
    let target = &cli.target;
    match &cli.command {
        Command::Serve(_) => Ok(exit::FAILED),
        Command::Decide(command) => decisions::decide(target, command).await,
        Command::Report(command) => decisions::report(target, command).await,
        Command::Approvals(command) => approvals::run(target, command).await,
        Command::Kill(command) => kill::run(target, command).await,
        Command::Policy(command) => policy::run(target, command).await,
        Command::Permit(command) => permits::run(target, command).await,
        Command::Keys(Keys::New { file }) => {
            crate::keys::create(file)?;
            print(target.output, &json!({ "file": file }), |_| format!("written: {}", file.display()));
            Ok(exit::OK)
        }
        Command::Evidence(command) => evidence::run(target, command).await,
        Command::Intents => listings::intents(target).await,
        Command::Budgets => listings::budgets(target).await,
        Command::Doctor(command) => doctor::run(target, command).await,
        Command::Cluster(command) => listings::cluster(target, command).await,
        Command::Repair(command) => repair::run(target.output, command),
        Command::Backup(command) => backup::run(target, command).await,
        Command::Restore(command) => restore::run(target.output, command),
        Command::Bench(command) => bench::run(target, command).await,
    }
}

/// Prints the node's JSON, or lines for people.
fn print(output: Output, body: &Value, human: impl FnOnce(&Value) -> String) {
    let text = match output {
        Output::Json => body.to_string(),
        Output::Human => human(body).trim_end().to_owned(),
    };
    // A reader that closed its end has read enough; the exit code still tells the verdict.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A member as text, `-` when it is not there. What an agent wrote must not draw on an approver's screen: control
/// characters, line breaks and marks that turn the direction of text are escaped.
fn field(body: &Value, name: &str) -> String {
    let text = match body.get(name) {
        None | Some(Value::Null) => return "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let draws = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars()
        .map(|letter| if draws(letter) { letter.escape_default().to_string() } else { letter.to_string() })
        .collect()
}

/// One segment of a path, whatever was typed.
fn segment(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The rows of a listing.
fn rows(body: &Value, name: &str, row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    body.get(name).and_then(Value::as_array).into_iter().flatten().map(row).collect()
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

#[cfg(test)]
mod tests {
    use super::{field, json};

    #[test]
    fn what_an_agent_wrote_stays_one_harmless_line() {
        let body = json!({"rationale": "ok\u{1b}[2K\nproposer alice\u{202e}x", "n": 1});
        assert_eq!(field(&body, "rationale"), "ok\\u{1b}[2K\\nproposer alice\\u{202e}x");
        assert_eq!((field(&body, "n").as_str(), field(&body, "none").as_str()), ("1", "-"));
    }
}
