//! Row 39 of AADP §24: a read that is recorded goes ahead where the deployment lists it, and nowhere else.

use placet_pep::{Action, Basis, Governed, Unreachable};

use crate::support::House;

#[tokio::test]
async fn a_listed_read_passes_and_owes_no_report() {
    let house = House::with(Unreachable::FailClosed, |b| b.read("read.status")).await;
    let status = Governed::new("read.status", 7);
    for engaged in [false, true] {
        // Reads go on under the kill switch.
        house.pdp.set_kill_switch(engaged);
        let done = house.pep.run(Action::new("read.status"), async |permit| Ok(*status.enter(&permit)?)).await.unwrap();
        assert_eq!((done.value, done.basis), (7, Basis::Observed));
    }
    house.flush().await;
    assert!(house.reports().is_empty());
}

#[tokio::test]
async fn a_read_that_is_not_listed_is_refused() {
    let house = House::open().await;
    let refused = house.refused(Action::new("read.status")).await;
    assert!(refused.contains("Observed"), "{refused}");
}

/// Listing something as a read does not make it one.
#[tokio::test]
async fn a_listed_read_that_is_denied_is_refused() {
    let house = House::with(Unreachable::FailClosed, |b| b.read("wire.send").read("no.such")).await;
    for action in ["wire.send", "no.such"] {
        house.refused(Action::new(action)).await;
    }
}
