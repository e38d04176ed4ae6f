//! Clients that do not begin: each door closes their connection in time.

use std::time::Duration;

use placet_edge::roles::Role;
use placet_edge::{PeerEntry, Peers, SocketFile, SocketMode, serve_unix};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::client::ask;
use crate::house::House;
use crate::unix;

/// Whether the other side hangs up on a client that sends this and no more.
async fn hangs_up(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> bool {
    stream.write_all(sent).await.unwrap();
    let mut got = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut got)).await.is_ok()
}

/// Goal: as long as it is not clear which HTTP a client speaks, it has the time of a first byte and no more.
#[tokio::test]
async fn a_client_that_stops_after_its_first_bytes_is_hung_up_on() {
    let house = House::with(None, |edge| edge.with_head_within(Duration::from_millis(50))).await;
    let folder = unix::private();
    let path = unix::path(&folder);
    let socket = SocketFile::bind(&path, SocketMode::Owner).await.unwrap();
    let roles = vec![Role::Audit.as_str().to_owned()];
    let entry = PeerEntry { uid: Some(unix::this_process().0), principal: "me".into(), roles, ..PeerEntry::default() };
    let peers = Peers::new(&[entry]).unwrap();
    let door = tokio::spawn(serve_unix(socket, peers, house.edge.clone(), std::future::pending()));
    for sent in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        let shown = String::from_utf8_lossy(sent);
        assert!(hangs_up(TcpStream::connect(house.http).await.unwrap(), sent).await, "http: {shown}");
        assert!(hangs_up(TcpStream::connect(house.grpc).await.unwrap(), sent).await, "grpc: {shown}");
        assert!(hangs_up(UnixStream::connect(&path).await.unwrap(), sent).await, "unix: {shown}");
    }
    // HTTP/1 at the gRPC door is no beginning either.
    assert!(hangs_up(TcpStream::connect(house.grpc).await.unwrap(), b"GET / HTTP/1.1\r\n\r\n").await);
    assert_eq!(ask("GET", "/v1/health").of(&house).await.status, 200);
    door.abort();
}
