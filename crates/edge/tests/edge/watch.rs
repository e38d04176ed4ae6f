//! Watching permits: who is told what, and how a watch ends that may have missed something.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use placet_core::event::SwitchScope;
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, PermitId, Principal, RequestId};
use placet_core::notice::{Fact, Notice};
use placet_core::op::{Op, Query, Reject};
use placet_edge::limits::WATCH_POLL;
use placet_wire::v1;
use placet_wire::v1::decision_service_client::DecisionServiceClient;
use placet_wire::v1::permit_notice::Notice as Told;
use placet_wire::v1::switch_scope::Of;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::client::{channel, signed};
use crate::fake::{APPROVAL_ID, NOTICES_KEPT, PERMIT_ID, REQUEST_ID, intent};
use crate::house::House;

/// As the caller of [`signed`], whose principal is `root`.
async fn watch(client: &mut DecisionServiceClient<Channel>) -> Streaming<v1::PermitNotice> {
    let mut notices = client.watch_permits(signed(v1::WatchPermitsRequest {})).await.unwrap().into_inner();
    let first = notices.next().await.unwrap().unwrap();
    assert_eq!((first.notice, first.evidence_id.as_str()), (Some(Told::Ready(v1::WatchReady {})), ""));
    notices
}

async fn next(notices: &mut Streaming<v1::PermitNotice>) -> (String, Told) {
    let notice = notices.next().await.unwrap().unwrap();
    (notice.evidence_id, notice.notice.unwrap())
}

async fn ended(mut notices: Streaming<v1::PermitNotice>) -> Status {
    loop {
        if let Err(status) = notices.next().await.unwrap() {
            assert!(notices.next().await.is_none());
            return status;
        }
    }
}

impl House {
    fn tell(&self, index: u64, fact: Fact) {
        self.fake.notices.send(Arc::new(Notice { index: EvidenceIndex(index), fact })).unwrap();
    }
}

fn permit(action_type: &str) -> v1::PermitName {
    v1::PermitName {
        request_id: REQUEST_ID.into(),
        permit_digest: PermitId::new(PERMIT_ID).digest().to_string(),
        action_type: action_type.into(),
    }
}

fn expired(owner: Option<&str>) -> Fact {
    Fact::PermitExpired {
        owner: owner.map(Principal::new),
        action_type: ActionType::new("pay.small"),
        permit_digest: PermitId::new(PERMIT_ID).digest(),
        request_id: RequestId::new(REQUEST_ID),
    }
}

fn resumed(proposer: &str) -> Fact {
    Fact::Resumed {
        proposer: Principal::new(proposer),
        approval_id: ApprovalId::new(APPROVAL_ID),
        request_id: RequestId::new(REQUEST_ID),
    }
}

fn at(index: u64, told: Told) -> (String, Told) {
    (format!("aud-{index}"), told)
}

fn engaged() -> Told {
    Told::KillSwitch(v1::SwitchChanged { engaged: true, scope: None })
}

#[tokio::test]
async fn a_watcher_hears_of_its_own() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut notices = watch(&mut client).await;
    house.tell(1, expired(Some("agent")));
    house.tell(2, expired(None));
    house.tell(3, resumed("agent"));
    house.tell(4, Fact::Approval { approval_id: ApprovalId::new(APPROVAL_ID) });
    house.tell(5, expired(Some("root")));
    assert_eq!(next(&mut notices).await, at(5, Told::Expired(permit("pay.small"))));
    house.tell(6, resumed("root"));
    let told = v1::ProposalResumed { request_id: REQUEST_ID.into(), approval_id: APPROVAL_ID.into() };
    assert_eq!(next(&mut notices).await, at(6, Told::Resumed(told)));
}

