//! What a run was and what it found, as JSON, one file per run.
//! Absent on purpose: judgement by a person; `report` turns it into words.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The summary of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    pub campaign: String,
    /// UTC.
    pub date: String,
    /// What the program that ran says of itself.
    pub program: String,
    pub seed: u64,
    pub nodes: u64,
    pub seconds: u64,
    /// How often each kind of fault was there.
    pub faults: BTreeMap<String, u64>,
    /// What the load did.
    pub load: Work,
    /// Numbers of this campaign alone: milliseconds, counts.
    pub figures: BTreeMap<String, u64>,
    /// What each property found; empty lists are what is wanted.
    pub properties: BTreeMap<String, Vec<String>>,
    /// What went wrong outside of the properties.
    pub failures: Vec<String>,
    /// What this machine could not do.
    pub skipped: Vec<String>,
}

/// What the load did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    pub requests: u64,
    pub attempts: u64,
    pub answered: u64,
    pub permits: u64,
    pub reports: u64,
    pub approvals_used: u64,
    pub switch_settings: u64,
    pub entries: u64,
    pub open_intents: u64,
    pub median_ms: u64,
    pub p99_ms: u64,
}

impl Summary {
    /// Whether nothing was found.
    pub fn clean(&self) -> bool {
        self.failures.is_empty() && self.properties.values().all(Vec::is_empty)
    }

    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::write(folder.join("summary.json"), serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }

    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join("summary.json"))?)?)
    }

    /// A few lines for whoever waits.
    pub fn told(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut out = format!(
            "{} on {} nodes, {} s, seed {}: {}\n  {} requests ({} attempts, {} without an answer), {} permits, {} entries, {} open intents, median {} ms, p99 {} ms\n",
            self.campaign,
            self.nodes,
            self.seconds,
            self.seed,
            if faults.is_empty() { "no faults".to_owned() } else { faults.join(", ") },
            self.load.requests,
            self.load.attempts,
            self.load.attempts.saturating_sub(self.load.answered),
            self.load.permits,
            self.load.entries,
            self.load.open_intents,
            self.load.median_ms,
            self.load.p99_ms,
        );
        for (name, value) in &self.figures {
            out.push_str(&format!("  {name}: {value}\n"));
        }
        for (name, found) in self.properties.iter().filter(|(_, found)| !found.is_empty()) {
            out.push_str(&format!("  VIOLATED {name} ({} findings)\n", found.len()));
            for finding in found.iter().take(crate::properties::SHOWN) {
                out.push_str(&format!("    {finding}\n"));
            }
        }
        for failure in &self.failures {
            out.push_str(&format!("  FAILED {failure}\n"));
        }
        for skipped in &self.skipped {
            out.push_str(&format!("  skipped {skipped}\n"));
        }
        if self.clean() {
            out.push_str(&format!("  all {} properties hold\n", self.properties.len()));
        }
        out
    }
}
