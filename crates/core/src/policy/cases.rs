//! Tests of a policy, written as data: what is so before, what is asked, what must be answered.
//! A case runs through the same `evaluate` and `fold` as a node's decisions, over a state of its own in memory.
//! Absent on purpose: files and clocks. Text comes through a closure, time through `now` and `wait`.

mod expect;
mod play;
mod read;

use serde::Serialize;

use self::read::CaseFile;
use super::{Mistake, yaml};
use crate::op::Reject;
use crate::state::ReadError;
use crate::trace::{Check, CheckResult};

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// Its name.
    pub name: String,
    /// Where it begins in its file, from 1.
    pub line: u64,
    /// Whether everything that it names came as expected.
    pub passed: bool,
    /// What did not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// A step of `before` that could not be taken, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The decision's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Every check of the decision, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Check>,
}

/// One member of the answer that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "three words that say themselves")]
pub struct Difference {
    pub member: String,
    pub expected: String,
    pub got: String,
}

/// Whether a document is a case file, in whatever shape: a folder may hold policies beside it.
pub fn is_case_file(text: &str) -> bool {
    match yaml::parse(text).0.map(|node| node.kind) {
        Some(yaml::Kind::Mapping(entries)) => entries.iter().any(|(key, _)| key.text == "cases"),
        _ => false,
    }
}

/// Runs every case of a file. `read` gives the text of the policy that the file names, by the path in the file.
/// Mistakes of the file come back instead, all of them, and so do those of its policy, at the place that names it.
pub fn run(text: &str, read: impl FnOnce(&str) -> Result<String, String>) -> Result<Vec<CaseReport>, Vec<Mistake>> {
    let file = CaseFile::read(text, read)?;
    Ok(file.cases.iter().map(|case| case.run(&file.policy, file.now)).collect())
}

/// Why a step could not be taken.
#[derive(Debug)]
struct Stopped(String);

impl From<Reject> for Stopped {
    fn from(reject: Reject) -> Self {
        Self(reject.detail())
    }
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(error.to_string())
    }
}

/// A report as lines: the name, and for a failure what differs and which check decided.
pub fn describe(report: &CaseReport) -> String {
    if report.passed {
        return format!("ok    {}", report.name);
    }
    let mut lines = vec![format!("FAIL  {}  (line {})", report.name, report.line)];
    lines.extend(report.stopped.iter().map(|why| format!("        {why}")));
    for Difference { member, expected, got } in &report.differences {
        lines.push(format!("        {member:<16} expected {expected}, got {got}"));
    }
    lines.extend(report.detail.iter().filter(|text| !text.is_empty()).map(|text| format!("        because: {text}")));
    for check in &report.trace {
        let word = match check.result {
            CheckResult::Pass => "pass",
            CheckResult::Fail => "FAIL",
            CheckResult::Unresolved => "??  ",
        };
        let Check { check, rule, condition, value, .. } = check;
        lines.push(format!("          {word} {check:<22} {rule}: {condition}; found {value}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
