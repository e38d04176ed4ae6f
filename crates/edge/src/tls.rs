//! TLS from certificate files.
//! Absent on purpose: identities. A client certificate, where a CA is configured, guards the channel; the principal
//! comes from the token.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;

/// Where the certificates are, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of its issuers.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// If given, clients must show a certificate of this authority (mutual TLS).
    pub client_ca: Option<PathBuf>,
}

/// TLS for a door, ready to accept.
#[derive(Clone)]
pub struct Tls {
    config: ServerConfig,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl TlsFiles {
    /// Reads the files.
    pub fn load(&self) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Unfit { source })?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|source| TlsError::Unfit { source })?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|source| TlsError::ClientCa { path: shown(path), source })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Unreadable { path: shown(&self.key), source })?;
        let config =
            builder.with_single_cert(certificates(&self.chain)?, key).map_err(|source| TlsError::Unfit { source })?;
        Ok(Tls { config })
    }
}

impl Tls {
    /// The configuration for the given application protocols.
    pub(crate) fn for_protocols(&self, names: &[&str]) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is missing or is not PEM.
    #[error("`{path}` is not a readable PEM file")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("`{path}` holds no certificate")]
    Empty {
        /// Which.
        path: String,
    },
    /// The authority for clients cannot be used.
    #[error("`{path}` does not serve as an authority for client certificates")]
    ClientCa {
        /// Which.
        path: String,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
    /// The certificate and the key do not fit, or one of them is not acceptable.
    #[error("the certificate or its key cannot be used")]
    Unfit {
        /// Why.
        source: rustls::Error,
    },
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: shown(path), source };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if certificates.is_empty() { Err(TlsError::Empty { path: shown(path) }) } else { Ok(certificates) }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
