//! An enforcement point: decides, acts, reports; asks again when it does not know; sometimes dies between the phases.

use placet_core::ids::{ApprovalId, PermitId};
use placet_core::op::{Answer, Op, Reject};
use placet_core::reply::{DecideReply, Verdict};
use serde_json::json;

use super::{Client, unknown};

/// Requests that an agent remembers, to ask again.
const MEMORY: usize = 12;

#[derive(Default)]
struct Agent {
    asked: u64,
    /// Bodies whose fate is unknown.
    unknown: Vec<Vec<u8>>,
    /// Bodies that were answered.
    answered: Vec<Vec<u8>>,
    /// Permits that are not reported.
    held: Vec<PermitId>,
    /// Reports that were taken, or may have been.
    reported: Vec<Vec<u8>>,
    /// Proposals that wait for people, with their amounts.
    proposed: Vec<(ApprovalId, String)>,
}

pub(super) async fn live(client: Client, number: u64) {
    let mut agent = Agent::default();
    while client.pause(5, 160).await {
        match client.within(0, 99) {
            0..46 => agent.ask(&client, number).await,
            46..58 => agent.ask_again(&client).await,
            58..62 => agent.repeat(&client).await,
            62..86 => agent.report(&client).await,
            86..89 => agent.report_again(&client).await,
            89..97 => agent.resume(&client, number).await,
            // The process dies: what it held is forgotten, the cluster has to end it.
            97 => agent = Agent { asked: agent.asked, ..Agent::default() },
            _ => agent.ask_twice(&client, number).await,
        }
        for list in [&mut agent.unknown, &mut agent.answered, &mut agent.reported] {
            list.drain(..list.len().saturating_sub(MEMORY));
        }
    }
}

impl Agent {
    fn request_id(&mut self, number: u64) -> String {
        self.asked += 1;
        format!("{number:08x}-0000-4000-8000-{:012x}", self.asked)
    }

    fn amount(client: &Client) -> String {
        format!("{}.{:02}", client.within(0, 9), client.within(1, 99))
    }

    fn body(&mut self, client: &Client, number: u64) -> Vec<u8> {
        let (action, params) = match client.within(0, 9) {
            0..5 => ("spend", json!({ "amount": Self::amount(client) })),
            5..8 => ("act", json!({ "n": self.asked })),
            _ => ("pay", json!({ "amount": Self::amount(client) })),
        };
        self.request(number, action, &params, None)
    }

    fn request(
        &mut self,
        number: u64,
        action: &str,
        params: &serde_json::Value,
        approval: Option<&ApprovalId>,
    ) -> Vec<u8> {
        let mut body = json!({
            "protocol": "aadp/0.2", "request_id": self.request_id(number), "action_type": action, "params": params,
            "source": "llm", "rationale": "simulated", "created_at": "2026-08-17T09:00:00Z",
        });
        if let (Some(id), Some(fields)) = (approval, body.as_object_mut()) {
            fields.insert("approval_ref".to_owned(), json!(id.as_str()));
        }
        body.to_string().into_bytes()
    }

    async fn ask(&mut self, client: &Client, number: u64) {
        let body = self.body(client, number);
        self.decide(client, body).await;
    }

    async fn decide(&mut self, client: &Client, body: Vec<u8>) {
        let answer = client.call(Op::Decide(body.clone())).await;
        if unknown(answer.as_ref()) {
            self.unknown.push(body);
            return;
        }
        if let Some(Ok(Answer::Decide(reply))) = answer {
            self.learn(client, &body, reply);
        }
    }

    fn learn(&mut self, client: &Client, body: &[u8], reply: DecideReply) {
        self.answered.push(body.to_vec());
        match reply.verdict {
            Verdict::Permit => self.held.extend(reply.permit_id.filter(|id| !self.held.contains(id))),
            Verdict::Propose => {
                let amount = serde_json::from_slice::<serde_json::Value>(body).ok();
                let amount = amount.and_then(|body| body["params"]["amount"].as_str().map(str::to_owned));
                self.proposed.extend(reply.approval_id.zip(amount));
            }
            _ => {}
        }
        let _ = client;
    }

    /// Asks again what it does not know.
    async fn ask_again(&mut self, client: &Client) {
        if let Some(body) = self.unknown.pop() {
            self.decide(client, body).await;
        }
    }

    /// Asks again what it knows.
    async fn repeat(&mut self, client: &Client) {
        let body = client.rng.lock().pick(&self.answered).cloned();
        if let Some(body) = body {
            self.decide(client, body).await;
        }
    }

    /// The same request at two nodes at once.
    async fn ask_twice(&mut self, client: &Client, number: u64) {
        let body = self.body(client, number);
        let (one, two) = tokio::join!(client.call(Op::Decide(body.clone())), client.call(Op::Decide(body.clone())));
        for answer in [one, two] {
            match answer {
                Some(Ok(Answer::Decide(reply))) => self.learn(client, &body, reply),
                answer if unknown(answer.as_ref()) => self.unknown.push(body.clone()),
                _ => {}
            }
        }
    }

    async fn report(&mut self, client: &Client) {
        if self.held.is_empty() {
            return;
        }
        let at = usize::try_from(client.within(0, self.held.len() as u64 - 1)).unwrap_or_default();
        let permit = self.held.swap_remove(at);
        let (outcome, no_effect) = match client.within(0, 9) {
            0..6 => ("success", false),
            6..7 => ("failure", false),
            7..9 => ("failure", true),
            _ => ("not_attempted", false),
        };
        let mut body = json!({
            "protocol": "aadp/0.2", "permit_id": permit.as_str(), "outcome": outcome,
            "completed_at": "2026-08-17T09:00:01Z",
        });
        if let (true, Some(fields)) = (no_effect, body.as_object_mut()) {
            fields.insert("no_effect".to_owned(), json!(true));
        }
        let body = body.to_string().into_bytes();
        let answer = client.call(Op::Report(body.clone())).await;
        if matches!(answer, Some(Err(Reject::Unavailable { .. }))) {
            self.held.push(permit);
        } else {
            self.reported.push(body);
        }
    }

    /// A second report: refused, if the first was taken.
    async fn report_again(&mut self, client: &Client) {
        let body = client.rng.lock().pick(&self.reported).cloned();
        if let Some(body) = body {
            client.call(Op::Report(body)).await;
        }
    }

    /// Tries whether people have approved.
    async fn resume(&mut self, client: &Client, number: u64) {
        if self.proposed.is_empty() {
            return;
        }
        let at = usize::try_from(client.within(0, self.proposed.len() as u64 - 1)).unwrap_or_default();
        let (id, amount) = self.proposed[at].clone();
        let body = self.request(number, "pay", &json!({ "amount": amount }), Some(&id));
        // Sometimes at once a second time, under another request id: one human decision is one permit.
        if client.chance(300) {
            let second = self.request(number, "pay", &json!({ "amount": amount }), Some(&id));
            let (one, two) =
                tokio::join!(client.call(Op::Decide(body.clone())), client.call(Op::Decide(second.clone())));
            for (answer, body) in [(one, body), (two, second)] {
                match answer {
                    Some(Ok(Answer::Decide(reply))) => self.learn(client, &body, reply),
                    answer if unknown(answer.as_ref()) => self.unknown.push(body),
                    _ => {}
                }
            }
        } else {
            self.decide(client, body).await;
        }
        if self.proposed.len() > 6 {
            self.proposed.remove(0);
        }
    }
}
