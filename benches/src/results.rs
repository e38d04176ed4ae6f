//! What was measured, as JSON: one file for each part, so that a part can be run alone.
//! Absent on purpose: words about it; `report` writes them.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// One part of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// UTC.
    pub(crate) date: String,
    /// What the program says of itself.
    pub(crate) program: String,
    pub(crate) machine: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) plots: Vec<Plot>,
    /// Figures without a peer, and what was left out.
    pub(crate) notes: Vec<String>,
}

/// One measure, in as many runs as there are figures: ours and the other in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) unit: String,
    pub(crate) ours: Vec<f64>,
    /// What it is compared with.
    pub(crate) other: String,
    pub(crate) others: Vec<f64>,
    /// Ours through the other.
    pub(crate) must: Bound,
    pub(crate) aim: f64,
}

/// What a ratio must reach.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// One picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plot {
    /// Also the name of its file.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

/// One line of a picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Row {
    /// The median of the ratios of each run: a machine that drifts does so for both.
    pub(crate) fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.others).map(|(ours, other)| ours / other).collect();
        median(&ratios)
    }

    /// A ratio that is no number, or no finite one, reaches nothing.
    pub(crate) fn reached(&self) -> bool {
        let ratio = self.ratio();
        ratio.is_finite()
            && match self.must {
                Bound::AtLeast(bound) => ratio >= bound,
                Bound::AtMost(bound) => ratio <= bound,
            }
    }
}

/// The middle figure; of an even number the upper of the two.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Part {
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{}.json", self.name)), serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }

    /// Every part in a folder.
    pub(crate) fn all(folder: &Path) -> anyhow::Result<Vec<Self>> {
        let mut parts = Vec::new();
        let entries = std::fs::read_dir(folder).with_context(|| format!("no results in {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let part = serde_json::from_slice(&std::fs::read(&path)?);
                parts.push(part.with_context(|| format!("`{}` is no result", path.display()))?);
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the ratio is that of the runs, not of the medians: a slow minute hits both.
    #[test]
    fn ratios_are_of_pairs() {
        let row = Row {
            measure: String::new(),
            unit: String::new(),
            ours: vec![10.0, 100.0, 30.0],
            other: String::new(),
            others: vec![5.0, 50.0, 10.0],
            must: Bound::AtLeast(2.0),
            aim: 3.0,
        };
        assert!((row.ratio() - 2.0).abs() < 1e-9 && row.reached());
        assert!(!Row { must: Bound::AtMost(1.9), ..row.clone() }.reached());
        assert!(!Row { ours: Vec::new(), ..row.clone() }.reached(), "no figure reaches nothing");
        assert!(!Row { others: vec![0.0; 3], ..row }.reached(), "a peer that does nothing is none");
    }
}
