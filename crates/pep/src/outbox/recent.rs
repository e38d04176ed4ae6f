//! Names of what was done here, as far back as the bound goes.
//! Absent on purpose: the disk. What must outlive this process is written down by the parent.

use std::collections::{HashSet, VecDeque};

/// A set that forgets the oldest when it is full.
#[derive(Debug)]
pub(super) struct Recent {
    known: HashSet<String>,
    order: VecDeque<String>,
    most: usize,
}

impl Recent {
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashSet::new(), order: VecDeque::new(), most }
    }

    /// Whether it was not known; from now on it is.
    pub(super) fn claim(&mut self, name: &str) -> bool {
        if !self.known.insert(name.to_owned()) {
            return false;
        }
        self.order.push_back(name.to_owned());
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    /// Nothing was done under it after all.
    pub(super) fn forget(&mut self, name: &str) {
        if self.known.remove(name) {
            self.order.retain(|known| known != name);
        }
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &String> {
        self.order.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
