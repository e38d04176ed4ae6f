//! One act for one request id: with a decision point and without, at once and after a restart.

use std::path::Path;

use placet_pep::testing::{Fault, LocalPdp};
use placet_pep::{Action, Pep, RunError, Unreachable};
use serde_json::json;

use crate::support::{CountingSink, House, POLICIES, builder, flush, lamp};

const ID: &str = "0d9c1f3e-0000-4000-8000-00000000000A";

fn pep(pdp: &LocalPdp, folder: &Path, mode: Unreachable) -> Pep {
    builder(folder).attempts(4).endpoint(pdp.url()).bearer_token(pdp.token()).unreachable(mode).build().unwrap()
}

fn busy() -> Fault {
    Fault::Answer { status: 503, body: json!({ "code": "unavailable", "detail": "d" }).to_string() }
}

async fn refuses(pep: &Pep, action: Action, sink: &CountingSink) {
    let before = sink.calls();
    let refused = pep.run(action, sink.act()).await;
    assert!(matches!(refused, Err(RunError::FailClosed(placet_pep::FailClosed::Repeated(_)))), "{refused:?}");
    assert_eq!(sink.calls(), before);
}

/// A caller's id that was acted on elsewhere, and an attempt that comes to nothing first: the permit is still someone
/// else's.
#[tokio::test]
async fn an_earlier_attempt_does_not_make_a_permit_of_another_ours() {
    for first in [busy(), Fault::LoseAnswer, Fault::Hang] {
        let house = House::open().await;
        let sink = CountingSink::default();
        house.pep.run(lamp().request_id(ID), sink.act()).await.unwrap();
        house.flush().await;
        let folder = tempfile::tempdir().unwrap();
        let other = pep(&house.pdp, folder.path(), Unreachable::FailOpen);
        house.pdp.fault("/v1/decide", first);
        refuses(&other, lamp().request_id(ID), &sink).await;
        assert_eq!(sink.calls(), 1);
        flush(&other).await;
        assert_eq!(house.reports().len(), 1);
    }
}

/// A node that asked its leader twice for us says `replayed` to our only attempt. Nobody else knows an id that this call
/// made.
#[tokio::test]
async fn a_replay_under_an_id_of_this_call_is_ours() {
    let house = House::open().await;
    house.pdp.rewrite_decisions(|decision| decision["replayed"] = json!(true));
    assert!(house.pep.run(lamp(), async |_| Ok(())).await.unwrap().decision.unwrap().replayed);
    house.only_report("success").await;
}

/// Without a decision point the same id acts once: at once, later, in the next life, and when one answers again.
#[tokio::test]
async fn without_a_decision_point_one_request_id_acts_once() {
    let mut pdp = LocalPdp::start(POLICIES).await.unwrap();
    pdp.stop().await;
    let folder = tempfile::tempdir().unwrap();
    let sink = CountingSink::default();
    let one = pep(&pdp, folder.path(), Unreachable::FailOpen);
    let (left, right) =
        tokio::join!(one.run(lamp().request_id(ID), sink.act()), one.run(lamp().request_id(ID), sink.act()));
    assert!(left.is_ok() != right.is_ok(), "{left:?} {right:?}");
    refuses(&one, lamp().request_id(ID.to_ascii_lowercase()), &sink).await;
    one.close().await;
    let two = pep(&pdp, folder.path(), Unreachable::FailOpen);
    refuses(&two, lamp().request_id(ID), &sink).await;
    pdp.resume().await.unwrap();
    // Delivered, and gone from the items; the claim is not.
    flush(&two).await;
    refuses(&two, lamp().request_id(ID), &sink).await;
    two.close().await;
    let three = pep(&pdp, folder.path(), Unreachable::FailOpen);
    refuses(&three, lamp().request_id(ID), &sink).await;
    assert_eq!((sink.calls(), pdp.local_acts().len()), (1, 1));
    assert!(pdp.received("/v1/decide").is_empty());
}

/// Permitted and acted on; then the decision point is gone, and so is this process: the same id does not act again.
#[tokio::test]
async fn what_was_permitted_is_not_decided_here_afterwards() {
    let mut pdp = LocalPdp::start(POLICIES).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sink = CountingSink::default();
    let one = pep(&pdp, folder.path(), Unreachable::FailOpen);
    one.run(lamp().request_id(ID), sink.act()).await.unwrap();
    flush(&one).await;
    one.close().await;
    pdp.stop().await;
    let two = pep(&pdp, folder.path(), Unreachable::FailOpen);
    refuses(&two, lamp().request_id(ID), &sink).await;
    assert_eq!(sink.calls(), 1);
}

/// What was not acted on may be asked again.
#[tokio::test]
async fn a_request_id_that_nothing_was_done_under_stays_free() {
    let mut pdp = LocalPdp::start(POLICIES).await.unwrap();
    pdp.stop().await;
    let folder = tempfile::tempdir().unwrap();
    let pep = pep(&pdp, folder.path(), Unreachable::FailClosed);
    let sink = CountingSink::default();
    let refused = pep.run(lamp().request_id(ID), sink.act()).await;
    assert!(matches!(refused, Err(RunError::Unreachable { .. })), "{refused:?}");
    pdp.resume().await.unwrap();
    pep.run(lamp().request_id(ID), sink.act()).await.unwrap();
    assert_eq!(sink.calls(), 1);
}
