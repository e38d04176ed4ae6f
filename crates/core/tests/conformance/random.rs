//! Generated requests and runs: the same seed gives the same ones.

use placet_core::event::{ApprovalState, SwitchScope};
use placet_core::ids::{ActionType, ApprovalId, PermitId, Principal};
use placet_core::op::{Op, Query, Reject};
use serde_json::{Value, json};

use super::features::{self, mandate, ratify};
use super::fixture::{Pdp, report_body, request, with};

/// A small generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.next(choices.len() as u64)).unwrap()].clone()
    }

    /// Any of them, taken out.
    fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            None
        } else {
            Some(from.swap_remove(usize::try_from(self.next(from.len() as u64)).unwrap()))
        }
    }

    /// A request for the fixture of AADP §23.1.
    pub fn request(&mut self) -> Value {
        let action = self.pick(&[
            "read.status",
            "lamp.toggle",
            "card.freeze",
            "pay.small",
            "pay.fee",
            "wire.send",
            "reh.a",
            "reh.b",
            "reh.c",
            "net.a",
            "net.b",
            "eff.two",
            "pay.danger",
            "nope.x",
        ]);
        let amount = self.pick(&["1", "30", "60", "500.01", "0.01", "x", "9000"]);
        let params = match self.next(4) {
            0 => json!({"state": self.pick(&["on", "off", "dim"])}),
            1 => json!({}),
            2 => json!({"payee": "x", "amount_eur": amount}),
            _ => json!({"amount_eur": amount}),
        };
        let extra = match self.next(3) {
            0 => json!({"cost_eur": self.pick(&["5.00", "0", "49.99"])}),
            1 => json!({"protocol": "aadp/0.2"}),
            _ => json!({}),
        };
        with(request(action, params), extra)
    }

    /// A request for the later features.
    pub fn feature_request(&mut self) -> Value {
        let action = self.pick(&[
            "read.status",
            "lamp.toggle",
            "lamp.toggle",
            "pay.card",
            "pay.card",
            "pay.secret",
            "web.get",
            "web.plain",
            "web.bulk",
            "web.confirm",
            "mandated.auto",
            "mandated.confirm",
            "mandated.floor",
            "mandated.read",
            "wire.treasury",
            "bound.act",
            "bound.confirm",
            "flood",
            "flood.plain",
            "obliged",
            "rehearsed",
            "nope.x",
        ]);
        let url = self.pick(&[
            "https://bank.example/",
            "https://other.example/x",
            "https://bit.ly/x",
            "https://192.0.2.9/",
            "nonsense",
        ]);
        let amount = self.pick(&["1", "30", "60.50", "200", "201", "x"]);
        let params = match action {
            "lamp.toggle" => json!({"state": self.pick(&["on", "off", "on", "dim"])}),
            "pay.card" if self.next(2) == 0 => json!({"amount": amount, "iban": self.pick(&["NL1", "NL2"])}),
            "pay.card" | "wire.treasury" | "bound.act" => json!({"amount": amount}),
            "pay.secret" => json!({"pin": 1234, "colour": self.pick(&["red", "blue"]), "site": url}),
            "read.status" | "mandated.read" => json!({}),
            name if name.starts_with("web.") => json!({"url": url}),
            _ => json!({"n": self.next(12)}),
        };
        let audience = self.pick(&["https://bank.example/act", "https://bank.example/act", "https://x.example/"]);
        let extra = match self.next(4) {
            0 => json!({"cost_eur": "5.00", "presented_audience": audience}),
            1 | 2 => json!({"protocol": "aadp/0.2", "presented_audience": audience}),
            _ => json!({"session_id": "s"}),
        };
        with(request(action, params), extra)
    }
}

/// What a run remembers of what it did.
#[derive(Default)]
struct Memory {
    asked: Vec<(String, Value)>,
    open: Vec<(String, PermitId)>,
    reported: Vec<(String, u64, Value)>,
    proposed: Vec<(String, ApprovalId, Value)>,
    serial: u64,
    changed: bool,
}

/// A run over everything that can be asked, under the later features.
pub fn mixed(seed: u64, steps: u64) -> Pdp {
    let (mut random, mut pdp, mut memory) = (Random(seed), features::pdp(), Memory::default());
    for _ in 0..steps {
        step(&mut random, &mut pdp, &mut memory);
    }
    pdp
}

/// One operation on one store; the same operations may be asked of several.
fn step(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    let admin = random.pick(&["A1", "A2", "A3", "A4", "P1"]);
    match random.next(24) {
        0..=8 => decide(random, pdp, memory),
        9..=12 => report(random, pdp, memory),
        13 | 14 => {
            if let Some((_, id, _)) = memory.proposed.last().cloned() {
                let grant = random.next(5) > 0;
                let _refused = pdp.resolve(admin, &id, grant);
            }
        }
        15 => resume(random, pdp, memory),
        16 => {
            if let Some((_, id, _)) = random.take(&mut memory.proposed)
                && pdp.approval_state(&id) != ApprovalState::Consumed
            {
                let _refused = pdp.resume_as(admin, &id);
            }
        }
        17 => switches(random, pdp),
        18 => pdp.now = pdp.now.plus_ms(random.pick(&[1_000, 120_000, 601_000])),
        19 => undo(random, pdp, memory),
        20 => {
            let pending = pdp.state.approvals.values().filter(|one| one.terms.authority && !one.ratified);
            if let Some(id) = pending.map(|one| one.approval_id.clone()).next_back() {
                let approved = random.next(4) > 0;
                let _refused = ratify(pdp, &id, approved);
            }
            if random.next(4) == 0 {
                memory.serial += 1;
                mandate(pdp, "mandated.auto", random.next(2) == 0, memory.serial).unwrap();
            }
        }
        21 => again(random, pdp, memory),
        22 => {
            memory.changed = !memory.changed;
            let limit = if memory.changed { "limit: 401" } else { "limit: 400" };
            pdp.publish(&features::document().replace("limit: 400", limit)).unwrap();
        }
        _ => rest(random, pdp),
    }
}

