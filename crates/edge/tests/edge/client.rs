//! One HTTP request over one connection, and a gRPC channel.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::house::{ALL, House};

pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// A call of the HTTP door, as everyone with every role unless changed.
pub(crate) struct Ask {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    token: Option<String>,
    body: Vec<u8>,
}

pub(crate) fn ask(method: &'static str, path: impl Into<String>) -> Ask {
    Ask { method, path: path.into(), headers: Vec::new(), token: Some(ALL.to_owned()), body: Vec::new() }
}

impl Ask {
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    pub(crate) fn request(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(self.path).header("host", "localhost");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::from(self.body)).unwrap()
    }

    pub(crate) async fn of(self, house: &House) -> Got {
        over(TcpStream::connect(house.http).await.unwrap(), self.request()).await.unwrap()
    }
}

pub(crate) async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Got, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let text = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
    Ok(Got { status: head.status, headers: head.headers, text })
}

/// The head of the answer to an empty message: its gRPC status, if the call ended at once.
pub(crate) async fn grpc_head(addr: SocketAddr, path: &str, token: Option<&str>) -> (Option<i32>, HeaderMap) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::new(Bytes::from_static(&[0; 5]))).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().parse().unwrap());
    (status, response.headers().clone())
}

pub(crate) async fn channel(house: &House) -> Channel {
    Endpoint::from_shared(format!("http://{}", house.grpc)).unwrap().connect().await.unwrap()
}

/// A message with the token of everyone.
pub(crate) fn signed<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {ALL}").parse().unwrap());
    request
}
