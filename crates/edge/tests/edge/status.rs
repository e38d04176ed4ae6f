//! Every reject has one HTTP and one gRPC status, and one code at both doors.

use placet_core::op::Reject;
use placet_core::policy::Mistake;
use placet_wire::v1;
use placet_wire::v1::control_service_client::ControlServiceClient;
use placet_wire::v1::policy_service_client::PolicyServiceClient;
use prost::Message;
use serde_json::json;
use tonic::Code;

use crate::client::{ask, channel, signed};
use crate::fake::APPROVAL_ID;
use crate::house::House;

#[tokio::test]
async fn both_doors_say_the_same() {
    let house = House::open().await;
    let mut grpc = ControlServiceClient::new(channel(&house).await);
    let detail = || "why `x`".to_owned();
    for (reject, http, code) in [
        (Reject::Unavailable { detail: detail() }, 503, Code::Unavailable),
        (Reject::Unknown { detail: detail() }, 503, Code::DeadlineExceeded),
        (Reject::NotFound { detail: detail() }, 404, Code::NotFound),
        (Reject::Conflict { detail: detail() }, 409, Code::FailedPrecondition),
        (Reject::Forbidden { detail: detail() }, 403, Code::PermissionDenied),
        (Reject::Invalid { detail: detail() }, 400, Code::InvalidArgument),
        (Reject::Internal { detail: detail() }, 500, Code::Internal),
    ] {
        *house.fake.reject.lock().unwrap() = Some(reject.clone());
        for (method, path) in [("GET", "/v1/killswitch"), ("POST", "/v1/decide"), ("DELETE", "/v1/cluster/members/1")] {
            let got = ask(method, path).of(&house).await;
            assert_eq!((got.status.as_u16(), got.json()), (http, json!({"code": reject.code(), "detail": detail()})));
            assert_eq!(got.header("retry-after"), if http == 503 { "1" } else { "" });
        }
        // An attempt that is on record and has no other answer is told in the same words.
        *house.fake.reject.lock().unwrap() = None;
        *house.fake.refused.lock().unwrap() = Some(reject.clone());
        let got = ask("POST", format!("/v1/approvals/{APPROVAL_ID}/grant")).of(&house).await;
        assert_eq!((got.status.as_u16(), got.json()), (http, json!({"code": reject.code(), "detail": detail()})));
        let status = grpc.get_kill_switch(signed(v1::GetKillSwitchRequest {})).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, "why `x`"));
        assert_eq!(status.metadata().get("placet-code").unwrap(), reject.code());
    }
}

#[tokio::test]
async fn policy_mistakes_are_listed() {
    let house = House::open().await;
    let mistakes = vec![Mistake { line: 3, column: 5, message: "`tier` is 9".to_owned() }];
    *house.fake.reject.lock().unwrap() = Some(Reject::PolicyMistakes { mistakes });
    let got = ask("POST", "/v1/policies").body("tier: 9").of(&house).await;
    assert_eq!(got.status, 422);
    assert_eq!(got.json()["code"], "policy_mistakes");
    assert_eq!(got.json()["mistakes"], json!([{"line": 3, "column": 5, "message": "`tier` is 9"}]));

    let request = v1::PublishPolicyRequest { document: "tier: 9".into(), ..Default::default() };
    let status = PolicyServiceClient::new(channel(&house).await).publish(signed(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let bytes = status.metadata().get_bin("placet-mistakes-bin").unwrap().to_bytes().unwrap();
    let listed = v1::PolicyMistakes::decode(bytes).unwrap();
    assert_eq!((listed.mistakes[0].line, listed.left_out), (3, 0));
}

#[tokio::test]
async fn unknown_routes_and_methods() {
    let house = House::open().await;
    for path in ["/", "/v1/nothing", "/v1/decide/", "/v1/approvals/x/execute"] {
        let got = ask("GET", path).token(None).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["code"]), (404, &"not_found".into()), "{path}");
    }
    for (method, path, allow) in [
        ("GET", "/v1/decide", "POST"),
        ("PUT", "/v1/killswitch", "GET, POST"),
        ("DELETE", "/v1/policies", "GET, POST"),
        ("POST", "/v1/policies/x", "GET, DELETE"),
        ("GET", "/v1/evidence/head", "POST"),
        ("GET", "/v1/permits/check", "POST"),
        ("OPTIONS", "/v1/health", "GET"),
    ] {
        let got = ask(method, path).of(&house).await;
        assert_eq!((got.status.as_u16(), &got.json()["code"]), (405, &"method_not_allowed".into()), "{method} {path}");
        assert_eq!(got.header("allow"), allow);
    }
}

/// Goal: a panic behind a door fails its call alone, and says that the outcome is not known.
#[tokio::test]
async fn a_panic_fails_its_call_alone() {
    let house = House::open().await;
    let got = ask("POST", "/v1/killswitch").body(r#"{"engaged":true,"origin":"panic"}"#).of(&house).await;
    assert_eq!((got.status.as_u16(), &got.json()["code"]), (503, &"unknown".into()));
    let mut grpc = ControlServiceClient::new(channel(&house).await);
    let set = v1::SetKillSwitchRequest { engaged: true, origin: "panic".into(), ..Default::default() };
    assert_eq!(grpc.set_kill_switch(signed(set)).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(grpc.get_kill_switch(signed(v1::GetKillSwitchRequest {})).await.is_ok());
}
