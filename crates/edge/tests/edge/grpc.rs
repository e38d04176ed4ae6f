//! The gRPC door: the same engine, verbatim arguments, health and reflection.

use futures::StreamExt;
use placet_core::cluster::MembershipChange;
use placet_core::event::SwitchScope;
use placet_core::ids::{ActionType, PolicyDigest, Principal};
use placet_core::op::Op;
use placet_core::policy::Bounds;
use placet_wire::v1;
use placet_wire::v1::approval_service_client::ApprovalServiceClient;
use placet_wire::v1::approve_response::Answer as Approved;
use placet_wire::v1::cluster_service_client::ClusterServiceClient;
use placet_wire::v1::control_service_client::ControlServiceClient;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::policy_service_client::PolicyServiceClient;
use placet_wire::v1::switch_scope::Of;
use tokio::sync::watch;
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
    let publish = v1::PublishPolicyRequest { document: "a: b".into(), expect: "none".into(), activate: None };
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
    for to in [Some(2), None] {
        let view = cluster.transfer_leader(signed(v1::TransferLeaderRequest { to })).await.unwrap().into_inner();
        assert_eq!(view.leader_id, Some(2));
        assert_eq!(house.fake.changes.lock().unwrap().last(), Some(&MembershipChange::TransferLeader { to }));
    }
}

