//! `DecisionService`: decide, report, and a stream of both (AADP §10); and what enforcement points ask beside (§16).

use futures::StreamExt;
use futures::stream::BoxStream;
use placet_core::limits::BODY_BYTES_MAX;
use placet_core::op::{Answer, Op, Query};
use placet_core::request::Malformed;
use placet_wire::v1;
use placet_wire::v1::decision_service_server::DecisionService;
use placet_wire::v1::stream_request::Call;
use placet_wire::v1::stream_response::Answer as Answered;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument, Span};

use super::watcher::Notices;
use super::{Service, body, convert};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::guard::caller;
use crate::limits::STREAM_IN_FLIGHT_MAX;
use crate::listen::told;
use crate::reject::{Kind, Refusal};
use crate::telemetry;

#[tonic::async_trait]
impl DecisionService for Service {
    type StreamStream = BoxStream<'static, Result<v1::StreamResponse, Status>>;
    type WatchPermitsStream = Notices;

    async fn decide(&self, request: Request<v1::DecideRequest>) -> Result<Response<v1::DecideResponse>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(decide(&self.edge, &caller, request.get_ref()).await?))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(report(&self.edge, &caller, request.get_ref()).await?))
    }

    /// Answers as they become ready. A client that does not read its answers stops being read, after
    /// `STREAM_IN_FLIGHT_MAX` calls; when the door closes, calls that were read are still answered.
    async fn stream(
        &self,
        request: Request<Streaming<v1::StreamRequest>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (edge, caller, span) = (self.edge.clone(), caller(&request)?, Span::current());
        let lanes = edge.lanes().clone();
        let calls = request.into_inner().take_until(told(self.drain.clone()));
        let answers = calls
            // One call of a stream waits for its place at a time: each holds a body.
            .then(move |call| {
                let lanes = lanes.clone();
                async move { (lanes.wait().await, call) }
            })
            .map(move |(place, call)| {
                let (edge, caller, span) = (edge.clone(), caller.clone(), span.clone());
                async move {
                    let _place = place;
                    Ok(answer(&edge, &caller, &span, call?).await)
                }
            })
            .buffer_unordered(STREAM_IN_FLIGHT_MAX);
        Ok(Response::new(answers.boxed()))
    }

    async fn check_permit(
        &self,
        request: Request<v1::CheckPermitRequest>,
    ) -> Result<Response<v1::PermitCheck>, Status> {
        let caller = caller(&request)?;
        let permit_id = args::permit_id("permit_id", &request.get_ref().permit_id)?;
        match self.edge.ask(&caller, Op::Query(Query::CheckPermit { permit_id })).await? {
            Answer::Permit(check) => Ok(Response::new(convert::permit_check(check))),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn watch_permits(
        &self,
        request: Request<v1::WatchPermitsRequest>,
    ) -> Result<Response<Self::WatchPermitsStream>, Status> {
        Ok(Response::new(self.watch(caller(&request)?).await?))
    }

    async fn list_static(
        &self,
        request: Request<v1::ListStaticRequest>,
    ) -> Result<Response<v1::StaticActions>, Status> {
        match self.edge.ask(&caller(&request)?, Op::Query(Query::StaticActions)).await? {
            Answer::Static(actions) => Ok(Response::new(convert::static_actions(actions)?)),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn record_local(
        &self,
        request: Request<v1::RecordLocalRequest>,
    ) -> Result<Response<v1::RecordLocalResponse>, Status> {
        let caller = caller(&request)?;
        let body = body::local(request.get_ref());
        if body.len() > BODY_BYTES_MAX {
            return Err(Refusal::new(Kind::TooLarge, format!("the body is larger than {BODY_BYTES_MAX} bytes")).into());
        }
        match self.edge.ask(&caller, Op::RecordLocal(body)).await? {
            Answer::Local(recorded) => {
                Ok(Response::new(v1::RecordLocalResponse { evidence_ids: recorded.evidence_ids }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }
}

async fn answer(edge: &Edge, caller: &Caller, stream: &Span, request: v1::StreamRequest) -> v1::StreamResponse {
    let answered = match request.call {
        Some(Call::Decide(request)) => decide(edge, caller, &request)
            .instrument(telemetry::call_span(stream, "/placet.v1.DecisionService/Decide"))
            .await
            .map(Answered::Decide),
        Some(Call::Report(request)) => report(edge, caller, &request)
            .instrument(telemetry::call_span(stream, "/placet.v1.DecisionService/Report"))
            .await
            .map(Answered::Report),
        None => Err(Refusal::invalid("`call` is neither `decide` nor `report`")),
    };
    let answer = answered.unwrap_or_else(|refusal| Answered::Error(refusal.into_message()));
    v1::StreamResponse { correlation_id: request.correlation_id, answer: Some(answer) }
}

async fn decide(edge: &Edge, caller: &Caller, request: &v1::DecideRequest) -> Result<v1::DecideResponse, Refusal> {
    match edge.ask(caller, bounded("decide", body::decide(request), Op::Decide)).await? {
        Answer::Decide(reply) => Ok(convert::decided(reply)),
        _ => Err(Refusal::wrong_answer()),
    }
}

async fn report(edge: &Edge, caller: &Caller, request: &v1::ReportRequest) -> Result<v1::ReportResponse, Refusal> {
    match edge.ask(caller, bounded("report", body::report(request), Op::Report)).await? {
        Answer::Report(reply) => Ok(convert::reported(reply)),
        _ => Err(Refusal::wrong_answer()),
    }
}

/// As over HTTP, a body that is too large is recorded as malformed instead of travelling on.
fn bounded(operation: &str, body: Vec<u8>, op: fn(Vec<u8>) -> Op) -> Op {
    if body.len() <= BODY_BYTES_MAX {
        return op(body);
    }
    let request = Malformed::refused(&body, "size", "the body is larger than 1 MiB");
    Op::Malformed { operation: operation.to_owned(), request }
}
