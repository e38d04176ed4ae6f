//! A small world: who may ask for what how often, how often things may go wrong, and what a policy means, said a second
//! time for those who check.
//! Absent on purpose: the order of anything. Within its bounds the search tries every order.

use placet_core::event::{BudgetKind, SwitchScope};
use placet_core::request::Outcome;
use placet_core::stamp::Stamp;
use serde_json::Value;

/// One call that somebody may make.
#[derive(Clone, Debug)]
pub struct CallSpec {
    /// Who makes it.
    pub principal: &'static str,
    /// What it asks.
    pub what: What,
    /// How often it may be sent: again is a resend, word by word.
    pub times: u8,
}

/// What a call asks. A number names a request: its request id, and what was heard of it.
#[derive(Clone, Debug)]
pub enum What {
    /// A decide.
    Decide {
        /// Under which request id.
        request: u8,
        /// The action type.
        action: &'static str,
        /// Its arguments.
        params: Value,
        /// Presents the approval that this request was told of.
        approval_of: Option<u8>,
        /// Reverses the act that this request was permitted.
        undo_of: Option<u8>,
    },
    /// A report about the permit of a request.
    Report {
        /// Which.
        request: u8,
        /// What happened.
        outcome: Outcome,
        /// Nothing came of a failure.
        no_effect: bool,
    },
    /// A human grants or denies what a request proposed.
    Resolve {
        /// Which.
        request: u8,
        /// Grants or denies.
        grant: bool,
    },
    /// A human grants it and has it decided again.
    Resume {
        /// Which.
        request: u8,
        /// What is heard of that counts as heard of this request.
        into: u8,
    },
    /// An operator engages or releases a switch.
    Switch {
        /// On or off.
        engaged: bool,
        /// What it stops.
        scope: Option<SwitchScope>,
    },
}

/// How often, or how much, of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Calls in all, resends included.
    pub calls: u8,
    /// Batches that are proposed and not committed. With 0 each is committed before anything else happens.
    pub in_flight: usize,
    /// Outcomes in one batch.
    pub batch: usize,
    /// Changes of the leader.
    pub elections: u8,
    /// Batches that overtake the one before them on the way into the log.
    pub overtakes: u8,
    /// Batches that Raft refuses while those behind them arrive.
    pub refusals: u8,
    /// Batches of a former leader that arrive in a later term.
    pub strays: u8,
    /// Log entries that the follower may be behind the leader.
    pub lag: usize,
    /// Whether a leader that was replaced goes on answering until it hears of it.
    pub deposed_answers: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            calls: 6,
            in_flight: 1,
            batch: 1,
            elections: 1,
            overtakes: 0,
            refusals: 0,
            strays: 0,
            lag: 0,
            deposed_answers: false,
        }
    }
}

/// A budget, as its policy means it.
#[derive(Clone, Copy, Debug)]
pub struct BudgetFact {
    /// Its name.
    pub name: &'static str,
    /// Calls or an amount.
    pub kind: BudgetKind,
    /// What one window holds at most.
    pub limit: i64,
    /// Its length when it rolls; a calendar day otherwise.
    pub rolling_ms: Option<i64>,
    /// One counter for each principal.
    pub per_principal: bool,
}

/// An action type, as its policy means it.
#[derive(Clone, Copy, Debug)]
pub struct ActionFact {
    /// Its name.
    pub name: &'static str,
    /// The budgets that it draws on.
    pub draws: &'static [&'static str],
    /// Its effects.
    pub effects: &'static [&'static str],
    /// Who must grant it, when a human must.
    pub granted_by: Option<Granters>,
}

/// Who must grant.
#[derive(Clone, Copy, Debug)]
pub struct Granters {
    /// These alone; anyone without.
    pub members: Option<&'static [&'static str]>,
    /// How many of them.
    pub quorum: usize,
}

/// A world.
#[derive(Clone, Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The policy document.
    pub policy: &'static str,
    /// What that means.
    pub budgets: &'static [BudgetFact],
    /// What that means.
    pub actions: &'static [ActionFact],
    /// The calls of an expired permit stay counted.
    pub expiry_keeps_rate: bool,
    /// Everyone's calls.
    pub calls: Vec<CallSpec>,
    /// The moments of the clock, in order: milliseconds after the start.
    pub moments: Vec<i64>,
    /// How far the clock of the second node is behind.
    pub second_clock_behind_ms: i64,
    /// How much of everything.
    pub bounds: Bounds,
    /// What must be seen on the way: a world in which it does not happen shows nothing.
    pub shows: &'static [&'static str],
    /// Steps within which a test of a minute explores it.
    pub short_depth: usize,
}

impl World {
    /// 2026-08-17T09:00:00Z.
    pub const START: Stamp = Stamp(1_786_957_200_000);

    /// A budget by name.
    pub fn budget(&self, name: &str) -> Option<&BudgetFact> {
        self.budgets.iter().find(|budget| budget.name == name)
    }

    /// An action type by name.
    pub fn action(&self, name: &str) -> Option<&ActionFact> {
        self.actions.iter().find(|action| action.name == name)
    }

    /// A call by its number.
    pub fn call(&self, number: u8) -> Option<&CallSpec> {
        self.calls.get(usize::from(number))
    }
}

/// The request id of a request.
pub fn request_id(request: u8) -> String {
    format!("00000000-0000-4000-8000-{request:012}")
}

/// A call that is sent once.
pub fn call(principal: &'static str, what: What) -> CallSpec {
    CallSpec { principal, what, times: 1 }
}

/// A call that may be sent twice.
pub fn twice(principal: &'static str, what: What) -> CallSpec {
    CallSpec { principal, what, times: 2 }
}

/// A plain decide.
pub fn decide(request: u8, action: &'static str, params: Value) -> What {
    What::Decide { request, action, params, approval_of: None, undo_of: None }
}

/// A decide that presents an approval.
pub fn resumption(request: u8, action: &'static str, params: Value, of: u8) -> What {
    What::Decide { request, action, params, approval_of: Some(of), undo_of: None }
}

/// A decide that reverses an act.
pub fn reversal(request: u8, action: &'static str, params: Value, of: u8) -> What {
    What::Decide { request, action, params, approval_of: None, undo_of: Some(of) }
}

/// A report of this outcome.
pub fn report(request: u8, outcome: Outcome) -> What {
    What::Report { request, outcome, no_effect: false }
}

/// A report that nothing came of it.
pub fn no_effect(request: u8) -> What {
    What::Report { request, outcome: Outcome::Failure, no_effect: true }
}
