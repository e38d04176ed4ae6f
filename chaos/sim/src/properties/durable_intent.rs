//! Architecture §7.1: every permit that a client ever received is in the log of a quorum, on disk, before it leaves.

use std::collections::BTreeMap;

use placet_core::ids::{EvidenceIndex, PermitId};
use placet_core::op::Answer;
use placet_core::reply::Verdict;

use super::{End, Property, Told};

#[derive(Debug, Default)]
pub struct DurableIntent {
    told: BTreeMap<PermitId, EvidenceIndex>,
}

impl Property for DurableIntent {
    fn name(&self) -> &'static str {
        "durable intent"
    }

    fn told(&mut self, told: &Told) -> Result<(), String> {
        let Some(Ok(Answer::Decide(reply))) = &told.answer else { return Ok(()) };
        if reply.verdict != Verdict::Permit {
            return Ok(());
        }
        let Some(id) = &reply.permit_id else { return Err(format!("a permit without an id: {reply:?}")) };
        if let Some(copies) = told.copies
            && copies.durable < copies.needed
        {
            let evidence = reply.evidence_id;
            return Err(format!(
                "permit {evidence} left while it was durable on {} nodes of {} needed",
                copies.durable, copies.needed
            ));
        }
        self.told.insert(id.clone(), reply.evidence_id);
        Ok(())
    }

    fn end(&mut self, end: &End<'_>) -> Result<(), String> {
        for (id, index) in &self.told {
            let found = end.state.permits.get(id);
            if found.map(|permit| permit.index) != Some(*index) {
                return Err(format!("a client holds permit {index}, the state holds {found:?}"));
            }
        }
        Ok(())
    }
}