/// Goal: a switch names each open permit of the watcher that it covers, and no other.
#[tokio::test]
async fn a_switch_revokes_what_it_covers() {
    let house = House::open().await;
    *house.fake.intents.lock().unwrap() = vec![
        intent(1, "root", "pay.small"),
        intent(2, "agent", "pay.small"),
        intent(3, "root", "pay.large"),
        intent(4, "root", "mail.send"),
        // Permitted after the switches below were engaged: none of them covers it.
        intent(99, "root", "pay.small"),
    ];
    house.fake.intents.lock().unwrap()[3].effects = vec!["mail".to_owned()];
    let all = ["pay.small", "pay.large", "mail.send"];
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut notices = watch(&mut client).await;
    for (index, scope, of, revoked) in [
        (10, None, None, &all[..]),
        (
            11,
            Some(SwitchScope::ActionType(ActionType::new("pay.large"))),
            Some(Of::ActionType("pay.large".into())),
            &all[1..2],
        ),
        (12, Some(SwitchScope::Effect("money".into())), Some(Of::Effect("money".into())), &all[..2]),
        (13, Some(SwitchScope::Principal(Principal::new("root"))), Some(Of::Principal("root".into())), &all[..]),
        (14, Some(SwitchScope::Effect("nothing".into())), Some(Of::Effect("nothing".into())), &[]),
    ] {
        // Another principal's switch is not told.
        house.tell(9, Fact::KillSwitch { engaged: true, scope: Some(SwitchScope::Principal(Principal::new("agent"))) });
        for engaged in [true, false] {
            house.tell(index, Fact::KillSwitch { engaged, scope: scope.clone() });
            let scope = of.clone().map(|of| v1::SwitchScope { of: Some(of) });
            assert_eq!(next(&mut notices).await, at(index, Told::KillSwitch(v1::SwitchChanged { engaged, scope })));
            for action_type in revoked.iter().filter(|_| engaged) {
                assert_eq!(next(&mut notices).await, at(index, Told::Revoked(permit(action_type))));
            }
        }
    }
}

/// Goal: a switch that covers more permits than one page holds, and many watchers, read the pages once.
#[tokio::test]
async fn watchers_share_what_a_switch_covers() {
    const PERMITS: u64 = 2500;
    let house = House::open().await;
    *house.fake.intents.lock().unwrap() = (1..=PERMITS).map(|at| intent(at, "root", "pay.small")).collect();
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut watchers = Vec::new();
    for _ in 0..10 {
        watchers.push(watch(&mut client).await);
    }
    house.tell(PERMITS + 1, Fact::KillSwitch { engaged: true, scope: None });
    for notices in &mut watchers {
        let first = next(notices).await;
        assert!(matches!(first.1, Told::KillSwitch(_)), "{first:?}");
    }
    for notices in &mut watchers {
        for _ in 0..PERMITS {
            assert_eq!(next(notices).await.1, Told::Revoked(permit("pay.small")));
        }
    }
    let calls = house.fake.calls.lock().unwrap();
    let pages = calls.iter().filter(|call| matches!(call.op, Op::Query(Query::Intents { .. }))).count();
    assert_eq!(pages, 3);
    assert!(calls.iter().all(|call| call.principal == Principal::system()), "a caller asked for others' permits");
}

/// Goal: a switch is told before anybody knows what it covers.
#[tokio::test]
async fn a_switch_does_not_wait_for_what_it_covers() {
    let house = House::open().await;
    *house.fake.intents.lock().unwrap() = vec![intent(1, "root", "pay.small")];
    house.fake.scans.forget_permits(usize::MAX);
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut notices = watch(&mut client).await;
    house.tell(10, Fact::KillSwitch { engaged: true, scope: None });
    assert_eq!(next(&mut notices).await, at(10, engaged()));
    house.fake.scans.add_permits(1);
    assert_eq!(next(&mut notices).await, at(10, Told::Revoked(permit("pay.small"))));
}

