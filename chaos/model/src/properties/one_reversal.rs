//! One reversal (ARCHITECTURE, of the same name): an intent is reversed by at most one permit at a time, of the same
//! principal with the same arguments, and only after it succeeded.
//! Absent on purpose: doubt in favour of the client. A reversal that expired may have happened, so it counts.

use placet_core::request::Outcome;

use super::{Property, View};
use crate::ledger::{End, Intent, intents};

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct OneReversal;

impl Property for OneReversal {
    fn name(&self) -> &'static str {
        "one reversal"
    }

    fn stated(&self) -> &'static str {
        "ARCHITECTURE: one reversal"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        let intents = intents(&view.history.events)?;
        for reversal in &intents {
            let (Some(of), here) = (reversal.decided.undo_of, reversal.index) else { continue };
            let Some(original) = intents.iter().find(|intent| intent.index == of) else {
                return Err(format!("`{here}` reverses `{of}`, which is no intent"));
            };
            let ended_before = |intent: &Intent<'_>| intent.ends.first().filter(|(at, ..)| *at < here).map(|end| end.2);
            let succeeded = matches!(ended_before(original), Some(End::Result { outcome: Outcome::Success, .. }));
            let open = original.decided.undo_until.is_some_and(|until| reversal.at < until);
            if !succeeded || !open {
                return Err(format!("`{here}` reverses `{of}`, which cannot be reversed then"));
            }
            if original.principal != reversal.principal || original.decided.params != reversal.decided.params {
                return Err(format!("`{here}` reverses `{of}` for somebody else, or something else"));
            }
            let others = intents.iter().filter(|other| other.decided.undo_of == Some(of) && other.index < here);
            for other in others {
                if !ended_before(other).is_some_and(End::nothing_happened) {
                    return Err(format!("`{of}` is reversed by `{}` and by `{here}`", other.index));
                }
            }
        }
        Ok(())
    }
}
