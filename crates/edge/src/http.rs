//! The HTTP/JSON door (AADP §15.1).
//! Absent on purpose: roles and bounds (the guard), transport (listen). A success is the JSON of a core view; a
//! failure is `{"code","detail"}`.

mod approvals;
mod backup;
mod body;
mod cluster;
mod control;
mod decide;
mod evidence;
mod export;
mod extract;
mod health;
mod permits;
mod policies;
mod proofs;

use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use tokio::sync::watch;

use crate::edge::Edge;
use crate::guard;
use crate::reject::{Kind, Refusal};

/// Exports end when the door is told to close.
#[derive(Clone)]
struct Drain(watch::Receiver<bool>);

/// All routes behind the guard.
pub fn router(edge: Edge, drain: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/v1/decide", post(decide::decide))
        .route("/v1/report", post(decide::report))
        .route("/v1/permits/check", post(permits::check))
        .route("/v1/static", get(permits::statics))
        .route("/v1/local", post(permits::local))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{id}", get(approvals::get))
        .route("/v1/approvals/{id}/grant", post(approvals::grant))
        .route("/v1/approvals/{id}/deny", post(approvals::deny))
        .route("/v1/approvals/{id}/approve", post(approvals::approve))
        .route("/v1/approvals/{id}/ratify", post(approvals::ratify))
        .route("/v1/mandates", post(approvals::set_mandate))
        .route("/v1/killswitch", get(control::get).post(control::set))
        .route("/v1/policies", get(policies::read).post(policies::publish))
        .route("/v1/policies/{digest}", get(policies::get).delete(policies::drop_unused))
        .route("/v1/policies/{digest}/activate", post(policies::activate))
        .route("/v1/evidence", get(evidence::list))
        .route("/v1/evidence/head", post(proofs::sign_head))
        .route("/v1/evidence/consistency", get(proofs::consistency))
        .route("/v1/evidence/export", get(export::export))
        .route("/v1/evidence/{id}", get(evidence::get))
        .route("/v1/evidence/{id}/proof", get(proofs::inclusion))
        .route("/v1/intents", get(cluster::intents))
        .route("/v1/budgets", get(cluster::budgets))
        .route("/v1/cluster", get(cluster::status))
        .route("/v1/cluster/backup", get(backup::backup))
        .route("/v1/cluster/leader", post(cluster::transfer_leader))
        .route("/v1/cluster/members", post(cluster::add_learner))
        .route("/v1/cluster/members/{id}", delete(cluster::remove))
        .route("/v1/cluster/members/{id}/promote", post(cluster::promote))
        .route("/v1/health", get(health::health))
        .route("/metrics", get(health::metrics))
        .fallback(no_route)
        .layer(Extension(Drain(drain)))
        .layer(from_fn_with_state(edge.clone(), guard::http))
        .with_state(edge)
}

async fn no_route() -> Refusal {
    Refusal::new(Kind::NotFound, "no such route")
}
