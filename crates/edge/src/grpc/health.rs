//! The standard health service, answered by the decision point itself; who watches hears of it within a moment.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use placet_core::cluster::HealthStatus;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Service;
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
        let name = request.into_inner().service;
        let answer = |status: ServingStatus| Ok(HealthCheckResponse { status: status.into() });
        let first = self.edge.health().await.status;
        let known = SERVICES.contains(&name.as_str());
        let begins =
            stream::once(async move { answer(if known { serving(first) } else { ServingStatus::ServiceUnknown }) });
        if !known {
            // None will ever be.
            return Ok(Response::new(begins.chain(stream::pending()).take_until(told(self.drain.clone())).boxed()));
        }
        let state = (self.edge.watch_health(first), serving(first));
        let changes = stream::unfold(state, move |(mut healths, last)| async move {
            loop {
                let status = serving(*healths.borrow_and_update());
                if status != last {
                    return Some((answer(status), (healths, status)));
                }
                // A client whose stream ends watches again.
                healths.changed().await.ok()?;
            }
        });
        Ok(Response::new(begins.chain(changes).take_until(told(self.drain.clone())).boxed()))
    }
}

impl Service {
    async fn serving(&self, name: &str) -> ServingStatus {
        if !SERVICES.contains(&name) {
            return ServingStatus::ServiceUnknown;
        }
        serving(self.edge.health().await.status)
    }
}

fn serving(status: HealthStatus) -> ServingStatus {
    match status {
        HealthStatus::Serving => ServingStatus::Serving,
        HealthStatus::NoLeader | HealthStatus::ClockOff | HealthStatus::Stopping | HealthStatus::Fatal => {
            ServingStatus::NotServing
        }
    }
}
