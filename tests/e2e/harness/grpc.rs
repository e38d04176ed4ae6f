//! The gRPC door for the same tests: calls in the words of the HTTP door become messages of `placet.v1`, answers become
//! its JSON again, and a status becomes its HTTP status.
//! Absent on purpose: bodies that no message can carry. They panic here; a case leaves this door out by name.

mod body;
mod shape;

use placet_wire::v1;
use placet_wire::v1::approval_service_client::ApprovalServiceClient;
use placet_wire::v1::cluster_service_client::ClusterServiceClient;
use placet_wire::v1::control_service_client::ControlServiceClient;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::evidence_service_client::EvidenceServiceClient;
use placet_wire::v1::policy_service_client::PolicyServiceClient;
use prost::Message;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::client::{Answer, Call};
use body::{Members, Query};

/// Largest answer: a page of evidence.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug)]
pub struct GrpcDoor {
    channels: Vec<Channel>,
}

/// A request with a token, if there is one.
pub fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

type Told = Result<(u16, Value), Status>;

impl GrpcDoor {
    pub fn new(ports: &[u16]) -> Self {
        let channel = |port: &u16| {
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
            endpoint.timeout(std::time::Duration::from_secs(20)).connect_lazy()
        };
        Self { channels: ports.iter().map(channel).collect() }
    }

    pub fn nodes(&self) -> usize {
        self.channels.len()
    }

    pub fn channel(&self, id: u64) -> Channel {
        self.channels[id as usize - 1].clone()
    }

    /// `None` when no node answered.
    pub async fn send(&self, id: u64, call: &Call<'_>) -> Option<Answer> {
        let query = Query::of(call.path);
        let path: Vec<&str> = query.segments.iter().map(String::as_str).collect();
        let channel = self.channel(id);
        let told = match path.first().copied().unwrap_or_default() {
            "decide" | "report" | "permits" | "static" | "local" => decision(channel, call, &path).await,
            "approvals" | "mandates" => approvals(channel, call, &path, query.clone()).await,
            "killswitch" => control(channel, call).await,
            "policies" => policies(channel, call, &path, query.clone()).await,
            "evidence" => evidence(channel, call, &path, query.clone()).await,
            "intents" | "budgets" | "cluster" => cluster(channel, call, &path, query.clone()).await,
            _ => panic!("{} {} is not spoken over gRPC", call.method, call.path),
        };
        match told {
            Ok((status, body)) => Some(Answer { status, body }),
            Err(status) => refusal(&status),
        }
    }
}

async fn decision(channel: Channel, call: &Call<'_>, path: &[&str]) -> Told {
    let mut door = DecisionServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let body = match path {
        ["decide"] => {
            let message = body::decide(Members::of(call));
            shape::decided(door.decide(with_token(call.token, message)).await?.into_inner())
        }
        ["report"] => {
            let message = body::report(Members::of(call));
            shape::reported(door.report(with_token(call.token, message)).await?.into_inner())
        }
        ["permits", "check"] => {
            let mut members = Members::of(call);
            let message = v1::CheckPermitRequest { permit_id: members.text("permit_id") };
            members.end();
            shape::checked(door.check_permit(with_token(call.token, message)).await?.into_inner())
        }
        ["static"] => {
            let message = v1::ListStaticRequest {};
            shape::statics(door.list_static(with_token(call.token, message)).await?.into_inner())
        }
        ["local"] => {
            let message = body::local(Members::of(call));
            let recorded = door.record_local(with_token(call.token, message)).await?.into_inner();
            json!({"evidence_ids": recorded.evidence_ids})
        }
        _ => unknown(call),
    };
    Ok((200, body))
}

