//! Open work (architecture §7, last paragraph): an intent without a result is listed, and waits for its deadline; so
//! does an approval. What has ended waits for nothing.
//! Absent on purpose: that time comes. Whoever waits is on the agenda; that the agenda is looked at is the replica's.

use std::collections::BTreeSet;

use placet_core::evaluate::{Due, due_changes};
use placet_core::event::ApprovalState;
use placet_core::state::PermitStatus;

use super::{Property, View};
use crate::ledger::intents;

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct OpenWork;

impl Property for OpenWork {
    fn name(&self) -> &'static str {
        "open work"
    }

    fn stated(&self) -> &'static str {
        "architecture §7, last paragraph"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        let records = &view.applied.records;
        let intents = intents(&view.history.events)?;
        let unresolved = intents.iter().filter(|intent| intent.ends.is_empty());
        let unresolved: BTreeSet<Due> =
            unresolved.filter_map(|intent| intent.permit.cloned()).map(Due::Permit).collect();
        let held = records.permits.iter().filter(|(_, permit)| permit.status == PermitStatus::Held);
        let held: BTreeSet<Due> = held.map(|(id, _)| Due::Permit(id.clone())).collect();
        if held != unresolved {
            return Err(format!("open permits are {held:?}; intents without an end are {unresolved:?}"));
        }
        let pending = records.approvals.values().filter(|one| one.state == ApprovalState::Pending).count();
        let counted = (records.meta.open_permits, records.meta.pending_approvals);
        if counted != (held.len() as u64, pending as u64) {
            return Err(format!("{counted:?} permits and approvals are counted as open"));
        }
        let open = |state| matches!(state, ApprovalState::Pending | ApprovalState::Approved);
        let approvals = records.approvals.values().filter(|one| open(one.state));
        let mut waiting = held;
        waiting.extend(approvals.map(|one| Due::Approval(one.approval_id.clone())));
        let mut agenda = BTreeSet::new();
        for event in &view.history.events {
            let (added, removed) = due_changes(event);
            if let Some(removed) = removed {
                agenda.remove(&removed);
            }
            agenda.extend(added.map(|(_, due)| due));
        }
        if agenda == waiting { Ok(()) } else { Err(format!("{agenda:?} is on the agenda and {waiting:?} is open")) }
    }
}
