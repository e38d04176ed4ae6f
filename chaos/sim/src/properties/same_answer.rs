//! Architecture §7.6: one request_id, one verdict and reason, whichever node answers, before and after failover. Also:
//! who was told of an entry is never told of a cluster that does not have it yet.

use std::collections::BTreeMap;

use placet_core::event::{Body, Entry};
use placet_core::ids::{EvidenceIndex, PermitId};
use placet_core::op::{Answer, Op, Query};
use placet_core::reply::{Reason, Verdict};
use tokio::time::Instant;

use super::{Property, Told};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    verdict: Verdict,
    reason: Reason,
    evidence: EvidenceIndex,
    permit: Option<PermitId>,
}

#[derive(Debug, Default)]
pub struct SameAnswer {
    given: BTreeMap<String, Given>,
    decided: BTreeMap<String, EvidenceIndex>,
    /// When a client learned of an entry, for the highest entry learned by then.
    learned: Vec<(Instant, EvidenceIndex)>,
}

impl SameAnswer {
    fn learn(&mut self, index: EvidenceIndex) {
        if self.learned.last().is_none_or(|(_, highest)| index > *highest) {
            self.learned.push((Instant::now(), index));
        }
    }
}

impl Property for SameAnswer {
    fn name(&self) -> &'static str {
        "same answer"
    }

    fn entry(&mut self, entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        let (Body::ExecIntent(decided) | Body::Decision(decided)) = &entry.body else { return Ok(()) };
        match self.decided.insert(decided.request_id.to_string(), entry.index) {
            Some(before) => Err(format!("{} was decided at {before} and at {}", decided.request_id, entry.index)),
            None => Ok(()),
        }
    }

    fn told(&mut self, told: &Told) -> Result<(), String> {
        match (&told.op, &told.answer) {
            (Op::Decide(_), Some(Ok(Answer::Decide(reply)))) => {
                self.learn(reply.evidence_id);
                let Some(id) = &reply.request_id else { return Ok(()) };
                let now = Given {
                    verdict: reply.verdict,
                    reason: reply.reason,
                    evidence: reply.evidence_id,
                    permit: reply.permit_id.clone(),
                };
                match self.given.get(id.as_str()) {
                    Some(before) if *before != now => Err(format!("{id} was answered {before:?} and then {now:?}")),
                    _ => {
                        self.given.insert(id.to_string(), now);
                        Ok(())
                    }
                }
            }
            (Op::Report(_), Some(Ok(Answer::Report(reply)))) => {
                self.learn(reply.evidence_id);
                Ok(())
            }
            (Op::Query(Query::Position), Some(Ok(Answer::Position(at)))) => {
                let known = self.learned.iter().rev().find(|(when, _)| *when < told.sent);
                match known {
                    Some((_, index)) if at < index => {
                        Err(format!("a read ended at {at} after a client had been told of {index}"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
