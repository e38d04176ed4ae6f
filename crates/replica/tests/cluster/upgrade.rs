//! Two versions of the log format in one cluster. A node that says it reads no more than the first stands for the version
//! before; `chaos/nemesis` does the same with that version's own program.

use placet_core::cluster::MembershipChange;
use placet_replica::ports::Log;
use placet_wire::peer;
use prost::Message;

use crate::harness::{Cluster, wait_for};

/// The formats of the records in a stopped node's log, in order.
fn formats(cluster: &Cluster, id: u64) -> Vec<u32> {
    let store = wait_for("the data folder", || {
        placet_store::open(&cluster.data(id), &placet_store::StoreOptions::default()).ok()
    });
    let records = store.log.read(0..u64::MAX, usize::MAX).unwrap();
    let batches = records.into_iter().filter_map(|(_, bytes)| match peer::Entry::decode(bytes).unwrap().payload {
        Some(peer::entry::Payload::Batch(bytes)) => Some(peer::Batch::decode(bytes).unwrap().format),
        _ => None,
    });
    batches.collect()
}

fn knows_that_all_read(cluster: &Cluster, format: u32) {
    wait_for("the leader to hear what every member reads", || {
        let view = cluster.view(cluster.leader());
        let heard = view.members.iter().filter(|one| one.id != view.node_id);
        heard
            .map(|one| one.heard.as_ref().map_or(0, |heard| heard.log_format))
            .all(|reads| reads == format)
            .then_some(())
    });
}

fn lead(cluster: &Cluster, to: u64) {
    wait_for("the leadership", || {
        let leader = cluster.leader();
        let change = cluster.node(leader).change_membership(MembershipChange::TransferLeader { to: Some(to) });
        (leader == to || cluster.block_on(leader, change).is_ok() && cluster.leader() == to).then_some(())
    });
}

/// Goal: no record is written in a format that a member does not read, also not by a leader that reads more; the newest
/// is, once all of them do; every node has the same evidence throughout.
#[test]
fn the_newest_log_format_is_written_once_every_member_reads_it() {
    let mut cluster = Cluster::start(3, |options| options.log_format_max = 1);
    cluster.publish();
    cluster.work(1, 10);
    cluster.tune = |_| {};
    for id in 1..=3 {
        cluster.agree();
        cluster.kill(id);
        let found = formats(&cluster, id);
        assert!(found.len() > 10 && found.iter().all(|format| *format == 1), "before node {id} reads more: {found:?}");
        cluster.spawn(id);
        cluster.agree();
        lead(&cluster, id);
        cluster.work(id, 10);
    }
    knows_that_all_read(&cluster, 2);
    cluster.work(cluster.leader(), 5);
    for id in 1..=3 {
        cluster.agree();
        cluster.kill(id);
        let found = formats(&cluster, id);
        assert!(found.first() == Some(&1) && found.contains(&2), "{found:?}");
        cluster.spawn(id);
        cluster.work(cluster.leader(), 5);
    }
    // A member that reads less again is heeded from the moment that it says so.
    cluster.tune = |options| options.log_format_max = 1;
    let id = cluster.follower();
    cluster.kill(id);
    cluster.spawn(id);
    cluster.agree();
    let leader = cluster.leader();
    wait_for("the leader to hear of it", || {
        let view = cluster.view(leader);
        let heard = view.members.iter().find(|one| one.id == id)?.heard.as_ref()?.log_format;
        (heard == 1).then_some(())
    });
    cluster.work(leader, 5);
    cluster.agree();
    cluster.kill(id);
    assert_eq!(formats(&cluster, id).last(), Some(&1));
}
