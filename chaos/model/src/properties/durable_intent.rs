//! Durable intent (architecture §7.1): every permit that a client ever received is in the committed log. So is every
//! other fact that an answer names.
//! Absent on purpose: what was not told. A permit that only the log knows is a lost answer, and no harm.

use placet_core::event::{Body, Event};
use placet_core::op::Answer;
use placet_core::reply::DecideReply;

use super::Property;
use crate::log::History;
use crate::system::{News, System};
use crate::world::{What, World, request_id};

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct DurableIntent;

impl Property for DurableIntent {
    fn name(&self) -> &'static str {
        "durable intent"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.1"
    }

    fn of_state(&self, world: &World, system: &System, _news: &News) -> Result<(), String> {
        for heard in &system.clients.heard {
            let Some(permit) = &heard.permit else { continue };
            let Some(event) = system.history.event(heard.evidence) else {
                return Err(format!("permit {permit} was told, and `{}` is not committed", heard.evidence));
            };
            let Body::ExecIntent(decided) = &event.entry.body else {
                return Err(format!("permit {permit} was told, and `{}` is no intent", heard.evidence));
            };
            if event.permit_id.as_ref() != Some(permit) || decided.permit_digest != Some(permit.digest()) {
                return Err(format!("permit {permit} was told, and `{}` is the intent of another", heard.evidence));
            }
            let resumed = world.call(heard.call).is_some_and(|spec| matches!(spec.what, What::Resume { .. }));
            if !resumed && decided.request_id.as_str() != request_id(heard.request) {
                return Err(format!("permit {permit} was told for r{} and belongs to another request", heard.request));
            }
        }
        Ok(())
    }

    fn of_answers(&self, _world: &World, system: &System, news: &News) -> Result<(), String> {
        let mut answers = news.told.iter().filter_map(|(_, spoken)| spoken.answer.as_ref().ok());
        answers.try_for_each(|answer| recorded(&system.history, answer))
    }
}

/// Whether the fact that an answer names is in the log, and is that fact.
fn recorded(log: &History, answer: &Answer) -> Result<(), String> {
    let named = |index: &str| log.events.iter().find(|event| event.entry.index.to_string() == index);
    let found = match answer {
        Answer::Decide(reply) => named(&reply.evidence_id.to_string()).is_some_and(|event| says(event, reply)),
        Answer::Report(reply) => named(&reply.evidence_id.to_string())
            .is_some_and(|event| reply.accepted == matches!(event.entry.body, Body::ExecResult(_))),
        Answer::KillSwitch(view) => {
            let event = view.evidence_id.as_deref().and_then(named);
            event.is_some_and(|event| {
                matches!(&event.entry.body, Body::KillSwitch(set) if set.engaged == view.engaged && set.scope == view.scope)
            })
        }
        Answer::Approval(view) => log.events.iter().any(|event| {
            matches!(&event.entry.body, Body::ApprovalTransition(change)
                if change.approval_id == view.approval_id && change.to == view.state)
        }),
        _ => true,
    };
    if found { Ok(()) } else { Err(format!("an answer was given that the log does not hold: {answer:?}")) }
}

fn says(event: &Event, reply: &DecideReply) -> bool {
    match &event.entry.body {
        Body::Decision(decided) | Body::ExecIntent(decided) => {
            (decided.verdict, decided.reason) == (reply.verdict, reply.reason) && event.permit_id == reply.permit_id
        }
        Body::ReplayMismatch(_) | Body::MalformedRequest(_) => reply.permit_id.is_none(),
        _ => false,
    }
}
