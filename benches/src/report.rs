//! `BASELINE.md` out of what was measured.
//! Absent on purpose: figures that are not in the results.

use std::fmt::Write as _;
use std::path::Path;

use clap::ValueEnum;

use crate::comparison::Which;
use crate::plot;
use crate::results::{Bound, Part, median};

/// Writes the report, and its pictures beside it.
pub(crate) fn write(results: &Path, into: &Path) -> anyhow::Result<()> {
    let mut parts = Part::all(results)?;
    let order = |part: &Part| {
        Which::value_variants()
            .iter()
            .position(|which| which.to_possible_value().is_some_and(|value| value.get_name() == part.name))
    };
    parts.sort_by_key(order);
    let plots = into.with_file_name("plots");
    std::fs::create_dir_all(&plots)?;
    for drawn in parts.iter().flat_map(|part| &part.plots) {
        plot::write(drawn, &plots)?;
    }
    std::fs::write(into, text(&parts)?)?;
    Ok(())
}

fn text(parts: &[Part]) -> Result<String, std::fmt::Error> {
    let mut out = String::from(
        "# What was measured\n\n\
         Written by `./dev bench`. All servers and the load run on one machine; three nodes of ours, each with an fsync \
         before it acknowledges, and in each run ours and the other in turn. A figure is the median of its runs, with the \
         least and the most; a ratio is the median of the ratios of each run. A figure in bold did not reach what it must.\n\n\
         | measure | ours | against | theirs | ratio | must | aim |\n|---|---|---|---|---|---|---|\n",
    );
    for row in parts.iter().flat_map(|part| &part.rows) {
        let (bound, word) = match row.must {
            Bound::AtLeast(bound) => (bound, "at least"),
            Bound::AtMost(bound) => (bound, "at most"),
        };
        let ratio = format!("{:.2}", row.ratio());
        let ratio = if row.reached() { ratio } else { format!("**{ratio}**") };
        writeln!(
            out,
            "| {} | {} {} | {} | {} | {ratio} | {word} {bound} | {} |",
            row.measure,
            spread(&row.ours),
            row.unit,
            row.other,
            spread(&row.others),
            row.aim
        )?;
    }
    for plot in parts.iter().flat_map(|part| &part.plots) {
        writeln!(out, "\n![{}](plots/{}.svg)", plot.title, plot.name)?;
        for series in &plot.series {
            let points: Vec<String> =
                series.points.iter().map(|(x, y)| format!("{}: {}", number(*x), number(*y))).collect();
            writeln!(out, "\n{} ({} by {}): {}.", series.name, plot.y, plot.x, points.join(", "))?;
        }
    }
    out.push_str("\n## Parts\n\n");
    for part in parts {
        writeln!(out, "- **{}**, {}, {}. {}.", part.name, part.date, part.program, part.machine)?;
        for note in &part.notes {
            writeln!(out, "  - {note}.")?;
        }
    }
    Ok(out)
}

fn spread(figures: &[f64]) -> String {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({} to {})", number(median(figures)), number(least), number(most))
}

/// Three digits, with separators.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{:.*}", if value < 10.0 && value.fract() != 0.0 { 2 } else { 0 }, value);
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Row;

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [(0.5, "0.50"), (3.0, "3"), (12.4, "12"), (999.6, "1,000"), (1234567.0, "1,234,567")] {
            assert_eq!(number(value), text);
        }
    }

    /// Goal: what falls short is seen.
    #[test]
    fn a_row_that_falls_short_is_bold() {
        let row = |ours: f64| Row {
            measure: "m".to_owned(),
            unit: "u".to_owned(),
            ours: vec![ours],
            other: "o".to_owned(),
            others: vec![1.0],
            must: Bound::AtLeast(2.0),
            aim: 3.0,
        };
        let part = |ours| Part {
            name: "tail".to_owned(),
            date: String::new(),
            program: String::new(),
            machine: String::new(),
            rows: vec![row(ours)],
            plots: Vec::new(),
            notes: Vec::new(),
        };
        assert!(text(&[part(1.0)]).unwrap().contains("**1.00**"));
        assert!(text(&[part(2.0)]).unwrap().contains("| 2.00 |"));
    }
}
