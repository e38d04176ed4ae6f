//! Calls: judged here when this node leads, forwarded when another does, tried again only while that is safe.
//! Absent on purpose: a second attempt at what may have happened. A decide is the exception: the same bytes under the
//! same request id are the same decision, whoever is asked (AADP §12).

use std::time::Duration;

use openraft::ReadPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use placet_core::ids::Principal;
use placet_core::op::{Answer, CALLS, Call, Op, Query, Reject};
use placet_core::query;
use placet_wire::peer;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::{Failure, Inner, Node};
use crate::decider::{Proposal, Refusal};
use crate::network::client::never_sent;
use crate::watch::clocks::Verdict;

/// Between two attempts while no leader answers; an election is some hundred milliseconds.
const RETRY: Duration = Duration::from_millis(20);

/// How one attempt ended without an answer.
pub(super) enum Attempt {
    /// Nothing happened: any operation may be tried again.
    Safe(String),
    /// It may have happened.
    Unsure(String),
    /// To be told to the caller.
    Final(Reject),
}

impl Node {
    /// Carries out one call, wherever the leader is. Answers within the deadline of the options.
    pub async fn submit(&self, call: Call) -> Result<Answer, Reject> {
        let span = tracing::info_span!(target: CALLS, "submit", op = call.op.name(), principal = %call.principal);
        self.submit_until(call, Instant::now() + self.inner.options.deadline).instrument(span).await
    }

    async fn submit_until(&self, call: Call, deadline: Instant) -> Result<Answer, Reject> {
        let repeatable = matches!(call.op, Op::Decide(_) | Op::Query(_));
        let mut body = None;
        // Once an attempt may have happened, nothing that follows can say that it did not.
        let mut unsure = false;
        loop {
            let attempt = if self.inner.leads() {
                let here = self.inner.submit_here(call.clone());
                match tokio::time::timeout_at(deadline, here).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(Failure::NotLeader { detail })) => Attempt::Safe(detail),
                    Ok(Err(Failure::Final(reject @ Reject::Unknown { .. }))) => Attempt::Unsure(reject.detail()),
                    Ok(Err(Failure::Final(reject))) => Attempt::Final(reject),
                    Err(_) => Attempt::Unsure("there was no answer in time".to_owned()),
                }
            } else {
                let bytes = match &body {
                    Some(bytes) => bytes,
                    None => body.insert(encode(&call)?),
                };
                match self.forward::<Answer>(Route::Call, bytes.clone(), deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(attempt) => attempt,
                }
            };
            unsure |= matches!(attempt, Attempt::Unsure(_)) && !matches!(call.op, Op::Query(_));
            match attempt {
                Attempt::Final(Reject::Unavailable { detail }) if unsure => return Err(Reject::Unknown { detail }),
                Attempt::Final(reject) => return Err(reject),
                Attempt::Unsure(detail) if !repeatable => return Err(Reject::Unknown { detail }),
                Attempt::Safe(detail) | Attempt::Unsure(detail) if Instant::now() + RETRY >= deadline => {
                    return Err(if unsure { Reject::Unknown { detail } } else { Reject::Unavailable { detail } });
                }
                Attempt::Safe(_) | Attempt::Unsure(_) => self.inner.pause().await,
            }
        }
    }

    pub(super) async fn forward<T: DeserializeOwned>(
        &self,
        route: Route,
        call: bytes::Bytes,
        deadline: Instant,
    ) -> Result<T, Attempt> {
        let Some((id, addresses)) = self.inner.leader().filter(|(id, _)| *id != self.id()) else {
            return Err(Attempt::Safe("no leader is known".to_owned()));
        };
        let channels = self.inner.peers.channels(id, &addresses.peer);
        let mut client = channels.map_err(|status| Attempt::Safe(status.message().to_owned()))?.client();
        let request = peer::ForwardRequest { call };
        let sent = async {
            match route {
                Route::Call => client.forward(request).await,
                Route::Membership => client.change_membership(request).await,
            }
        };
        let response = match tokio::time::timeout_at(deadline, sent).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) if never_sent(&status) => return Err(Attempt::Safe(status.message().to_owned())),
            Ok(Err(status)) => return Err(Attempt::Unsure(status.message().to_owned())),
            Err(_) => return Err(Attempt::Unsure("the leader did not answer in time".to_owned())),
        };
        let Some(result) = response.result else {
            return Err(Attempt::Safe(format!("node {id} does not lead any more")));
        };
        match serde_json::from_slice::<Result<T, Reject>>(&result) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reject @ Reject::Unknown { .. })) => Err(Attempt::Unsure(reject.detail())),
            Ok(Err(reject)) => Err(Attempt::Final(reject)),
            Err(error) => Err(Attempt::Unsure(format!("node {id} gave an answer that cannot be read: {error}"))),
        }
    }
}

