//! What a client does, from the question to the report, and where it dies.
//! Absent on purpose: order between clients. Each goes its own way.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{BACKOFF, Client, ask};
use crate::doors::Said;
use crate::requests;
use crate::secrets::APPROVERS;

/// Bodies that a client remembers to ask again.
const PAST_MAX: usize = 40;

/// How often one approver tries before the proposal is given up.
const GRANT_TRIES: usize = 200;

impl Client {
    pub(super) async fn flow(&mut self) {
        if self.past.len() > PAST_MAX {
            self.past.drain(..PAST_MAX / 2);
        }
        match self.dice.below(20) {
            0..=7 => self.pay("pay.large").await,
            8..=9 => self.pay("pay.small").await,
            10..=11 => self.pay("pay.rolling").await,
            12..=13 => self.pay("act.rate").await,
            14 => self.brief().await,
            15 => self.approval().await,
            16 => self.everywhere().await,
            17 => self.again().await,
            18 => self.vanish().await,
            _ => self.pay("nobody.knows").await,
        }
    }

    fn body(&mut self, action: &str) -> Value {
        let amount = 1 + self.dice.below(5);
        let params = if action.starts_with("pay.") { json!({"amount_eur": amount.to_string()}) } else { json!({}) };
        requests::decide(action, &params, None)
    }

    async fn pay(&mut self, action: &str) {
        let body = self.body(action);
        if let Some(permit) = self.decide(&body).await.and_then(|answered| answered.permit) {
            self.act(&permit).await;
        }
    }

    /// What happens with a permit. A crash after the reply and before the act leaves the intent open for good; one after
    /// the act and before the report until the client comes back and reads its own journal.
    async fn act(&mut self, permit: &str) {
        match self.dice.below(20) {
            0..=1 => self.journal.died("after reply, before act"),
            2..=3 => {
                self.journal.died("after act, before report");
                let back = Instant::now() + Duration::from_millis(500 + self.dice.below(4000));
                self.journaled.push((back, permit.to_owned()));
            }
            4 => self.report(permit, "failure", true).await,
            5 => self.report(permit, "not_attempted", false).await,
            6 => {
                // The answer may have been lost on the way to the act: it reports again, and must be refused.
                self.report(permit, "success", false).await;
                self.report(permit, "success", false).await;
            }
            _ => self.report(permit, "success", false).await,
        }
    }

    /// Reports what a client that died had done.
    pub(super) async fn come_back(&mut self) {
        let now = Instant::now();
        let due: Vec<String> =
            self.journaled.iter().filter(|(back, _)| *back <= now).map(|(_, permit)| permit.clone()).collect();
        self.journaled.retain(|(back, _)| *back > now);
        for permit in due {
            self.report(&permit, "success", false).await;
        }
    }

    /// A permit that lives two seconds: reported in time, too late, or never.
    async fn brief(&mut self) {
        let body = self.body("pay.brief");
        let Some(permit) = self.decide(&body).await.and_then(|answered| answered.permit) else { return };
        match self.dice.below(3) {
            0 => self.report(&permit, "success", false).await,
            1 => self.journaled.push((Instant::now() + Duration::from_millis(1900 + self.dice.below(300)), permit)),
            _ => {}
        }
    }

    /// Proposes, waits for both approvers, and resumes: once, or twice at the same time.
    async fn approval(&mut self) {
        let params = json!({"amount_eur": (1 + self.dice.below(5)).to_string()});
        let proposal = requests::decide("pay.payout", &params, None);
        let Some(approval) = self.decide(&proposal).await.and_then(|answered| answered.approval) else { return };
        for (_, token) in APPROVERS {
            if !self.grant(&approval, token).await {
                return;
            }
        }
        let first = requests::decide("pay.payout", &params, Some(&approval));
        if self.dice.one_in(2) {
            let second = requests::decide("pay.payout", &params, Some(&approval));
            let (one, other) = (self.node(), self.node());
            self.journal.decide_sent(&first);
            self.journal.decide_sent(&second);
            let (doors, journal, token) = (&self.doors, &*self.journal, self.token.as_str());
            let _ = tokio::join!(ask(doors, journal, token, one, &first), ask(doors, journal, token, other, &second));
            // Whatever became of them, each has one answer.
            let answers = [self.decide(&first).await, self.decide(&second).await];
            for permit in answers.into_iter().flatten().filter_map(|answered| answered.permit) {
                self.act(&permit).await;
            }
        } else if let Some(permit) = self.decide(&first).await.and_then(|answered| answered.permit) {
            self.act(&permit).await;
        }
    }

    /// Grants until it is granted; an earlier attempt may have been it.
    async fn grant(&mut self, approval: &str, token: &str) -> bool {
        let path = format!("/v1/approvals/{approval}/grant");
        for _ in 0..GRANT_TRIES {
            let (node, sent) = (self.node(), self.journal.now());
            let said = self.doors.call(node, "POST", &path, token, None).await;
            self.journal.attempt(sent, matches!(said, Said::Answer(..)));
            match said {
                Said::Answer(200 | 409, _) => return true,
                Said::Answer(status, body) => {
                    self.journal.odd(format!("a grant was answered {status}: {body}"));
                    return false;
                }
                Said::Unknown | Said::Nothing if self.stopped() => return false,
                Said::Unknown | Said::Nothing => tokio::time::sleep(BACKOFF).await,
            }
        }
        false
    }

    /// The same request at several nodes at the same time.
    async fn everywhere(&mut self) {
        let body = self.body("pay.large");
        let (one, two, three) = (self.node(), self.node(), self.node());
        self.journal.decide_sent(&body);
        let (doors, journal, token) = (&self.doors, &*self.journal, self.token.as_str());
        let _ = tokio::join!(
            ask(doors, journal, token, one, &body),
            ask(doors, journal, token, two, &body),
            ask(doors, journal, token, three, &body),
        );
        if let Some(permit) = self.decide(&body).await.and_then(|answered| answered.permit) {
            self.act(&permit).await;
        }
    }

    /// A request that was answered before, as a client does that lost the answer.
    async fn again(&mut self) {
        if let Some(body) = self.dice.pick(&self.past).cloned() {
            let _ = self.decide_once(&body).await;
        }
    }

    /// Dies while it waits for the answer and never comes back.
    async fn vanish(&mut self) {
        let body = self.body("pay.large");
        self.journal.decide_sent(&body);
        self.journal.died("before the reply");
        let patience = Duration::from_micros(self.dice.below(8000));
        let _ = tokio::time::timeout(patience, self.decide_once(&body)).await;
    }
}
