//! What a run of `cargo test` says about the cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cases::Table;
use crate::sources::{Door, Sources, TestFn};

/// The tests of the sources that a run reported, and whether each passed.
#[derive(Debug, Default)]
pub struct Run<'a> {
    results: BTreeMap<&'a TestFn, bool>,
}

impl<'a> Run<'a> {
    /// Reads the output of `cargo test`, both streams in one.
    pub fn read(sources: &'a Sources, log: &str) -> Self {
        let mut run = Self::default();
        let mut binary = "";
        let mut results: Vec<(&str, bool)> = Vec::new();
        for line in log.lines() {
            if let Some(next) = running(line) {
                run.take(sources, binary, &results);
                (binary, results) = (next, Vec::new());
            } else if let Some(result) = result(line) {
                results.push(result);
            }
        }
        run.take(sources, binary, &results);
        run
    }

    /// Two packages may call their first file alike; the results then belong to the one that has these tests.
    fn take(&mut self, sources: &'a Sources, binary: &str, results: &[(&str, bool)]) {
        let mut packages: BTreeMap<&str, BTreeMap<&'a TestFn, bool>> = BTreeMap::new();
        for test in sources.tests.iter().filter(|test| test.binary == binary) {
            for (_, passed) in results.iter().filter(|(path, _)| test.is(path)) {
                packages.entry(&test.package).or_default().insert(test, *passed);
            }
        }
        if let Some(most) = packages.into_values().max_by_key(BTreeMap::len) {
            self.results.extend(most);
        }
    }

    /// One line of totals, and everything that is wrong; in a whole run each test of a case must have passed.
    pub fn totals(&self, table: &Table, sources: &Sources, whole: bool) -> (String, Vec<String>) {
        let tests = sources.by_case();
        let (mut cases, mut passed, mut failed, mut reasons) = (0, 0, 0, 0);
        let mut doors: BTreeMap<Door, u32> = BTreeMap::new();
        let mut problems = Vec::new();
        for case in table.cases() {
            cases += 1;
            let found = tests.get(&case.id).map_or(&[] as &[_], Vec::as_slice);
            let ran: Vec<(&TestFn, bool)> =
                found.iter().filter_map(|test| self.results.get(test).map(|passed| (*test, *passed))).collect();
            let missing = found.iter().filter(|test| whole && !self.results.contains_key(*test));
            problems.extend(missing.clone().map(|test| format!("case {} did not run: {test}", case.id)));
            let failures = ran.iter().filter(|(_, passed)| !passed);
            problems.extend(failures.clone().map(|(test, _)| format!("case {} failed: {test}", case.id)));
            if failures.count() > 0 || missing.count() > 0 {
                failed += 1;
            } else if !ran.is_empty() {
                passed += 1;
                let held: BTreeSet<Door> = ran.iter().flat_map(|(test, _)| test.doors.iter().copied()).collect();
                for door in held {
                    *doors.entry(door).or_default() += 1;
                }
            } else if case.reason.is_some() {
                reasons += 1;
            } else if whole {
                failed += 1;
                problems.push(format!("case {} has neither a test nor a reason", case.id));
            }
        }
        let mut line = format!("conformance: {cases} cases: {passed} pass, {failed} fail");
        let rest = cases - passed - failed - reasons;
        let _ = write!(line, ", {reasons} with a written reason");
        if rest > 0 {
            let _ = write!(line, ", {rest} not in this run");
        }
        let counts: Vec<String> = doors.iter().map(|(door, count)| format!("{door} {count}")).collect();
        if !counts.is_empty() {
            let _ = write!(line, "; doors: {}", counts.join(", "));
        }
        (line, problems)
    }
}

/// `Running tests/conformance/main.rs (target/…)`: the binary whose results follow. Unit tests of libraries and of
/// programs count as one kind, because their first file does not tell their modules.
fn running(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("Doc-tests ") {
        return Some("");
    }
    let line = line.strip_prefix("Running ")?;
    if line.starts_with("unittests ") {
        return Some("src/main.rs");
    }
    line.split_once(" (").map(|(path, _)| path)
}

/// `test messages::case_001_not_json ... ok`.
fn result(line: &str) -> Option<(&str, bool)> {
    let (path, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let path = path.strip_suffix(" - should panic").unwrap_or(path);
    match result.split([' ', ',']).next()? {
        "ok" => Some((path, true)),
        "FAILED" => Some((path, false)),
        // An ignored test did not run.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"
        [[chapter]]
        section = "23"
        title = "t"
        case = [
          { id = "1", requirement = "r", draft = "5", doors = ["core"] },
          { id = "2", requirement = "r", draft = "5", doors = ["pep"] },
          { id = "3", requirement = "r", draft = "5", reason = "w" },
        ]
    "#;

    fn test(package: &str, name: &str, door: Door) -> TestFn {
        TestFn {
            file: format!("{package}/tests/conformance/a.rs"),
            name: name.to_owned(),
            package: package.to_owned(),
            binary: "tests/conformance/main.rs".to_owned(),
            module: "a".to_owned(),
            doors: [door].into(),
        }
    }

    const LOG: &str = "\
     Running unittests src/lib.rs (target/debug/deps/core-1)
test a::case_001_x ... FAILED
     Running tests/conformance/main.rs (target/debug/deps/conformance-1)
test a::case_001_x ... ok
test a::plain ... ok
     Running tests/conformance/main.rs (target/debug/deps/conformance-2)
test a::case_002_y ... FAILED
";

    /// Goal: equal names of binaries do not mix, a failure and a silence are told, and a part of a run is no failure.
    #[test]
    fn totals_of_a_log() {
        let table: Table = toml::from_str(TABLE).unwrap();
        let tests = vec![test("core", "case_001_x", Door::Core), test("pep", "case_002_y", Door::Pep)];
        let sources = Sources { tests };
        let (line, problems) = Run::read(&sources, LOG).totals(&table, &sources, true);
        assert_eq!(line, "conformance: 3 cases: 1 pass, 1 fail, 1 with a written reason; doors: core 1");
        assert_eq!(problems, ["case 2 failed: `case_002_y` in pep/tests/conformance/a.rs"]);
        let passed = LOG.replace("case_002_y ... FAILED", "case_002_y ... ok");
        let (line, problems) = Run::read(&sources, &passed).totals(&table, &sources, true);
        assert_eq!(line, "conformance: 3 cases: 2 pass, 0 fail, 1 with a written reason; doors: core 1, pep 1");
        assert!(problems.is_empty());
        let part =
            LOG.split_once("     Running tests/conformance/main.rs (target/debug/deps/conformance-2)").unwrap().0;
        let (line, problems) = Run::read(&sources, part).totals(&table, &sources, false);
        let expected =
            "conformance: 3 cases: 1 pass, 0 fail, 1 with a written reason, 1 not in this run; doors: core 1";
        assert_eq!((line.as_str(), problems.len()), (expected, 0));
        let (_, problems) = Run::read(&sources, part).totals(&table, &sources, true);
        assert_eq!(problems, ["case 2 did not run: `case_002_y` in pep/tests/conformance/a.rs"]);
    }
}