/// Where a forwarded call goes in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    Call,
    Membership,
}

pub(super) fn encode(call: &impl serde::Serialize) -> Result<bytes::Bytes, Reject> {
    let encoded = serde_json::to_vec(call).map_err(|error| Reject::Internal { detail: error.to_string() })?;
    Ok(bytes::Bytes::from(encoded))
}

impl Inner {
    /// Waits for the leader to change, or for a moment.
    async fn pause(&self) {
        let mut changes = self.raft.server_metrics();
        // Marks what is known as seen; only news counts.
        changes.borrow_and_update();
        if let Ok(Err(_)) = tokio::time::timeout(RETRY, changes.changed()).await {
            // The consensus task has ended and says nothing any more: without this, whoever waits would spin.
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Carries out a call on this node, which must lead.
    pub(crate) async fn submit_here(&self, call: Call) -> Result<Answer, Failure> {
        match call.op {
            Op::Query(query) => self.query_here(query, call.principal).await,
            _ => self.propose_here(call).await,
        }
    }

    async fn propose_here(&self, call: Call) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        let proposal = Proposal { call, reply, span: tracing::Span::current() };
        match self.queue.try_send(proposal) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                metrics::counter!("placet_queue_full_total").increment(1);
                return Err(Failure::Final(Reject::Unavailable { detail: "the leader is overloaded".to_owned() }));
            }
            Err(TrySendError::Closed(_)) => return Err(Failure::NotLeader { detail: "this node stops".to_owned() }),
        }
        let begun = Instant::now();
        let unknown = |detail: &str| Failure::Final(Reject::Unknown { detail: detail.to_owned() });
        let result = tokio::time::timeout(self.options.deadline, answer).await;
        metrics::histogram!("placet_propose_seconds").record(begun.elapsed());
        match result {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(Refusal::Reject(reject)))) => Err(Failure::Final(reject)),
            Ok(Ok(Err(Refusal::NotProposed(detail)))) => Err(Failure::NotLeader { detail }),
            Ok(Ok(Err(Refusal::Lost(detail)))) => Err(unknown(&detail)),
            Ok(Err(_)) => Err(unknown("this node stopped")),
            Err(_) => Err(unknown("there was no answer in time")),
        }
    }

    /// Reads after this node has confirmed with a quorum that it leads (Raft §8).
    async fn query_here(&self, query: Query, principal: Principal) -> Result<Answer, Failure> {
        let confirmed =
            tokio::time::timeout(self.options.deadline, self.raft.ensure_linearizable(ReadPolicy::ReadIndex));
        match confirmed.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failure::NotLeader { detail: error.to_string() }),
            Err(_) => return Err(Failure::NotLeader { detail: "the leader has no quorum".to_owned() }),
        }
        // Whether an act may begin hangs on the time; whatever else is read does not.
        if matches!(query, Query::CheckPermit { .. }) {
            let (verdict, _) = self.watch.clock_for_certain().await;
            if verdict != Verdict::Trusted {
                return Err(Failure::NotLeader { detail: self.watch.complaint(verdict) });
            }
        }
        let (records, now) = (self.records.clone(), self.now());
        let answered = self.options.work.run(move || query::answer(&records, &query, &principal, now)).await;
        let internal = |error: std::io::Error| Reject::Internal { detail: error.to_string() };
        answered.map_err(internal).flatten().map_err(Failure::Final)
    }
}
