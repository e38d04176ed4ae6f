//! What was computed before: the subject is a function, so the same arguments are never given to it twice in a row.
//! Absent on purpose: a memory of everything. States that are explored one after the other ask alike, so what was not
//! asked for a while is forgotten.

use std::collections::HashMap;

use crate::identity::Id;

/// Answers that are kept for sure.
const KEPT: usize = 2_000;

/// Answers by the name of their question.
#[derive(Debug)]
pub struct Memory<T> {
    young: HashMap<Id, T>,
    old: HashMap<Id, T>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T: Clone> Memory<T> {
    /// What is known.
    pub fn get(&mut self, id: Id) -> Option<T> {
        if let Some(found) = self.young.get(&id) {
            return Some(found.clone());
        }
        let found = self.old.remove(&id)?;
        self.put(id, found.clone());
        Some(found)
    }

    /// Keeps an answer.
    pub fn put(&mut self, id: Id, answer: T) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, answer);
    }
}
