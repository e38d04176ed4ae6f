//! Real-time order (architecture §1): what was answered before something else was asked stands before it in the
//! evidence. A permit that is asked for after the kill switch was acknowledged can therefore never stand before it, and
//! an answer of a leader that had lost its place would be found here.
//! Absent on purpose: what was asked at the same time; either order is right.

use super::Observed;
use crate::evidence::Fact;
use crate::journal::{Micros, Told};

/// A call that is known to have happened once, in an interval, at a position.
struct Happened {
    sent: Micros,
    answered: Micros,
    at: u64,
    what: String,
}

pub fn check(seen: &Observed) -> Vec<String> {
    let mut happened = happened(seen);
    happened.sort_by_key(|one| one.sent);
    let mut answered: Vec<usize> = (0..happened.len()).collect();
    answered.sort_by_key(|number| happened.get(*number).map(|one| one.answered));
    let mut answered = answered.into_iter().filter_map(|number| happened.get(number)).peekable();
    let mut latest: Option<&Happened> = None;
    let mut found = Vec::new();
    for one in &happened {
        while let Some(earlier) = answered.next_if(|earlier| earlier.answered < one.sent) {
            if latest.is_none_or(|latest| latest.at < earlier.at) {
                latest = Some(earlier);
            }
        }
        if let Some(latest) = latest.filter(|latest| latest.at >= one.at && latest.what != one.what) {
            found.push(format!(
                "{} stands at entry {}, and was asked after {} at entry {} was answered",
                one.what, one.at, latest.what, latest.at
            ));
        }
    }
    found
}

fn happened(seen: &Observed) -> Vec<Happened> {
    let mut all = Vec::new();
    for (request, known) in &seen.known.requests {
        if let Some(first) = known.answers.first() {
            let (sent, answered, at) = (known.first_sent, first.at, first.evidence);
            all.push(Happened { sent, answered, at, what: format!("request {request}") });
        }
    }
    for (permit, known) in &seen.known.permits {
        for report in &known.reports {
            if let Told::Accepted { evidence: at } = report.told {
                all.push(Happened {
                    sent: report.sent,
                    answered: report.at,
                    at,
                    what: format!("the report of {permit}"),
                });
            }
        }
    }
    for switch in &seen.known.switches {
        let recorded = seen
            .entries
            .iter()
            .find(|entry| matches!(&entry.fact, Fact::Switch { origin, .. } if *origin == switch.origin));
        if let (Some(answered), Some(entry)) = (switch.acknowledged, recorded) {
            let what = format!("setting {} of the switch", switch.origin);
            all.push(Happened { sent: switch.sent, answered, at: entry.index, what });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::forge::World;

    /// Goal: a permit that was asked for after the switch was acknowledged and stands before it is found.
    #[test]
    fn an_answer_from_the_past_is_found() {
        let mut world = World::default();
        let permitted = world.intent("r1", "pmt-1");
        world.switch("one", true).acknowledged("one", true);
        let mut stale = world.clone();
        stale.later().answer("r1", "permit", Some("pmt-1"), permitted);
        assert_eq!(check(&stale.observed()).len(), 1);
        let mut world = World::default();
        world.permit("r1", "pmt-1").later().switch("one", true).acknowledged("one", true);
        assert!(check(&world.observed()).is_empty());
    }
}
