//! Which tests the sources hold, by their names alone.
//! Absent on purpose: a parser. A test is a function under a test attribute, or the first argument of a macro that has
//! the name of a case; one that a macro makes and nobody runs is found out by the totals of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cases::CaseId;

/// Where a case is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    Core,
    Http,
    Grpc,
    Unix,
    Replica,
    Store,
    Edge,
    Pep,
}

impl Door {
    pub const ALL: [Self; 8] =
        [Self::Core, Self::Http, Self::Grpc, Self::Unix, Self::Replica, Self::Store, Self::Edge, Self::Pep];

    /// By its name, in a table or on a command line.
    pub fn parse(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|door| door.to_string() == name) {
            Some(door) => Ok(door),
            None => bail!("`{name}` is no door"),
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Core => "the decision core in memory, with a clock that the test turns",
            Self::Http => "HTTP to a cluster of three node processes, each call to another node than the one before",
            Self::Grpc => "the same over gRPC",
            Self::Unix => "the same over each node's Unix socket, where the kernel says who calls",
            Self::Replica => "replicas in one process, over a network that the test cuts",
            Self::Store => "the disk under one replica",
            Self::Edge => "the doors before a stand-in decision point",
            Self::Pep => "the enforcement SDK before the decision core",
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Unix => "unix",
            Self::Replica => "replica",
            Self::Store => "store",
            Self::Edge => "edge",
            Self::Pep => "pep",
        })
    }
}

/// One test of the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestFn {
    /// From the root of the checkout.
    pub file: String,
    pub name: String,
    /// The test binary: its package's folder and its first file, as `cargo test` prints that.
    pub package: String,
    pub binary: String,
    /// What stands before the name in the output of a run, as far as files tell.
    pub module: String,
    pub doors: BTreeSet<Door>,
}

impl TestFn {
    /// The cases that the name begins with: `case_014_…`, `case_014_and_015_…`, `case_048_049_…`. A range would hide
    /// which of its numbers are shown, so it counts as its first.
    pub fn cases(&self) -> Vec<CaseId> {
        cases_of(&self.name)
    }

    /// Package and module: enough for a reader to tell files apart.
    pub(crate) fn place(&self) -> String {
        let package = self.package.trim_start_matches("crates/").replace("tests", "e2e");
        let module = self.module.trim_start_matches("conformance::").replace("::", "/");
        let binary = self.binary.trim_end_matches("/main.rs").trim_end_matches(".rs").trim_start_matches("tests/");
        format!("{package}/{}", if module.is_empty() { binary } else { &module })
    }

    /// Whether a line of a run with this path is about this test.
    pub(crate) fn is(&self, path: &str) -> bool {
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        name == self.name
            && (module == self.module || self.module.is_empty() || {
                module.strip_prefix(&self.module).is_some_and(|rest| rest.starts_with("::"))
            })
    }
}

impl fmt::Display for TestFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.name, self.file)
    }
}

/// The cases that a name of a test begins with.
pub fn cases_of(name: &str) -> Vec<CaseId> {
    let Some(rest) = name.strip_prefix("case_") else { return Vec::new() };
    let mut cases = Vec::new();
    for (at, word) in rest.split('_').enumerate() {
        match CaseId::of_name(word) {
            Some(id) => cases.push(id),
            None if at > 0 && word == "and" => {}
            None => break,
        }
    }
    cases
}

/// All tests of the checkout.
#[derive(Debug)]
pub struct Sources {
    pub tests: Vec<TestFn>,
}

impl Sources {
    pub fn scan(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for package in folders(&root.join("crates"))? {
            for part in ["src", "tests"] {
                walk(root, &package, &package.join(part), &mut files)?;
            }
        }
        let package = root.join("tests");
        walk(root, &package, &package.join("e2e"), &mut files)?;
        let lists: Vec<_> = files.iter().flat_map(|file| door_lists(&file.text)).collect();
        let mut tests: Vec<TestFn> = files.iter().flat_map(|file| file.tests(&lists)).collect();
        tests.sort();
        Ok(Self { tests })
    }

    /// A run that left a door out shows nothing at it.
    pub fn leave_out(&mut self, door: Door) {
        for test in &mut self.tests {
            test.doors.remove(&door);
        }
    }

