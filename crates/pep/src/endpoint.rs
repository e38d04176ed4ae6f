//! Where decision points are and how bytes get there: HTTP, HTTPS, or a Unix socket that speaks HTTP (AADP §15).
//! Absent on purpose: meaning. A reply is a status and bytes; what it says about the mode is the asker's table.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Certificate, Client, Identity, Url};

use crate::limits::{ANSWER_BYTES_MAX, CONNECT_WITHIN};

/// One address of the builder, read: a URL, or `unix:` and the path of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Url(String),
    Socket(PathBuf),
}

impl Address {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let usable = cfg!(unix) && path.starts_with('/');
            return if usable { Ok(Self::Socket(path.into())) } else { Err(wrong(text)) };
        }
        let url = Url::parse(text).map_err(|_| wrong(text))?;
        let plain = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if plain { Ok(Self::Url(text.trim_end_matches('/').to_owned())) } else { Err(wrong(text)) }
    }
}

fn wrong(text: &str) -> String {
    format!("`{text}` is neither a URL such as https://pdp-1:7101 nor unix:/run/placet.sock")
}

/// Whether a bearer token can be sent as one: visible ASCII.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What every endpoint of one enforcement point shares.
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    pub(crate) root_ca_pem: Option<Vec<u8>>,
    pub(crate) identity_pem: Option<Vec<u8>>,
    pub(crate) attempt_within: Duration,
}

impl Credentials {
    fn client(&self, socket: Option<&PathBuf>) -> Result<Client, String> {
        // The process may have chosen its cryptography; if it has not, it gets ring.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = Client::builder()
            .user_agent(concat!("placet-pep/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_WITHIN)
            .timeout(self.attempt_within)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            // A decision goes where the configuration says, not where the environment does.
            .no_proxy();
        if let Some(pem) = &self.root_ca_pem {
            let roots = Certificate::from_pem_bundle(pem).map_err(|error| chain("root CA", &error))?;
            if roots.is_empty() {
                return Err("root CA: no certificate in PEM".to_owned());
            }
            builder = builder.tls_certs_only(roots);
        }
        if let Some(pem) = &self.identity_pem {
            builder = builder.identity(Identity::from_pem(pem).map_err(|error| chain("client identity", &error))?);
        }
        #[cfg(unix)]
        if let Some(path) = socket {
            builder = builder.unix_socket(path.as_path());
        }
        builder.build().map_err(|error| chain("HTTP client", &error))
    }
}

/// One decision point that may be asked.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    base: String,
    shown: String,
    token: Option<String>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// An answer, whatever it says.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) detail: String,
    /// There was no request: what the caller or the configuration gave cannot be sent to anyone.
    pub(crate) unbuildable: bool,
}

impl Endpoint {
    /// One endpoint for each address; all URLs share one pool of connections.
    pub(crate) fn all(addresses: &[Address], credentials: &Credentials) -> Result<Vec<Self>, String> {
        let mut shared = None;
        let mut endpoints = Vec::new();
        for address in addresses {
            let (client, base, shown, token) = match address {
                Address::Url(url) => {
                    let client = match &shared {
                        Some(client) => Client::clone(client),
                        None => credentials.client(None)?,
                    };
                    shared = Some(client.clone());
                    (client, url.clone(), url.clone(), credentials.token.clone())
                }
                Address::Socket(path) => {
                    let shown = format!("unix:{}", path.display());
                    // On a socket this process is the identity, and a token beside it is refused (AADP §15.2).
                    (credentials.client(Some(path))?, "http://localhost".to_owned(), shown, None)
                }
            };
            endpoints.push(Self { client, base, shown, token });
        }
        Ok(endpoints)
    }

    /// Posts JSON and reads the whole answer, up to its bound.
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Reply, Lost> {
        let request = self.client.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        self.send(request.body(body)).await
    }

    /// Gets, and reads the whole answer, up to its bound.
    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Lost> {
        self.send(self.client.get(format!("{}{path}", self.base))).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Reply, Lost> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let lost = |error: &reqwest::Error| Lost { detail: chain(&self.shown, error), unbuildable: error.is_builder() };
        let mut response = request.send().await.map_err(|error| lost(&error))?;
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| lost(&error))? {
            // What is cut off is no JSON, so it is never taken for an answer.
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                body.clear();
                break;
            }
            body.extend_from_slice(&part);
        }
        Ok(Reply { status: response.status().as_u16(), body })
    }
}

fn chain(what: &str, error: &dyn std::error::Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_sockets() {
        for (text, fits) in [
            ("http://127.0.0.1:7101", true),
            ("https://pdp.example/", true),
            ("unix:/run/placet.sock", true),
            ("unix:///run/placet.sock", true),
            ("unix:run/placet.sock", false),
            ("127.0.0.1:7101", false),
            ("ftp://pdp", false),
            ("http://user:secret@pdp", false),
            ("http://pdp/?x=1", false),
            ("", false),
        ] {
            assert_eq!(Address::read(text).is_ok(), fits, "{text}");
        }
    }
}
