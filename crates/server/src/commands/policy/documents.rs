//! Documents without a node: the same loader, judge and comparison that a node uses.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use placet_core::ids::Hash;
use placet_core::policy::cases::{self, CaseReport};
use placet_core::policy::convert::to_yaml;
use placet_core::policy::diff::{describe, diff as changes_between, loosening};
use placet_core::policy::{Loaded, Mistake, PolicySet, load};
use serde_json::{Value, json};

use super::{kept, meaning, print, read};
use crate::cli::{Output, Target, exit};
use crate::client::Refused;

/// How deep folders are searched for case files; a link to a parent must not be followed for ever.
const FOLDERS_DEEP_MAX: usize = 16;

pub fn check(output: Output, bytes: &[u8]) -> anyhow::Result<u8> {
    let loaded = loaded(bytes)?;
    let body = json!({"digest": loaded.policy.digest(), "warnings": loaded.warnings});
    print(output, &body, |_| format!("good: {}{}", loaded.policy.digest(), warnings(&loaded)));
    Ok(exit::OK)
}

pub fn convert(output: Output, bytes: &[u8]) -> anyhow::Result<u8> {
    let loaded = loaded(bytes)?;
    let document = to_yaml(loaded.policy.document());
    let body = json!({"digest": loaded.policy.digest(), "document": document, "warnings": loaded.warnings});
    print(output, &body, |_| document.clone());
    if output == Output::Human {
        eprintln!("placet: digest {}, as before; comments are lost{}", loaded.policy.digest(), warnings(&loaded));
    }
    Ok(exit::OK)
}

pub async fn diff(target: &Target, before: &str, after: &str, fail_if_looser: bool) -> anyhow::Result<u8> {
    let (before, after) = (named(target, before).await?, named(target, after).await?);
    let changes = changes_between(before.document(), after.document());
    let loosening = loosening(&changes);
    let body = json!({"before": before.digest(), "after": after.digest(), "changes": changes, "loosening": loosening});
    print(target.output, &body, |_| {
        format!("before: {}\nafter:  {}\n{}", before.digest(), after.digest(), describe(&changes))
    });
    Ok(if fail_if_looser && loosening > 0 { exit::REFUSED } else { exit::OK })
}

/// Runs every case file under the paths, like the tests of a program.
pub fn test(output: Output, paths: &[PathBuf]) -> anyhow::Result<u8> {
    let mut files = Vec::new();
    for path in paths {
        find(path, FOLDERS_DEEP_MAX, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut done = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        // Policies lie beside their cases; a file that was named is meant.
        if !paths.contains(&path) && !cases::is_case_file(&text) {
            continue;
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let found = cases::run(&text, |policy| fs::read_to_string(folder.join(policy)).map_err(|e| e.to_string()));
        done.push((path, found));
    }
    let summary = Summary::of(&done);
    print(output, &summary.body(&done), |_| lines(&done, &summary));
    Ok(summary.code())
}

type Done = (PathBuf, Result<Vec<CaseReport>, Vec<Mistake>>);

#[derive(Debug, Default)]
struct Summary {
    passed: usize,
    failed: usize,
    mistakes: usize,
}

impl Summary {
    fn of(done: &[Done]) -> Self {
        let mut summary = Self::default();
        for (_, found) in done {
            match found {
                Ok(reports) => {
                    let passed = reports.iter().filter(|report| report.passed).count();
                    summary.passed += passed;
                    summary.failed += reports.len() - passed;
                }
                Err(mistakes) => summary.mistakes += mistakes.len(),
            }
        }
        summary
    }

    /// Nothing found is a mistake too: a test that tests nothing must not be green.
    fn code(&self) -> u8 {
        match self {
            Self { mistakes: 1.., .. } | Self { passed: 0, failed: 0, .. } => exit::WRONG,
            Self { failed: 1.., .. } => exit::REFUSED,
            _ => exit::OK,
        }
    }

    fn body(&self, done: &[Done]) -> Value {
        let files: Vec<Value> = done
            .iter()
            .map(|(path, found)| match found {
                Ok(reports) => json!({"file": path, "cases": reports}),
                Err(mistakes) => json!({"file": path, "mistakes": mistakes}),
            })
            .collect();
        json!({"files": files, "passed": self.passed, "failed": self.failed, "mistakes": self.mistakes})
    }
}

fn lines(done: &[Done], summary: &Summary) -> String {
    let mut text = String::new();
    // Writing to memory has no way to fail.
    for (path, found) in done {
        let _ = writeln!(text, "{}", path.display());
        match found {
            Ok(reports) => {
                for report in reports {
                    for line in cases::describe(report).lines() {
                        let _ = writeln!(text, "  {line}");
                    }
                }
            }
            Err(mistakes) => {
                for Mistake { line, column, message } in mistakes {
                    let _ = writeln!(text, "  {}:{line}:{column}: {message}", path.display());
                }
            }
        }
    }
    if done.is_empty() {
        return "no case files here".to_owned();
    }
    let Summary { passed, failed, mistakes } = summary;
    let _ = write!(text, "\n{passed} passed, {failed} failed");
    if *mistakes > 0 {
        let word = if *mistakes == 1 { "mistake" } else { "mistakes" };
        let _ = write!(text, ", {mistakes} {word} in case files");
    }
    text
}

/// A file itself; of a folder, every YAML file below it.
fn find(path: &Path, deep: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let at = || format!("cannot read `{}`", path.display());
    if !fs::metadata(path).with_context(at)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).with_context(at)? {
        entries.push(entry.with_context(at)?.path());
    }
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            if deep > 0 {
                find(&entry, deep - 1, files)?;
            }
        } else if entry.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(entry);
        }
    }
    Ok(())
}