    pub fn by_case(&self) -> BTreeMap<CaseId, Vec<&TestFn>> {
        let mut cases: BTreeMap<CaseId, Vec<&TestFn>> = BTreeMap::new();
        for test in &self.tests {
            for id in test.cases() {
                cases.entry(id).or_default().push(test);
            }
        }
        cases
    }

    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a TestFn> {
        self.tests.iter().filter(move |test| test.name == name)
    }
}

/// One file of Rust.
struct SourceFile {
    package: String,
    /// From the package.
    path: String,
    text: String,
}

impl SourceFile {
    fn tests(&self, lists: &[(String, BTreeSet<Door>)]) -> Vec<TestFn> {
        let (binary, module) = place(&self.path);
        let test = |(name, body): (&str, &str)| TestFn {
            file: format!("{}/{}", self.package, self.path),
            name: name.to_owned(),
            package: self.package.clone(),
            binary: binary.clone(),
            module: module.clone(),
            doors: self.doors(body, lists),
        };
        names(&self.text).into_iter().map(test).collect()
    }

    /// The doors at which a test of this file asks.
    fn doors(&self, body: &str, lists: &[(String, BTreeSet<Door>)]) -> BTreeSet<Door> {
        let doors: &[Door] = match self.package.as_str() {
            "crates/core" => &[Door::Core],
            "crates/replica" => &[Door::Replica],
            "crates/store" => &[Door::Store],
            "crates/edge" => &[Door::Edge],
            "crates/pep" => &[Door::Pep],
            // Each of these cases is one scenario that is played at every door, or at those that it names.
            "tests" if self.path.starts_with("e2e/conformance/") => {
                return restricted(body, lists).unwrap_or_else(|| [Door::Http, Door::Grpc, Door::Unix].into());
            }
            "tests" => &[Door::Http],
            _ => &[],
        };
        doors.iter().copied().collect()
    }
}

fn walk(root: &Path, package: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, package, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push(SourceFile { package: relative(root, package), path: relative(package, &path), text });
        }
    }
    Ok(())
}

/// The doors of `case_at(…, doors, …)`; `None` where a test names none, or is played at all of them too.
fn restricted(body: &str, lists: &[(String, BTreeSet<Door>)]) -> Option<BTreeSet<Door>> {
    let mut doors = BTreeSet::new();
    for call in body.split("case_at(").skip(1) {
        let arguments = call.split("async").next().unwrap_or_default();
        doors.extend(doors_in(arguments));
        let words: Vec<&str> = arguments.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        doors.extend(lists.iter().filter(|(name, _)| words.contains(&name.as_str())).flat_map(|(_, list)| list));
    }
    let everywhere = [" case(", " case_alone("].iter().any(|call| body.contains(call));
    (!doors.is_empty() && !everywhere).then_some(doors)
}

/// `const JSON_DOORS: &[Door] = &[Door::Http, Door::Unix];`
fn door_lists(text: &str) -> impl Iterator<Item = (String, BTreeSet<Door>)> {
    text.lines().filter_map(|line| {
        let (before, list) = line.split_once(": &[Door] = ")?;
        let (_, name) = before.split_once("const ")?;
        Some((name.to_owned(), doors_in(list)))
    })
}

fn doors_in(text: &str) -> BTreeSet<Door> {
    let words = text.split("Door::").skip(1).map(|rest| identifier(rest).to_ascii_lowercase());
    words.filter_map(|word| Door::parse(&word).ok()).collect()
}

/// The first file of the test binary that a file belongs to, and its module there.
fn place(file: &str) -> (String, String) {
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let (binary, modules) = match parts.as_slice() {
        ["tests", single] => (format!("tests/{single}.rs"), &[] as &[&str]),
        ["tests", folder, modules @ ..] => (format!("tests/{folder}/main.rs"), modules),
        [folder @ ("e2e" | "src"), modules @ ..] => (format!("{folder}/main.rs"), modules),
        _ => (file.to_owned(), &[] as &[&str]),
    };
    let modules: Vec<&str> = modules.iter().copied().filter(|part| !matches!(*part, "main" | "lib" | "mod")).collect();
    (binary, modules.join("::"))
}

