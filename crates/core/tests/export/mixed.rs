//! A hundred thousand entries of a busy desk.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use placet_core::evaluate::{Rederivation, Rederived};
use placet_core::evidence;
use placet_core::export::{HEADER, Line, Verified, Verifier, entry_line};
use placet_core::ids::{EvidenceIndex, Hash, PermitId};
use placet_core::op::Op;
use placet_core::reply::{DecideReply, Verdict};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::story::POLICY;

const ENTRIES: u64 = 100_000;

/// A small generator: the same seed gives the same desk.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}

/// Lets everything happen at a desk until there are so many entries; each line of the export leaves at once.
fn busy(entries: u64, lines: &SyncSender<Vec<u8>>) -> Hash {
    let (mut desk, mut random) = (Desk::new(), Random(20_260_817));
    let wide = POLICY.replace("\"500.00\"", "\"90000\"").replace("limit: 40", "limit: 2000");
    desk.publish(&wide);
    let mut sent = EvidenceIndex(0);
    let mut open: Vec<(&str, PermitId)> = Vec::new();
    let mut signed = 0;
    while desk.entries() < entries {
        desk.now = desk.now.plus_ms(i64::try_from(random.below(2500)).unwrap());
        let agent = random.pick(&["agent-1", "agent-2", "agent-3", "agent-4"]);
        match random.below(100) {
            0..42 if !open.is_empty() => {
                let (agent, permit) = open.swap_remove(usize::try_from(random.below(open.len() as u64)).unwrap());
                let outcome = random.pick(&["success", "success", "success", "failure", "timeout", "not_attempted"]);
                let more = json!({"no_effect": random.below(2) == 0, "payload": {"ref": random.below(1 << 40)}});
                desk.report(agent, json!({"permit_id": permit}), outcome, more);
            }
            42..44 => wire(&mut desk, &mut random),
            44 => drop(desk.call(agent, Op::Decide(b"{\"protocol\": 1}".to_vec()))),
            45 if random.below(40) == 0 => {
                desk.switch(true);
                decide(&mut desk, &mut random, agent);
                desk.switch(false);
            }
            46 if random.below(40) == 0 => {
                let limit = random.pick(&["\"90000\"", "\"80000\"", "\"70000\""]);
                desk.publish(&wide.replace("\"90000\"", limit));
            }
            _ => {
                let reply = decide(&mut desk, &mut random, agent);
                open.extend(reply.permit_id.map(|permit| (agent, permit)));
            }
        }
        if desk.entries() >= signed + 10_000 {
            signed = desk.entries();
            desk.sign_head();
        }
        for (index, bytes) in desk.state.entries.range(sent.next()..) {
            lines.send(entry_line(bytes, &evidence::hash(bytes))).unwrap();
            sent = *index;
        }
    }
    desk.state.meta.chain_head
}

fn decide(desk: &mut Desk, random: &mut Random, agent: &str) -> DecideReply {
    let amount = random.pick(&["1", "30", "60.25", "399.99", "0.01", "x", "9000"]);
    let (action, params): (&str, Value) = match random.below(8) {
        0 => ("accounts.balance", json!({"account": "NL1"})),
        1..5 => ("payments.transfer", json!({"payee": "x", "amount_eur": amount})),
        5 => ("payroll.pay", json!({"iban": format!("NL{}", random.below(1000))})),
        6 => (
            "web.post",
            json!({"url": random.pick(&["https://a.partner.example/", "https://b.example/x", "http://["])}),
        ),
        _ => (random.pick(&["reports.send", "payments.reverse", "no.such"]), json!({"payment": "p"})),
    };
    desk.decide(agent, action, params, json!({"session_id": "s"}))
}

/// A wire, granted by two, resumed by its agent; sometimes refused.
fn wire(desk: &mut Desk, random: &mut Random) {
    let params = json!({"amount_eur": random.pick(&["200", "75.5"])});
    let reply = desk.decide("agent-1", "payments.wire", params.clone(), json!({}));
    if reply.verdict != Verdict::Propose {
        return;
    }
    let id = reply.approval_id.unwrap();
    desk.resolve("ada", &id, true, None);
    let granted = random.below(4) > 0;
    desk.resolve("grace", &id, granted, None);
    if granted {
        let resumed = desk.decide("agent-1", "payments.wire", params, json!({"approval_ref": id}));
        if let Some(permit) = resumed.permit_id {
            desk.report("agent-1", json!({"permit_id": permit}), "success", json!({}));
        }
    }
}

/// What an auditor's machine does with the lines, and how long each half of it took.
#[derive(Default)]
struct Audit {
    verifier: Verifier,
    walk: Rederivation,
    verdicts: u64,
    redacted: u64,
    bytes: usize,
    verifying: Duration,
    deriving: Duration,
}

impl Audit {
    fn line(&mut self, line: &[u8]) {
        self.bytes += line.len();
        let start = Instant::now();
        let read = self.verifier.line(line).unwrap();
        self.verifying += start.elapsed();
        let Line::Entry(entry, bytes) = read else { return };
        let start = Instant::now();
        match self.walk.step(entry, bytes.to_vec()).unwrap_or_else(|difference| panic!("{difference}")) {
            Rederived::Verdict => self.verdicts += 1,
            Rederived::Redacted { .. } => self.redacted += 1,
            Rederived::Fact => {}
        }
        self.deriving += start.elapsed();
    }
}

fn audit(lines: &Receiver<Vec<u8>>) -> (Audit, Verified) {
    let mut audit = Audit::default();
    audit.line(HEADER);
    lines.iter().for_each(|line| audit.line(&line));
    let last = audit.verifier.closing_line();
    audit.line(&last);
    let verified = audit.verifier.clone().finish().unwrap();
    (audit, verified)
}

#[test]
fn a_hundred_thousand_entries_verify_and_are_derived_again() {
    let (sender, receiver) = sync_channel(1000);
    let auditor = std::thread::spawn(move || audit(&receiver));
    let start = Instant::now();
    let chain_head = busy(ENTRIES, &sender);
    drop(sender);
    let (audit, verified) = auditor.join().unwrap();
    println!(
        "{} entries, {} MiB, made and audited in {:?}: verified in {:?}, derived again in {:?}",
        verified.entries,
        audit.bytes >> 20,
        start.elapsed(),
        audit.verifying,
        audit.deriving
    );
    assert_eq!(verified.chain_head, chain_head);
    assert!(verified.entries >= ENTRIES && verified.heads >= 9 && verified.redacted > 1000, "{verified:?}");
    assert!(audit.verdicts > 50_000 && audit.redacted == 0, "{}", audit.verdicts);
}
