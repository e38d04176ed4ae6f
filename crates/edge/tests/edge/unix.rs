//! The Unix socket door: the same answers as over TCP, for processes that the table knows (AADP §15.2).

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use placet_core::limits::BODY_BYTES_MAX;
use placet_edge::roles::{Access, Role, TABLE};
use placet_edge::{PeerEntry, Peers, ServeError, SocketError, SocketFile, SocketMode, serve_unix};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::auth;
use crate::client::{Ask, Got, ask, over};
use crate::fake::{PERMIT_ID, REQUEST_ID};
use crate::house::House;

/// A socket door beside the doors of a house.
struct Local {
    house: House,
    folder: TempDir,
    stop: watch::Sender<bool>,
    door: JoinHandle<Result<(), ServeError>>,
}

impl Local {
    async fn open(peers: &[PeerEntry]) -> Self {
        let (house, folder, stop) = (House::open().await, private(), watch::Sender::new(false));
        let socket = SocketFile::bind(&path(&folder), SocketMode::Owner).await.unwrap();
        let (edge, peers, mut said) = (house.edge.clone(), Peers::new(peers).unwrap(), stop.subscribe());
        let told = async move {
            let _ = said.wait_for(|stop| *stop).await;
        };
        let door = tokio::spawn(serve_unix(socket, peers, edge, told));
        Self { house, folder, stop, door }
    }

    async fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(path(&self.folder)).await
    }

    async fn got(&self, ask: Ask) -> Got {
        over(self.connect().await.unwrap(), ask.request()).await.unwrap()
    }
}

/// A folder that is private whatever the umask.
pub(crate) fn private() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

pub(crate) fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("placet.sock")
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// This process's user and group, as the kernel gives them to a new file.
pub(crate) fn this_process() -> (u32, u32) {
    let file = tempfile::tempfile().unwrap().metadata().unwrap();
    (file.uid(), file.gid())
}

fn user(uid: u32, principal: &str, roles: &[Role]) -> PeerEntry {
    let roles = roles.iter().map(|role| role.as_str().to_owned()).collect();
    PeerEntry { uid: Some(uid), principal: principal.to_owned(), roles, ..PeerEntry::default() }
}

/// Without a token: on the socket there is none.
fn plain(method: &'static str, path: &str) -> Ask {
    ask(method, path).token(None)
}

fn lasting(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove("date");
    headers
}

