//! gRPC, one call after the other for each caller; callers may share a connection.

use std::path::Path;

use anyhow::Context;
use placet_wire::v1;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use super::calls::Calls;
use super::load::{Caller, Plan};
use super::tally::Answer;

/// A connection, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) client: DecisionServiceClient<tonic::transport::Channel>,
    token: Option<MetadataValue<Ascii>>,
}

impl Channel {
    pub(super) async fn open(address: &str, plan: &Plan) -> anyhow::Result<Self> {
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let mut endpoint = Endpoint::from_shared(url.clone()).with_context(|| format!("`{address}` is no address"))?;
        endpoint = endpoint.tcp_nodelay(true);
        if url.starts_with("https://") {
            endpoint = endpoint.tls_config(tls(plan.ca.as_deref())?)?;
        }
        let channel = endpoint.connect().await.with_context(|| format!("{url} cannot be reached"))?;
        let token = plan.token.as_ref().map(|token| MetadataValue::try_from(format!("Bearer {token}")));
        let token = token.transpose().context("the token cannot be sent")?;
        Ok(Self { client: DecisionServiceClient::new(channel), token })
    }

    /// A request of whoever has this connection.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }
}

fn tls(ca: Option<&Path>) -> anyhow::Result<ClientTlsConfig> {
    let path = ca.context("over TLS --ca (or PLACET_CA) names the authority of the nodes' certificates")?;
    let pem = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
}

pub(super) fn decided(answer: v1::DecideResponse) -> Answer {
    if answer.permit_id.is_empty() {
        return Answer::Verdict(format!("{}: {}", answer.verdict, answer.reason));
    }
    Answer::Permit(answer.permit_id)
}

pub(super) fn reported(answer: &v1::ReportResponse) -> Answer {
    if answer.accepted { Answer::Accepted } else { Answer::Failed(format!("report: {}", answer.reason)) }
}

fn failed(status: &Status) -> Answer {
    Answer::Failed(format!("{:?}: {}", status.code(), status.message()))
}

impl Caller for Channel {
    async fn decide(&mut self, calls: &Calls) -> Answer {
        let request = self.request(calls.decide());
        match self.client.decide(request).await {
            Ok(answer) => decided(answer.into_inner()),
            Err(status) => failed(&status),
        }
    }

    async fn report(&mut self, calls: &Calls, permit_id: String) -> Answer {
        let request = self.request(calls.report(permit_id));
        match self.client.report(request).await {
            Ok(answer) => reported(answer.get_ref()),
            Err(status) => failed(&status),
        }
    }
}
