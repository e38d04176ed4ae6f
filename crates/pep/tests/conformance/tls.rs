//! TLS and client certificates, with papers made here; a handshake that fails is an unreachable decision point.

use std::sync::Arc;

use placet_pep::testing::LocalPdp;
use placet_pep::{Basis, PepBuilder, Unreachable};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{POLICIES, builder, flush, lamp};

/// One authority, and what it signed: a server's and a client's chain and key.
struct Papers {
    ca: String,
    server: (String, String),
    client: (String, String),
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
            (cert.pem(), key.serialize_pem())
        };
        Self { server: pair("localhost"), client: pair("client"), ca }
    }

    fn identity(&self) -> String {
        format!("{}{}", self.client.0, self.client.1)
    }

    /// Demands a client certificate, and passes the bytes on to the decision point.
    async fn door_before(&self, pdp: &LocalPdp) -> String {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let cert = CertificateDer::from_pem_slice(self.server.0.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![cert], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let behind = pdp.url().trim_start_matches("http://").to_owned();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let Ok(mut inside) = TcpStream::connect(behind).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        format!("https://localhost:{port}")
    }
}

/// Who has the right papers is permitted; for everyone else the mode applies, whatever it is.
#[tokio::test]
async fn papers_decide_who_is_reached() {
    let (papers, strange) = (Papers::new(), Papers::new());
    let pdp = LocalPdp::start(POLICIES).await.unwrap();
    let url = papers.door_before(&pdp).await;
    let with = |change: &dyn Fn(PepBuilder) -> PepBuilder| {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder(folder.path()).endpoint(&url).bearer_token(pdp.token());
        (change(builder.unreachable(Unreachable::FailOpen)).build().unwrap(), folder)
    };
    for (who, reached, change) in [
        (
            "both",
            true,
            &(|b: PepBuilder| b.root_ca_pem(papers.ca.clone()).identity_pem(papers.identity())) as &dyn Fn(_) -> _,
        ),
        ("no identity", false, &|b: PepBuilder| b.root_ca_pem(papers.ca.clone())),
        ("a strange identity", false, &|b: PepBuilder| {
            b.root_ca_pem(papers.ca.clone()).identity_pem(strange.identity())
        }),
        ("a strange authority", false, &|b: PepBuilder| {
            b.root_ca_pem(strange.ca.clone()).identity_pem(papers.identity())
        }),
        ("no authority", false, &|b: PepBuilder| b.identity_pem(papers.identity())),
    ] {
        let (pep, _folder) = with(change);
        let done = pep.run(lamp(), async |_| Ok(())).await.unwrap();
        assert_eq!(done.basis == Basis::Permitted, reached, "{who}");
        if reached {
            flush(&pep).await;
        }
    }
    assert_eq!(pdp.received("/v1/decide").len(), 1);
    assert_eq!(pdp.results(), ["success"]);
}
