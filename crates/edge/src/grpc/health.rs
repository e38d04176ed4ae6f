//! The standard health service, answered by the decision point itself: no copy that could be stale.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use placet_core::cluster::HealthStatus;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Service;
use crate::limits::HEALTH_POLL;
use crate::listen::told;

/// Services that can be asked about; the empty name is the whole node. All of them serve or none does.
const SERVICES: [&str; 7] = [
    "",
    "placet.v1.ApprovalService",
    "placet.v1.ClusterService",
    "placet.v1.ControlService",
    "placet.v1.DecisionService",
    "placet.v1.EvidenceService",
    "placet.v1.PolicyService",
];

#[tonic::async_trait]
impl Health for Service {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        match self.serving(&request.get_ref().service).await {
            ServingStatus::ServiceUnknown => Err(Status::not_found("no such service")),
            status => Ok(Response::new(HealthCheckResponse { status: status.into() })),
        }
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let state = (self.clone(), request.into_inner().service, None);
        let changes = stream::unfold(state, |(service, name, last)| async move {
            loop {
                let status = service.serving(&name).await;
                if last != Some(status) {
                    let answer = HealthCheckResponse { status: status.into() };
                    return Some((Ok(answer), (service, name, Some(status))));
                }
                tokio::time::sleep(HEALTH_POLL).await;
            }
        });
        Ok(Response::new(changes.take_until(told(self.drain.clone())).boxed()))
    }
}

impl Service {
    async fn serving(&self, name: &str) -> ServingStatus {
        if !SERVICES.contains(&name) {
            return ServingStatus::ServiceUnknown;
        }
        match self.edge.health().await.status {
            HealthStatus::Serving => ServingStatus::Serving,
            HealthStatus::NoLeader | HealthStatus::Fatal => ServingStatus::NotServing,
        }
    }
}
