//! A decision point in memory whose every byte follows from its calls: clock, randomness and keys are fixed.

use std::collections::{BTreeSet, HashMap};

use ed25519_dalek::{Signer, SigningKey};
use placet_core::evaluate::{Due, Keys, due_changes, evaluate, expire, restored};
use placet_core::event::Event;
use placet_core::evidence;
use placet_core::export::{HEADER, Trailer, entry_line};
use placet_core::fold::fold;
use placet_core::head::{HeadSigner, SignedHead};
use placet_core::ids::{ApprovalId, Entropy, Hash, Principal, hex};
use placet_core::merkle::{Frontier, leaf_hash};
use placet_core::op::{Answer, Call, Op, Reject};
use placet_core::redact::RedactionKey;
use placet_core::reply::{DecideReply, ReportReply};
use placet_core::stamp::Stamp;
use placet_core::state::{MemState, Overlay};
use serde_json::{Value, json};

/// Signs the heads.
pub const NODE_SECRET: [u8; 32] = [9; 32];

/// Speaks as the mandate authority.
const AUTHORITY_SECRET: [u8; 32] = [5; 32];

pub struct Desk {
    pub state: MemState,
    pub now: Stamp,
    keys: Keys,
    calls: u64,
    due: BTreeSet<(Stamp, Due)>,
    due_at: HashMap<Due, Stamp>,
}

impl Desk {
    /// At 2026-08-17T09:00:00Z, before any policy.
    pub fn new() -> Self {
        Self {
            state: MemState::default(),
            now: Stamp::parse("2026-08-17T09:00:00Z").unwrap(),
            keys: Keys::new(Some(RedactionKey::new([7; 32])), Some(HeadSigner::new(&NODE_SECRET))),
            calls: 0,
            due: BTreeSet::new(),
            due_at: HashMap::new(),
        }
    }

    pub fn entries(&self) -> u64 {
        self.state.meta.next_index.0 - 1
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now = self.now.plus_ms(seconds * 1000);
    }

    pub fn try_call(&mut self, principal: &str, op: Op) -> Result<Answer, Reject> {
        self.sweep();
        self.calls += 1;
        let random = |salt: u64| -> [u8; 16] {
            blake3::hash(&[self.calls.to_be_bytes(), salt.to_be_bytes()].concat()).as_bytes()[..16].try_into().unwrap()
        };
        let entropy = Entropy { permit: random(1), approval: random(2), request: random(3) };
        let call = Call { principal: Principal::new(principal), op };
        let outcome = evaluate(&self.state, &call, self.now, entropy, &self.keys)?;
        self.fold(&outcome.events);
        Ok(outcome.answer)
    }

    pub fn call(&mut self, principal: &str, op: Op) -> Answer {
        self.try_call(principal, op).unwrap()
    }

    /// Goes on as a cluster that was restored from what is here.
    pub fn restore(&mut self, cluster: Hash) {
        self.state.meta.restoring = true;
        let event = restored(&self.state, self.now, cluster).unwrap().unwrap();
        self.fold(&[event]);
        assert_eq!(restored(&self.state, self.now, cluster).unwrap(), None);
    }

    /// What the leader's timer does.
    fn sweep(&mut self) {
        while let Some((at, due)) = self.due.first().cloned().filter(|(at, _)| *at <= self.now) {
            match expire(&self.state, &due, self.now).unwrap() {
                Some(event) => self.fold(&[event]),
                None => self.forget(&due, at),
            }
        }
    }

    fn forget(&mut self, due: &Due, at: Stamp) {
        self.due_at.remove(due);
        self.due.remove(&(at, due.clone()));
    }

    fn fold(&mut self, events: &[Event]) {
        let mut overlay = Overlay::new(&self.state);
        for event in events {
            fold(&mut overlay, event).unwrap();
        }
        let changes = overlay.into_changes();
        self.state.write(changes);
        for event in events {
            let (added, removed) = due_changes(event);
            if let Some((at, due)) = added {
                self.due_at.insert(due.clone(), at);
                self.due.insert((at, due));
            }
            if let Some((due, at)) = removed.and_then(|due| self.due_at.get(&due).map(|at| (due.clone(), *at))) {
                self.forget(&due, at);
            }
        }
    }

    /// A fresh request id, the same in every run.
    pub fn uuid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.calls + 1)
    }

    /// A decide under a fresh id; `more` replaces members.
    pub fn decide(&mut self, principal: &str, action: &str, params: Value, more: Value) -> DecideReply {
        let mut body = json!({
            "protocol": "aadp/0.2", "request_id": self.uuid(), "action_type": action, "params": params,
            "source": "llm", "rationale": "invoice 77", "created_at": self.now,
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        match self.call(principal, Op::Decide(body.to_string().into_bytes())) {
            Answer::Decide(reply) => reply,
            other => panic!("not a decide reply: {other:?}"),
        }
    }

    /// A report about a permit or a request; `more` replaces members.
    pub fn report(&mut self, principal: &str, subject: Value, outcome: &str, more: Value) -> ReportReply {
        let mut body = json!({"protocol": "aadp/0.2", "outcome": outcome, "completed_at": self.now});
        for members in [subject, more] {
            for (name, value) in members.as_object().unwrap() {
                body[name] = value.clone();
            }
        }
        match self.call(principal, Op::Report(body.to_string().into_bytes())) {
            Answer::Report(reply) => reply,
            other => panic!("not a report reply: {other:?}"),
        }
    }

    pub fn publish(&mut self, document: &str) {
        let document = document.replace("AUTHORITY", &hex(authority().verifying_key().as_bytes()));
        self.call("policy-admin", Op::PublishPolicy { document, expect: None, activate: true });
    }

    pub fn resolve(&mut self, principal: &str, id: &ApprovalId, grant: bool, note: Option<&str>) -> Answer {
        self.call(principal, Op::ResolveApproval { id: id.clone(), grant, note: note.map(str::to_owned) })
    }

    pub fn switch(&mut self, engaged: bool) {
        self.call("operator", Op::SetKillSwitch { engaged, origin: "drill".to_owned(), note: None, scope: None });
    }

    pub fn sign_head(&mut self) -> SignedHead {
        match self.call("auditor", Op::SignHead) {
            Answer::Head(view) => view.signed,
            other => panic!("not a head: {other:?}"),
        }
    }

    /// The whole evidence as an export.
    pub fn export(&self) -> Vec<u8> {
        export(self.state.entries.values().map(Vec::as_slice))
    }
}

/// The mandate authority's signature, in hex.
pub fn authorised(statement: &[u8]) -> String {
    hex(&authority().sign(statement).to_bytes())
}

fn authority() -> SigningKey {
    SigningKey::from_bytes(&AUTHORITY_SECRET)
}

/// Writes an export around any entries: what an honest node does with its own, and a tamperer with others.
pub fn export<'e>(entries: impl Iterator<Item = &'e [u8]>) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    let (mut chain_head, mut tree, mut signed) = (Hash::GENESIS, Frontier::default(), None);
    for bytes in entries {
        chain_head = evidence::hash(bytes);
        tree.push(leaf_hash(&chain_head));
        out.extend(entry_line(bytes, &chain_head));
        if let Ok(placet_core::event::Body::HeadSigned(head)) = evidence::decode(bytes).map(|entry| entry.body) {
            signed = Some(head);
        }
    }
    out.extend(Trailer { chain_head, count: tree.size(), root: tree.root(), signed }.line());
    out
}
