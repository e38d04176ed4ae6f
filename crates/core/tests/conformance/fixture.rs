//! The fixture of AADP §23.1: a store in memory, a clock that the test turns, and the policies by their names.

use std::collections::BTreeSet;
use std::sync::Arc;

use placet_core::evaluate::{Due, Keys, due_changes, evaluate, expire, rederive};
use placet_core::event::{ApprovalState, Body, Decided, Entry, Event, PolicyChange, PolicyStep, SwitchScope};
use placet_core::evidence;
use placet_core::fold::fold;
use placet_core::head::HeadSigner;
use placet_core::ids::{ApprovalId, Entropy, EvidenceIndex, PermitId, Principal};
use placet_core::op::{Answer, ApprovalView, Call, Op, PermitCheck, PolicyPublished, Query, Reject, StaticActions};
use placet_core::policy::{Document, PolicySet, load};
use placet_core::query;
use placet_core::redact::RedactionKey;
use placet_core::reply::{DecideReply, Protocol, ReportReply};
use placet_core::stamp::Stamp;
use placet_core::state::{CounterKey, MemState, Overlay};
use placet_core::trace::Check;
use serde_json::{Value, json};

/// The fixture's policies in onedoor's dialect.
pub const POLICIES: &str = r#"
effects:
  money.egress: { caps: { eur_day: 60 } }
  bulk: { min_tier: 2 }
  danger: { min_tier: 3 }
policies:
  - { action_type: read.status, tier: 0 }
  - action_type: lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: lamp.restore
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: lamp.restore
    tier: 1
    dry_run: false
    compensating_command: lamp.toggle
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: pay.small
    tier: 2
    dry_run: false
    compensating_command: pay.back
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 500 } }, required: [payee, amount_eur] }
    caps: { daily_rate: 3, eur_day: 100, eur_month: 250 }
  - action_type: pay.fee
    tier: 2
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    caps: { eur_day: 50 }
  - action_type: pay.back
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
  - action_type: wire.send
    tier: 3
    dry_run: false
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 5000 } }, required: [amount_eur] }
    caps: { eur_day: 5000 }
  - action_type: reh.a
    tier: 1
    compensating_command: lamp.restore
    bounds: { strict_params: false }
  - action_type: reh.b
    tier: 2
    compensating_command: pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { daily_rate: 1, eur_day: 10 }
  - { action_type: reh.c, tier: 3, bounds: { strict_params: false } }
  - action_type: net.a
    tier: 1
    dry_run: false
    compensating_command: pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [money.egress]
  - action_type: net.b
    tier: 1
    dry_run: false
    compensating_command: pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [money.egress]
  - action_type: eff.two
    tier: 1
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    effects: [bulk]
  - action_type: pay.danger
    tier: 2
    dry_run: false
    compensating_command: pay.back
    bounds: { strict_params: false }
    effects: [danger]
"#;

/// 2026-08-17T09:00:00Z.
pub fn t0() -> Stamp {
    at("2026-08-17T09:00:00Z")
}

pub fn at(text: &str) -> Stamp {
    Stamp::parse(text).unwrap()
}

/// A decision point in memory.
#[derive(Clone)]
pub struct Pdp {
    pub state: MemState,
    pub now: Stamp,
    ids: u64,
    /// Everything that was written, in order, with the capabilities that only the log knows.
    pub log: Vec<Event>,
    /// Entries that the fixture itself has written.
    setup: usize,
    due: BTreeSet<Due>,
    keys: Arc<Keys>,
    /// Set by a test that writes past the log: what it leaves does not follow from its evidence.
    pub tampered: bool,
}

/// Whatever a case did, all of it follows again from its evidence alone.
impl Drop for Pdp {
    fn drop(&mut self) {
        if self.tampered || std::thread::panicking() {
            return;
        }
        if let Err(difference) = rederive(self.state.entries.values().map(Vec::as_slice)) {
            panic!("{difference}");
        }
    }
}

