//! What this machine lets a run do. What is missing is skipped, and the summary says so.
//! Absent on purpose: installing anything; `./dev` does that.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Means {
    pub packet_filter: bool,
    pub random_loss: bool,
    pub small_disks: bool,
    pub clocks: bool,
    pub compiler: bool,
}

impl Means {
    /// Tries everything, inside the sandbox.
    pub fn found(scratch: &Path) -> Self {
        let nft = |rule: &str| {
            let rules = format!(
                "add table ip probe; add chain ip probe c {{ type filter hook input priority 0; }}; {rule}; delete table ip probe"
            );
            Command::new("nft").arg(rules).output().is_ok_and(|output| output.status.success())
        };
        let disk = scratch.join("probe-disk");
        let small_disks = crate::disk::Disks::mount_small(&disk, 1).is_ok()
            && Command::new("umount").arg(&disk).status().is_ok_and(|status| status.success());
        // An empty folder in the way of nobody, if it stays.
        let _ = std::fs::remove_dir(&disk);
        Self {
            packet_filter: nft("add rule ip probe c ip saddr 10.99.0.1 drop"),
            random_loss: nft("add rule ip probe c ip saddr 10.99.0.1 numgen random mod 1000 < 5 drop"),
            small_disks,
            clocks: crate::clock::available(),
            compiler: Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success()),
        }
    }

    /// What a run has to leave out, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            (self.packet_filter, "cuts and partitions: no nftables"),
            (self.random_loss, "random packet loss: no nftables with numgen"),
            (self.small_disks, "full disks: no tmpfs can be mounted"),
            (self.clocks, "shifted clocks: no libfaketime"),
            (self.compiler, "failing fsync: no C compiler"),
        ]
        .into_iter()
        .filter(|(there, _)| !there)
        .map(|(_, what)| what)
        .collect()
    }
}
