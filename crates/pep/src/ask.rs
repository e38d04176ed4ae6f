//! Asking: the same request to one node after the other until there is an answer, and the table that says what the
//! lack of one means (AADP §16).
//!
//! ```text
//! no connection, no TLS, no whole answer in time, 502, 503, 504   ask again; at last: unreachable, the mode applies
//! 400 413 415 422, 401 403, any other status                      fail closed, whatever the mode
//! 200 that cannot be read, or an unknown verdict                  fail closed, whatever the mode
//! ```
//!
//! Absent on purpose: the modes. Who asks applies them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use placet_core::reply::Verdict;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use crate::action::Asked;
use crate::answer::{Decision, Receipt, clip};
use crate::clock;
use crate::endpoint::{Endpoint, Lost, Reply};
use crate::limits::{BACKOFF_FIRST, BACKOFF_MAX};

/// Why an answer, or the lack of one, forbids to act whatever the unreachability mode (AADP §16).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FailClosed {
    /// The request is not well formed, as this crate or the decision point found.
    #[error("the request is malformed: {0}")]
    Malformed(String),
    /// The decision point did not accept the credential (401, 403).
    #[error("the credential was refused: {0}")]
    Credential(String),
    /// The answer is not one that this crate understands.
    #[error("the answer cannot be used: {0}")]
    Unintelligible(String),
}

/// Why asking gave no decision.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// Do not act, whatever the mode.
    #[error(transparent)]
    FailClosed(#[from] FailClosed),
    /// No decision point could be reached, and attempts are used up. The text names the last failure.
    #[error("no decision point answers: {0}")]
    Unreachable(String),
}

/// Why there is no receipt for a report.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReportError {
    /// No decision point answered in as many attempts. The report may have arrived; repeat the same one.
    #[error("no decision point answers: {0}")]
    NotAnswered(String),
    /// It will never be taken as it is.
    #[error("the report was refused: {0}")]
    Refused(String),
}

/// The endpoints, and how patiently they are asked.
#[derive(Debug)]
pub(crate) struct Asker {
    endpoints: Vec<Endpoint>,
    /// Where the last answer came from.
    preferred: AtomicUsize,
    attempts: u32,
    decide_within: Duration,
}

/// What one reply without an answer means.
enum Fault {
    Again(String),
    Closed(FailClosed),
}

impl Asker {
    pub(crate) fn new(endpoints: Vec<Endpoint>, attempts: u32, decide_within: Duration) -> Self {
        Self { endpoints, preferred: AtomicUsize::new(0), attempts, decide_within }
    }

