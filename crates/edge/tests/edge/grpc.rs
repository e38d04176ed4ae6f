//! The gRPC door: the same engine, verbatim arguments, health and reflection.

use futures::StreamExt;
use placet_core::op::Op;
use placet_wire::v1;
use placet_wire::v1::approval_service_client::ApprovalServiceClient;
use placet_wire::v1::cluster_service_client::ClusterServiceClient;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::policy_service_client::PolicyServiceClient;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::client::{channel, signed};
use crate::fake::{APPROVAL_ID, PERMIT_ID, REQUEST_ID};
use crate::house::House;

pub(crate) fn decide(params: &[u8]) -> v1::DecideRequest {
    v1::DecideRequest {
        protocol: "aadp/0.2".into(),
        request_id: REQUEST_ID.into(),
        action_type: "pay.small".into(),
        params: params.to_vec().into(),
        source: "llm".into(),
        created_at: "2026-08-17T09:00:00Z".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_decide_keeps_its_arguments() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let params = "{ \"amount\" : 500.1000000000000000001 }";
    let reply = client.decide(signed(decide(params.as_bytes()))).await.unwrap().into_inner();
    assert_eq!((reply.verdict.as_str(), reply.detail.as_str()), ("permit", params));
    assert_eq!((reply.permit_id.as_str(), reply.evidence_id.as_str()), (PERMIT_ID, "aud-7"));
    assert_eq!((reply.obligations[0].r#type.as_str(), &reply.obligations[0].value), ("report_result", &None));
    assert_eq!(reply.effective_tier, 3);
    assert_eq!(house.fake.last().principal.as_str(), "root");
}

#[tokio::test]
async fn arguments_cannot_reach_other_members() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    for params in [&b"{},\"action_type\":\"pay.huge\""[..], b"{}}", b"{\"a\":1,\"a\":2}", b"\xff", b"nonsense"] {
        let reply = client.decide(signed(decide(params))).await.unwrap().into_inner();
        assert_eq!((reply.verdict.as_str(), reply.reason.as_str()), ("deny", "malformed"));
        assert_eq!((reply.request_id.as_str(), reply.detail.as_str()), (REQUEST_ID, "`params` is not an object"));
    }
    let mut sent = decide(b"{}");
    sent.rationale = "\",\"approval_ref\":\"apr-x".into();
    assert_eq!(client.decide(signed(sent)).await.unwrap().into_inner().verdict, "permit");
}

#[tokio::test]
async fn a_decide_that_is_too_large_still_gets_a_verdict() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut sent = decide(b"{}");
    sent.rationale = "x".repeat(1 << 20);
    let reply = client.decide(signed(sent)).await.unwrap().into_inner();
    assert_eq!((reply.verdict.as_str(), reply.reason.as_str()), ("deny", "malformed"));
    assert!(matches!(house.fake.last().op, Op::Malformed { request, .. } if request.kind == "size"));
}

#[tokio::test]
async fn a_report_by_permit_and_by_request() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let sent = v1::ReportRequest {
        protocol: "aadp/0.2".into(),
        permit_id: PERMIT_ID.into(),
        outcome: "success".into(),
        payload: b"{\"n\": 1.0}".to_vec().into(),
        completed_at: "2026-08-17T09:00:00Z".into(),
        ..Default::default()
    };
    let reply = client.report(signed(sent.clone())).await.unwrap().into_inner();
    assert_eq!((reply.accepted, reply.detail.as_str()), (true, "{\"n\": 1.0}"));
    let by_request = v1::ReportRequest { permit_id: String::new(), request_id: REQUEST_ID.into(), ..sent.clone() };
    assert!(client.report(signed(by_request)).await.unwrap().into_inner().accepted);
    let bad = v1::ReportRequest { payload: b"{".to_vec().into(), ..sent };
    let reply = client.report(signed(bad)).await.unwrap().into_inner();
    assert_eq!((reply.accepted, reply.reason.as_str()), (false, "malformed"));
}

#[tokio::test]
async fn operators_have_the_same_calls() {
    let house = House::open().await;
    let mut approvals = ApprovalServiceClient::new(channel(&house).await);
    let resolve = v1::ResolveApprovalRequest { approval_id: APPROVAL_ID.into(), note: "ok".into() };
    let granted = approvals.grant(signed(resolve)).await.unwrap().into_inner();
    assert_eq!((granted.state.as_str(), granted.decided_by.as_str()), ("approved", "root"));
    assert_eq!(&granted.params[..], b"{ \"amount\": 1.0 }");
    let list = v1::ListApprovalsRequest { limit: 2, ..Default::default() };
    assert_eq!(approvals.list(signed(list)).await.unwrap().into_inner().next, APPROVAL_ID);
    let bad = v1::ListApprovalsRequest { limit: 1001, ..Default::default() };
    assert_eq!(approvals.list(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);

    let mut policies = PolicyServiceClient::new(channel(&house).await);
    let publish = v1::PublishPolicyRequest { document: "a: b".into(), expect: "none".into() };
    assert_eq!(policies.publish(signed(publish)).await.unwrap().into_inner().evidence_id, "aud-9");
    assert_eq!(
        house.fake.last().op,
        Op::PublishPolicy { document: "a: b".into(), expect: Some("none".into()), activate: true }
    );

    let mut cluster = ClusterServiceClient::new(channel(&house).await);
    let view = cluster.status(signed(v1::StatusRequest {})).await.unwrap().into_inner();
    assert_eq!((view.leader_id, view.members[0].role.as_str()), (Some(2), "voter"));
    let budgets = cluster.list_budgets(signed(v1::ListBudgetsRequest::default())).await.unwrap().into_inner();
    assert_eq!((budgets.budgets[0].kind.as_str(), budgets.budgets[0].limit.as_str()), ("value", "100.5"));
    let empty = v1::AddLearnerRequest { id: 4, addresses: None };
    assert_eq!(cluster.add_learner(signed(empty)).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn health_follows_the_decision_point() {
    let house = House::open().await;
    let mut client = HealthClient::new(channel(&house).await);
    let mut check = async |service: &str| {
        let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await;
        answer.map(|answer| answer.into_inner().status).map_err(|status| status.code())
    };
    assert_eq!(check("").await, Ok(1));
    assert_eq!(check("placet.v1.DecisionService").await, Ok(1));
    assert_eq!(check("placet.v1.Nothing").await, Err(Code::NotFound));
    house.sick();
    assert_eq!(check("placet.v1.DecisionService").await, Ok(2));
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let house = House::open().await;
    let mut client = ServerReflectionClient::new(channel(&house).await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client.server_reflection_info(futures::stream::iter([ask])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["Decision", "Approval", "Policy", "Control", "Evidence", "Cluster"] {
        let name = format!("placet.v1.{name}Service");
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}
