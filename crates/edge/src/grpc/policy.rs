//! `PolicyService` (AADP §8).

use placet_core::limits::POLICY_BYTES_MAX;
use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::policy_service_server::PolicyService;
use tonic::{Request, Response, Status};

use super::{Service, convert, given, page_limit};
use crate::args;
use crate::guard::caller;
use crate::reject::{Kind, Refusal};

#[tonic::async_trait]
impl PolicyService for Service {
    async fn publish(
        &self,
        request: Request<v1::PublishPolicyRequest>,
    ) -> Result<Response<v1::PublishPolicyResponse>, Status> {
        let caller = caller(&request)?;
        let v1::PublishPolicyRequest { document, expect, activate } = request.into_inner();
        if document.len() > POLICY_BYTES_MAX {
            let detail = format!("the document is larger than {POLICY_BYTES_MAX} bytes");
            return Err(Refusal::new(Kind::TooLarge, detail).into());
        }
        let expect = given(&expect).map(|expect| args::expected_policy("expect", expect)).transpose()?;
        let activate = activate.unwrap_or(true);
        published(self.edge.ask(&caller, Op::PublishPolicy { document, expect, activate }).await?)
    }

    async fn get(&self, request: Request<v1::GetPolicyRequest>) -> Result<Response<v1::Policy>, Status> {
        let caller = caller(&request)?;
        let digest =
            given(&request.get_ref().digest).map(|digest| args::policy_digest("digest", digest)).transpose()?;
        match self.edge.ask(&caller, Op::Query(Query::Policy { digest })).await? {
            Answer::Policy(view) => Ok(Response::new(convert::policy(view))),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn list(
        &self,
        request: Request<v1::ListPoliciesRequest>,
    ) -> Result<Response<v1::ListPoliciesResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let after = given(&request.after).map(|text| args::policy_digest("after", text)).transpose()?;
        let limit = page_limit(request.limit)?;
        match self.edge.ask(&caller, Op::Query(Query::Policies { after, limit })).await? {
            Answer::Policies(facts) => {
                let next = args::last_of_full(&facts, limit).map(|last| last.digest.to_string());
                let policies = facts.into_iter().map(convert::policy_facts).collect();
                Ok(Response::new(v1::ListPoliciesResponse { policies, next: next.unwrap_or_default() }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn activate(
        &self,
        request: Request<v1::ActivatePolicyRequest>,
    ) -> Result<Response<v1::PublishPolicyResponse>, Status> {
        let caller = caller(&request)?;
        let v1::ActivatePolicyRequest { digest, expect } = request.into_inner();
        let digest = args::policy_digest("digest", &digest)?;
        let expect = given(&expect).map(|expect| args::expected_policy("expect", expect)).transpose()?;
        published(self.edge.ask(&caller, Op::ActivatePolicy { digest, expect }).await?)
    }

    async fn drop(&self, request: Request<v1::DropPolicyRequest>) -> Result<Response<v1::DropPolicyResponse>, Status> {
        let caller = caller(&request)?;
        let digest = args::policy_digest("digest", &request.get_ref().digest)?;
        match self.edge.ask(&caller, Op::DropPolicy { digest }).await? {
            Answer::PolicyDropped(dropped) => Ok(Response::new(v1::DropPolicyResponse {
                digest: dropped.digest.to_string(),
                evidence_id: dropped.evidence_id.to_string(),
            })),
            _ => Err(Refusal::wrong_answer().into()),
        }
    }
}

fn published(answer: Answer) -> Result<Response<v1::PublishPolicyResponse>, Status> {
    match answer {
        Answer::PolicyPublished(published) => Ok(Response::new(convert::published(published))),
        _ => Err(Refusal::wrong_answer().into()),
    }
}
