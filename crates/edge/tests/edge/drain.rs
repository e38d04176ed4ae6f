//! Lanes under load, and closing without losing an answer.

use placet_edge::limits::CONTROL_PER_CALLER_MAX;
use placet_edge::roles::Role;
use placet_wire::v1;
use placet_wire::v1::control_service_client::ControlServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{ask, channel, over, signed};
use crate::fake::APPROVAL_ID;
use crate::house::{House, token};

/// Goal: decides over the bound are refused at once, and the kill switch is still served (AADP §16).
#[tokio::test]
async fn a_flood_of_decides_leaves_the_switch_free() {
    let house = House::with(None, |edge| edge.with_in_flight_max(1, 8)).await;
    house.fake.gate.forget_permits(usize::MAX);
    let stream = TcpStream::connect(house.http).await.unwrap();
    let first = tokio::spawn(over(stream, ask("POST", "/v1/decide").body("{}").request()));
    house.fake.waiting.subscribe().wait_for(|(now, _)| *now == 1).await.unwrap();
    let second = ask("POST", "/v1/decide").body("{}").of(&house).await;
    assert_eq!((second.status.as_u16(), &second.json()["code"]), (503, &"unavailable".into()));
    assert_eq!(second.header("retry-after"), "1");
    let switch = ask("POST", "/v1/killswitch").body(r#"{"engaged":true}"#).of(&house).await;
    assert_eq!(switch.status, 200);
    house.fake.gate.add_permits(2);
    assert_eq!(first.await.unwrap().unwrap().status, 200);
    assert_eq!(ask("POST", "/v1/decide").body("{}").of(&house).await.status, 200);
}

/// A call of `token` whose body does not come; returns when the door waits for it.
async fn slow(house: &House, path: &str, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.http).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 2\r\n\
         expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 100");
    stream
}

/// Goal: whatever else is asked, searched or sent slowly, the kill switch is read and thrown, at both doors.
#[tokio::test]
async fn the_switch_has_a_lane_of_its_own() {
    let house = House::with(None, |edge| edge.with_in_flight_max(0, 0)).await;
    assert_eq!(ask("GET", "/v1/policies").of(&house).await.status, 503);
    assert_eq!(ask("DELETE", "/v1/cluster/members/1").of(&house).await.status, 503);
    assert_eq!(ask("GET", "/v1/killswitch").of(&house).await.status, 200);
    assert_eq!(ask("POST", "/v1/killswitch").body(r#"{"engaged":true}"#).of(&house).await.status, 200);
    let mut grpc = ControlServiceClient::new(channel(&house).await);
    grpc.get_kill_switch(signed(v1::GetKillSwitchRequest {})).await.unwrap();
    let set = v1::SetKillSwitchRequest { engaged: true, ..Default::default() };
    grpc.set_kill_switch(signed(set)).await.unwrap();

    // Nor does another operator who sends slowly.
    let mut bodies = Vec::new();
    for _ in 0..CONTROL_PER_CALLER_MAX {
        bodies.push(slow(&house, "/v1/killswitch", &token(Role::Operate)).await);
    }
    let theirs = ask("GET", "/v1/killswitch").token(Some(token(Role::Operate))).of(&house).await;
    assert_eq!((theirs.status.as_u16(), &theirs.json()["code"]), (503, &"unavailable".into()));
    assert_eq!(ask("POST", "/v1/killswitch").body(r#"{"engaged":true}"#).of(&house).await.status, 200);
    drop(bodies);
    while ask("GET", "/v1/killswitch").token(Some(token(Role::Operate))).of(&house).await.status != 200 {
        tokio::task::yield_now().await;
    }
}

/// Goal: bodies that are still to come hold no place in the lane.
#[tokio::test]
async fn slow_bodies_leave_the_lane_free() {
    let house = House::with(None, |edge| edge.with_in_flight_max(1, 1)).await;
    let grant = format!("/v1/approvals/{APPROVAL_ID}/grant");
    let mut first = slow(&house, &grant, &token(Role::Approve)).await;
    let _others = [
        slow(&house, &grant, &token(Role::Approve)).await,
        slow(&house, "/v1/policies", &token(Role::Policy)).await,
        slow(&house, "/v1/evidence/head", &token(Role::Audit)).await,
    ];
    assert_eq!(ask("GET", "/v1/policies").of(&house).await.status, 200);
    first.write_all(b"{}").await.unwrap();
    let mut answer = vec![0; 32];
    first.read_exact(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("200 OK"), "{}", String::from_utf8_lossy(&answer));
}

/// Goal: a call in work when the door closes is answered, new connections are not taken, and the door ends.
#[tokio::test]
async fn a_closing_door_answers_what_it_took() {
    let house = House::open().await;
    house.fake.gate.forget_permits(usize::MAX);
    let stream = TcpStream::connect(house.http).await.unwrap();
    // A connection that never sends anything must not hold the door open.
    let _silent = TcpStream::connect(house.http).await.unwrap();
    let held = tokio::spawn(over(stream, ask("POST", "/v1/decide").body("{}").request()));
    house.fake.waiting.subscribe().wait_for(|(now, _)| *now == 1).await.unwrap();
    house.close();
    while TcpStream::connect(house.http).await.is_ok() {
        tokio::task::yield_now().await;
    }
    house.fake.gate.add_permits(1);
    assert_eq!(held.await.unwrap().unwrap().status, 200);
    house.closed().await;
}
