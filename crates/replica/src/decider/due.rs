//! What has a deadline, in the order in which it comes. Absent on purpose: ending it (`core` does).

use std::collections::{BTreeSet, HashMap};

use placet_core::evaluate::{Due, due_changes};
use placet_core::event::Event;
use placet_core::stamp::Stamp;
use placet_core::state::{List, ReadError};

/// Records read at once when the agenda is rebuilt: few, because an approval may hold as much as a request.
const PAGE: usize = 32;

/// Open permits and approvals by their deadline.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Stamp, Due)>,
    /// Never walked: names are random, and a tree of them compares a dozen for each step.
    times: HashMap<Due, Stamp>,
}

impl Agenda {
    /// Everything that is open in `state`.
    pub(super) fn of(state: &impl List) -> Result<Self, ReadError> {
        let mut agenda = Self::default();
        let mut after = None;
        loop {
            let page = state.open_permits(after, PAGE)?;
            after = page.last().map(|(_, permit)| permit.index);
            let last = page.len() < PAGE;
            page.into_iter().for_each(|(id, permit)| agenda.add(permit.deadline, Due::Permit(id)));
            if last {
                break;
            }
        }
        let mut after = None;
        loop {
            let page = state.open_approvals(after.as_ref(), PAGE)?;
            after = page.last().map(|approval| approval.approval_id.clone());
            let last = page.len() < PAGE;
            page.into_iter().for_each(|open| agenda.add(open.deadline, Due::Approval(open.approval_id)));
            if last {
                break;
            }
        }
        Ok(agenda)
    }

    /// Follows an event.
    pub(super) fn follow(&mut self, event: &Event) {
        let (opened, ended) = due_changes(event);
        if let Some(due) = ended {
            self.remove(&due);
        }
        if let Some((at, due)) = opened {
            self.add(at, due);
        }
    }

    fn add(&mut self, at: Stamp, due: Due) {
        self.remove(&due);
        self.times.insert(due.clone(), at);
        self.by_time.insert((at, due));
    }

    pub(super) fn remove(&mut self, due: &Due) {
        if let Some(at) = self.times.remove(due) {
            self.by_time.remove(&(at, due.clone()));
        }
    }

    /// The first thing whose deadline is reached.
    pub(super) fn reached(&self, now: Stamp) -> Option<Due> {
        self.by_time.first().filter(|(at, _)| *at <= now).map(|(_, due)| due.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }
}