async fn approvals(channel: Channel, call: &Call<'_>, path: &[&str], mut query: Query) -> Told {
    let mut door = ApprovalServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let body = match (call.method, path) {
        ("GET", ["approvals"]) => {
            let (all, after, limit) = (query.flag("all"), query.text("after"), query.number("limit"));
            query.end();
            let message = v1::ListApprovalsRequest { all, after, limit };
            let page = door.list(with_token(call.token, message)).await?.into_inner();
            shape::page("approvals", page.approvals, shape::approval, page.next)
        }
        ("GET", ["approvals", id]) => {
            let message = v1::GetApprovalRequest { approval_id: (*id).to_owned() };
            shape::approval(door.get(with_token(call.token, message)).await?.into_inner())
        }
        ("POST", ["approvals", id, verb @ ("grant" | "deny" | "approve")]) => {
            let mut members = Members::of(call);
            let message = v1::ResolveApprovalRequest { approval_id: (*id).to_owned(), note: members.text("note") };
            members.end();
            let request = with_token(call.token, message);
            match *verb {
                "grant" => shape::approval(door.grant(request).await?.into_inner()),
                "deny" => shape::approval(door.deny(request).await?.into_inner()),
                _ => return Ok(shape::approved(door.approve(request).await?.into_inner())),
            }
        }
        ("POST", ["approvals", id, "ratify"]) => {
            let mut members = Members::of(call);
            let (approved, signature) = (members.flag("approved"), members.text("signature"));
            members.end();
            let message = v1::RatifyRequest { approval_id: (*id).to_owned(), approved, signature };
            shape::approval(door.ratify(with_token(call.token, message)).await?.into_inner())
        }
        ("POST", ["mandates"]) => {
            let message = body::mandate(Members::of(call));
            let mandate = door.set_mandate(with_token(call.token, message)).await?.into_inner();
            shape::mandate(mandate)
        }
        _ => unknown(call),
    };
    Ok((200, body))
}

async fn control(channel: Channel, call: &Call<'_>) -> Told {
    let mut door = ControlServiceClient::new(channel);
    let answer = match call.method {
        "GET" => door.get_kill_switch(with_token(call.token, v1::GetKillSwitchRequest {})).await?,
        _ => door.set_kill_switch(with_token(call.token, body::switch(Members::of(call)))).await?,
    };
    Ok((200, shape::switch(answer.into_inner())))
}

async fn policies(channel: Channel, call: &Call<'_>, path: &[&str], mut query: Query) -> Told {
    let mut door = PolicyServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let expect = call.expect.unwrap_or_default().to_owned();
    let body = match (call.method, path) {
        ("POST", ["policies"]) => {
            let activate = query.maybe_flag("activate");
            query.end();
            let document = String::from_utf8(call.body.clone().unwrap_or_default()).unwrap();
            let message = v1::PublishPolicyRequest { document, expect, activate };
            shape::published(door.publish(with_token(call.token, message)).await?.into_inner())
        }
        ("POST", ["policies", digest, "activate"]) => {
            let message = v1::ActivatePolicyRequest { digest: (*digest).to_owned(), expect };
            shape::published(door.activate(with_token(call.token, message)).await?.into_inner())
        }
        ("DELETE", ["policies", digest]) => {
            let message = v1::DropPolicyRequest { digest: (*digest).to_owned() };
            let dropped = door.drop(with_token(call.token, message)).await?.into_inner();
            json!({"digest": dropped.digest, "evidence_id": dropped.evidence_id})
        }
        ("GET", ["policies"]) if query.flag("all") => {
            let message = v1::ListPoliciesRequest { after: query.text("after"), limit: query.number("limit") };
            query.end();
            let page = door.list(with_token(call.token, message)).await?.into_inner();
            shape::page("policies", page.policies, shape::policy_facts, page.next)
        }
        ("GET", ["policies"]) => {
            let message = v1::GetPolicyRequest { digest: query.text("digest") };
            query.end();
            shape::policy(door.get(with_token(call.token, message)).await?.into_inner())
        }
        ("GET", ["policies", digest]) => {
            let message = v1::GetPolicyRequest { digest: (*digest).to_owned() };
            shape::policy(door.get(with_token(call.token, message)).await?.into_inner())
        }
        _ => unknown(call),
    };
    Ok((200, body))
}

