//! What arrives at decide and report: as it came, or recorded as malformed (AADP §15.1, §18).

use placet_core::ids::Hash;
use placet_core::limits::BODY_BYTES_MAX;
use placet_core::op::Op;

use crate::client::ask;
use crate::fake::REQUEST_ID;
use crate::house::House;

fn decide() -> String {
    format!(
        r#"{{"protocol":"aadp/0.2","request_id":"{REQUEST_ID}","action_type":"pay.small","params":{{ "amount" : 1.10 }},"source":"llm","rationale":"","created_at":"2026-08-17T09:00:00Z"}}"#
    )
}

#[tokio::test]
async fn a_decide_passes_as_it_came() {
    let house = House::open().await;
    let body = format!(" {}\n", decide());
    for content_type in [None, Some("application/json"), Some("Application/JSON; charset=\"UTF-8\"")] {
        let mut call = ask("POST", "/v1/decide").body(body.clone());
        if let Some(content_type) = content_type {
            call = call.header("content-type", content_type);
        }
        let got = call.of(&house).await;
        assert_eq!(got.status, 200, "{content_type:?}");
        let json = got.json();
        assert_eq!((&json["verdict"], &json["detail"]), (&"permit".into(), &"{ \"amount\" : 1.10 }".into()));
        assert_eq!((&json["evidence_id"], &json["request_id"]), (&"aud-7".into(), &REQUEST_ID.into()));
        assert_eq!(json["obligations"][0]["type"], "report_result");
        assert_eq!(house.fake.last().op, Op::Decide(body.clone().into_bytes()));
    }
}

#[tokio::test]
async fn any_authenticated_decide_gets_a_verdict() {
    let house = House::open().await;
    for body in [&b""[..], b"{bad", b"[]", b"\xff\xfe", b"{}", b"{\"a\":1,\"a\":1}"] {
        let got = ask("POST", "/v1/decide").body(body).of(&house).await;
        assert_eq!(got.status, 200, "{}", String::from_utf8_lossy(body));
        assert_eq!((&got.json()["verdict"], &got.json()["reason"]), (&"deny".into(), &"malformed".into()));
    }
    let report = ask("POST", "/v1/report").body("{bad").of(&house).await;
    assert_eq!((report.status.as_u16(), &report.json()["accepted"]), (200, &false.into()));
}

#[tokio::test]
async fn a_wrong_media_type_is_recorded_and_denied() {
    let house = House::open().await;
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", "application/json; charset=latin1"),
        ("content-encoding", "gzip"),
    ] {
        for (path, answer) in [("/v1/decide", "verdict"), ("/v1/report", "accepted")] {
            let got = ask("POST", path).header(name, value).body(decide()).of(&house).await;
            assert_eq!(got.status, 415, "{path} {value}");
            assert_eq!((got.json().get(answer).is_some(), &got.json()["reason"]), (true, &"malformed".into()));
            let Op::Malformed { operation, request } = house.fake.last().op else { panic!("not recorded") };
            assert_eq!((operation.as_str(), request.kind.as_str()), (&path[4..], "media_type"));
            assert_eq!(request.digest, Hash::of(decide().as_bytes()));
        }
    }
}

#[tokio::test]
async fn a_body_of_one_mebibyte_is_the_largest() {
    let house = House::open().await;
    let most = vec![b' '; BODY_BYTES_MAX];
    assert_eq!(ask("POST", "/v1/decide").body(most.clone()).of(&house).await.status, 200);
    for more in [1, 3 << 20] {
        let got = ask("POST", "/v1/decide").body(vec![b' '; BODY_BYTES_MAX + more]).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["verdict"]), (413, &"deny".into()));
        let Op::Malformed { request, .. } = house.fake.last().op else { panic!("not recorded") };
        assert_eq!((request.kind.as_str(), request.digest), ("size", Hash::of(&most)));
        assert!(request.detail.contains("first 1048576 bytes"), "{}", request.detail);
    }
}
