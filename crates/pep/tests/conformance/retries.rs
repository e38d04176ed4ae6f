//! Retries of a decision (AADP §16.5), several nodes, and the local socket.

use std::collections::BTreeSet;

use placet_pep::testing::{Fault, LocalPdp};
use placet_pep::{Basis, FailClosed, RunError, Unreachable};
use serde_json::json;

use crate::support::{CountingSink, House, POLICIES, builder, flush, lamp};

/// A lost answer is asked for again under the same request id: one decision, one act, one report.
#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_request_id() {
    let house = House::with(Unreachable::FailClosed, |b| b.attempts(4)).await;
    house.pdp.fault("/v1/decide", Fault::LoseAnswer);
    house.pdp.fault("/v1/decide", Fault::Hang);
    let body = json!({ "code": "unknown", "detail": "d" }).to_string();
    house.pdp.fault("/v1/decide", Fault::Answer { status: 503, body });
    let sink = CountingSink::default();
    let done = house.pep.run(lamp(), sink.act()).await.unwrap();
    assert!(done.decision.unwrap().replayed);
    assert_eq!(sink.calls(), 1);
    let bodies = house.pdp.received("/v1/decide");
    assert_eq!(bodies.len(), 4);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    house.only_report("success").await;
}

/// A node that is gone does not matter while another one answers.
#[tokio::test]
async fn another_node_answers() {
    let pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pep = builder(folder.path())
        .endpoint("http://127.0.0.1:1")
        .endpoint(pdp.url())
        .bearer_token(pdp.token())
        .unreachable(Unreachable::FailClosed)
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
    }
    flush(&pep).await;
    assert_eq!(pdp.results().len(), 3);
}

/// The local socket speaks the same messages.
#[cfg(unix)]
#[tokio::test]
async fn the_local_socket_is_an_endpoint() {
    let mut pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("pdp.sock");
    pdp.listen_on_socket(&socket).unwrap();
    let pep = builder(folder.path())
        .endpoint(format!("unix:{}", socket.display()))
        .bearer_token(pdp.token())
        .unreachable(Unreachable::FailClosed)
        .build()
        .unwrap();
    // The token is for other endpoints: on the socket it would be refused.
    assert_eq!(pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
    flush(&pep).await;
    assert_eq!(pdp.results(), ["success"]);
}

/// A node that refuses the credential does not hide one that takes it; where none takes it, nothing is done.
#[tokio::test]
async fn a_node_that_refuses_the_credential_is_passed_over() {
    let (strict, good) = (LocalPdp::start(POLICIES).await.unwrap(), LocalPdp::start(POLICIES).await.unwrap());
    let refusal = |status: u16| Fault::Answer { status, body: "{}".to_owned() };
    let folder = tempfile::tempdir().unwrap();
    let with = |name: &str, second: String| {
        let two = builder(&folder.path().join(name)).endpoint(strict.url()).endpoint(second).attempts(1);
        two.bearer_token(good.token()).unreachable(Unreachable::FailOpen).build().unwrap()
    };
    let pep = with("good", good.url());
    for status in [401, 403] {
        strict.fault("/v1/decide", refusal(status));
        assert_eq!(pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
        pep.flush().await;
        // Back to the first.
        good.fault("/v1/decide", refusal(status));
        assert_eq!(pep.run(lamp(), async |_| Ok(())).await.unwrap().basis, Basis::Permitted);
        pep.flush().await;
    }
    let sink = CountingSink::default();
    for pep in [with("gone", "http://127.0.0.1:1".to_owned()), with("both", good.url())] {
        strict.fault("/v1/decide", refusal(401));
        good.fault("/v1/decide", refusal(401));
        let refused = pep.run(lamp(), sink.act()).await;
        let credential = matches!(refused, Err(RunError::FailClosed(FailClosed::Credential(_))));
        assert!(credential, "{refused:?}");
    }
    assert_eq!(sink.calls(), 0);
}

/// Many at once: each is asked once, acted on once and reported once.
#[tokio::test]
async fn many_runs_at_once() {
    let house = House::open().await;
    let sink = CountingSink::default();
    let runs = (0..100).map(|_| {
        let (pep, act) = (house.pep.clone(), sink.act());
        tokio::spawn(async move { pep.run(lamp(), act).await.unwrap().request_id })
    });
    let mut ids = BTreeSet::new();
    for run in runs.collect::<Vec<_>>() {
        ids.insert(run.await.unwrap());
    }
    house.flush().await;
    assert_eq!((ids.len(), sink.calls(), house.pdp.results().len()), (100, 100, 100));
    assert_eq!(house.reports().len(), 100);
}