async fn evidence(channel: Channel, call: &Call<'_>, path: &[&str], mut query: Query) -> Told {
    let mut door = EvidenceServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let body = match (call.method, path) {
        ("GET", ["evidence"]) => {
            let message = body::find(query);
            let page = door.find(with_token(call.token, message)).await?.into_inner();
            shape::page("evidence", page.evidence, shape::evidence, page.next)
        }
        ("POST", ["evidence", "head"]) => {
            shape::head(door.sign_head(with_token(call.token, v1::SignHeadRequest {})).await?.into_inner())
        }
        ("GET", ["evidence", "consistency"]) => {
            let message =
                v1::ProveConsistencyRequest { from: query.number("from").into(), to: query.number("to").into() };
            query.end();
            shape::proof(door.prove_consistency(with_token(call.token, message)).await?.into_inner())
        }
        ("GET", ["evidence", id, "proof"]) => {
            let message =
                v1::ProveInclusionRequest { evidence_id: (*id).to_owned(), size: query.number("size").into() };
            query.end();
            shape::proof(door.prove_inclusion(with_token(call.token, message)).await?.into_inner())
        }
        ("GET", ["evidence", id]) => {
            let message = v1::GetEvidenceRequest { evidence_id: (*id).to_owned() };
            shape::evidence(door.get(with_token(call.token, message)).await?.into_inner())
        }
        _ => unknown(call),
    };
    Ok((200, body))
}

async fn cluster(channel: Channel, call: &Call<'_>, path: &[&str], mut query: Query) -> Told {
    let mut door = ClusterServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let (after, limit) = (query.text("after"), query.number("limit"));
    query.end();
    let body = match (call.method, path) {
        ("GET", ["intents"]) => {
            let message = v1::ListIntentsRequest { after, limit };
            let page = door.list_intents(with_token(call.token, message)).await?.into_inner();
            shape::page("intents", page.intents, shape::intent, page.next)
        }
        ("GET", ["budgets"]) => {
            let message = v1::ListBudgetsRequest { after, limit };
            let page = door.list_budgets(with_token(call.token, message)).await?.into_inner();
            shape::page("budgets", page.budgets, shape::counter, page.next)
        }
        ("GET", ["cluster"]) => {
            shape::cluster(door.status(with_token(call.token, v1::StatusRequest {})).await?.into_inner())
        }
        ("POST", ["cluster", "leader"]) => {
            let mut members = Members::of(call);
            let message = v1::TransferLeaderRequest { to: members.maybe_number("to") };
            members.end();
            shape::cluster(door.transfer_leader(with_token(call.token, message)).await?.into_inner())
        }
        _ => unknown(call),
    };
    Ok((200, body))
}

fn unknown(call: &Call<'_>) -> Value {
    panic!("{} {} is not spoken over gRPC", call.method, call.path)
}

/// The table of codes: each has one HTTP and one gRPC status.
const CODES: [(&str, u16, Code); 12] = [
    ("unavailable", 503, Code::Unavailable),
    ("unknown", 503, Code::DeadlineExceeded),
    ("not_found", 404, Code::NotFound),
    ("conflict", 409, Code::FailedPrecondition),
    ("forbidden", 403, Code::PermissionDenied),
    ("invalid", 400, Code::InvalidArgument),
    ("policy_mistakes", 422, Code::InvalidArgument),
    ("internal", 500, Code::Internal),
    ("unauthenticated", 401, Code::Unauthenticated),
    ("timeout", 408, Code::Cancelled),
    ("too_large", 413, Code::ResourceExhausted),
    ("missed", 410, Code::DataLoss),
];

/// A failed call as the HTTP door would tell it; `None` when the failure is the connection's.
fn refusal(status: &Status) -> Option<Answer> {
    let code = status.metadata().get("placet-code")?.to_str().unwrap();
    let (_, http, grpc) = CODES.iter().find(|(of, _, _)| *of == code).unwrap_or_else(|| panic!("code `{code}`"));
    assert_eq!(status.code(), *grpc, "the status of `{code}`");
    let mut body = json!({"code": code, "detail": status.message()});
    if let Some(bytes) = status.metadata().get_bin("placet-mistakes-bin") {
        let mistakes = v1::PolicyMistakes::decode(bytes.to_bytes().unwrap()).unwrap();
        body["mistakes"] = mistakes.mistakes.into_iter().map(shape::mistake).collect();
    }
    Some(Answer { status: *http, body })
}
