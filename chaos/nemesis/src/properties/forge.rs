//! Forged histories: what a cluster would have to say for a property to be broken.
//! Absent on purpose: anything that a checker could share with it.

use crate::cluster::View;
use crate::evidence::{Decided, Draw, Entry, Fact, digest};
use crate::journal::{Answered, Known, Report, Request, Switch, Told};

use super::{Observed, Open};

/// A history in the making; the clock of its clients moves with every step.
#[derive(Clone, Debug, Default)]
pub struct World {
    known: Known,
    entries: Vec<Entry>,
    now: u64,
    at: i64,
    draws: Vec<Draw>,
    consumes: Option<String>,
}

impl World {
    pub fn at(&mut self, at: i64) -> &mut Self {
        self.at = at;
        self
    }

    /// What the next intent draws.
    pub fn draws(&mut self, budget: &str, window: &str, amount: &str) -> &mut Self {
        self.draws.push(draw(budget, window, amount));
        self
    }

    /// The approval that the next intent uses.
    pub fn consumes(&mut self, approval: &str) -> &mut Self {
        self.consumes = Some(approval.to_owned());
        self
    }

    pub fn later(&mut self) -> &mut Self {
        self.now += 1000;
        self
    }

    fn record(&mut self, principal: &str, fact: Fact) -> u64 {
        let index = self.entries.len() as u64 + 1;
        let prev = self.entries.last().map_or_else(String::new, |entry| entry.hash.clone());
        let hash = format!("hash-{index}");
        self.entries.push(Entry { index, at: self.at, principal: principal.to_owned(), prev, hash, fact });
        index
    }

    /// Records an intent; it lives ten seconds.
    pub fn intent(&mut self, request: &str, permit: &str) -> u64 {
        let decided = Decided {
            request: request.to_owned(),
            verdict: "permit".to_owned(),
            reason: "passed".to_owned(),
            permit_digest: Some(digest(permit)),
            deadline: Some(self.at + 10_000),
            draws: std::mem::take(&mut self.draws),
            consumes: self.consumes.take(),
            opens: None,
        };
        self.record("P0", Fact::Intent(decided))
    }

    pub fn proposal(&mut self, request: &str, approval: &str) -> &mut Self {
        let decided = Decided {
            request: request.to_owned(),
            verdict: "propose".to_owned(),
            reason: "tier_confirm".to_owned(),
            opens: Some(approval.to_owned()),
            ..Decided::default()
        };
        self.record("P0", Fact::Decision(decided));
        self
    }

    pub fn granted(&mut self, approval: &str, votes: &[&str]) -> &mut Self {
        let votes = votes.iter().map(|vote| (*vote).to_owned()).collect();
        self.record("A2", Fact::Approval { id: approval.to_owned(), to: "approved".to_owned(), votes });
        self
    }

    pub fn result(&mut self, intent: u64) -> u64 {
        self.record("P0", Fact::Result { intent })
    }

    pub fn expired(&mut self, intent: u64) -> &mut Self {
        self.record("P0", Fact::Expired { intent, draws: Vec::new() });
        self
    }

    pub fn released(&mut self, intent: u64, budget: &str, window: &str, amount: &str) {
        self.record("P0", Fact::Released { intent, draws: vec![draw(budget, window, amount)] });
    }

    pub fn switch(&mut self, origin: &str, engaged: bool) -> &mut Self {
        self.record("O1", Fact::Switch { engaged, origin: origin.to_owned() });
        self
    }

    /// The operator set the switch, and was told so.
    pub fn acknowledged(&mut self, origin: &str, engaged: bool) -> &mut Self {
        let (sent, acknowledged) = (self.tick(), Some(self.tick()));
        self.known.switches.push(Switch { origin: origin.to_owned(), engaged, sent, acknowledged });
        self
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A client asked; `maybe`: an answer was lost.
    pub fn asked(&mut self, request: &str, maybe: bool) -> &mut Self {
        let first_sent = self.tick();
        let known = self.known.requests.entry(request.to_owned()).or_default();
        *known = Request { first_sent, maybe, ..Request::default() };
        self
    }

    /// A client asked and was answered.
    pub fn answer(&mut self, request: &str, verdict: &str, permit: Option<&str>, evidence: u64) -> &mut Self {
        let sent = self.tick();
        let at = self.tick();
        let reason = if verdict == "permit" { "passed" } else { "default_deny" };
        let known = self.known.requests.entry(request.to_owned()).or_default();
        if known.answers.is_empty() {
            known.first_sent = sent;
        }
        known.answers.push(Answered {
            node: 1,
            at,
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
            permit: permit.map(str::to_owned),
            approval: None,
            evidence,
        });
        if let Some(permit) = permit {
            self.known.permits.entry(permit.to_owned()).or_default().request = request.to_owned();
        }
        self
    }

    /// A permit as it should be: recorded, and answered.
    pub fn permit(&mut self, request: &str, permit: &str) -> &mut Self {
        let index = self.intent(request, permit);
        self.answer(request, "permit", Some(permit), index)
    }

    /// A report as it should be.
    pub fn report(&mut self, permit: &str) -> &mut Self {
        let wanted = Some(digest(permit));
        let intent =
            self.entries.iter().find(|entry| matches!(&entry.fact, Fact::Intent(one) if one.permit_digest == wanted));
        let intent = intent.expect("the permit is recorded").index;
        let evidence = self.result(intent);
        self.accepted(permit, evidence)
    }

    fn told(&mut self, permit: &str, told: Told) -> &mut Self {
        let (sent, at) = (self.tick(), self.tick());
        self.known.permits.get_mut(permit).expect("a client has it").reports.push(Report { sent, at, told });
        self
    }

    pub fn accepted(&mut self, permit: &str, evidence: u64) -> &mut Self {
        self.told(permit, Told::Accepted { evidence })
    }

    pub fn refused(&mut self, permit: &str, reason: &str) {
        self.told(permit, Told::Refused { reason: reason.to_owned() });
    }

    pub fn unknown(&mut self, permit: &str) {
        self.told(permit, Told::Unknown);
    }

    /// What a correct cluster would show of this history.
    pub fn observed(&self) -> Observed {
        let mut seen = Observed { known: self.known.clone(), entries: self.entries.clone(), ..Observed::default() };
        let ends = seen.ends();
        let open: Vec<Open> = seen
            .intents()
            .filter(|(entry, _)| !ends.contains_key(&entry.index))
            .map(|(entry, decided)| {
                let mut permits = seen.known.permits.keys();
                let permit = permits.find(|permit| Some(digest(permit)) == decided.permit_digest);
                let permit = permit.cloned().unwrap_or_default();
                Open { permit, request: decided.request.clone(), evidence: entry.index, ..Open::default() }
            })
            .collect();
        let view = self.entries.last().map(|last| View {
            node: 1,
            leader: Some(1),
            term: 1,
            evidence: last.index,
            head: last.hash.clone(),
            snapshot: 0,
            roles: [(1, "voter".to_owned())].into(),
        });
        seen.open = open;
        seen.views = view.into_iter().collect();
        seen
    }
}

fn draw(budget: &str, window: &str, amount: &str) -> Draw {
    let amount = amount.parse().expect("an amount");
    Draw { budget: budget.to_owned(), window: window.to_owned(), scope: String::new(), amount }
}