    /// Asks until a decision is read. Every attempt carries the same bytes, and so the same `request_id`.
    pub(crate) async fn decide(&self, asked: &Asked) -> Result<Decision, AskError> {
        let mut sent = false;
        let mut last = "no attempt was made".to_owned();
        let attempts = async {
            for number in 1..=self.attempts {
                if number > 1 {
                    sleep(clock::backoff(BACKOFF_FIRST, BACKOFF_MAX, number - 1)).await;
                }
                let before = sent;
                match self.once("/v1/decide", Some(&asked.body), &mut sent).await {
                    Ok(reply) => match judge(&reply, asked, before) {
                        Ok(decision) => return Some(Ok(decision)),
                        Err(Fault::Closed(closed)) => return Some(Err(closed.into())),
                        Err(Fault::Again(detail)) => last = detail,
                    },
                    Err(lost) => last = lost.detail,
                }
                self.turn();
            }
            None
        };
        match timeout(self.decide_within, attempts).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(AskError::Unreachable(last)),
            Err(_) => Err(AskError::Unreachable(format!("no answer in {:?}; {last}", self.decide_within))),
        }
    }

    /// Reports until there is a receipt or attempts are used up. Not durable: the outbox is.
    pub(crate) async fn report(&self, body: &[u8]) -> Result<Receipt, ReportError> {
        let mut last = String::new();
        for number in 1..=self.attempts {
            if number > 1 {
                sleep(clock::backoff(BACKOFF_FIRST, BACKOFF_MAX, number - 1)).await;
            }
            match self.deliver("/v1/report", body).await {
                Ok(reply) => match Receipt::read(&reply.body) {
                    Ok(receipt) => return Ok(receipt),
                    Err(wrong) => last = wrong,
                },
                Err(DeliveryFault::Again(why) | DeliveryFault::Away(why)) => last = why,
                Err(DeliveryFault::Refused(why)) => return Err(ReportError::Refused(why)),
            }
        }
        Err(ReportError::NotAnswered(last))
    }

    /// Posts something that must arrive some time: one attempt, at the endpoint that answered last. Returns a 200.
    pub(crate) async fn deliver(&self, path: &str, body: &[u8]) -> Result<Reply, DeliveryFault> {
        let reply = match self.once(path, Some(body), &mut false).await {
            Ok(reply) => reply,
            Err(lost) => {
                self.turn();
                return Err(DeliveryFault::Away(lost.detail));
            }
        };
        match reply.status {
            200 => Ok(reply),
            502..=504 => {
                self.turn();
                Err(DeliveryFault::Away(said(&reply)))
            }
            400 | 413 | 415 | 422 => Err(DeliveryFault::Refused(said(&reply))),
            _ => {
                self.turn();
                Err(DeliveryFault::Again(said(&reply)))
            }
        }
    }

    /// Gets a document from the endpoint that answered last: one attempt.
    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        match self.once(path, None, &mut false).await {
            Ok(reply) if reply.status == 200 => Ok(reply.body),
            Ok(reply) => {
                self.turn();
                Err(said(&reply))
            }
            Err(lost) => {
                self.turn();
                Err(lost.detail)
            }
        }
    }

    async fn once(&self, path: &str, body: Option<&[u8]>, sent: &mut bool) -> Result<Reply, Lost> {
        let at = self.preferred.load(Ordering::Relaxed) % self.endpoints.len().max(1);
        let Some(endpoint) = self.endpoints.get(at) else {
            return Err(Lost { detail: "no endpoint".to_owned(), sent: false });
        };
        let reply = match body {
            Some(body) => endpoint.post(path, body.to_vec()).await,
            None => endpoint.get(path).await,
        };
        *sent |= reply.as_ref().map_or_else(|lost| lost.sent, |_| true);
        reply
    }

    /// The next attempt goes to another node.
    fn turn(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why something was not delivered.
#[derive(Debug)]
pub(crate) enum DeliveryFault {
    /// No decision point can be reached: nothing else will arrive either.
    Away(String),
    /// Try again later.
    Again(String),
    /// The decision point will never take this body.
    Refused(String),
}

/// The table above. `asked_before` says whether an earlier attempt of this call may have arrived.
fn judge(reply: &Reply, asked: &Asked, asked_before: bool) -> Result<Decision, Fault> {
    let closed = |fault: FailClosed| Err(Fault::Closed(fault));
    match reply.status {
        200 => {}
        502..=504 => return Err(Fault::Again(said(reply))),
        400 | 413 | 415 | 422 => return closed(FailClosed::Malformed(said(reply))),
        401 | 403 => return closed(FailClosed::Credential(said(reply))),
        _ => return closed(FailClosed::Unintelligible(said(reply))),
    }
    let decision = match Decision::read(&reply.body) {
        Ok(decision) => decision,
        Err(wrong) => return closed(FailClosed::Unintelligible(wrong)),
    };
    if decision.verdict == Verdict::Deny && decision.reason == "malformed" {
        return closed(FailClosed::Malformed(decision.detail));
    }
    let ours = decision.request_id.as_deref().is_some_and(|id| id.eq_ignore_ascii_case(asked.request_id.as_str()));
    if decision.verdict == Verdict::Permit && !ours {
        return closed(FailClosed::Unintelligible("the answer belongs to another request".to_owned()));
    }
    if decision.verdict == Verdict::Permit && decision.replayed && !asked_before {
        // Someone else has this permit, perhaps an earlier life of this program: it may be acted on already.
        return closed(FailClosed::Unintelligible(
            "this request id was permitted before; it needs a new one".to_owned(),
        ));
    }
    Ok(decision)
}

/// A status and the beginning of what came with it.
fn said(reply: &Reply) -> String {
    format!("status {}: {}", reply.status, clip(&String::from_utf8_lossy(&reply.body)))
}
