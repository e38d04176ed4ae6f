//! Intents and their ends, read from the facts of a log: a second account, kept without the core's counters.
//! Absent on purpose: judgement of it. A log in which an intent ends twice is read all the same, and a property says so.

use std::sync::Arc;

use placet_core::event::{Body, Decided, Event};
use placet_core::ids::{EvidenceIndex, PermitId, Principal};
use placet_core::request::Outcome;
use placet_core::stamp::Stamp;

/// How an intent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a report.
    Result {
        /// What happened.
        outcome: Outcome,
        /// And nothing came of it.
        no_effect: bool,
    },
    /// By its deadline.
    Expired,
}

impl End {
    /// The world is as it was before.
    pub fn nothing_happened(self) -> bool {
        matches!(self, Self::Result { outcome, no_effect } if outcome == Outcome::NotAttempted || no_effect)
    }
}

/// A permit, as the log tells it.
#[derive(Clone, Debug)]
pub struct Intent<'e> {
    /// Where it is recorded.
    pub index: EvidenceIndex,
    /// When.
    pub at: Stamp,
    /// To whom it was given.
    pub principal: &'e Principal,
    /// What was decided.
    pub decided: &'e Decided,
    /// The capability.
    pub permit: Option<&'e PermitId>,
    /// Its ends, and when and where each is recorded.
    pub ends: Vec<(EvidenceIndex, Stamp, End)>,
}

/// All intents of a log, in order.
pub fn intents(events: &[Arc<Event>]) -> Result<Vec<Intent<'_>>, String> {
    let mut found: Vec<Intent<'_>> = Vec::new();
    for event in events {
        let entry = &event.entry;
        let (intent, end) = match &entry.body {
            Body::ExecIntent(decided) => {
                found.push(Intent {
                    index: entry.index,
                    at: entry.at,
                    principal: &entry.principal,
                    decided,
                    permit: event.permit_id.as_ref(),
                    ends: Vec::new(),
                });
                continue;
            }
            Body::ExecResult(result) => {
                (result.intent, End::Result { outcome: result.outcome, no_effect: result.no_effect })
            }
            Body::ReservationExpired(ended) => (ended.intent, End::Expired),
            _ => continue,
        };
        let named = found.iter_mut().find(|one| one.index == intent);
        let named = named.ok_or_else(|| format!("`{}` ends `{intent}`, which is no intent", entry.index))?;
        named.ends.push((entry.index, entry.at, end));
    }
    Ok(found)
}
