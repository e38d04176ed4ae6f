//! Campaigns: which faults, how many, and what is measured while they happen.
//! Absent on purpose: checks of their own where a property has one.

pub mod crash_points;
pub mod cut_off;
pub mod faults;
pub mod kills;
pub mod leader_loss;
pub mod mixed;
pub mod rolling;
pub mod upgrade;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cluster::Shape;
use crate::load::Pace;
use crate::run::Plan;

/// Where the binaries are, and where the files of runs go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The product, as it ships.
    pub binary: PathBuf,
    /// The product with its crash points.
    pub crashing: PathBuf,
    /// A folder for each run below this one.
    pub out: PathBuf,
    pub seed: u64,
}

impl Place {
    /// The usual plan of a campaign: three nodes, no relays, the usual load.
    pub fn plan(&self, campaign: &str) -> Plan {
        Plan {
            campaign: campaign.to_owned(),
            shape: Shape { binary: self.binary.clone(), nodes: 3, relayed: false, snapshots: None },
            pace: Pace::default(),
            seed: self.seed,
            preload: false,
            small_disks: BTreeMap::new(),
            begins_with: None,
            out: self.out.join(campaign),
        }
    }
}
