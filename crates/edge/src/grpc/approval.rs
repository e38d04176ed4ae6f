//! `ApprovalService` (AADP §11).

use placet_core::event::MandateSet;
use placet_core::ids::ApprovalId;
use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::approval_service_server::ApprovalService;
use placet_wire::v1::approve_response::Answer as Approved;
use tonic::{Request, Response, Status};

use super::{Service, convert, given, page_limit};
use crate::args;
use crate::auth::Caller;
use crate::guard::caller;
use crate::reject::Refusal;

#[tonic::async_trait]
impl ApprovalService for Service {
    async fn list(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let after = given(&request.after).map(|text| args::approval_id("after", text)).transpose()?;
        let limit = page_limit(request.limit)?;
        let query = Query::Approvals { all: request.all, after, limit };
        match self.edge.ask(&caller, Op::Query(query)).await? {
            Answer::Approvals(views) => {
                let next = args::last_of_heavy(&views, limit, |one| one.params.len() + one.rationale.len())
                    .map(|last| last.approval_id.to_string());
                let approvals = views.into_iter().map(convert::approval).collect();
                Ok(Response::new(v1::ListApprovalsResponse { approvals, next: next.unwrap_or_default() }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn get(&self, request: Request<v1::GetApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        let caller = caller(&request)?;
        let id = args::approval_id("approval_id", &request.get_ref().approval_id)?;
        one(self.edge.ask(&caller, Op::Query(Query::Approval { id })).await?)
    }

    async fn grant(&self, request: Request<v1::ResolveApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        self.resolve(&caller(&request)?, request.into_inner(), true).await
    }

    async fn deny(&self, request: Request<v1::ResolveApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        self.resolve(&caller(&request)?, request.into_inner(), false).await
    }

    async fn approve(
        &self,
        request: Request<v1::ResolveApprovalRequest>,
    ) -> Result<Response<v1::ApproveResponse>, Status> {
        let caller = caller(&request)?;
        let (id, note) = named(request.into_inner())?;
        let answer = match self.edge.ask(&caller, Op::ResumeApproval { id, note }).await? {
            Answer::Decide(reply) => Approved::Decision(convert::decided(reply)),
            Answer::Approval(view) => Approved::Approval(convert::approval(view)),
            _ => return Err(Refusal::wrong_answer().into()),
        };
        Ok(Response::new(v1::ApproveResponse { answer: Some(answer) }))
    }

    async fn ratify(&self, request: Request<v1::RatifyRequest>) -> Result<Response<v1::Approval>, Status> {
        let caller = caller(&request)?;
        let v1::RatifyRequest { approval_id, approved, signature } = request.into_inner();
        let id = args::approval_id("approval_id", &approval_id)?;
        let signature = args::signature("signature", signature)?;
        one(self.edge.ask(&caller, Op::RatifyApproval { id, approved, signature }).await?)
    }

    async fn set_mandate(&self, request: Request<v1::SetMandateRequest>) -> Result<Response<v1::Mandate>, Status> {
        let caller = caller(&request)?;
        let v1::SetMandateRequest { action_type, denied, serial, signature } = request.into_inner();
        let action_type = args::action_type("action_type", &action_type)?;
        let signature = args::signature("signature", signature)?;
        match self
            .edge
            .ask(&caller, Op::SetMandate(MandateSet { action_type, authority: None, denied, serial, signature }))
            .await?
        {
            Answer::Mandate(view) => Ok(Response::new(convert::mandate(view))),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }
}

impl Service {
    async fn resolve(
        &self,
        caller: &Caller,
        request: v1::ResolveApprovalRequest,
        grant: bool,
    ) -> Result<Response<v1::Approval>, Status> {
        let (id, note) = named(request)?;
        one(self.edge.ask(caller, Op::ResolveApproval { id, grant, note }).await?)
    }
}

fn named(request: v1::ResolveApprovalRequest) -> Result<(ApprovalId, Option<String>), Refusal> {
    let id = args::approval_id("approval_id", &request.approval_id)?;
    let note = given(&request.note).map(|note| args::label("note", note.to_owned())).transpose()?;
    Ok((id, note))
}

fn one(answer: Answer) -> Result<Response<v1::Approval>, Status> {
    match answer {
        Answer::Approval(view) => Ok(Response::new(convert::approval(view))),
        _ => Err(Refusal::wrong_answer().into()),
    }
}
