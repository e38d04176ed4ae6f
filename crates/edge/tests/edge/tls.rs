//! TLS and mutual TLS with certificates made here; plain text stays on loopback.

use std::path::Path;
use std::sync::Arc;

use placet_edge::{Edge, ServeError, TlsFiles, serve_grpc, serve_http};
use placet_wire::v1;
use placet_wire::v1::control_service_client::ControlServiceClient;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::client::{Got, ask, over, signed};
use crate::fake::Fake;
use crate::house::{House, keyring};

struct Pair {
    cert: String,
    key: String,
}

/// One authority, one certificate for `localhost`, one for a client.
struct Papers {
    ca: String,
    server: Pair,
    client: Pair,
    folder: TempDir,
}

impl Papers {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let pair = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let cert = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
            Pair { cert: cert.pem(), key: key.serialize_pem() }
        };
        let (server, client) = (pair("localhost"), pair("client"));
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.pem", &ca), ("chain.pem", &server.cert), ("key.pem", &server.key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { ca, server, client, folder }
    }

    fn files(&self, mutual: bool) -> TlsFiles {
        let at = |name: &str| self.folder.path().join(name);
        TlsFiles { chain: at("chain.pem"), key: at("key.pem"), client_ca: mutual.then(|| at("ca.pem")) }
    }

    async fn get(&self, house: &House, with_certificate: bool) -> std::io::Result<Got> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if with_certificate {
            let cert = CertificateDer::from_pem_slice(self.client.cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(self.client.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![cert], key).unwrap()
        } else {
            config.with_no_client_auth()
        };
        let stream = TcpStream::connect(house.http).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        over(stream, ask("GET", "/v1/killswitch").request()).await.map_err(std::io::Error::other)
    }

    async fn call(&self, house: &House, with_certificate: bool) -> Result<v1::KillSwitch, String> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca)).domain_name("localhost");
        if with_certificate {
            tls = tls.identity(Identity::from_pem(&self.client.cert, &self.client.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", house.grpc)).unwrap().tls_config(tls).unwrap();
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        let answer = ControlServiceClient::new(channel).get_kill_switch(signed(v1::GetKillSwitchRequest {})).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.to_string())
    }
}

#[tokio::test]
async fn both_doors_speak_tls() {
    let papers = Papers::new();
    let house = House::with(Some(papers.files(false).load().unwrap()), |edge| edge).await;
    assert_eq!(papers.get(&house, false).await.unwrap().status, 200);
    assert!(!papers.call(&house, false).await.unwrap().engaged);
    let plain = TcpStream::connect(house.http).await.unwrap();
    assert!(over(plain, ask("GET", "/v1/health").request()).await.is_err(), "plain text on a TLS door");
}

#[tokio::test]
async fn mutual_tls_takes_clients_of_the_authority_only() {
    let papers = Papers::new();
    let house = House::with(Some(papers.files(true).load().unwrap()), |edge| edge).await;
    assert_eq!(papers.get(&house, true).await.unwrap().status, 200);
    assert!(papers.call(&house, true).await.is_ok());
    assert!(papers.get(&house, false).await.is_err());
    assert!(papers.call(&house, false).await.is_err());
    assert_eq!(house.fake.calls.lock().unwrap().len(), 2);
}

#[test]
fn files_that_do_not_serve_are_named() {
    let papers = Papers::new();
    let good = papers.files(true);
    let at = |name: &str| papers.folder.path().join(name);
    std::fs::write(at("empty.pem"), "").unwrap();
    std::fs::write(at("other.pem"), &papers.client.key).unwrap();
    assert!(papers.server.key.contains("PRIVATE KEY"));
    let says = |files: TlsFiles| files.load().unwrap_err().to_string();
    let missing = Path::new("/nonexistent/chain.pem");
    assert!(says(TlsFiles { chain: missing.into(), ..good.clone() }).contains("/nonexistent/chain.pem"));
    assert!(says(TlsFiles { key: at("empty.pem"), ..good.clone() }).contains("empty.pem"));
    assert!(says(TlsFiles { client_ca: Some(at("empty.pem")), ..good.clone() }).contains("holds no certificate"));
    assert!(says(TlsFiles { key: at("other.pem"), ..good }).contains("certificate or its key"));
}

/// Goal: the doors themselves refuse, whatever the configuration let through.
#[tokio::test]
async fn plain_text_is_not_offered_to_other_hosts() {
    let edge = Edge::new(Arc::new(Fake::default()), keyring());
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve_http(listener, edge.clone(), None, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::Listen(_))), "{refused:?}");
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve_grpc(listener, edge, None, std::future::pending()).await;
    assert!(refused.unwrap_err().to_string().contains("has no TLS"));
}
