//! What the clients of a run know: what they sent, what they heard, and when. A call without an answer is *unknown*,
//! never *absent*.
//! Absent on purpose: what the cluster says about itself. The properties compare the two.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::Value;

use crate::doors::text;

/// Microseconds since the run began.
pub type Micros = u64;

/// An answer to a decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub node: u64,
    pub at: Micros,
    pub verdict: String,
    pub reason: String,
    pub permit: Option<String>,
    pub approval: Option<String>,
    pub evidence: u64,
}

/// One request id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub action: String,
    pub approval_ref: Option<String>,
    pub first_sent: Micros,
    /// Some attempt had no answer, or one that says so: it may have happened.
    pub maybe: bool,
    pub answers: Vec<Answered>,
}

/// How one attempt to report ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Accepted { evidence: u64 },
    Refused { reason: String },
    Unknown,
}

/// One attempt to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub sent: Micros,
    pub at: Micros,
    pub told: Told,
}

/// A permit that a client received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    pub request: String,
    pub reports: Vec<Report>,
}

/// One setting of the kill switch, by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Unique in the run; the entry repeats it.
    pub origin: String,
    pub engaged: bool,
    pub sent: Micros,
    pub acknowledged: Option<Micros>,
}

/// One attempt of any kind, for throughput and latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub sent: Micros,
    pub at: Micros,
    pub answered: bool,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub requests: BTreeMap<String, Request>,
    pub permits: BTreeMap<String, Permit>,
    pub switches: Vec<Switch>,
    pub attempts: Vec<Attempt>,
    /// `(node, evidence index, chain head)` as nodes said on the way.
    pub heads: Vec<(u64, u64, String)>,
    /// How often a client died, by where.
    pub deaths: BTreeMap<&'static str, u64>,
    /// Answers that no correct cluster gives.
    pub oddities: Vec<String>,
}

/// The journal that the clients of one run share.
#[derive(Debug)]
pub struct Journal {
    begun: Instant,
    known: Mutex<Known>,
}

impl Default for Journal {
    fn default() -> Self {
        Self { begun: Instant::now(), known: Mutex::default() }
    }
}

impl Journal {
    /// Now, on the clock of this journal.
    pub fn now(&self) -> Micros {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A copy of everything.
    pub fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Reads without a copy.
    pub fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.lock())
    }

    pub fn attempt(&self, sent: Micros, answered: bool) {
        let at = self.now();
        self.known.lock().attempts.push(Attempt { sent, at, answered });
    }

    /// Before a decide leaves for the first time.
    pub fn decide_sent(&self, body: &Value) {
        let first_sent = self.now();
        let request = Request {
            action: text(body, "action_type").to_owned(),
            approval_ref: body.get("approval_ref").and_then(Value::as_str).map(str::to_owned),
            first_sent,
            ..Request::default()
        };
        self.known.lock().requests.entry(text(body, "request_id").to_owned()).or_insert(request);
    }

    pub fn decide_unknown(&self, request: &str) {
        if let Some(request) = self.known.lock().requests.get_mut(request) {
            request.maybe = true;
        }
    }

    /// Notes an answer to a decide and returns it.
    pub fn decide_answered(&self, node: u64, request: &str, body: &Value) -> Answered {
        let optional = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        let answered = Answered {
            node,
            at: self.now(),
            verdict: text(body, "verdict").to_owned(),
            reason: text(body, "reason").to_owned(),
            permit: optional("permit_id"),
            approval: optional("approval_id"),
            evidence: position(text(body, "evidence_id")),
        };
        let mut known = self.known.lock();
        if let Some(permit) = &answered.permit {
            let new = || Permit { request: request.to_owned(), reports: Vec::new() };
            let of = known.permits.entry(permit.clone()).or_insert_with(new).request.clone();
            if of != request {
                known.oddities.push(format!("permit {permit} was given to {of} and to {request}"));
            }
        }
        if let Some(found) = known.requests.get_mut(request) {
            found.answers.push(answered.clone());
        }
        answered
    }

    pub fn reported(&self, permit: &str, sent: Micros, told: Told) {
        let at = self.now();
        if let Some(permit) = self.known.lock().permits.get_mut(permit) {
            permit.reports.push(Report { sent, at, told });
        }
    }

    /// Returns the number of this setting.
    pub fn switch_sent(&self, origin: &str, engaged: bool) -> usize {
        let sent = self.now();
        let mut known = self.known.lock();
        known.switches.push(Switch { origin: origin.to_owned(), engaged, sent, acknowledged: None });
        known.switches.len().saturating_sub(1)
    }

    pub fn switch_acknowledged(&self, number: usize) {
        let at = self.now();
        if let Some(switch) = self.known.lock().switches.get_mut(number) {
            switch.acknowledged = Some(at);
        }
    }

    pub fn head_seen(&self, node: u64, index: u64, head: &str) {
        self.known.lock().heads.push((node, index, head.to_owned()));
    }

    pub fn died(&self, at: &'static str) {
        *self.known.lock().deaths.entry(at).or_default() += 1;
    }

    pub fn odd(&self, what: String) {
        self.known.lock().oddities.push(what);
    }
}

/// The number in an evidence id.
pub fn position(evidence: &str) -> u64 {
    evidence.trim_start_matches("aud-").parse().unwrap_or_default()
}