#[tokio::test]
async fn a_watch_that_missed_something_ends_and_says_so() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);

    let behind = watch(&mut client).await;
    for index in 0..=u64::try_from(NOTICES_KEPT).unwrap() {
        // The watcher does not run in between: this test has one thread.
        house.tell(index, expired(Some("root")));
    }
    let snapshot = watch(&mut client).await;
    house.tell(20, Fact::Missed);
    let mut unread = watch(&mut client).await;
    *house.fake.reject.lock().unwrap() = Some(Reject::Unavailable { detail: "no leader".into() });
    house.tell(21, Fact::KillSwitch { engaged: true, scope: None });
    // The switch is told, though not what it covers.
    assert_eq!(next(&mut unread).await, at(21, engaged()));
    for notices in [behind, snapshot, unread] {
        let status = ended(notices).await;
        assert_eq!((status.code(), status.metadata().get("placet-code").unwrap() == "missed"), (Code::DataLoss, true));
        assert!(status.message().contains("check your permits and watch again"), "{}", status.message());
    }
}

#[tokio::test]
async fn watches_are_bounded_and_end_with_their_node() {
    let house = House::with(None, |edge| edge.with_open_max(1, 1)).await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let notices = watch(&mut client).await;
    let status = client.watch_permits(signed(v1::WatchPermitsRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("try another"), "{}", status.message());
    drop(notices);
    // The place is free when the server noticed.
    let notices = loop {
        match client.watch_permits(signed(v1::WatchPermitsRequest {})).await {
            Ok(notices) => break notices.into_inner(),
            Err(status) => assert_eq!(status.code(), Code::Unavailable),
        }
    };
    house.close();
    let status = ended(notices).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("this node closes"), "{}", status.message());
    drop(client);
    house.closed().await;
}

/// Goal: a node that is cut off from its leader does not keep watchers in the belief that nothing happens.
#[tokio::test]
async fn a_node_without_a_leader_keeps_no_watchers() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let notices = watch(&mut client).await;
    house.sick();
    let status = ended(notices).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("no leader"), "{}", status.message());
    let status = client.watch_permits(signed(v1::WatchPermitsRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

/// Goal: a follower that knows its leader by name but is cut off or behind is not taken for one where nothing happens.
#[tokio::test]
async fn a_node_that_is_behind_keeps_no_watchers() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    *house.fake.position.lock().unwrap() = Some(EvidenceIndex(2));
    house.fake.record(1, "{}");
    let mut early = client.watch_permits(signed(v1::WatchPermitsRequest {})).await.unwrap().into_inner();
    assert!(timeout(Duration::from_millis(300), early.next()).await.is_err(), "said `ready` while behind");
    house.fake.record(2, "{}");
    let ready = early.next().await.unwrap().unwrap();
    assert_eq!(ready.notice, Some(Told::Ready(v1::WatchReady {})));

    let late = watch(&mut client).await;
    *house.fake.position.lock().unwrap() = Some(EvidenceIndex(3));
    for notices in [early, late] {
        let status = ended(notices).await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("is behind"), "{}", status.message());
    }
    *house.fake.position.lock().unwrap() = None;
    let cut_off = watch(&mut client).await;
    *house.fake.reject.lock().unwrap() = Some(Reject::Unavailable { detail: "no leader answers".into() });
    assert_eq!(ended(cut_off).await.code(), Code::Unavailable);
}

/// Goal: one failure, as an election makes it, ends no watch; and a node is asked once for all who watch.
#[tokio::test]
async fn an_election_ends_no_watch() {
    let house = House::open().await;
    let mut client = DecisionServiceClient::new(channel(&house).await);
    let mut watchers = Vec::new();
    for _ in 0..20 {
        watchers.push(watch(&mut client).await);
    }
    let asked = || {
        let calls = house.fake.calls.lock().unwrap();
        calls.iter().filter(|call| call.op == Op::Query(Query::Position)).count()
    };
    let before = asked();
    *house.fake.reject.lock().unwrap() = Some(Reject::Unavailable { detail: "an election".into() });
    while asked() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    *house.fake.reject.lock().unwrap() = None;
    tokio::time::sleep(WATCH_POLL * 2).await;
    assert!(asked() - before <= 5, "{} reads", asked() - before);
    house.tell(5, expired(Some("root")));
    for notices in &mut watchers {
        assert_eq!(next(notices).await, at(5, Told::Expired(permit("pay.small"))));
    }
}
