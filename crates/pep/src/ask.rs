//! Asking: the same request to one node after the other until there is an answer, and the table that says what the
//! lack of one means (AADP §16).
//!
//! ```text
//! no connection, no TLS, no whole answer in time, 502, 503, 504   ask again; at last: unreachable, the mode applies
//! 401 403                                                         ask the next node; at last: fail closed
//! 400 413 415 422, any other status, no request at all            fail closed, whatever the mode
//! 200 that cannot be read, or an unknown verdict                  fail closed, whatever the mode
//! ```
//!
//! Absent on purpose: the modes. Who asks applies them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use placet_core::reply::Verdict;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use crate::action::{Asked, Origin};
use crate::answer::{Decision, Receipt, clip, object, text};
use crate::clock;
use crate::endpoint::{Endpoint, Reply};
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
    /// This was acted on before, or may have been. It is not done again.
    #[error("nothing is done twice: {0}")]
    Repeated(String),
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
        self.ask("/v1/decide", &asked.body, |reply| judge(reply, asked)).await
    }

    /// Whether an act may start on this permit now; the error says why not. No answer is no.
    pub(crate) async fn check(&self, permit_id: &str) -> Result<(), String> {
        let body = json!({ "permit_id": permit_id }).to_string();
        let usable = self.ask("/v1/permits/check", body.as_bytes(), usable).await;
        match usable {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(format!("the permit is not usable: {reason}")),
            Err(error) => Err(format!("the permit could not be checked: {error}")),
        }
    }

    /// The same bytes to one node after the other. One that refuses the credential is passed over: another one may take
    /// it, and if none does, nothing is done whatever the mode.
    async fn ask<T>(&self, path: &str, body: &[u8], read: impl Fn(&Reply) -> Result<T, Fault>) -> Result<T, AskError> {
        let (mut passed_over, mut refused) = (0u64, None);
        let mut last = "no attempt was made".to_owned();
        let attempts = async {
            let mut number = 0;
            while let Some((at, endpoint)) = self.pick(passed_over) {
                match endpoint.post(path, body.to_vec()).await {
                    Ok(reply) => match read(&reply) {
                        Ok(answer) => return Some(Ok(answer)),
                        Err(Fault::Closed(closed @ FailClosed::Credential(_))) => {
                            passed_over |= bit(at);
                            refused = Some(closed);
                            self.turn(at);
                            continue;
                        }
                        Err(Fault::Closed(closed)) => return Some(Err(closed.into())),
                        Err(Fault::Again(detail)) => last = detail,
                    },
                    Err(lost) if lost.unbuildable => return Some(Err(FailClosed::Malformed(lost.detail).into())),
                    Err(lost) => last = lost.detail,
                }
                self.turn(at);
                number += 1;
                if number >= self.attempts {
                    break;
                }
                sleep(clock::backoff(BACKOFF_FIRST, BACKOFF_MAX, number)).await;
            }
            None
        };
        let answer = timeout(self.decide_within, attempts).await;
        match (answer, refused) {
            (Ok(Some(answer)), _) => answer,
            (_, Some(refused)) => Err(refused.into()),
            (Ok(None), None) => Err(AskError::Unreachable(last)),
            (Err(_), None) => Err(AskError::Unreachable(format!("no answer in {:?}; {last}", self.decide_within))),
        }
    }

    /// Reports until there is a receipt or attempts are used up. Not durable: the outbox is.
    pub(crate) async fn report(&self, body: &[u8]) -> Result<Receipt, ReportError> {
        let mut last = String::new();
        for number in 1..=self.attempts {
            if number > 1 {
                sleep(clock::backoff(BACKOFF_FIRST, BACKOFF_MAX, number - 1)).await;
            }
            match self.deliver("/v1/report", body, 0).await {
                Ok((_, reply)) => match Receipt::read(&reply.body) {
                    Ok(receipt) => return Ok(receipt),
                    Err(wrong) => last = wrong,
                },
                Err(DeliveryFault::Again(why) | DeliveryFault::Away(why)) => last = why,
                Err(DeliveryFault::Refused(why)) => return Err(ReportError::Refused(why)),
            }
        }
        Err(ReportError::NotAnswered(last))
    }

    /// Posts something that must arrive some time: one attempt, at the endpoint that answered last, unless it is among
    /// `passed_over`. Returns a 200 and which endpoint gave it.
    pub(crate) async fn deliver(
        &self,
        path: &str,
        body: &[u8],
        passed_over: u64,
    ) -> Result<(usize, Reply), DeliveryFault> {
        let Some((at, endpoint)) = self.pick(passed_over) else {
            return Err(DeliveryFault::Refused("no endpoint is left".to_owned()));
        };
        let reply = match endpoint.post(path, body.to_vec()).await {
            Ok(reply) => reply,
            Err(lost) => {
                self.turn(at);
                return Err(DeliveryFault::Away(lost.detail));
            }
        };
        match reply.status {
            200 => Ok((at, reply)),
            502..=504 => {
                self.turn(at);
                Err(DeliveryFault::Away(said(&reply)))
            }
            400 | 413 | 415 | 422 => Err(DeliveryFault::Refused(said(&reply))),
            // A conflict with what is on record does not pass; the other local acts must not wait for it.
            409 if path == LOCAL_PATH => Err(DeliveryFault::Refused(said(&reply))),
            _ => {
                self.turn(at);
                Err(DeliveryFault::Again(said(&reply)))
            }
        }
    }

    /// Whether these are all endpoints.
    pub(crate) fn are_all(&self, passed_over: u64) -> bool {
        self.pick(passed_over).is_none()
    }

    /// Gets a document from the endpoint that answered last: one attempt.
    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        let (at, endpoint) = self.pick(0).ok_or("no endpoint")?;
        match endpoint.get(path).await {
            Ok(reply) if reply.status == 200 => Ok(reply.body),
            Ok(reply) => {
                self.turn(at);
                Err(said(&reply))
            }
            Err(lost) => {
                self.turn(at);
                Err(lost.detail)
            }
        }
    }

    /// The endpoint that answered last, or the next one that is not passed over.
    fn pick(&self, passed_over: u64) -> Option<(usize, &Endpoint)> {
        let first = self.preferred.load(Ordering::Relaxed) % self.endpoints.len().max(1);
        let (before, from) = self.endpoints.split_at_checked(first)?;
        let in_turn = from.iter().zip(first..).chain(before.iter().zip(0..));
        in_turn.map(|(endpoint, at)| (at, endpoint)).find(|(at, _)| passed_over & bit(*at) == 0)
    }

    /// The next attempt goes to another node than `at`.
    fn turn(&self, at: usize) {
        self.preferred.store(at.wrapping_add(1), Ordering::Relaxed);
    }
}

