//! The gRPC door `placet.v1`, with standard health and reflection.
//! Absent on purpose: another engine. A decide becomes the JSON body that the HTTP door would have received.

mod approval;
mod body;
mod cluster;
mod control;
mod convert;
mod decision;
mod evidence;
mod health;
mod policy;
mod watcher;

use axum::Router;
use axum::middleware::from_fn_with_state;
use placet_wire::v1;
use placet_wire::v1::approval_service_server::ApprovalServiceServer;
use placet_wire::v1::cluster_service_server::ClusterServiceServer;
use placet_wire::v1::control_service_server::ControlServiceServer;
use placet_wire::v1::decision_service_server::DecisionServiceServer;
use placet_wire::v1::evidence_service_server::EvidenceServiceServer;
use placet_wire::v1::policy_service_server::PolicyServiceServer;
use tokio::sync::watch;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::args;
use crate::edge::Edge;
use crate::guard;
use crate::limits::GRPC_MESSAGE_BYTES_MAX;
use crate::reject::Refusal;

/// What every service holds.
#[derive(Clone)]
struct Service {
    edge: Edge,
    /// Open streams end when the door is told to close.
    drain: watch::Receiver<bool>,
}

/// All services behind the guard.
pub fn router(edge: Edge, drain: watch::Receiver<bool>) -> Router {
    let service = Service { edge: edge.clone(), drain };
    let decisions = DecisionServiceServer::new(service.clone()).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let policies = PolicyServiceServer::new(service.clone()).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
    let mut routes = Routes::new(decisions)
        .add_service(policies)
        .add_service(ApprovalServiceServer::new(service.clone()))
        .add_service(ControlServiceServer::new(service.clone()))
        .add_service(EvidenceServiceServer::new(service.clone()))
        .add_service(ClusterServiceServer::new(service.clone()))
        .add_service(HealthServer::new(service));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    match reflection {
        Ok(reflection) => routes = routes.add_service(reflection),
        // The descriptors are compiled in; a test reads them through this door.
        Err(error) => tracing::error!(%error, "no reflection: the descriptors cannot be read"),
    }
    routes.into_axum_router().layer(from_fn_with_state(edge, guard::grpc))
}

/// An optional string: empty is absent.
fn given(text: &str) -> Option<&str> {
    if text.is_empty() { None } else { Some(text) }
}

/// The limit of a page: zero is absent.
fn page_limit(limit: u32) -> Result<u32, Refusal> {
    args::limit(if limit == 0 { None } else { Some(limit) })
}
