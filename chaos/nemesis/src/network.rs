//! The network between nodes: cuts, one-way cuts and random loss by packet filters in the nodes' own namespaces, and
//! latency by a relay in front of every peer door.
//! Absent on purpose: the kernel's `netem`, which the machines that run this do not have.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::cluster::PEER_PORT;
use crate::sandbox::{Sandbox, address, relay_address};

/// The filters of all nodes.
#[derive(Debug)]
pub struct Network {
    sandbox: Sandbox,
    /// `(from, to)`: calls of `from` to `to` do not arrive.
    cuts: BTreeSet<(u64, u64)>,
    /// Packets in a thousand that are lost on the way to a node.
    loss: u64,
}

impl Network {
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, cuts: BTreeSet::new(), loss: 0 }
    }

    /// Nothing that `from` sends to the peer door of `to` arrives; calls the other way do.
    pub fn cut_one_way(&mut self, from: u64, to: u64) -> anyhow::Result<()> {
        self.cuts.insert((from, to));
        self.apply(from)
    }

    /// Cuts a node off from the others, both ways. Clients reach it.
    pub fn cut_off(&mut self, node: u64, others: &[u64]) -> anyhow::Result<()> {
        for other in others.iter().filter(|other| **other != node) {
            self.cut_one_way(node, *other)?;
            self.cut_one_way(*other, node)?;
        }
        Ok(())
    }

    /// Loses packets at random on the way to each of these nodes' peer doors, and on the way back.
    pub fn lose(&mut self, per_thousand: u64, nodes: &[u64]) -> anyhow::Result<()> {
        self.loss = per_thousand;
        nodes.iter().try_for_each(|node| self.apply(*node))
    }

    /// Everything arrives again.
    pub fn heal(&mut self, nodes: &[u64]) -> anyhow::Result<()> {
        self.cuts.clear();
        self.loss = 0;
        nodes.iter().try_for_each(|node| self.apply(*node))
    }

    fn apply(&self, node: u64) -> anyhow::Result<()> {
        let mut rules = String::from("add table ip faults\ndelete table ip faults\nadd table ip faults\n");
        rules.push_str("add chain ip faults out { type filter hook output priority 0; policy accept; }\n");
        rules.push_str("add chain ip faults in { type filter hook input priority 0; policy accept; }\n");
        for (_, to) in self.cuts.iter().filter(|(from, _)| *from == node) {
            let (direct, relay) = (address(*to), relay_address(*to));
            writeln!(rules, "add rule ip faults out ip daddr {{ {direct}, {relay} }} tcp dport {PEER_PORT} drop")?;
        }
        if self.loss > 0 {
            for (chain, port) in [("in", "dport"), ("in", "sport")] {
                writeln!(
                    rules,
                    "add rule ip faults {chain} tcp {port} {PEER_PORT} numgen random mod 1000 < {} drop",
                    self.loss
                )?;
            }
        }
        filter(&self.sandbox.node(node), &rules)
    }
}

fn filter(namespace: &str, rules: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace, "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no pipe to nft")?.write_all(rules.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("nft in {namespace}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