/// Goal (case 129): one scenario over TCP and over the socket gives the same answers, and asks the same of the PDP.
#[tokio::test]
async fn case_129_both_doors_answer_the_same() {
    let local = Local::open(&[user(this_process().0, "root", &Role::ALL)]).await;
    let decide = format!(
        r#"{{"protocol":"aadp/0.2","request_id":"{REQUEST_ID}","action_type":"pay.small","params":{{ "a" : 1.10 }},"source":"llm","rationale":"","created_at":"2026-08-17T09:00:00Z"}}"#
    );
    for (method, path, media, body) in [
        ("POST", "/v1/decide", "application/json", decide.clone().into_bytes()),
        ("POST", "/v1/decide", "application/json", b"{bad".to_vec()),
        ("POST", "/v1/decide", "text/plain", decide.into_bytes()),
        ("POST", "/v1/decide", "application/json", vec![b' '; BODY_BYTES_MAX]),
        ("POST", "/v1/decide", "application/json", vec![b' '; BODY_BYTES_MAX + 1]),
        ("POST", "/v1/decide", "application/json", vec![b' '; BODY_BYTES_MAX + (3 << 20)]),
        ("POST", "/v1/report", "application/json", b"{}".to_vec()),
        ("POST", "/v1/report", "text/plain", b"{}".to_vec()),
        ("POST", "/v1/report", "application/json", vec![b' '; BODY_BYTES_MAX + 1]),
        ("POST", "/v1/local", "text/plain", b"{}".to_vec()),
        ("POST", "/v1/local", "application/json", vec![b' '; BODY_BYTES_MAX + 1]),
        ("POST", "/v1/permits/check", "application/json", format!(r#"{{"permit_id":"{PERMIT_ID}"}}"#).into_bytes()),
        ("GET", "/v1/static", "application/json", Vec::new()),
        ("GET", "/v1/evidence/export", "application/json", Vec::new()),
        ("GET", "/v1/approvals?limit=2", "application/json", Vec::new()),
        ("POST", "/v1/killswitch", "application/json", br#"{"engaged":true}"#.to_vec()),
        ("POST", "/v1/killswitch", "application/json", b"{}".to_vec()),
        ("GET", "/v1/evidence/aud-7", "application/json", Vec::new()),
        ("GET", "/v1/cluster", "application/json", Vec::new()),
        ("GET", "/v1/health", "application/json", Vec::new()),
        ("HEAD", "/v1/health", "application/json", Vec::new()),
        ("GET", "/metrics", "application/json", Vec::new()),
        ("DELETE", "/v1/decide", "application/json", Vec::new()),
        ("GET", "/v1/nothing", "application/json", Vec::new()),
    ] {
        let call = || ask(method, path).header("content-type", media).body(body.clone());
        let tcp = call().of(&local.house).await;
        let asked = std::mem::take(&mut *local.house.fake.calls.lock().unwrap());
        let unix = local.got(call().token(None)).await;
        assert_eq!((unix.status, &unix.text), (tcp.status, &tcp.text), "{method} {path}");
        assert_eq!(lasting(&unix.headers), lasting(&tcp.headers), "{method} {path}");
        assert_eq!(std::mem::take(&mut *local.house.fake.calls.lock().unwrap()), asked, "{method} {path}");
    }
}

/// Goal (case 130): a process that nobody mapped is refused on every route but health, and the PDP hears nothing.
#[tokio::test]
async fn case_130_an_unmapped_peer_is_refused() {
    let (uid, gid) = this_process();
    let local = Local::open(&[user(uid + 1, "another", &Role::ALL)]).await;
    for row in TABLE {
        let Some((method, route)) = row.http else { continue };
        let got = local.got(plain(method, &auth::path(route)).body("{}")).await;
        if row.access == Access::Open {
            assert_eq!(got.status, 200, "{method} {route}");
            continue;
        }
        assert_eq!((got.status.as_u16(), &got.json()["code"]), (403, &"forbidden".into()), "{method} {route}");
        assert_eq!(got.json()["detail"], format!("no peer is configured for user {uid} or group {gid}"));
    }
    // A good token does not help, not even where none is needed.
    for path in ["/v1/killswitch", "/v1/health"] {
        assert_eq!(local.got(ask("GET", path)).await.status, 401, "{path}");
    }
    assert!(local.house.fake.calls.lock().unwrap().is_empty());
    assert!(local.house.fake.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_peer_has_the_roles_of_its_entry() {
    let (uid, gid) = this_process();
    let group = PeerEntry { uid: None, gid: Some(gid), ..user(0, "group", &Role::ALL) };
    let local = Local::open(&[group.clone(), user(uid, "user", &[Role::Decide])]).await;
    for row in TABLE {
        let Some((method, route)) = row.http else { continue };
        let may = match row.access {
            Access::AnyOf(roles) => roles.contains(&Role::Decide),
            Access::Open | Access::AnyToken => true,
        };
        let got = local.got(plain(method, &auth::path(route)).body("{}")).await;
        assert_eq!(got.status != 403, may, "{method} {route}: {}", got.status);
    }
    local.got(plain("POST", "/v1/decide")).await;
    assert_eq!(local.house.fake.last().principal.as_str(), "user");
    let local = Local::open(&[group, user(uid + 1, "another", &[Role::Decide])]).await;
    assert_eq!(local.got(plain("GET", "/v1/killswitch")).await.status, 200);
    assert_eq!(local.house.fake.last().principal.as_str(), "group");
}

#[tokio::test]
async fn a_token_on_the_socket_is_refused() {
    let local = Local::open(&[user(this_process().0, "root", &Role::ALL)]).await;
    for value in ["", "Basic eDp5", "Bearer x"] {
        let got = local.got(plain("GET", "/v1/killswitch").header("authorization", value)).await;
        assert_eq!(got.status, 401, "{value}");
    }
    let got = local.got(ask("GET", "/v1/killswitch")).await;
    assert_eq!((got.status.as_u16(), &got.json()["code"]), (401, &"unauthenticated".into()));
    assert!(got.text.contains("send no `Authorization`"), "{}", got.text);
    assert!(local.house.fake.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn http_2_is_served_as_on_the_other_door() {
    let local = Local::open(&[user(this_process().0, "root", &Role::ALL)]).await;
    let stream = TokioIo::new(local.connect().await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://localhost/v1/killswitch").body(Full::<Bytes>::default()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.into_body().collect().await.unwrap().to_bytes().starts_with(b"{\"engaged\":false"));
    assert_eq!(local.house.fake.last().principal.as_str(), "root");
}

#[tokio::test]
async fn the_file_is_as_closed_as_asked() {
    let folder = private();
    let (path, gid) = (path(&folder), this_process().1);
    for (asked, bits) in [(SocketMode::Owner, 0o600), (SocketMode::Group(gid), 0o660)] {
        let socket = SocketFile::bind(&path, asked).await.unwrap();
        assert_eq!((mode(&path), path.metadata().unwrap().gid()), (bits, gid));
        drop(socket);
        assert!(!path.exists());
    }
    assert_eq!(mode(&folder.path().join("placet.sock.lock")) & 0o077, 0);
}

#[tokio::test]
async fn the_socket_of_a_dead_process_is_replaced() {
    let folder = private();
    let path = path(&folder);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(UnixStream::connect(&path).await.is_err());
    let _socket = SocketFile::bind(&path, SocketMode::Owner).await.unwrap();
    UnixStream::connect(&path).await.unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_path_that_is_not_free_is_refused() {
    let folder = private();
    let path = path(&folder);
    let refusal = async |path: &Path| SocketFile::bind(path, SocketMode::Owner).await.unwrap_err();

    let foreign = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(matches!(refusal(&path).await, SocketError::Live { .. }));
    drop(foreign);
    let ours = SocketFile::bind(&path, SocketMode::Owner).await.unwrap();
    assert!(matches!(refusal(&path).await, SocketError::Live { .. }));
    // The lock alone is enough: between a look and a bind there is nothing to connect to.
    std::fs::remove_file(&path).unwrap();
    let error = refusal(&path).await.to_string();
    assert_eq!(error, format!("another process listens on `{}`", path.display()));
    // What lies there now is not ours to remove.
    std::fs::write(&path, "kept").unwrap();
    drop(ours);
    assert!(matches!(refusal(&path).await, SocketError::NotSocket { .. }));
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    std::fs::remove_file(&path).unwrap();

    let target = folder.path().join("target.sock");
    let _live = std::os::unix::net::UnixListener::bind(&target).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(matches!(refusal(&path).await, SocketError::NotSocket { .. }));

    let _datagrams = std::os::unix::net::UnixDatagram::bind(folder.path().join("datagrams")).unwrap();
    assert!(matches!(refusal(&folder.path().join("datagrams")).await, SocketError::Failed { .. }));
    assert!(matches!(refusal(&folder.path().join("x".repeat(108))).await, SocketError::TooLong { .. }));
    assert!(matches!(refusal(&folder.path().join("none").join("s")).await, SocketError::Failed { .. }));
    for bits in [0o777, 0o1777, 0o770, 0o1770, 0o720, 0o702] {
        std::fs::set_permissions(folder.path(), Permissions::from_mode(bits)).unwrap();
        assert!(matches!(refusal(&folder.path().join("s")).await, SocketError::OpenFolder { .. }), "{bits:o}");
    }
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    drop(SocketFile::bind(&folder.path().join("s"), SocketMode::Owner).await.unwrap());
    // Another user's folder, where this process may give it away.
    if std::os::unix::fs::chown(folder.path(), Some(12345), None).is_ok() {
        assert!(matches!(refusal(&folder.path().join("s")).await, SocketError::OpenFolder { .. }));
    }
}

/// Goal: a call in work when the door closes is answered, the file is gone by then, and the path is free again.
#[tokio::test]
async fn a_closing_socket_answers_what_it_took() {
    let local = Local::open(&[user(this_process().0, "root", &Role::ALL)]).await;
    local.house.fake.gate.forget_permits(usize::MAX);
    // A connection that never sends anything must not hold the door open.
    let _silent = local.connect().await.unwrap();
    let held = tokio::spawn(over(local.connect().await.unwrap(), plain("POST", "/v1/decide").body("{}").request()));
    local.house.fake.waiting.subscribe().wait_for(|(now, _)| *now == 1).await.unwrap();
    local.stop.send_replace(true);
    while local.connect().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!path(&local.folder).exists());
    let _next = SocketFile::bind(&path(&local.folder), SocketMode::Owner).await.unwrap();
    local.house.fake.gate.add_permits(1);
    assert_eq!(held.await.unwrap().unwrap().status, 200);
    local.door.await.unwrap().unwrap();
    assert!(path(&local.folder).exists());
}
