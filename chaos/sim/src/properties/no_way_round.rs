//! Architecture §7.5: no permit has a log position after an engaged kill switch. And what that means for those who ask:
//! whoever asks after the switch was reported engaged gets no new permit.

use placet_core::event::{Body, Entry};
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, Op};
use placet_core::reply::Verdict;
use tokio::time::Instant;

use super::{Property, Told};

#[derive(Debug, Default)]
pub struct NoWayRound {
    engaged_at: Option<EvidenceIndex>,
    /// Entries of engagements and releases, in order.
    switches: Vec<(EvidenceIndex, bool)>,
    /// Between these the operator knows that it is engaged: from the answer to "engage" until "release" is asked.
    known: Vec<(Instant, Option<Instant>)>,
}

impl Property for NoWayRound {
    fn name(&self) -> &'static str {
        "no way round the switch"
    }

    fn entry(&mut self, entry: &Entry, _bytes: &[u8]) -> Result<(), String> {
        match (&entry.body, self.engaged_at) {
            (Body::KillSwitch(set), _) if set.scope.is_none() => {
                self.switches.push((entry.index, set.engaged));
                self.engaged_at = set.engaged.then_some(entry.index);
            }
            (Body::ExecIntent(_), Some(since)) => {
                return Err(format!("intent {} was given, the switch is engaged since {since}", entry.index));
            }
            _ => {}
        }
        Ok(())
    }

    fn asked(&mut self, op: &Op) {
        if let (Op::SetKillSwitch { engaged: false, .. }, Some((_, end @ None))) = (op, self.known.last_mut()) {
            *end = Some(Instant::now());
        }
    }

    fn told(&mut self, told: &Told) -> Result<(), String> {
        match (&told.op, &told.answer) {
            (Op::SetKillSwitch { engaged: true, .. }, Some(Ok(Answer::KillSwitch(view))))
                if view.engaged && self.known.last().is_none_or(|(_, end)| end.is_some()) =>
            {
                self.known.push((Instant::now(), None));
            }
            (Op::Decide(_), Some(Ok(Answer::Decide(reply)))) if reply.verdict == Verdict::Permit && !reply.replayed => {
                let now = Instant::now();
                let known = self
                    .known
                    .iter()
                    .rev()
                    .any(|(since, until)| told.sent > *since && until.is_none_or(|until| now <= until));
                // An answer that was on its way since before the switch names an entry before it.
                let engaged = self.switches.iter().rev().find(|(_, engaged)| *engaged).map(|(at, _)| *at);
                if known && engaged.is_some_and(|at| reply.evidence_id > at) {
                    return Err(format!("permit {} was given to who asked under the switch", reply.evidence_id));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
