//! `WatchPermits`: what ends or wakes a caller's permits is told at once (AADP §7, §11.3, §16). Over gRPC alone, where
//! streams are.

use std::time::{Duration, Instant};

use placet_core::stamp::Stamp;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::permit_notice::Notice;
use placet_wire::v1::switch_scope::Of;
use placet_wire::v1::{PermitNotice, WatchPermitsRequest};
use serde_json::{Value, json};
use tonic::Streaming;

use super::fixture::{Case, case_alone_at, case_at};
use crate::harness::{A1, Door, OPERATE, P1, P2, says, text, with, with_token};

const GRPC: &[Door] = &[Door::Grpc];

/// What is told at once is told within this.
const AT_ONCE: Duration = Duration::from_secs(1);

struct Watch {
    stream: Streaming<PermitNotice>,
    /// Request ids of all permits that were revoked.
    revoked: Vec<String>,
}

impl Watch {
    /// P1 watches through one node.
    async fn open(case: &Case, id: u64) -> Self {
        let mut door = DecisionServiceClient::new(case.client().channel(id));
        let stream = door.watch_permits(with_token(P1, WatchPermitsRequest {})).await.unwrap().into_inner();
        let mut watch = Self { stream, revoked: Vec::new() };
        assert!(matches!(watch.next().await, Notice::Ready(_)), "the first message");
        watch
    }

    /// Through every node.
    async fn everywhere(case: &Case) -> Vec<Self> {
        let mut watches = Vec::new();
        for id in case.cluster().ids() {
            watches.push(Self::open(case, id).await);
        }
        watches
    }

    async fn next(&mut self) -> Notice {
        let next = tokio::time::timeout(Duration::from_secs(20), self.stream.message()).await;
        let notice = next.expect("a notice").unwrap().expect("the stream goes on").notice.unwrap();
        if let Notice::Revoked(permit) = &notice {
            self.revoked.push(permit.request_id.clone());
        }
        notice
    }

    /// Passes over what is told about other cases.
    async fn until<T>(&mut self, wanted: impl Fn(Notice) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.next().await) {
                return found;
            }
        }
    }

    /// A switch for this action type, or for everything.
    async fn switched(&mut self, name: Option<&str>) -> bool {
        self.until(|notice| match notice {
            Notice::KillSwitch(changed) => match (changed.scope.and_then(|scope| scope.of), name) {
                (None, None) => Some(changed.engaged),
                (Some(Of::ActionType(of)), Some(name)) if of == name => Some(changed.engaged),
                _ => None,
            },
            _ => None,
        })
        .await
    }

    async fn revoked(&mut self, reply: &Value) -> String {
        let request = text(reply, "request_id");
        self.until(|notice| match notice {
            Notice::Revoked(permit) if permit.request_id == request => Some(permit.action_type),
            _ => None,
        })
        .await
    }
}

async fn switch(case: &Case, body: Value) -> Instant {
    case.client().done("POST", "/v1/killswitch", OPERATE, Some(&with(body, json!({"origin": "desk"})))).await;
    Instant::now()
}

#[test]
fn a_scoped_switch_revokes_what_it_covers_at_once() {
    case_at("wscope", GRPC, async |case| {
        let (name, on) = (case.name("lamp.toggle"), json!({"state": "on"}));
        let mut watches = Watch::everywhere(&case).await;
        let permit = case.ask("lamp.toggle", on.clone()).await;
        let other = case.ask("lamp.restore", on.clone()).await;
        let foreign = case.client().decide_as(P2, &case.body("lamp.toggle", on)).await;
        let scope = json!({"action_type": name});
        let engaged = switch(&case, json!({"engaged": true, "scope": scope})).await;
        for watch in &mut watches {
            assert!(watch.switched(Some(&name)).await);
            assert_eq!(watch.revoked(&permit).await, name);
        }
        assert!(engaged.elapsed() < AT_ONCE, "{:?}", engaged.elapsed());
        let released = switch(&case, json!({"engaged": false, "scope": scope})).await;
        for watch in &mut watches {
            assert!(!watch.switched(Some(&name)).await);
            for spared in [&other, &foreign] {
                assert!(!watch.revoked.iter().any(|one| one == text(spared, "request_id")), "{spared}");
            }
        }
        assert!(released.elapsed() < AT_ONCE, "{:?}", released.elapsed());
    });
}

#[test]
fn the_switch_revokes_everything_at_once() {
    case_alone_at("wswitch", GRPC, async |case| {
        let mut watches = Watch::everywhere(&case).await;
        let on = json!({"state": "on"});
        let permits = [case.ask("lamp.toggle", on.clone()).await, case.ask("lamp.restore", on).await];
        let engaged = switch(&case, json!({"engaged": true})).await;
        for watch in &mut watches {
            assert!(watch.switched(None).await);
            for permit in &permits {
                if !watch.revoked.iter().any(|one| one == text(permit, "request_id")) {
                    watch.revoked(permit).await;
                }
            }
        }
        assert!(engaged.elapsed() < AT_ONCE, "{:?}", engaged.elapsed());
    });
}

#[test]
fn an_expiry_is_told_at_once() {
    case_at("wexpiry", GRPC, async |case| {
        let mut watches = Watch::everywhere(&case).await;
        let reply = case.ask("pay.brief", json!({"amount_eur": "1"})).await;
        let obligations = reply["obligations"].as_array().unwrap();
        let within = obligations.iter().find(|one| one["type"] == "execute_within").unwrap();
        let deadline = Stamp::parse(text(within, "value")).unwrap().0;
        let request = text(&reply, "request_id");
        for watch in &mut watches {
            let told = watch.until(|notice| match notice {
                Notice::Expired(permit) if permit.request_id == request => Some(permit),
                _ => None,
            });
            let told = told.await;
            let (_, entry, _) = case.entry(text(&reply, "evidence_id")).await;
            assert_eq!(
                (told.action_type, told.permit_digest.as_str()),
                (case.name("pay.brief"), text(&entry, "permit_digest"))
            );
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let late = i64::try_from(now).unwrap() - deadline;
        assert!((0..1000).contains(&late), "{late} ms behind the deadline");
    });
}

#[test]
fn a_resumption_is_told_at_once_to_who_proposed() {
    case_at("wresume", GRPC, async |case| {
        let mut watches = Watch::everywhere(&case).await;
        let body = case.body("wire.send", json!({"amount_eur": "400"}));
        let id = text(&case.client().decide(&body).await, "approval_id").to_owned();
        let answer = case.client().resolve(A1, &id, "approve").await;
        assert_eq!((answer.status, says(&answer.body).0), (200, "permit"));
        let approved = Instant::now();
        let mut request = String::new();
        for watch in &mut watches {
            request = watch
                .until(|notice| match notice {
                    Notice::Resumed(resumed) if resumed.approval_id == id => Some(resumed.request_id),
                    _ => None,
                })
                .await;
        }
        assert!(approved.elapsed() < AT_ONCE, "{:?}", approved.elapsed());
        let reply = case.client().decide(&with(body, json!({"request_id": request, "approval_ref": id}))).await;
        assert_eq!(reply["permit_id"], answer.body["permit_id"]);
    });
}
