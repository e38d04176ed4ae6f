//! Lanes under load, and closing without losing an answer.

use tokio::net::TcpStream;

use crate::client::{ask, over};
use crate::house::House;

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
