//! Architecture §7.3: an intent has at most one of result, expiry; a second report is refused.

use std::collections::BTreeMap;

use placet_core::event::{Body, Entry};
use placet_core::ids::{EvidenceIndex, PermitId};
use placet_core::op::{Answer, Op};
use placet_core::state::PermitStatus;

use super::{End, Property, Told};

#[derive(Debug, Default)]
pub struct OneFate {
    /// The entry that ended each intent.
    ends: BTreeMap<EvidenceIndex, EvidenceIndex>,
    /// The accepted report of each permit.
    accepted: BTreeMap<PermitId, EvidenceIndex>,
}

impl Property for OneFate {
    fn name(&self) -> &'static str {
        "one fate"
    }

    fn entry(&mut self, entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        let intent = match &entry.body {
            Body::ExecResult(result) => result.intent,
            Body::ReservationExpired(ended) => ended.intent,
            _ => return Ok(()),
        };
        match self.ends.insert(intent, entry.index) {
            Some(before) => Err(format!("intent {intent} ended at {before} and again at {}", entry.index)),
            None => Ok(()),
        }
    }

    fn told(&mut self, told: &Told) -> Result<(), String> {
        let (Op::Report(body), Some(Ok(Answer::Report(reply)))) = (&told.op, &told.answer) else { return Ok(()) };
        if !reply.accepted {
            return Ok(());
        }
        let body: serde_json::Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let Some(permit) = body["permit_id"].as_str() else { return Ok(()) };
        match self.accepted.insert(PermitId::new(permit), reply.evidence_id) {
            Some(before) if before != reply.evidence_id => {
                Err(format!("a permit was reported at {before} and again at {}", reply.evidence_id))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, end: &End<'_>) -> Result<(), String> {
        for permit in end.state.permits.values() {
            let ended = self.ends.contains_key(&permit.index);
            if (permit.status == PermitStatus::Held) == ended {
                return Err(format!("intent {} is {:?}, ended by an entry: {ended}", permit.index, permit.status));
            }
        }
        let open = end.state.permits.values().filter(|permit| permit.status == PermitStatus::Held).count() as u64;
        if open != end.state.meta.open_permits {
            return Err(format!("{open} permits are open, {} are counted", end.state.meta.open_permits));
        }
        // Every deadline passed before the end, so nothing may be left open.
        if open > 0 { Err(format!("{open} permits never ended")) } else { Ok(()) }
    }
}
