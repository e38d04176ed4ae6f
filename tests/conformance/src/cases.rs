//! The table of cases: what each demands, at which doors it must hold, or why it is not tested; and its page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::sources::{Door, Sources, TestFn};

/// The last number of AADP §23.2 to §23.9a, and of §23.10.
const CASES: u16 = 136;
const LATER_CASES: u16 = 22;

/// `cases.toml`, whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub chapter: Vec<Chapter>,
}

/// One part of AADP §23.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chapter {
    pub section: String,
    pub title: String,
    pub case: Vec<Case>,
}

/// One case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: CaseId,
    pub requirement: String,
    /// Sections of the draft.
    pub draft: String,
    /// Doors that a test must show it at; more are welcome.
    #[serde(default)]
    pub doors: BTreeSet<Door>,
    /// Why there is no test.
    pub reason: Option<String>,
}

/// `17` or `L5`; in names of tests `017` and `l05`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct CaseId {
    later: bool,
    number: u16,
}

impl CaseId {
    /// As it stands in the name of a test: three digits, or `l` and two.
    pub fn of_name(text: &str) -> Option<Self> {
        let (later, digits, width) = match text.strip_prefix('l') {
            Some(digits) => (true, digits, 2),
            None => (false, text, 3),
        };
        let right = digits.len() == width && digits.bytes().all(|b| b.is_ascii_digit());
        right.then(|| digits.parse().ok()).flatten().map(|number| Self { later, number })
    }

    fn all() -> impl Iterator<Item = Self> {
        let seed = (1..=CASES).map(|number| Self { later: false, number });
        seed.chain((1..=LATER_CASES).map(|number| Self { later: true, number }))
    }
}

impl TryFrom<String> for CaseId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (later, digits) = text.strip_prefix('L').map_or((false, text.as_str()), |digits| (true, digits));
        let number = digits.parse().map_err(|_| format!("`{text}` is not a case; one is written `17` or `L5`"))?;
        Ok(Self { later, number })
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.later { "L" } else { "" }, self.number)
    }
}

impl Table {
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join("tests/conformance/cases.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.chapter.iter().flat_map(|chapter| &chapter.case)
    }

    /// Everything in which the table and the tests disagree.
    pub fn problems(&self, sources: &Sources) -> Vec<String> {
        let mut problems = Vec::new();
        let ids: Vec<CaseId> = self.cases().map(|case| case.id).collect();
        if !ids.iter().copied().eq(CaseId::all()) {
            problems.push(format!("the table is not 1 to {CASES} and L1 to L{LATER_CASES}, each once and in order"));
        }
        let tests = sources.by_case();
        for case in self.cases() {
            case.problems(tests.get(&case.id).map_or(&[], Vec::as_slice), &mut problems);
        }
        for (id, found) in &tests {
            if !ids.contains(id) {
                problems.extend(found.iter().map(|test| format!("case {id} of {test} is not in the table")));
            }
        }
        problems
    }

    /// `docs/CONFORMANCE.md`.
    pub fn page(&self, sources: &Sources) -> String {
        let tests = sources.by_case();
        let (total, untested) = (self.cases().count(), self.cases().filter(|case| case.reason.is_some()).count());
        let mut page = format!(
            "\
# Conformance

<!-- Generated from tests/conformance/cases.toml and the names of the tests:
     PLACET_BLESS=1 ./dev cargo test -p placet-conformance -->

The {total} cases of the AADP specification. Each is a test named by its number (`case_048_…`, `case_l05_…`) or, {untested} \
of them, a reason why it cannot be tested here. A case with neither fails the tests, and so does one without a test at \
a door that the table demands. `./dev test` prints how many passed, at which doors. gRPC carries no body that is not a \
message, so cases about such bodies have two doors to a cluster.

A door is where a case is asked:

"
        );
        for door in Door::ALL {
            let cases = tests.values().filter(|found| found.iter().any(|test| test.doors.contains(&door))).count();
            if cases > 0 {
                let _ = writeln!(page, "- **{door}**, {cases} of them: {}", door.meaning());
            }
        }
        for chapter in &self.chapter {
            let _ = write!(
                page,
                "\n## {} {}\n\n| case | requirement | draft | status | tests |\n|---|---|---|---|---|\n",
                chapter.section, chapter.title
            );
            for case in &chapter.case {
                let found = tests.get(&case.id).map_or(&[] as &[_], Vec::as_slice);
                page.push_str(&case.row(found));
            }
        }
        page
    }
}

impl Case {
    fn problems(&self, tests: &[&TestFn], problems: &mut Vec<String>) {
        let id = self.id;
        match (&self.reason, tests) {
            (None, []) => problems.push(format!("case {id} has neither a test nor a reason")),
            (Some(_), [test, ..]) => problems.push(format!("case {id} says why it has no test, and {test} is one")),
            (Some(_), []) if !self.doors.is_empty() => problems.push(format!("case {id} has doors and no test")),
            _ => {}
        }
        if self.reason.is_none() && self.doors.is_empty() {
            problems.push(format!("case {id} names no door"));
        }
        for door in self.doors.iter().filter(|_| !tests.is_empty()) {
            if !tests.iter().any(|test| test.doors.contains(door)) {
                problems.push(format!("case {id} has no test at the door {door}"));
            }
        }
    }

    fn row(&self, tests: &[&TestFn]) -> String {
        let doors: BTreeSet<Door> = tests.iter().flat_map(|test| test.doors.iter().copied()).collect();
        let status = match &self.reason {
            Some(reason) => format!("not tested here: {reason}"),
            None if doors.is_empty() => "**no test**".to_owned(),
            None => doors.iter().map(Door::to_string).collect::<Vec<_>>().join(", "),
        };
        format!("| {} | {} | {} | {status} | {} |\n", self.id, self.requirement, self.draft, links(tests))
    }
}

/// Each name once, with the files that hold it.
pub(crate) fn links(tests: &[&TestFn]) -> String {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in tests {
        by_name.entry(&test.name).or_default().push(format!("[{}](../{})", test.place(), test.file));
    }
    let parts: Vec<String> =
        by_name.into_iter().map(|(name, files)| format!("`{name}` in {}", files.join(" and "))).collect();
    parts.join("; ")
}