#[tokio::test]
async fn approvals_show_all_and_are_resumed() {
    let house = House::open().await;
    let mut client = ApprovalServiceClient::new(channel(&house).await);
    let resolve = |note: &str| v1::ResolveApprovalRequest { approval_id: APPROVAL_ID.into(), note: note.into() };
    let resumed = client.approve(signed(resolve(""))).await.unwrap().into_inner().answer.unwrap();
    assert!(matches!(resumed, Approved::Decision(reply) if reply.verdict == "permit"));
    let waiting = client.approve(signed(resolve("not yet"))).await.unwrap().into_inner().answer.unwrap();
    let Approved::Approval(view) = waiting else { panic!("{waiting:?}") };
    assert_eq!(
        (view.cost.as_str(), view.group.as_str(), view.quorum, view.votes),
        ("1.5", "treasury", 2, vec!["root".into()])
    );

    let signature = "0a".repeat(64);
    let ratify = v1::RatifyRequest { approval_id: APPROVAL_ID.into(), approved: false, signature: signature.clone() };
    let view = client.ratify(signed(ratify.clone())).await.unwrap().into_inner();
    assert_eq!((view.state.as_str(), view.needs_authority, view.ratified), ("denied", true, false));
    let bad = v1::RatifyRequest { signature: "0a".into(), ..ratify };
    assert_eq!(client.ratify(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);
    let set = v1::SetMandateRequest { action_type: "pay.small".into(), denied: true, serial: 7, signature };
    let mandate = client.set_mandate(signed(set.clone())).await.unwrap().into_inner();
    assert_eq!((mandate.serial, mandate.evidence_id.as_str()), (7, "aud-9"));
    let bad = v1::SetMandateRequest { action_type: "7".into(), ..set };
    assert_eq!(client.set_mandate(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_switch_has_one_scope_or_none() {
    let house = House::open().await;
    let mut client = ControlServiceClient::new(channel(&house).await);
    let set = |scope| v1::SetKillSwitchRequest { engaged: true, origin: String::new(), note: "why".into(), scope };
    for (of, read) in [
        (Of::ActionType("pay.small".into()), SwitchScope::ActionType(ActionType::new("pay.small"))),
        (Of::Effect("money out".into()), SwitchScope::Effect("money out".into())),
        (Of::Principal("agent".into()), SwitchScope::Principal(Principal::new("agent"))),
    ] {
        let scope = Some(v1::SwitchScope { of: Some(of) });
        let view = client.set_kill_switch(signed(set(scope.clone()))).await.unwrap().into_inner();
        assert_eq!((view.scope, view.note.as_str()), (scope, "why"));
        let (origin, note, scope) = (String::new(), Some("why".into()), Some(read));
        assert_eq!(house.fake.last().op, Op::SetKillSwitch { engaged: true, origin, note, scope });
    }
    // A client that knows another kind of scope must not stop everything.
    let asked = house.fake.calls.lock().unwrap().len();
    for of in [None, Some(Of::Effect(String::new())), Some(Of::ActionType("7".into()))] {
        let refused = client.set_kill_switch(signed(set(Some(v1::SwitchScope { of })))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    assert_eq!(house.fake.calls.lock().unwrap().len(), asked);
    assert_eq!(client.set_kill_switch(signed(set(None))).await.unwrap().into_inner().scope, None);
}

#[tokio::test]
async fn policies_are_kept_listed_activated_and_dropped() {
    let house = House::open().await;
    let mut client = PolicyServiceClient::new(channel(&house).await);
    let digest = "ef".repeat(32);
    let keep = v1::PublishPolicyRequest { document: "a: b".into(), expect: String::new(), activate: Some(false) };
    assert!(!client.publish(signed(keep)).await.unwrap().into_inner().active);
    let page = v1::ListPoliciesRequest { after: String::new(), limit: 1 };
    let page = client.list(signed(page)).await.unwrap().into_inner();
    assert_eq!((page.policies[0].digest.clone(), page.policies[0].used), (page.next, false));
    let activate = v1::ActivatePolicyRequest { digest: digest.clone(), expect: "none".into() };
    assert!(client.activate(signed(activate)).await.unwrap().into_inner().active);
    let expect = Some("none".into());
    assert_eq!(house.fake.last().op, Op::ActivatePolicy { digest: PolicyDigest::new(digest.as_str()), expect });
    let dropped = client.drop(signed(v1::DropPolicyRequest { digest: digest.clone() })).await.unwrap().into_inner();
    assert_eq!((dropped.digest, dropped.evidence_id.as_str()), (digest, "aud-9"));
    let bad = v1::DropPolicyRequest { digest: "all".into() };
    assert_eq!(client.drop(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn enforcement_points_ask_beside_decisions() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let check = client.check_permit(signed(v1::CheckPermitRequest { permit_id: PERMIT_ID.into() })).await.unwrap();
    assert_eq!((check.get_ref().usable, check.get_ref().evidence_id.as_str()), (true, "aud-7"));
    let bad = client.check_permit(signed(v1::CheckPermitRequest::default())).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);

    let list = client.list_static(signed(v1::ListStaticRequest {})).await.unwrap().into_inner();
    assert_eq!((list.policy, list.actions[0].action_type.as_str()), ("ab".repeat(32), "read.mail"));
    let bounds: Bounds = serde_json::from_slice(&list.actions[0].params).unwrap();
    assert_eq!(bounds.required, ["box"]);

    let entry = v1::LocalDecision {
        request_id: REQUEST_ID.into(),
        action_type: "read.mail".into(),
        params: b"{}".to_vec().into(),
        source: "llm".into(),
        mode: "fail_open".into(),
        decided_at: "2026-08-17T09:00:00Z".into(),
        outcome: "success".into(),
        completed_at: "2026-08-17T09:00:00Z".into(),
        ..Default::default()
    };
    let local = v1::RecordLocalRequest { protocol: "aadp/0.2".into(), entries: vec![entry.clone()] };
    let recorded = client.record_local(signed(local.clone())).await.unwrap().into_inner();
    assert_eq!(recorded.evidence_ids, ["aud-9"]);
    let bad = v1::RecordLocalRequest { entries: Vec::new(), ..local.clone() };
    assert_eq!(client.record_local(signed(bad)).await.unwrap_err().code(), Code::InvalidArgument);
    let large = v1::LocalDecision { rationale: "x".repeat(1 << 20), ..entry };
    let large = v1::RecordLocalRequest { entries: vec![large], ..local };
    assert_eq!(client.record_local(signed(large)).await.unwrap_err().code(), Code::ResourceExhausted);
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

/// Goal: all who watch the health hear of a change, and what anybody may open without a token is bounded.
#[tokio::test]
async fn streams_without_a_token_are_bounded() {
    let house = House::with(None, |edge| edge.with_public_max(2)).await;
    let mut client = HealthClient::new(channel(&house).await);
    let named = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut first = client.watch(named("")).await.unwrap().into_inner();
    let mut second = client.watch(named("placet.v1.ControlService")).await.unwrap().into_inner();
    assert_eq!(client.watch(named("")).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(client.check(named("")).await.unwrap().into_inner().status, 1);
    for health in [&mut first, &mut second] {
        assert_eq!(health.next().await.unwrap().unwrap().status, 1);
    }
    house.sick();
    for health in [&mut first, &mut second] {
        assert_eq!(health.next().await.unwrap().unwrap().status, 2);
    }
    drop(first);
    let mut unknown = loop {
        match client.watch(named("placet.v1.Nothing")).await {
            Ok(health) => break health.into_inner(),
            Err(status) => assert_eq!(status.code(), Code::Unavailable),
        }
    };
    assert_eq!(unknown.next().await.unwrap().unwrap().status, 3);

    let mut client = ServerReflectionClient::new(channel(&house).await);
    let asking = watch::Sender::new(true);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut asked = asking.subscribe();
        let requests =
            futures::stream::pending().take_until(async move { asked.wait_for(|asking| !asking).await.is_ok() });
        open.push(client.server_reflection_info(requests).await.unwrap());
    }
    let refused = client.server_reflection_info(futures::stream::pending()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    asking.send_replace(false);
    while client.server_reflection_info(futures::stream::empty()).await.is_err() {
        tokio::task::yield_now().await;
    }
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
