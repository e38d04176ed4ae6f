//! Probes: health (AADP §15.1) and metrics.
//! Absent on purpose: what a stranger could use. Without a token, health tells who leads and no more (AADP §24.40).

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use placet_core::cluster::HealthStatus;
use serde::Serialize;

use crate::auth::Caller;
use crate::edge::Edge;
use crate::reject::{Kind, Refusal};

#[derive(Serialize)]
struct Brief {
    status: HealthStatus,
    node_id: u64,
    leader_id: Option<u64>,
}

/// 200 while this node can serve, else 503, for load balancers that read nothing else.
pub(super) async fn health(State(edge): State<Edge>, request: Request) -> Response {
    let known = request.extensions().get::<Caller>().is_some();
    let health = edge.health().await;
    let status = match health.status {
        HealthStatus::Serving => StatusCode::OK,
        HealthStatus::NoLeader | HealthStatus::ClockOff | HealthStatus::Stopping | HealthStatus::Fatal => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    if known {
        return (status, Json(health)).into_response();
    }
    let brief = Brief { status: health.status, node_id: health.node_id, leader_id: health.leader_id };
    (status, Json(brief)).into_response()
}

pub(super) async fn metrics(State(edge): State<Edge>) -> Result<Response, Refusal> {
    let text = edge.render_metrics().ok_or_else(|| Refusal::new(Kind::NotFound, "this node collects no metrics"))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
