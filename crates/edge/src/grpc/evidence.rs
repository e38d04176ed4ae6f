//! `EvidenceService`: one entry, those that match, all of them and then new ones as they come, and proofs (AADP §14).

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use placet_core::op::{Answer, EvidencePage, Op, Query};
use placet_wire::v1;
use placet_wire::v1::evidence_service_server::EvidenceService;
use tonic::{Request, Response, Status};

use super::{Service, convert, given, page_limit};
use crate::args;
use crate::follow::Follow;
use crate::guard::caller;
use crate::reject::Refusal;

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
        let tail = Follow::new(&self.edge, caller, self.drain.clone(), after.unwrap_or_default())?;
        let entries = tail.pages().flat_map(|page| {
            let (views, refusal) = match page {
                Ok(views) => (views, None),
                Err(refusal) => (Vec::new(), Some(Err(refusal.into()))),
            };
            stream::iter(views.into_iter().map(|view| Ok(convert::evidence(view))).chain(refusal))
        });
        Ok(Response::new(entries.boxed()))
    }

    async fn find(
        &self,
        request: Request<v1::FindEvidenceRequest>,
    ) -> Result<Response<v1::FindEvidenceResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let after = given(&request.after).map(|text| args::evidence_after("after", text)).transpose()?;
        let (after, limit) = (after.unwrap_or_default(), page_limit(request.limit)?);
        let filter = args::evidence_filter(request.reconcile, |name| wanted(&request, name))?;
        match self.edge.ask(&caller, Op::Query(Query::EvidenceFind { after, limit, filter })).await? {
            Answer::EvidencePage(EvidencePage { entries, next }) => {
                let evidence = entries.into_iter().map(convert::evidence).collect();
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                Ok(Response::new(v1::FindEvidenceResponse { evidence, next }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn sign_head(&self, request: Request<v1::SignHeadRequest>) -> Result<Response<v1::SignedHead>, Status> {
        match self.edge.ask(&caller(&request)?, Op::SignHead).await? {
            Answer::Head(view) => Ok(Response::new(convert::signed_head(view))),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn prove_inclusion(
        &self,
        request: Request<v1::ProveInclusionRequest>,
    ) -> Result<Response<v1::Proof>, Status> {
        let caller = caller(&request)?;
        let v1::ProveInclusionRequest { evidence_id, size } = request.into_inner();
        let index = args::evidence_id("evidence_id", &evidence_id)?;
        let size = args::sized("size", size)?;
        proof(self.edge.ask(&caller, Op::Query(Query::InclusionProof { index, size })).await?)
    }

    async fn prove_consistency(
        &self,
        request: Request<v1::ProveConsistencyRequest>,
    ) -> Result<Response<v1::Proof>, Status> {
        let caller = caller(&request)?;
        let v1::ProveConsistencyRequest { from, to } = request.into_inner();
        let (from, to) = args::heads(args::sized("from", from)?, args::sized("to", to)?)?;
        proof(self.edge.ask(&caller, Op::Query(Query::ConsistencyProof { from, to })).await?)
    }
}

/// A parameter of a search by its name.
fn wanted(request: &v1::FindEvidenceRequest, name: &str) -> Option<String> {
    let text = match name {
        "since" => &request.since,
        "until" => &request.until,
        "kind" => &request.kind,
        "action_type" => &request.action_type,
        "principal" => &request.principal,
        "verdict" => &request.verdict,
        "reason" => &request.reason,
        "request_id" => &request.request_id,
        "permit" => &request.permit,
        _ => return None,
    };
    given(text).map(str::to_owned)
}

fn proof(answer: Answer) -> Result<Response<v1::Proof>, Status> {
    match answer {
        Answer::Proof(view) => Ok(Response::new(convert::proof(view))),
        _ => Err(Refusal::wrong_answer().into()),
    }
}
