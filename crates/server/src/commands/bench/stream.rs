//! gRPC streams: many calls in flight on one, answered in the order in which they are ready.
//! Absent on purpose: a task for each call. One task keeps a table of what is in flight.

use std::sync::Arc;

use anyhow::Context;
use placet_wire::v1;
use placet_wire::v1::stream_request::Call;
use placet_wire::v1::stream_response;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::calls::Calls;
use super::load::{Clock, Plan};
use super::tally::{Answer, Figures};
use super::unary::{Channel, decided, reported};

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    outbound: mpsc::Sender<v1::StreamRequest>,
    inbound: Streaming<v1::StreamResponse>,
}

impl Stream {
    pub(super) async fn open(address: &str, plan: &Plan) -> anyhow::Result<Self> {
        let mut channel = Channel::open(address, plan).await?;
        let (outbound, requests) = mpsc::channel(plan.in_flight.max(1));
        let request = channel.request(ReceiverStream::new(requests));
        let inbound = channel.client.stream(request).await.context("the stream cannot be opened")?.into_inner();
        Ok(Self { outbound, inbound })
    }

    /// Keeps up to `in_flight` calls on the way until no more is due and all are answered.
    pub(super) async fn run(
        mut self,
        in_flight: usize,
        calls: Arc<Calls>,
        clock: Arc<Clock>,
        reports: bool,
        mut figures: Figures,
    ) -> anyhow::Result<Figures> {
        // When what is in a place was due; a correlation id is a place.
        let mut due: Vec<Instant> = vec![Instant::now(); in_flight];
        let mut free: Vec<usize> = (0..in_flight).collect();
        let mut more = true;
        while more || free.len() < in_flight {
            tokio::select! {
                biased;
                answer = self.inbound.message(), if free.len() < in_flight => {
                    let answer = answer.context("the stream broke off")?.context("the stream ended")?;
                    let place = usize::try_from(answer.correlation_id).unwrap_or(usize::MAX);
                    let begun = due.get_mut(place).context("an answer to nothing")?;
                    let answer = match answer.answer {
                        Some(stream_response::Answer::Decide(answer)) => decided(answer),
                        Some(stream_response::Answer::Report(answer)) => reported(&answer),
                        Some(stream_response::Answer::Error(error)) => {
                            Answer::Failed(format!("{}: {}", error.code, error.detail))
                        }
                        None => Answer::Failed("an empty answer".to_owned()),
                    };
                    figures.count(*begun, &answer);
                    match answer {
                        Answer::Permit(permit_id) if reports => {
                            *begun = Instant::now();
                            self.send(place, Call::Report(calls.report(permit_id))).await?;
                        }
                        _ => free.push(place),
                    }
                }
                next = clock.next(), if more && !free.is_empty() => match (next, free.pop()) {
                    (Some(at), Some(place)) => {
                        if let Some(begun) = due.get_mut(place) {
                            *begun = at;
                        }
                        self.send(place, Call::Decide(calls.decide())).await?;
                    }
                    (None, Some(place)) => {
                        free.push(place);
                        more = false;
                    }
                    (_, None) => {}
                },
            }
        }
        Ok(figures)
    }

    async fn send(&self, place: usize, call: Call) -> anyhow::Result<()> {
        let request = v1::StreamRequest { correlation_id: place as u64, call: Some(call) };
        self.outbound.send(request).await.context("the stream was closed")
    }
}
