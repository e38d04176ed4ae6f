//! `EvidenceService`: one entry, or all of them as they come (AADP §14).
//! Absent on purpose: a task per tail. A tail reads its next page when its client has taken the one before.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, EvidenceView, Op, Query};
use placet_wire::v1;
use placet_wire::v1::evidence_service_server::EvidenceService;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::{Request, Response, Status};

use super::{Service, convert, given};
use crate::args;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::guard::caller;
use crate::limits::TAIL_PAGE;
use crate::listen::told;
use crate::reject::{Kind, Refusal};

#[tonic::async_trait]
impl EvidenceService for Service {
    type TailStream = BoxStream<'static, Result<v1::Evidence, Status>>;

    async fn get(&self, request: Request<v1::GetEvidenceRequest>) -> Result<Response<v1::Evidence>, Status> {
        let caller = caller(&request)?;
        let index = args::evidence_id("evidence_id", &request.get_ref().evidence_id)?;
        match self.edge.ask(&caller, Op::Query(Query::Evidence { index })).await? {
            Answer::Evidence(view) => Ok(Response::new(convert::evidence(view))),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn tail(&self, request: Request<v1::TailEvidenceRequest>) -> Result<Response<Self::TailStream>, Status> {
        let caller = caller(&request)?;
        let after = given(&request.get_ref().after).map(|text| args::evidence_after("after", text)).transpose()?;
        let tail = Tail {
            _place: self.edge.enter_tail()?,
            edge: self.edge.clone(),
            caller,
            drain: self.drain.clone(),
            after: after.unwrap_or_default(),
            ready: VecDeque::new(),
            ended: false,
        };
        Ok(Response::new(stream::unfold(tail, Tail::step).boxed()))
    }
}

struct Tail {
    edge: Edge,
    caller: Caller,
    drain: watch::Receiver<bool>,
    /// The last entry that was handed out or is ready.
    after: EvidenceIndex,
    ready: VecDeque<EvidenceView>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Tail {
    async fn step(mut self) -> Option<(Result<v1::Evidence, Status>, Self)> {
        if self.ended {
            return None;
        }
        match self.next().await {
            Ok(view) => Some((Ok(convert::evidence(view)), self)),
            Err(refusal) => {
                self.ended = true;
                Some((Err(refusal.into()), self))
            }
        }
    }

    async fn next(&mut self) -> Result<EvidenceView, Refusal> {
        loop {
            if let Some(view) = self.ready.pop_front() {
                return Ok(view);
            }
            self.ready = self.page().await?.into();
            match self.ready.back() {
                Some(last) => self.after = last.evidence_id,
                None => self.wait().await?,
            }
        }
    }

    async fn page(&self) -> Result<Vec<EvidenceView>, Refusal> {
        let query = Query::EvidenceTail { after: self.after, limit: TAIL_PAGE };
        match self.edge.ask(&self.caller, Op::Query(query)).await? {
            Answer::EvidenceTail(views) => Ok(views),
            _ => Err(Refusal::wrong_answer()),
        }
    }

    async fn wait(&self) -> Result<(), Refusal> {
        tokio::select! {
            () = self.edge.pdp().evidence_beyond(self.after) => Ok(()),
            () = told(self.drain.clone()) => {
                let detail = format!("this node closes; tail another from `{}`", self.after);
                Err(Refusal::new(Kind::Unavailable, detail))
            }
        }
    }
}
