//! Architecture §7.4: an approval is consumed at most once; one human decision, one permit.

use std::collections::BTreeMap;

use placet_core::event::{ApprovalState, Body, Entry};
use placet_core::ids::{ApprovalId, EvidenceIndex};

use super::Property;

#[derive(Debug, Default)]
pub struct SingleUse {
    /// Where each approval was granted, and what consumed it.
    granted: BTreeMap<ApprovalId, EvidenceIndex>,
    consumed: BTreeMap<ApprovalId, EvidenceIndex>,
}

impl Property for SingleUse {
    fn name(&self) -> &'static str {
        "single use"
    }

    fn entry(&mut self, entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        match &entry.body {
            Body::ApprovalTransition(change) => match change.to {
                ApprovalState::Approved => drop(self.granted.insert(change.approval_id.clone(), entry.index)),
                _ => drop(self.granted.remove(&change.approval_id)),
            },
            Body::ExecIntent(intent) if intent.action_type.as_str() == "pay" => {
                let Some(id) = intent.approval_ref.clone().filter(|_| intent.resumes.is_some()) else {
                    return Err(format!("intent {} needs a human and names no approval", entry.index));
                };
                if !self.granted.contains_key(&id) {
                    return Err(format!("intent {} used an approval that was not granted", entry.index));
                }
                if let Some(before) = self.consumed.insert(id, entry.index) {
                    return Err(format!("one approval gave intent {before} and intent {}", entry.index));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