impl Pdp {
    /// A fresh store under the fixture's policies; `card.freeze` is inserted past the loader.
    pub fn new() -> Self {
        let keys = Keys::new(Some(RedactionKey::new([7; 32])), Some(HeadSigner::new(&[9; 32])));
        let mut pdp = Self {
            state: MemState::default(),
            now: t0(),
            ids: 0,
            log: Vec::new(),
            setup: 0,
            due: BTreeSet::new(),
            keys: Arc::new(keys),
            tampered: false,
        };
        pdp.edit(|document| {
            let mut freeze = document.actions["pay.back"].clone();
            freeze.compensating_command = None;
            document.actions.insert("card.freeze".to_owned(), freeze);
        });
        pdp.setup = 1;
        pdp
    }

    /// A fresh store under this document.
    pub fn under(document: &str) -> Self {
        let mut pdp = Self::new();
        pdp.publish(document).unwrap();
        pdp.setup = pdp.state.entries.len();
        pdp
    }

    /// A node that lost its keys.
    pub fn without_keys(&mut self) {
        self.keys = Arc::default();
    }

    /// What a restart leaves: the state that the log alone adds up to.
    pub fn restarted(&self) -> MemState {
        let mut state = MemState::default();
        for event in &self.log {
            let mut overlay = Overlay::new(&state);
            fold(&mut overlay, &Event::decode(event.bytes.clone(), event.permit_id.clone()).unwrap()).unwrap();
            let changes = overlay.into_changes();
            state.write(changes);
        }
        state
    }

    /// Puts the fixture's document, changed by `change`, in force past the loader.
    pub fn edit(&mut self, change: impl FnOnce(&mut Document)) {
        let mut document = load(POLICIES).unwrap().policy.document().clone();
        if let Some(digest) = &self.state.meta.active_policy {
            document = self.state.policies[digest].document().clone();
        }
        change(&mut document);
        let policy = PolicySet::compile(document).unwrap();
        let previous = self.state.meta.active_policy.clone();
        let known = self.state.policies.contains_key(policy.digest());
        let change = PolicyChange {
            digest: policy.digest().clone(),
            document: (!known).then(|| policy.canonical().to_owned()),
            previous,
            step: PolicyStep::Activated,
        };
        let entry = Entry {
            at: self.now.max(self.state.meta.last_stamp),
            body: Body::PolicyChange(change),
            index: self.state.meta.next_index,
            policy: Some(policy.digest().clone()),
            prev: self.state.meta.chain_head,
            principal: Principal::new("A1"),
            protocol: Protocol::LATEST,
            v: evidence::ENTRY_VERSION,
        };
        self.fold(&[Event::new(entry, None)]);
    }

    /// One call through evaluate and fold. An answer is given only after its events are written, as in a cluster.
    pub fn call(&mut self, principal: &str, op: Op) -> Result<Answer, Reject> {
        self.sweep();
        self.ids += 1;
        let mut entropy = Entropy::default();
        let random = |salt: u64| *blake3::hash(&[self.ids.to_be_bytes(), salt.to_be_bytes()].concat()).as_bytes();
        entropy.permit.copy_from_slice(&random(1)[..16]);
        entropy.approval.copy_from_slice(&random(2)[..16]);
        entropy.request.copy_from_slice(&random(3)[..16]);
        let call = Call { principal: Principal::new(principal), op };
        let outcome = evaluate(&self.state, &call, self.now, entropy, &self.keys)?;
        self.fold(&outcome.events);
        match outcome.answer {
            Answer::Refused(reject) => Err(reject),
            answer => Ok(answer),
        }
    }

    /// What the leader's timer does: every reached deadline becomes an event.
    pub fn sweep(&mut self) {
        for item in self.due.clone() {
            if let Some(event) = expire(&self.state, &item, self.now).unwrap() {
                self.fold(&[event]);
            }
        }
    }

