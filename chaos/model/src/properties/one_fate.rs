//! One fate (architecture §7.3): an intent has at most one of result and expiry; a second report is refused.
//! Absent on purpose: which of the two. A race at the deadline may go either way, but only one way.

use placet_core::event::Body;
use placet_core::op::Answer;

use super::{Property, View};
use crate::ledger::{End, intents};
use crate::system::{News, System};
use crate::world::World;

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct OneFate;

impl Property for OneFate {
    fn name(&self) -> &'static str {
        "one fate"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.3"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        for intent in intents(&view.history.events)? {
            if intent.ends.len() > 1 {
                return Err(format!("intent `{}` has {} ends: {:?}", intent.index, intent.ends.len(), intent.ends));
            }
            let Some(deadline) = intent.decided.deadline else {
                return Err(format!("intent `{}` has no deadline", intent.index));
            };
            for (end, at, how) in &intent.ends {
                let late = *at >= deadline;
                if late != (*how == End::Expired) {
                    return Err(format!("`{end}` ends `{}` at {at}, whose deadline is {deadline}", intent.index));
                }
            }
        }
        // What is released ends in the same breath: its result stands right behind it.
        let events = &view.history.events;
        for (at, event) in events.iter().enumerate() {
            let Body::ReservationReleased(released) = &event.entry.body else { continue };
            let next = events.get(at + 1).map(|next| &next.entry.body);
            if !matches!(next, Some(Body::ExecResult(result)) if result.intent == released.intent) {
                return Err(format!("`{}` releases a reservation that has no result", event.entry.index));
            }
        }
        Ok(())
    }

    fn of_state(&self, _world: &World, system: &System, _news: &News) -> Result<(), String> {
        match system.clients.accepted.iter().position(|times| *times > 1) {
            Some(request) => Err(format!("two reports about the permit of r{request} were accepted")),
            None => Ok(()),
        }
    }

    fn of_answers(&self, world: &World, system: &System, news: &News) -> Result<(), String> {
        for (call, spoken) in &news.told {
            let Ok(Answer::Report(reply)) = &spoken.answer else { continue };
            let Some(event) = system.history.event(reply.evidence_id).filter(|_| reply.accepted) else { continue };
            let sender = world.call(*call).map(|spec| spec.principal);
            if sender != Some(event.entry.principal.as_str()) {
                return Err(format!("a report of {sender:?} ended the permit of {}", event.entry.principal));
            }
        }
        Ok(())
    }
}
