//! `ClusterService`: members, open permits, counters.

use futures::stream::{BoxStream, StreamExt};
use placet_core::cluster::{MemberAddresses, MembershipChange};
use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::cluster_service_server::ClusterService;
use tonic::{Request, Response, Status};

use super::{Service, convert, given, page_limit};
use crate::args;
use crate::backup;
use crate::guard::caller;
use crate::reject::Refusal;

#[tonic::async_trait]
impl ClusterService for Service {
    type BackupStream = BoxStream<'static, Result<v1::BackupPart, Status>>;

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let parts = backup::parts(&self.edge, self.drain.clone(), request.get_ref().local).await?;
        Ok(Response::new(parts.map(|part| part.map(convert::backup_part).map_err(Status::from)).boxed()))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::Cluster>, Status> {
        Ok(Response::new(convert::cluster(self.edge.cluster().await?)))
    }

    async fn list_intents(
        &self,
        request: Request<v1::ListIntentsRequest>,
    ) -> Result<Response<v1::ListIntentsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let after = given(&request.after).map(|text| args::evidence_after("after", text)).transpose()?;
        let limit = page_limit(request.limit)?;
        match self.edge.ask(&caller, Op::Query(Query::Intents { after, limit })).await? {
            Answer::Intents(views) => {
                let next = args::last_of_full(&views, limit).map(|last| last.evidence_id.to_string());
                let intents = views.into_iter().map(convert::intent).collect();
                Ok(Response::new(v1::ListIntentsResponse { intents, next: next.unwrap_or_default() }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn list_budgets(
        &self,
        request: Request<v1::ListBudgetsRequest>,
    ) -> Result<Response<v1::ListBudgetsResponse>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let after = given(&request.after).map(|text| args::budget_cursor("after", text)).transpose()?;
        let limit = page_limit(request.limit)?;
        match self.edge.ask(&caller, Op::Query(Query::Budgets { after, limit })).await? {
            Answer::Budgets(views) => {
                let next = args::budget_next(&views, limit).unwrap_or_default();
                let budgets = views.into_iter().map(convert::budget).collect();
                Ok(Response::new(v1::ListBudgetsResponse { budgets, next }))
            }
            _ => Err(Refusal::wrong_answer().into()),
        }
    }

    async fn add_learner(&self, request: Request<v1::AddLearnerRequest>) -> Result<Response<v1::Cluster>, Status> {
        let v1::AddLearnerRequest { id, addresses } = request.into_inner();
        let v1::Addresses { peer, http, grpc } = addresses.unwrap_or_default();
        for (name, text) in [("peer", &peer), ("http", &http), ("grpc", &grpc)] {
            if text.is_empty() {
                return Err(Refusal::invalid(format!("`addresses.{name}` is missing or empty")).into());
            }
        }
        self.change(MembershipChange::AddLearner { id, addresses: MemberAddresses { peer, http, grpc } }).await
    }

    async fn promote(&self, request: Request<v1::PromoteRequest>) -> Result<Response<v1::Cluster>, Status> {
        self.change(MembershipChange::Promote { id: request.get_ref().id }).await
    }

    async fn remove(&self, request: Request<v1::RemoveRequest>) -> Result<Response<v1::Cluster>, Status> {
        self.change(MembershipChange::Remove { id: request.get_ref().id }).await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::Cluster>, Status> {
        self.change(MembershipChange::TransferLeader { to: request.get_ref().to }).await
    }
}

impl Service {
    async fn change(&self, change: MembershipChange) -> Result<Response<v1::Cluster>, Status> {
        Ok(Response::new(convert::cluster(self.edge.change_membership(change).await?)))
    }
}
