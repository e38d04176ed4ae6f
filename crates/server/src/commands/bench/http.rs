//! HTTP/1.1 with keep-alive: one connection for each caller.
//! Absent on purpose: a pool; whoever measures must know which connection carries a call.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::calls::Calls;
use super::load::{Caller, Plan};
use super::tally::Answer;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    token: Option<HeaderValue>,
}

/// What is read of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said<'a> {
    #[serde(borrow)]
    verdict: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    permit_id: Option<Cow<'a, str>>,
    accepted: Option<bool>,
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
}

impl Connection {
    pub(super) async fn open(url: &str, plan: &Plan) -> anyhow::Result<Self> {
        let (scheme, authority) = url.split_once("://").with_context(|| format!("`{url}` is no URL"))?;
        let tcp = TcpStream::connect(authority).await.with_context(|| format!("{url} cannot be reached"))?;
        tcp.set_nodelay(true)?;
        let sender = match scheme {
            "http" => handshake(tcp).await?,
            "https" => {
                let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
                let name = rustls::pki_types::ServerName::try_from(name.to_owned())?;
                handshake(TlsConnector::from(Arc::new(tls(plan)?)).connect(name, tcp).await?).await?
            }
            _ => anyhow::bail!("`{url}` is neither http nor https"),
        };
        let token = plan.token.as_ref().map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let token = token.transpose().context("the token cannot be sent")?;
        Ok(Self { sender, host: HeaderValue::try_from(authority)?, token })
    }

    async fn post(&mut self, path: &'static str, body: String) -> anyhow::Result<(u16, Bytes)> {
        let mut request = hyper::Request::post(path)
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status().as_u16();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }

    async fn ask(&mut self, path: &'static str, body: String) -> Answer {
        let (status, bytes) = match self.post(path, body).await {
            Ok(answered) => answered,
            Err(error) => return Answer::Failed(format!("{error:#}")),
        };
        let Ok(said) = serde_json::from_slice::<Said<'_>>(&bytes) else {
            return Answer::Failed(format!("{status} without JSON"));
        };
        match (said.verdict, said.permit_id, said.accepted) {
            (Some(_), Some(permit_id), _) => Answer::Permit(permit_id.into_owned()),
            (Some(verdict), None, _) => Answer::Verdict(format!("{verdict}: {}", said.reason.unwrap_or_default())),
            (None, _, Some(true)) => Answer::Accepted,
            (None, _, Some(false)) => Answer::Failed(format!("report: {}", said.reason.unwrap_or_default())),
            (None, _, None) => Answer::Failed(format!("{status} {}", said.code.unwrap_or_default())),
        }
    }
}

async fn handshake<T>(io: T) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    // It ends with its sender; what goes wrong on it is the answer of a call.
    tokio::spawn(connection);
    Ok(sender)
}

fn tls(plan: &Plan) -> anyhow::Result<rustls::ClientConfig> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let path = plan.ca.as_deref().context("over TLS --ca (or PLACET_CA) names the authority of the certificates")?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    Ok(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

impl Caller for Connection {
    async fn decide(&mut self, calls: &Calls) -> Answer {
        self.ask("/v1/decide", calls.decide_json()).await
    }

    async fn report(&mut self, calls: &Calls, permit_id: String) -> Answer {
        self.ask("/v1/report", calls.report_json(&permit_id)).await
    }
}