    /// One log entry: all of its events are written, or none.
    fn fold(&mut self, events: &[Event]) {
        let mut overlay = Overlay::new(&self.state);
        for event in events {
            fold(&mut overlay, event).unwrap();
        }
        let changes = overlay.into_changes();
        self.state.write(changes);
        self.log.extend_from_slice(events);
        for event in events {
            let (added, removed) = due_changes(event);
            self.due.extend(added.map(|(_, due)| due));
            if let Some(removed) = removed {
                self.due.remove(&removed);
            }
        }
    }

    pub fn decide_bytes(&mut self, principal: &str, body: &[u8]) -> DecideReply {
        match self.call(principal, Op::Decide(body.to_vec())).unwrap() {
            Answer::Decide(reply) => reply,
            other => panic!("not a decide reply: {other:?}"),
        }
    }

    pub fn decide_as(&mut self, principal: &str, body: &Value) -> DecideReply {
        self.decide_bytes(principal, body.to_string().as_bytes())
    }

    /// P1 decides.
    pub fn decide(&mut self, body: &Value) -> DecideReply {
        self.decide_as("P1", body)
    }

    /// P1 asks for an action with these arguments.
    pub fn ask(&mut self, action: &str, params: Value) -> DecideReply {
        let body = request(action, params);
        self.decide(&body)
    }

    /// P1 pays.
    pub fn pay(&mut self, amount: &str) -> DecideReply {
        self.ask("pay.small", json!({"payee": "x", "amount_eur": amount}))
    }

    pub fn report_as(&mut self, principal: &str, body: &Value) -> ReportReply {
        match self.call(principal, Op::Report(body.to_string().into_bytes())).unwrap() {
            Answer::Report(reply) => reply,
            other => panic!("not a report reply: {other:?}"),
        }
    }

    pub fn report(&mut self, permit: &PermitId, outcome: &str) -> ReportReply {
        self.report_as("P1", &report_body(permit, outcome))
    }

    pub fn resolve(&mut self, principal: &str, id: &ApprovalId, grant: bool) -> Result<Answer, Reject> {
        self.call(principal, Op::ResolveApproval { id: id.clone(), grant, note: None })
    }

    pub fn grant(&mut self, id: &ApprovalId) {
        self.resolve("A1", id, true).unwrap();
    }

    /// An approver drives the resumption.
    pub fn resume_as(&mut self, principal: &str, id: &ApprovalId) -> Result<Answer, Reject> {
        self.call(principal, Op::ResumeApproval { id: id.clone(), note: None })
    }

    pub fn switch(&mut self, engaged: bool) {
        self.call("A1", Op::SetKillSwitch { engaged, origin: "test".to_owned(), note: None, scope: None }).unwrap();
    }

    pub fn scoped(&mut self, scope: &SwitchScope, engaged: bool) -> Result<Answer, Reject> {
        let (origin, scope) = ("test".to_owned(), Some(scope.clone()));
        self.call("A1", Op::SetKillSwitch { engaged, origin, note: None, scope })
    }

    pub fn query_as(&self, principal: &str, query: &Query) -> Answer {
        query::answer(&self.state, query, &Principal::new(principal), self.now).unwrap()
    }

    pub fn check_permit(&self, principal: &str, permit_id: &PermitId) -> PermitCheck {
        match self.query_as(principal, &Query::CheckPermit { permit_id: permit_id.clone() }) {
            Answer::Permit(check) => check,
            other => panic!("not a check: {other:?}"),
        }
    }