fn decide(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    let (principal, body) = (random.pick(&["P1", "P2", "P3"]).to_owned(), random.feature_request());
    let reply = pdp.decide_as(&principal, &body);
    memory.open.extend(reply.permit_id.map(|id| (principal.clone(), id)));
    memory.proposed.extend(reply.approval_id.map(|id| (principal.clone(), id, body.clone())));
    memory.asked.push((principal, body));
}

fn report(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    let Some((owner, permit)) = random.take(&mut memory.open) else { return };
    let outcome = random.pick(&["success", "success", "failure", "timeout", "not_attempted"]);
    let body = with(
        report_body(&permit, outcome),
        json!({"no_effect": random.next(3) == 0, "error": "e", "payload": {"iban": "NL1"}}),
    );
    if random.next(6) == 0 {
        assert!(!pdp.report_as("P9", &body).accepted);
    }
    if pdp.report_as(&owner, &body).accepted && random.next(4) == 0 {
        assert!(!pdp.report_as(&owner, &body).accepted);
    }
    let index = pdp.state.permits[&permit].index.0;
    memory.reported.push((owner, index, json!({"state": "on"})));
}

fn resume(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    let Some((proposer, id, body)) = random.take(&mut memory.proposed) else { return };
    let who = if random.next(6) == 0 { "P9".to_owned() } else { proposer };
    let body = with(body, json!({"request_id": super::fixture::uuid(), "approval_ref": id.as_str()}));
    if random.next(3) > 0 && pdp.state.approvals[&id].terms.group.is_none() {
        let _refused = pdp.resolve("A2", &id, true);
    }
    let reply = pdp.decide_as(&who, &body);
    memory.open.extend(reply.permit_id.map(|permit| (who, permit)));
}

/// Engaged for one request, then released.
fn switches(random: &mut Random, pdp: &mut Pdp) {
    let scope = random.pick(&[
        None,
        Some(SwitchScope::ActionType(ActionType::new("lamp.toggle"))),
        Some(SwitchScope::Effect("spend".to_owned())),
        Some(SwitchScope::Principal(Principal::new("P1"))),
    ]);
    for engaged in [true, false] {
        match &scope {
            None => pdp.switch(engaged),
            Some(scope) => drop(pdp.scoped(scope, engaged).unwrap()),
        }
        pdp.ask("lamp.toggle", json!({"state": "on"}));
    }
}

fn undo(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    let Some((principal, index, params)) = random.take(&mut memory.reported) else { return };
    let members = json!({"source": "undo", "parent_id": format!("aud-{index}")});
    for _ in 0..1 + random.next(2) {
        let reply = pdp.decide_as(&principal, &with(request("lamp.restore", params.clone()), members.clone()));
        memory.open.extend(reply.permit_id.map(|id| (principal.clone(), id)));
    }
}

fn again(random: &mut Random, pdp: &mut Pdp, memory: &mut Memory) {
    if memory.asked.is_empty() {
        return;
    }
    let (principal, body) = random.pick(&memory.asked);
    match random.next(3) {
        0 => drop(pdp.decide_as(&principal, &body)),
        1 => drop(pdp.decide_as("P9", &body)),
        _ => drop(pdp.decide_as(&principal, &with(body, json!({"params": {"n": 1}})))),
    }
}

fn rest(random: &mut Random, pdp: &mut Pdp) {
    match random.next(4) {
        0 => drop(pdp.decide_bytes("P1", b"{bad")),
        1 => {
            let body = with(report_body(&PermitId::new("x"), "not_attempted"), json!({"permit_id": null}));
            pdp.report_as("P1", &with(body, json!({"request_id": super::fixture::uuid()})));
        }
        2 => {
            let local = json!({
                "action_type": "lamp.toggle", "completed_at": "2026-08-17T09:00:00Z", "mode": "fail_static",
                "decided_at": "2026-08-17T09:00:00Z", "outcome": "success", "params": {"state": "on"},
                "rationale": "t", "request_id": super::fixture::uuid(), "source": "llm",
            });
            let body = json!({"protocol": "aadp/0.2", "entries": [local]}).to_string().into_bytes();
            for _ in 0..2 {
                pdp.call("P1", Op::RecordLocal(body.clone())).unwrap();
            }
            // One whose permit was lost on its way.
            let lost = request("pay.card", json!({"amount": "1"}));
            pdp.decide(&lost);
            let outcome = random.pick(&["success", "not_attempted"]);
            let act =
                with(lost, json!({"outcome": outcome, "mode": "fail_open", "protocol": null, "created_at": null}));
            let times = json!({"completed_at": "2026-08-17T09:00:00Z", "decided_at": "2026-08-17T09:00:00Z"});
            let body = json!({"protocol": "aadp/0.2", "entries": [with(act, times)]});
            pdp.call("P1", Op::RecordLocal(body.to_string().into_bytes())).unwrap();
        }
        _ => {
            pdp.call("A1", Op::SignHead).unwrap();
            let asked = pdp.call("A1", Op::Query(Query::KillSwitch));
            assert!(matches!(asked, Err(Reject::Internal { .. })));
        }
    }
}
