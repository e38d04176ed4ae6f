//! The table of AADP §24: where onedoor 0.8.1 deviates from the draft, and what Placet answers, by its tests.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cases::links;
use crate::sources::{Sources, TestFn};

const ROWS: u16 = 44;

/// `differences.toml`, whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What the page says about a mode that answers like onedoor.
    pub parity: String,
    pub row: Vec<Row>,
}

/// One row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub number: u16,
    /// Sections of the draft.
    pub draft: String,
    pub asks: String,
    pub onedoor: String,
    pub placet: String,
    pub stands: Stands,
    /// Names of functions; each must exist.
    pub tests: Vec<String>,
}

/// How Placet stands to what the draft asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stands {
    Yes,
    Partly,
    No,
}

impl Table {
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join("tests/conformance/differences.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Everything in which the table and the tests disagree.
    pub fn problems(&self, sources: &Sources) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.row.iter().map(|row| row.number).eq(1..=ROWS) {
            problems.push(format!("the table is not 1 to {ROWS}, each once and in order"));
        }
        for row in &self.row {
            let number = row.number;
            if row.tests.is_empty() && row.stands != Stands::No {
                problems.push(format!("row {number} names no test"));
            }
            for name in &row.tests {
                if sources.named(name).next().is_none() {
                    problems.push(format!("row {number} names `{name}`, and no test is called so"));
                }
            }
        }
        problems
    }

    /// `docs/DIFFERENCES.md`.
    pub fn page(&self, sources: &Sources) -> String {
        let count = |stands| self.row.iter().filter(|row| row.stands == stands).count();
        let mut page = format!(
            "\
# Differences to onedoor

<!-- Generated from tests/conformance/differences.toml and the names of the tests:
     PLACET_BLESS=1 ./dev cargo test -p placet-conformance -->

onedoor is the reference implementation of the AADP draft. In {ROWS} places its release 0.8.1 is known, by measurement \
or by its code, to fall short of the draft or to make a choice worth naming. Placet does what the draft asks in {} of \
them, partly in {}, and not in {}. Each answer is shown by the tests that its row names; a name that no test has fails \
the tests.

| # | the draft asks | onedoor 0.8.1 | Placet | does it? | tests |
|---|---|---|---|---|---|
",
            count(Stands::Yes),
            count(Stands::Partly),
            count(Stands::No)
        );
        for row in &self.row {
            let tests: Vec<&TestFn> = row.tests.iter().flat_map(|name| sources.named(name)).collect();
            let stands = match row.stands {
                Stands::Yes => "yes",
                Stands::Partly => "partly",
                Stands::No => "no",
            };
            let Row { number, draft, asks, onedoor, placet, .. } = row;
            let links = links(&tests);
            let _ = writeln!(page, "| {number} | {asks} (§{draft}) | {onedoor} | {placet} | {stands} | {links} |");
        }
        let _ = write!(page, "\n## No parity mode\n\n{}\n", self.parity.trim());
        page
    }
}
