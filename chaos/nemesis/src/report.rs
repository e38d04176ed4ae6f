//! A section of `chaos/REPORT.md` out of the summaries of runs.
//! Absent on purpose: figures from anywhere else. The rows of campaigns that were not run again stay as they are.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::summary::Summary;

const BEGIN: &str = "<!-- nemesis: begin -->";
const END: &str = "<!-- nemesis: end -->";

/// Writes the section of the real processes into `report`, in place of the one before.
pub fn write(runs: &Path, report: &Path) -> anyhow::Result<()> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(runs)
        .with_context(|| format!("no runs in {}", runs.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("summary.json").exists())
        .collect();
    folders.sort();
    let summaries = folders.iter().map(|folder| Summary::read(folder)).collect::<anyhow::Result<Vec<_>>>()?;
    let before = std::fs::read_to_string(report).unwrap_or_else(|_| "# What was really run\n".to_owned());
    std::fs::write(report, spliced(&before, &section(&summaries, &kept(&before, &summaries))?))?;
    Ok(())
}

/// The lines of the report before about campaigns that these summaries do not hold.
fn kept<'a>(before: &'a str, summaries: &[Summary]) -> Vec<&'a str> {
    let block = before.split_once(BEGIN).and_then(|(_, tail)| tail.split_once(END)).map_or("", |(block, _)| block);
    let about =
        |line: &str| line.trim_start_matches(['|', '-', ' ']).split([',', ':', ' ']).next().unwrap_or("").to_owned();
    block
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .filter(|line| !line.trim().is_empty() && !summaries.iter().any(|one| one.campaign == about(line)))
        .collect()
}

fn spliced(before: &str, section: &str) -> String {
    let block = format!("{BEGIN}\n{section}{END}");
    match (before.split_once(BEGIN), before.split_once(END)) {
        (Some((head, _)), Some((_, tail))) => format!("{head}{block}{tail}"),
        _ => format!("{}\n\n{block}\n", before.trim_end()),
    }
}

fn section(summaries: &[Summary], kept: &[&str]) -> Result<String, std::fmt::Error> {
    let mut out = String::from(
        "## Real processes, real faults (`chaos/nemesis`)\n\n\
         | campaign | date, program | nodes | faults | requests (lost answers) | permits | entries | found |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for one in summaries {
        let faults: Vec<String> = one.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let violations: usize = one.properties.values().map(Vec::len).sum();
        let found = match (violations, one.failures.len()) {
            (0, 0) => format!("nothing; all {} properties hold", one.properties.len()),
            (violations, failures) => format!("**{violations} violations, {failures} failures**"),
        };
        writeln!(
            out,
            "| {}, {} s, seed {} | {}, `{}` | {} | {} | {} ({}) | {} | {} | {found} |",
            one.campaign,
            one.seconds,
            one.seed,
            one.date,
            one.program,
            one.nodes,
            faults.join(", "),
            one.load.requests,
            one.load.attempts.saturating_sub(one.load.answered),
            one.load.permits,
            one.load.entries,
        )?;
    }
    for row in kept.iter().filter(|line| line.starts_with('|')) {
        writeln!(out, "{row}")?;
    }
    out.push('\n');
    for one in summaries.iter().filter(|one| !one.figures.is_empty()) {
        let figures: Vec<String> = one.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
        writeln!(out, "- {}: {}.", one.campaign, figures.join(", "))?;
    }
    for one in summaries {
        for skipped in &one.skipped {
            writeln!(out, "- {} left out {skipped}.", one.campaign)?;
        }
        for failure in &one.failures {
            // One line each: what is kept of a report is kept by lines.
            writeln!(out, "- {} failed: {}", one.campaign, failure.replace('\n', " / "))?;
        }
    }
    for line in kept.iter().filter(|line| line.starts_with('-')) {
        writeln!(out, "{line}")?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the section is replaced, and what others wrote stays.
    #[test]
    fn a_section_is_replaced() {
        let first = spliced("# Title\n\nOthers wrote this.\n", "one\n");
        let second = spliced(&format!("{first}\nAnd this.\n"), "two\n");
        assert!(second.contains("Others wrote this.") && second.contains("And this."));
        assert!(second.contains("two") && !second.contains("one\n"));
        assert_eq!(second.matches(BEGIN).count(), 1);
    }

    /// Goal: a violation is not reported as nothing.
    #[test]
    fn a_violation_is_told() {
        let mut summary = Summary { campaign: "kills".to_owned(), ..Summary::default() };
        assert!(section(&[summary.clone()], &[]).unwrap().contains("nothing"));
        summary.properties.insert("one fate".to_owned(), vec!["two fates".to_owned()]);
        assert!(section(&[summary], &[]).unwrap().contains("1 violations"));
    }

    /// Goal: what was not run again stays in the report, and what was is replaced.
    #[test]
    fn rows_of_other_campaigns_stay() {
        let one = |campaign: &str, program: &str| Summary {
            campaign: campaign.to_owned(),
            program: program.to_owned(),
            figures: [("healed_ms".to_owned(), 1)].into(),
            ..Summary::default()
        };
        let first = spliced("", &section(&[one("kills", "old"), one("upgrade", "old")], &[]).unwrap());
        let again = [one("kills", "new")];
        let second = spliced(&first, &section(&again, &kept(&first, &again)).unwrap());
        assert_eq!((second.matches("`old`").count(), second.matches("`new`").count()), (1, 1), "{second}");
        assert_eq!((second.matches("| upgrade, ").count(), second.matches("- upgrade: ").count()), (1, 1), "{second}");
        assert_eq!((second.matches("| kills, ").count(), second.matches("- kills: ").count()), (1, 1), "{second}");
        assert_eq!(second.lines().filter(|line| line.starts_with("|---")).count(), 1, "{second}");
    }
}