/// Where acts that were decided here are delivered.
pub(crate) const LOCAL_PATH: &str = "/v1/local";

/// One endpoint in a set of them; there are at most [`crate::limits::ENDPOINTS_MAX`].
pub(crate) fn bit(at: usize) -> u64 {
    1 << (at % 64)
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

/// The table above.
fn answered(reply: &Reply) -> Result<(), Fault> {
    Err(match reply.status {
        200 => return Ok(()),
        502..=504 => Fault::Again(said(reply)),
        400 | 413 | 415 | 422 => Fault::Closed(FailClosed::Malformed(said(reply))),
        401 | 403 => Fault::Closed(FailClosed::Credential(said(reply))),
        _ => Fault::Closed(FailClosed::Unintelligible(said(reply))),
    })
}

/// What a decision is worth here.
fn judge(reply: &Reply, asked: &Asked) -> Result<Decision, Fault> {
    answered(reply)?;
    let closed = |fault: FailClosed| Err(Fault::Closed(fault));
    let decision = match Decision::read(&reply.body) {
        Ok(decision) => decision,
        Err(wrong) => return closed(FailClosed::Unintelligible(wrong)),
    };
    if decision.verdict == Verdict::Deny && decision.reason == "malformed" {
        return closed(FailClosed::Malformed(decision.detail));
    }
    if decision.verdict != Verdict::Permit {
        return Ok(decision);
    }
    if decision.request_id.as_deref().is_none_or(|id| !id.eq_ignore_ascii_case(asked.request_id.as_str())) {
        return closed(FailClosed::Unintelligible("the answer belongs to another request".to_owned()));
    }
    // INVARIANT (one act): a permit that was answered before may be acted on already, by whoever knew the request id.
    let ours = match asked.origin {
        // Nobody did but this call. The first answer was lost on its way here, or on its way to the node that asked the
        // leader for us, which then asked again.
        Origin::ThisCall => true,
        Origin::Caller => false,
        // Claimed on disk, and checked with the decision point, before anything is done on it.
        Origin::Resumed => true,
    };
    if decision.replayed && !ours {
        return closed(FailClosed::Repeated("this request id was permitted before; it needs a new one".to_owned()));
    }
    Ok(decision)
}

/// Why a permit may not be acted on; `None` if it may.
fn usable(reply: &Reply) -> Result<Option<String>, Fault> {
    answered(reply)?;
    let unintelligible = |why: String| Fault::Closed(FailClosed::Unintelligible(why));
    let check = object(&reply.body).map_err(unintelligible)?;
    match check.get("usable") {
        Some(Value::Bool(true)) => Ok(None),
        Some(Value::Bool(false)) => Ok(Some(clip(&text(&check, "reason").unwrap_or_default()))),
        _ => Err(unintelligible("the answer does not say `usable`".to_owned())),
    }
}

/// A status and the beginning of what came with it.
fn said(reply: &Reply) -> String {
    format!("status {}: {}", reply.status, clip(&String::from_utf8_lossy(&reply.body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::endpoint::{Address, Credentials};

    /// A request that cannot be built is nothing that waiting or another mode helps against.
    #[tokio::test]
    async fn what_cannot_be_sent_to_anyone_fails_closed() {
        let token = Some("two\nlines".to_owned());
        let credentials =
            Credentials { token, root_ca_pem: None, identity_pem: None, attempt_within: Duration::from_secs(1) };
        let endpoints = Endpoint::all(&[Address::Url("http://127.0.0.1:1".to_owned())], &credentials).unwrap();
        let asker = Asker::new(endpoints, 2, Duration::from_secs(2));
        let decided = asker.decide(&Action::new("a").ask().unwrap()).await;
        assert!(matches!(decided, Err(AskError::FailClosed(FailClosed::Malformed(_)))), "{decided:?}");
    }
}
