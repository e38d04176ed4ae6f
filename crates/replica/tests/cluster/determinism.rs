//! AADP case 40 on real clusters: the same requests in the same order have the same answers, however they were batched.

use std::time::Duration;

use futures::future::join_all;
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op};
use placet_core::reply::DecideReply;

use crate::harness::Cluster;

const REQUESTS: usize = 10_000;

/// Requests that are submitted at once; reports and grants stand between two such rounds.
const ROUND: usize = 400;

const POLICY: &str = r#"apiVersion: placet/v1
timezone: Europe/Amsterdam
budgets:
  eur-day: { kind: value, unit: EUR, limit: "60000", window: day }
  eur-5h: { kind: value, unit: EUR, limit: "9000", window: PT5H }
  calls: { kind: rate, limit: 900, window: day, per: principal }
effects:
  money.egress: { draws: [eur-day] }
  danger: { min_tier: 3 }
policies:
  - { action_type: read, tier: 0, bounds: { strict_params: false } }
  - { action_type: undo, tier: 1, dry_run: false, compensating_command: undo, bounds: { strict_params: false } }
  - action_type: pay
    tier: 2
    dry_run: false
    compensating_command: undo
    cost: { param: amount }
    draws: [eur-5h, calls]
    bounds: { numeric: { amount: { min: "0.01", max: "500" } }, required: [amount, payee] }
    effects: [money.egress]
    param_effects: [{ param: payee, pattern: "acme-.*", add_effects: [danger] }]
  - action_type: fee
    tier: 2
    dry_run: false
    compensating_command: undo
    draws: [eur-5h]
    bounds: { strict_params: false }
  - action_type: wire
    tier: 3
    dry_run: false
    cost: { param: amount }
    draws: [eur-day]
    bounds: { required: [amount] }
  - { action_type: rehearse, tier: 1, compensating_command: undo, bounds: { strict_params: false } }
"#;

/// Goal: ten thousand requests have the same verdict, reason, tiers and budget object on two clusters, one of which puts
/// each event into a batch of its own.
#[test]
fn case_040_two_clusters_answer_alike_whatever_their_batches() {
    let singly = answers(Cluster::start(3, |options| {
        options.batch_events_max = 1;
        options.deadline = Duration::from_secs(60);
    }));
    let together = answers(Cluster::start(3, |options| options.deadline = Duration::from_secs(60)));
    assert_eq!(singly.len(), REQUESTS);
    for (at, (one, other)) in singly.iter().zip(&together).enumerate() {
        assert_eq!(facts(one), facts(other), "request {at}");
    }
    for verdict in ["permit", "deny", "propose", "dry_run", "observe"] {
        let count = singly.iter().filter(|reply| reply.verdict.as_str() == verdict).count();
        assert!(count >= 100, "only {count} answers are {verdict}: the comparison would say little");
    }
    assert!(singly.iter().filter(|reply| reply.budget.is_some()).count() >= 100);
}

fn facts(reply: &DecideReply) -> String {
    format!(
        "{} {} {}/{} {} {}",
        reply.verdict.as_str(),
        reply.reason.as_str(),
        u8::from(reply.nominal_tier),
        u8::from(reply.effective_tier),
        serde_json::to_string(&reply.budget).unwrap(),
        reply.evidence_id
    )
}

fn answers(cluster: Cluster) -> Vec<DecideReply> {
    let leader = cluster.leader();
    let op = Op::PublishPolicy { document: POLICY.to_owned(), expect: None, activate: true };
    assert!(matches!(cluster.submit(leader, op), Ok(Answer::PolicyPublished(_))));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut all: Vec<DecideReply> = Vec::new();
    while all.len() < REQUESTS {
        let bodies: Vec<(String, Vec<u8>)> = (0..ROUND).map(|at| random.request(all.len() + at)).collect();
        // Polled in order the first time, so they are queued in order; nobody waits for the one before.
        let calls = bodies.into_iter().map(|(principal, body)| {
            cluster.node(leader).submit(Call { principal: Principal::new(principal), op: Op::Decide(body) })
        });
        let round = cluster.block_on(leader, join_all(calls));
        let replies: Vec<DecideReply> = round
            .into_iter()
            .map(|answer| match answer {
                Ok(Answer::Decide(reply)) => reply,
                other => panic!("no decision: {other:?}"),
            })
            .collect();
        for reply in &replies {
            settle(&cluster, leader, reply, &mut random);
        }
        all.extend(replies);
    }
    all
}

/// Reports some permits and grants some proposals: which ones is drawn, not told by the clock or by identifiers.
fn settle(cluster: &Cluster, leader: u64, reply: &DecideReply, random: &mut Random) {
    let chosen = random.below(12);
    if let (Some(permit), 0) = (&reply.permit_id, chosen) {
        let outcome = ["success", "failure", "timeout", "not_attempted"][random.below(4)];
        let body = format!(
            r#"{{"protocol":"aadp/0.2","permit_id":"{permit}","outcome":"{outcome}","completed_at":"2026-08-17T09:00:00Z"}}"#
        );
        for principal in ["agent-0", "agent-1", "agent-2"] {
            let call = Call { principal: Principal::new(principal), op: Op::Report(body.clone().into_bytes()) };
            cluster.block_on(leader, cluster.node(leader).submit(call)).unwrap();
        }
    }
    if let (Some(id), 1) = (&reply.approval_id, chosen) {
        let op = Op::ResumeApproval { id: id.clone(), note: None };
        assert!(matches!(cluster.submit(leader, op), Ok(Answer::Decide(_))));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }

    fn request(&mut self, number: usize) -> (String, Vec<u8>) {
        let action = ["pay", "pay", "pay", "fee", "wire", "read", "rehearse", "nothing"][self.below(8)];
        let amount = ["0.01", "12.50", "99", "500", "500.01", "7"][self.below(6)];
        let payee = ["x", "acme-1", "y"][self.below(3)];
        let protocol = ["aadp/0.1", "aadp/0.2"][self.below(2)];
        let params = match action {
            "pay" if self.below(10) == 0 => format!(r#"{{"amount":"{amount}"}}"#),
            "pay" => format!(r#"{{"amount":"{amount}","payee":"{payee}"}}"#),
            "wire" => format!(r#"{{"amount":{amount}}}"#),
            _ => "{}".to_owned(),
        };
        let cost = if self.below(3) == 0 { String::new() } else { format!(r#""cost_eur":"{amount}","#) };
        let body = format!(
            r#"{{"protocol":"{protocol}","request_id":"00000000-0000-4000-8000-{number:012x}","action_type":"{action}",
            "params":{params},{cost}"source":"llm","rationale":"test","created_at":"2026-08-17T09:00:00Z"}}"#
        );
        (format!("agent-{}", self.below(3)), body.into_bytes())
    }
}
