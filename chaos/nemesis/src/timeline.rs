//! What happened when: faults as intervals, leaders as they change.
//! Absent on purpose: calls, which the journal holds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::cluster;
use crate::doors::Doors;
use crate::journal::{Journal, Micros};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub kind: String,
    /// Whose; 0 for the network between all.
    pub node: u64,
    pub from: Micros,
    pub until: Option<Micros>,
}

/// A node that leads from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Leader {
    pub node: u64,
    pub term: u64,
    pub from: Micros,
}

#[derive(Debug, Default)]
struct Seen {
    faults: Vec<Fault>,
    leaders: Vec<Leader>,
}

/// The timeline of one run; cheap to clone.
#[derive(Clone, Debug)]
pub struct Timeline {
    journal: Arc<Journal>,
    seen: Arc<Mutex<Seen>>,
}

impl Timeline {
    pub fn new(journal: Arc<Journal>) -> Self {
        Self { journal, seen: Arc::default() }
    }

    /// A fault begins; returns its number.
    pub fn begin(&self, kind: &str, node: u64) -> usize {
        let from = self.journal.now();
        let mut seen = self.seen.lock();
        seen.faults.push(Fault { kind: kind.to_owned(), node, from, until: None });
        seen.faults.len().saturating_sub(1)
    }

    pub fn end(&self, number: usize) {
        let until = self.journal.now();
        if let Some(fault) = self.seen.lock().faults.get_mut(number) {
            fault.until = Some(until);
        }
    }

    /// Says where a fault is, from now on.
    pub fn begins_at(&self, number: usize, node: u64) {
        let from = self.journal.now();
        if let Some(fault) = self.seen.lock().faults.get_mut(number) {
            (fault.node, fault.from) = (node, from);
        }
    }

    /// Says what a fault turned out to be.
    pub fn was(&self, number: usize, kind: &str) {
        if let Some(fault) = self.seen.lock().faults.get_mut(number) {
            kind.clone_into(&mut fault.kind);
        }
    }

    pub fn faults(&self) -> Vec<Fault> {
        self.seen.lock().faults.clone()
    }

    pub fn leaders(&self) -> Vec<Leader> {
        self.seen.lock().leaders.clone()
    }

    fn leads(&self, node: u64, term: u64) {
        let from = self.journal.now();
        let mut seen = self.seen.lock();
        // A node that is cut off goes on believing in its old term.
        let known = seen.leaders.iter().map(|leader| leader.term).max().unwrap_or_default();
        if term > known {
            seen.leaders.push(Leader { node, term, from });
        }
    }

    /// Asks every node again and again who leads and how far it is.
    pub fn watch(&self, doors: Doors, nodes: Vec<u64>) -> JoinHandle<()> {
        let timeline = self.clone();
        tokio::spawn(async move {
            loop {
                let asked = nodes.iter().map(|node| {
                    let view = cluster::view(&doors, *node);
                    tokio::time::timeout(Duration::from_millis(400), view)
                });
                for view in futures::future::join_all(asked).await.into_iter().flatten().flatten() {
                    timeline.journal.head_seen(view.node, view.evidence, &view.head);
                    if view.leader == Some(view.node) {
                        timeline.leads(view.node, view.term);
                    }
                }
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        })
    }
}
