//! Same answer (architecture §7.6): one request id, one verdict and reason, whichever node answers, before and after a
//! change of the leader. Whoever sends another body, or is somebody else, hears the same and receives no capability.
//! Absent on purpose: the wording. Text for humans may differ.

use std::collections::BTreeMap;

use placet_core::event::Body;

use super::{Property, View};
use crate::system::{Heard, News, System};
use crate::world::{What, World};

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct SameAnswer;

impl Property for SameAnswer {
    fn name(&self) -> &'static str {
        "same answer"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.6"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        let mut decided = BTreeMap::new();
        for event in &view.history.events {
            let (Body::Decision(now) | Body::ExecIntent(now)) = &event.entry.body else { continue };
            if let Some(before) = decided.insert(now.request_id.clone(), event.entry.index) {
                let id = &now.request_id;
                return Err(format!("request id `{id}` was decided by `{before}` and by `{}`", event.entry.index));
            }
        }
        Ok(())
    }

    fn of_state(&self, world: &World, system: &System, _news: &News) -> Result<(), String> {
        let asked = |heard: &Heard| world.call(heard.call).map(|spec| (spec.principal, &spec.what));
        let decides = |heard: &&Heard| matches!(asked(heard), Some((_, What::Decide { .. })));
        let heard: Vec<&Heard> = system.clients.heard.iter().filter(decides).collect();
        for (at, one) in heard.iter().enumerate() {
            for two in heard.iter().skip(at + 1).filter(|two| two.request == one.request) {
                if (one.verdict, one.reason) != (two.verdict, two.reason) {
                    return Err(format!("r{} was answered twice: {one:?} and {two:?}", one.request));
                }
                let (Some(first), Some(second)) = (&one.permit, &two.permit) else { continue };
                if first != second || !same(asked(one), asked(two)) {
                    return Err(format!("the permit of r{} was told to two: {one:?} and {two:?}", one.request));
                }
            }
        }
        Ok(())
    }
}

/// Whether two calls are the same words of the same sender.
fn same(one: Option<(&str, &What)>, two: Option<(&str, &What)>) -> bool {
    let said = |asked: Option<(&str, &What)>| match asked {
        Some((who, What::Decide { action, params, approval_of, undo_of, .. })) => {
            Some((who.to_owned(), *action, params.clone(), *approval_of, *undo_of))
        }
        _ => None,
    };
    said(one) == said(two)
}