    pub fn static_actions(&self, principal: &str) -> StaticActions {
        match self.query_as(principal, &Query::StaticActions) {
            Answer::Static(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }

    pub fn approval_view(&self, id: &ApprovalId) -> ApprovalView {
        match self.query_as("A1", &Query::Approval { id: id.clone() }) {
            Answer::Approval(view) => view,
            other => panic!("not an approval: {other:?}"),
        }
    }

    pub fn publish(&mut self, document: &str) -> Result<PolicyPublished, Reject> {
        let op = Op::PublishPolicy { document: document.to_owned(), expect: None, activate: true };
        match self.call("A1", op)? {
            Answer::PolicyPublished(published) => Ok(published),
            other => panic!("not a publication: {other:?}"),
        }
    }

    /// Settled and reserved of one counter, or "0".
    pub fn counter(&self, budget: &str, window: &str) -> String {
        let key = CounterKey { budget: budget.to_owned(), window: window.to_owned(), scope: None };
        self.state.counters.get(&key).map_or_else(|| "0".to_owned(), |c| c.consumed(i64::MIN).unwrap().to_string())
    }

    /// The counter of `pay.small` on the day of T0.
    pub fn spent_day(&self) -> String {
        self.counter("pay.small.eur_day", "2026-08-17")
    }

    pub fn spent_rate(&self) -> String {
        self.counter("pay.small.rate", "2026-08-17")
    }

    /// Everything that a decision may reserve: counters, permits, approvals.
    pub fn reserved(&self) -> (usize, usize, usize) {
        let counters = self.state.counters.iter().filter(|(key, _)| !key.budget.starts_with('#'));
        let used = counters.filter(|(_, c)| c.consumed(i64::MIN) != Some(Default::default())).count();
        (used, self.state.permits.len(), self.state.approvals.len())
    }

    pub fn entry(&self, index: EvidenceIndex) -> Entry {
        evidence::decode(&self.state.entries[&index]).unwrap()
    }

    pub fn decided(&self, reply: &DecideReply) -> Decided {
        match self.entry(reply.evidence_id).body {
            Body::Decision(decided) | Body::ExecIntent(decided) => *decided,
            other => panic!("not a decision: {other:?}"),
        }
    }

    /// The steps of the decision that a reply is about.
    pub fn trace(&self, reply: &DecideReply) -> Vec<Check> {
        self.decided(reply).trace.checks().unwrap()
    }

    /// What was recorded since the fixture was set up.
    pub fn entries(&self) -> Vec<Entry> {
        self.state.entries.values().skip(self.setup).map(|bytes| evidence::decode(bytes).unwrap()).collect()
    }

    /// The same, by kind.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.entries().iter().map(|entry| entry.body.kind()).collect()
    }

    /// How many proposals of this principal count as waiting.
    pub fn waiting(&self, action: &str, principal: &str) -> String {
        self.counter(&format!("#open:{action} {principal}"), "open")
    }

    pub fn approval_state(&self, id: &ApprovalId) -> ApprovalState {
        self.state.approvals[id].state
    }
}

/// A fresh UUID for each request; the random part only has to differ.
pub fn uuid() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A decide body of the fixture.
pub fn request(action: &str, params: Value) -> Value {
    json!({
        "protocol": "aadp/0.1", "request_id": uuid(), "action_type": action, "params": params,
        "source": "llm", "rationale": "t", "created_at": "2026-08-17T09:00:00Z",
    })
}

/// The same body with some members replaced; `null` removes.
pub fn with(mut body: Value, members: Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        if value.is_null() {
            body.as_object_mut().unwrap().remove(name);
        } else {
            body[name] = value.clone();
        }
    }
    body
}

pub fn report_body(permit: &PermitId, outcome: &str) -> Value {
    json!({
        "protocol": "aadp/0.1", "permit_id": permit.as_str(), "outcome": outcome,
        "completed_at": "2026-08-17T09:00:01Z",
    })
}

/// Verdict and reason in their wire forms.
pub fn says(reply: &DecideReply) -> (&'static str, &'static str) {
    (reply.verdict.as_str(), reply.reason.as_str())
}

/// Both tiers.
pub fn tiers(reply: &DecideReply) -> (u8, u8) {
    (reply.nominal_tier.into(), reply.effective_tier.into())
}
