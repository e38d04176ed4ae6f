//! `PolicyService` (AADP §8).

use placet_core::limits::POLICY_BYTES_MAX;
use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::policy_service_server::PolicyService;
use tonic::{Request, Response, Status};

use super::{Service, convert, given};
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
        let v1::PublishPolicyRequest { document, expect } = request.into_inner();
        if document.len() > POLICY_BYTES_MAX {
            let detail = format!("the document is larger than {POLICY_BYTES_MAX} bytes");
            return Err(Refusal::new(Kind::TooLarge, detail).into());
        }
        let expect = given(&expect).map(|expect| args::expected_policy("expect", expect)).transpose()?;
        match self.edge.ask(&caller, Op::PublishPolicy { document, expect, activate: true }).await? {
            Answer::PolicyPublished(published) => Ok(Response::new(convert::published(published))),
            _ => Err(Refusal::wrong_answer().into()),
        }
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
}
