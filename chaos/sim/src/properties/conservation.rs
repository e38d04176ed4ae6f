//! Architecture §7.2: settled + reserved never exceeds the limit, per budget and window. Counted twice: in the counters
//! of every state, and again from the entries alone.

use std::collections::BTreeMap;

use placet_core::event::{Body, Draw, Entry};
use placet_core::exact::Amount;
use placet_core::state::Changes;

use super::Property;
use crate::disk::StateContent;
use crate::policy::limit_of;

type Key = (String, String);

#[derive(Debug, Default)]
pub struct Conservation {
    spent: BTreeMap<Key, Amount>,
    /// The position behind the entries that were counted.
    next: u64,
}

fn key(draw: &Draw) -> Key {
    (draw.budget.clone(), draw.window.clone())
}

impl Property for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn entry(&mut self, entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        self.next = entry.index.0 + 1;
        match &entry.body {
            Body::ExecIntent(intent) => {
                for draw in &intent.draws {
                    let spent = self.spent.entry(key(draw)).or_insert(Amount::ZERO);
                    *spent = spent.checked_add(draw.amount).ok_or("a sum that does not fit")?;
                    let Some(limit) = limit_of(&draw.budget) else {
                        return Err(format!("intent {} draws on `{}`, which is no budget", entry.index, draw.budget));
                    };
                    if *spent > limit {
                        return Err(format!("intent {}: {:?} holds {spent} of {limit}", entry.index, key(draw)));
                    }
                }
            }
            Body::ReservationReleased(ended) | Body::ReservationExpired(ended) => {
                for draw in &ended.released {
                    let spent = self.spent.entry(key(draw)).or_insert(Amount::ZERO);
                    if *spent < draw.amount {
                        return Err(format!("entry {} gives back {} of {spent}", entry.index, draw.amount));
                    }
                    *spent = spent.minus_clamped(draw.amount);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn written(&mut self, node: u64, state: &StateContent, changes: &Changes) -> Result<(), String> {
        for (key, counter) in &changes.counters {
            let Some(limit) = limit_of(&key.budget) else { continue };
            let held = counter.consumed(i64::MIN).ok_or("a counter whose sum does not fit")?;
            if held > limit || held.is_negative() {
                return Err(format!("node {node}: counter {key:?} holds {held} of {limit}"));
            }
            // The counters of a node that is behind are older than the sums.
            if state.mem.meta.next_index.0 == self.next {
                let counted = self.spent.get(&(key.budget.clone(), key.window.clone())).copied();
                if counted.unwrap_or(Amount::ZERO) != held {
                    return Err(format!("node {node}: counter {key:?} holds {held}, the entries say {counted:?}"));
                }
            }
        }
        Ok(())
    }
}