/// The tests of a file, each with the text up to the next.
fn names(text: &str) -> Vec<(&str, &str)> {
    let mut starts = Vec::new();
    let mut attribute = false;
    let mut at = 0;
    for whole in text.split_inclusive('\n') {
        let line = whole.trim_start();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            attribute = true;
        } else if let Some(name) = function(line) {
            if attribute {
                starts.push((name, at));
            }
            attribute = false;
        } else if let Some(name) = made_by_macro(line) {
            starts.push((name, at));
        }
        at += whole.len();
    }
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    starts.iter().zip(ends).map(|((name, from), to)| (*name, text.get(*from..to).unwrap_or_default())).collect()
}

fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    Some(identifier(line.strip_prefix("fn ")?))
}

/// `malformed_case!(case_001_not_json, …`, or a line of a list: `case_001_not_json: …`.
fn made_by_macro(line: &str) -> Option<&str> {
    let (before, name) = match line.split_once("!(") {
        Some((before, rest)) => (before, identifier(rest)),
        None => ("", identifier(line)),
    };
    let after = line.split_once(name).map_or("", |(_, after)| after);
    let listed = [",", ":", " =>", ")"].iter().any(|mark| after.starts_with(mark)) && !after.starts_with("::");
    (identifier(before) == before && listed && !cases_of(name).is_empty()).then_some(name)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn folders(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_cases() {
        for (name, expected) in [
            ("case_001_not_json", "1"),
            ("case_l05_doubt", "L5"),
            ("case_083_and_087_granted", "83 87"),
            ("case_048_049_used_up", "48 49"),
            ("case_054_50_decides", "54"),
            ("case_024_to_037_one_answer", "24"),
            ("case_alone", ""),
            ("case_1_short", ""),
            ("not_case_001", ""),
        ] {
            let cases: Vec<String> = cases_of(name).iter().map(CaseId::to_string).collect();
            assert_eq!(cases.join(" "), expected, "{name}");
        }
    }

    #[test]
    fn tests_are_functions_under_an_attribute_or_made_by_a_macro() {
        let text = r#"
            fn case_002_helper() {}
            #[test]
            fn case_003_a() {}
            #[tokio::test(flavor = "multi_thread")]
            async fn case_004_b() {}
            made!(case_005_c, "x");
            cases! {
                case_006_d: 1,
                case_007_e => 2,
            }
            case_003_a();
            let x = made(case_008_f, 1);
        "#;
        let found: Vec<&str> = names(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["case_003_a", "case_004_b", "case_005_c", "case_006_d", "case_007_e"]);
    }

    #[test]
    fn a_test_may_name_its_doors() {
        let text = "const DOORS: &[Door] = &[Door::Grpc];\npub const JSON_DOORS: &[Door] = &[Door::Http, Door::Unix];";
        let lists: Vec<_> = door_lists(text).collect();
        for (body, expected) in [
            ("fn a() { case(\"a\", async |case| {}) }", None),
            ("fn a() { case_alone(\"a\", async |case| {}) }", None),
            ("fn a() { case_at(\"a\", JSON_DOORS, async |case| {}) }", Some(vec![Door::Http, Door::Unix])),
            ("fn a() { case_at(\"a\", &[Door::Grpc], async |_| Door::Unix) }", Some(vec![Door::Grpc])),
            ("fn a() { case_at(\"a\", JSON_DOORS, async |_| {}); case(\"b\", async |_| {}) }", None),
        ] {
            assert_eq!(restricted(body, &lists), expected.map(|doors| doors.into_iter().collect()), "{body}");
        }
    }

    #[test]
    fn files_tell_binary_and_module() {
        for (file, expected) in [
            ("tests/store.rs", ("tests/store.rs", "")),
            ("tests/conformance/main.rs", ("tests/conformance/main.rs", "")),
            ("tests/conformance/undo.rs", ("tests/conformance/main.rs", "undo")),
            ("e2e/conformance/undo.rs", ("e2e/main.rs", "conformance::undo")),
            ("e2e/conformance/mod.rs", ("e2e/main.rs", "conformance")),
            ("src/policy/url/tests.rs", ("src/main.rs", "policy::url::tests")),
        ] {
            let (binary, module) = place(file);
            assert_eq!((binary.as_str(), module.as_str()), expected);
        }
    }
}