/// The policy in force, one that a node keeps, or a file.
async fn named(target: &Target, name: &str) -> anyhow::Result<PolicySet> {
    if name == "active" {
        return meaning(&kept(target, None).await?);
    }
    if Hash::parse(name).is_some() {
        return meaning(&kept(target, Some(name)).await?);
    }
    let bytes = read(Path::new(name))?;
    loaded(&bytes).map(|loaded| loaded.policy).with_context(|| format!("in `{name}`"))
}

fn loaded(bytes: &[u8]) -> anyhow::Result<Loaded> {
    let text = std::str::from_utf8(bytes).context("the document is not UTF-8")?;
    load(text).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
        let count = if mistakes.len() == 1 { "1 mistake".to_owned() } else { format!("{} mistakes", mistakes.len()) };
        let body = Some(json!({"code": "policy_mistakes", "mistakes": mistakes}));
        Refused { code: exit::REFUSED, text: format!("{count}{}", lines.concat()), body }.into()
    })
}

fn warnings(loaded: &Loaded) -> String {
    loaded.warnings.iter().map(|warning| format!("\nwarning, {warning}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "policies: [{ action_type: a, tier: 3 }]";
    const CASE: &str = "policy: ../p.yaml\ncases: [{ name: n, request: { action_type: a }, expect: { verdict: V } }]";

    /// Goal: a script can tell good policies from failed cases, and both from a test that tests nothing.
    #[test]
    fn the_exit_code_of_a_test() {
        let folder = tempfile::tempdir().unwrap();
        let cases = folder.path().join("cases");
        fs::create_dir(&cases).unwrap();
        fs::write(folder.path().join("p.yaml"), POLICY).unwrap();
        let code = |paths: &[PathBuf]| test(Output::Json, paths).unwrap();
        let all = [folder.path().to_owned()];
        assert_eq!(code(&all), exit::WRONG, "no case files");
        let file = cases.join("one.yaml");
        for (word, expected) in [("propose", exit::OK), ("permit", exit::REFUSED), ("maybe", exit::WRONG)] {
            fs::write(&file, CASE.replace('V', word)).unwrap();
            assert_eq!((code(&all), code(std::slice::from_ref(&file))), (expected, expected), "{word}");
        }
        assert_eq!(code(&[folder.path().join("p.yaml")]), exit::WRONG, "a policy is no case file");
        assert!(test(Output::Json, &[folder.path().join("none")]).is_err());
    }

    #[test]
    fn mistakes_and_failures_are_shown_where_they_are() {
        let file = PathBuf::from("c.yaml");
        let read = |_: &str| Ok(POLICY.to_owned());
        let told = |text: &str| {
            let done = vec![(file.clone(), cases::run(text, read))];
            lines(&done, &Summary::of(&done))
        };
        assert_eq!(told(&CASE.replace('V', "propose")), "c.yaml\n  ok    n\n\n1 passed, 0 failed");
        let failed = told(&CASE.replace('V', "permit"));
        assert!(
            failed.contains("  FAIL  n  (line 2)\n          verdict          expected permit, got propose\n"),
            "{failed}"
        );
        let wrong = told(&CASE.replace('V', "maybe"));
        assert!(wrong.contains("  c.yaml:2:68: `verdict`: unknown variant `maybe`"), "{wrong}");
        assert!(wrong.ends_with("0 passed, 0 failed, 1 mistake in case files"), "{wrong}");
    }
}
