//! A cluster in one process, through crashes, lost disks and changes of members. One binary, because each links RocksDB.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests; a failure here is a failed test"
)]

mod clocks;
mod determinism;
mod disks;
mod harness;
mod upgrade;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use placet_core::cluster::{HealthStatus, MemberRole, MembershipChange};
use placet_core::evaluate::evaluate;
use placet_core::fold::fold;
use placet_core::ids::{Entropy, Principal};
use placet_core::op::{Answer, Call, Op, Query, Reject};
use placet_core::stamp::Stamp;
use placet_core::state::Overlay;
use placet_replica::PeerTls;
use placet_replica::ports::State;
use placet_wire::peer;
use placet_wire::peer::peer_client::PeerClient;

use crate::harness::{Cluster, decide_body, permit, wait_for};

fn plain(_: &mut placet_replica::Options) {}

fn tiny_snapshots(options: &mut placet_replica::Options) {
    options.snapshot_every = Some(40);
    options.log_kept = 10;
    options.replication_lag_max = 60;
}

/// Goal: what was answered survives the leader, and nothing happens twice.
#[test]
fn a_killed_leader_costs_no_decision() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    let follower = cluster.follower();
    // Through a follower: forwarded. Through the leader: at once.
    let mut replies = cluster.work(follower, 10);
    replies.extend(cluster.work(cluster.leader(), 10));
    cluster.agree();
    let killed = cluster.leader();
    cluster.kill(killed);
    let survivor = cluster.ids()[0];
    replies.extend(cluster.work(survivor, 10));
    // The same request again, at every node: the same permit.
    for at in cluster.ids() {
        let again = permit(cluster.submit(at, Op::Decide(decide_body(1))));
        assert_eq!(again.permit_id, replies[0].permit_id);
    }
    cluster.spawn(killed);
    let view = cluster.agree();
    let permits = replies.iter().map(|reply| reply.permit_id.clone().unwrap()).collect::<BTreeSet<_>>();
    assert_eq!(permits.len(), 30);
    assert_eq!(view.evidence_index.0, 31, "one policy, thirty intents");
    for at in cluster.ids() {
        assert_eq!(cluster.submit(at, Op::Query(Query::Position)), Ok(Answer::Position(view.evidence_index)));
    }
    assert!(cluster.ids().into_iter().all(|id| cluster.open_permits(id) == 30));
    assert!(cluster.ids().into_iter().all(|id| cluster.node(id).health().status == HealthStatus::Serving));
}

/// Goal: everything survives the death of all nodes at once.
#[test]
fn a_cluster_comes_back_from_its_disks() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(1, 20);
    let before = cluster.agree();
    (1..=3).for_each(|id| cluster.kill(id));
    (1..=3).for_each(|id| cluster.spawn(id));
    let after = cluster.agree();
    assert_eq!((after.evidence_index, after.chain_head), (before.evidence_index, before.chain_head));
    assert!(after.term > before.term, "a restarted leader takes a new term");
    cluster.work(1, 1);
}

/// Goal: many callers at once, on all nodes, with the leader killed in the middle: every answer is true.
#[test]
fn concurrent_callers_see_one_truth() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    let killed = cluster.leader();
    let nodes: Vec<_> =
        cluster.ids().into_iter().filter(|id| *id != killed).map(|id| cluster.node(id).clone()).collect();
    let callers: Vec<_> = (0..8u64)
        .map(|caller| {
            let node = nodes[usize::try_from(caller).unwrap() % nodes.len()].clone();
            let handle = cluster.block_on(node.id(), async { tokio::runtime::Handle::current() });
            std::thread::spawn(move || {
                let decide = |number: u64| {
                    let call = placet_core::op::Call {
                        principal: placet_core::ids::Principal::new("agent:test"),
                        op: Op::Decide(decide_body(number)),
                    };
                    handle.block_on(node.submit(call))
                };
                // A decide is repeated by the node itself; only its deadline ends that.
                (0..100).map(|at| permit(decide(caller * 1000 + at)).permit_id.unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let busy = nodes[0].clone();
    wait_for("traffic", || (busy.cluster().unwrap().evidence_index.0 > 100).then_some(()));
    cluster.kill(killed);
    let permits: BTreeSet<_> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    drop((nodes, busy));
    cluster.spawn(killed);
    let view = cluster.agree();
    assert_eq!(permits.len(), 800);
    assert_eq!(view.evidence_index.0, 801, "one policy, eight hundred intents, none twice");
}

/// Goal: a follower that was away longer than the log is kept comes back by a snapshot.
#[test]
fn a_late_follower_catches_up_by_snapshot() {
    let mut cluster = Cluster::start(3, tiny_snapshots);
    cluster.publish();
    let late = cluster.follower();
    cluster.work(late, 5);
    let left_at = cluster.view(late).applied_index;
    cluster.kill(late);
    let leader = cluster.leader();
    cluster.work(leader, 200);
    wait_for("a log that begins past the late follower", || {
        (cluster.node(leader).log_begins() > left_at + 1).then_some(())
    });
    cluster.spawn(late);
    cluster.agree();
    assert!(cluster.view(late).snapshot_index > left_at, "it was sent a snapshot");
    // It survives its own restart on the installed state, and counts again.
    cluster.kill(late);
    cluster.spawn(late);
    cluster.agree();
    let other = cluster.ids().into_iter().find(|id| *id != late && *id != cluster.leader()).unwrap();
    cluster.kill(other);
    cluster.work(late, 5);
}

/// Goal: a follower that dies after a snapshot replaced its state, and before log and snapshot folder know of it, starts
/// again from what it has.
#[test]
fn a_crash_between_installing_a_snapshot_and_adopting_it_costs_nothing() {
    let mut cluster = Cluster::start(3, tiny_snapshots);
    cluster.publish();
    let late = cluster.follower();
    cluster.work(late, 60);
    wait_for("a snapshot of its own", || (cluster.view(late).snapshot_index > 0).then_some(()));
    let left_at = cluster.view(late).applied_index;
    cluster.kill(late);
    let before = tempfile::tempdir().unwrap();
    for part in ["log", "snapshots"] {
        copy(&cluster.data(late).join(part), &before.path().join(part));
    }
    // What the disk is known to hold goes with the log that it speaks of.
    std::fs::copy(cluster.data(late).join("MARK"), before.path().join("MARK")).unwrap();
    let leader = cluster.leader();
    cluster.work(leader, 200);
    wait_for("a log that begins past the late follower", || {
        (cluster.node(leader).log_begins() > left_at + 1).then_some(())
    });
    cluster.spawn(late);
    cluster.agree();
    cluster.kill(late);
    for part in ["log", "snapshots"] {
        let place = cluster.data(late).join(part);
        std::fs::remove_dir_all(&place).unwrap();
        copy(&before.path().join(part), &place);
    }
    std::fs::copy(before.path().join("MARK"), cluster.data(late).join("MARK")).unwrap();
    cluster.spawn(late);
    cluster.agree();
    let other = cluster.ids().into_iter().find(|id| *id != late && *id != cluster.leader()).unwrap();
    cluster.kill(other);
    cluster.work(late, 5);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// Goal: a member whose data was deleted comes back as the same member, founds no second cluster, and counts again.
#[test]
fn a_wiped_member_comes_back() {
    for tune in [plain, tiny_snapshots] {
        let mut cluster = Cluster::start(3, tune);
        cluster.publish();
        cluster.work(1, 100);
        cluster.agree();
        // Node 1 would be the founder: the one that must not found again.
        cluster.kill(1);
        cluster.wipe(1);
        let other = cluster.follower();
        cluster.work(other, 10);
        cluster.spawn(1);
        cluster.agree();
        wait_for("full standing", || cluster.node(1).health().detail.is_none().then_some(()));
        let third = cluster.ids().into_iter().find(|id| *id != 1 && *id != cluster.leader()).unwrap();
        cluster.kill(third);
        cluster.work(1, 5);
        cluster.spawn(third);
        assert_eq!(cluster.agree().evidence_index.0, 116);
    }
}

/// Goal: a member without a memory gives no vote as long as it cannot know what it promised.
#[test]
fn a_wiped_member_does_not_help_a_minority() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(1, 5);
    cluster.agree();
    let ids = cluster.ids();
    ids.iter().for_each(|id| cluster.kill(*id));
    cluster.wipe(2);
    cluster.spawn(1);
    cluster.spawn(2);
    // Two of three run, but one of them may have acknowledged what only node 3 holds.
    let refused = cluster.submit(1, Op::Decide(decide_body(99)));
    assert!(matches!(refused, Err(Reject::Unavailable { .. } | Reject::Unknown { .. })), "{refused:?}");
    assert!(!cluster.node(1).leads() && !cluster.node(2).leads());
    cluster.spawn(3);
    wait_for("all three", || cluster.node(2).health().detail.is_none().then_some(()));
    cluster.work(2, 5);
    cluster.agree();
}

/// Goal: a node is added, promoted and removed while the cluster works.
#[test]
fn members_come_and_go() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(1, 20);
    let follower = cluster.follower();
    cluster.allot(4);
    cluster.spawn(4);
    let change = |cluster: &Cluster, at: u64, change: MembershipChange| {
        cluster.block_on(at, cluster.node(at).change_membership(change))
    };
    let add = MembershipChange::AddLearner { id: 4, addresses: cluster.addresses(4) };
    let view = change(&cluster, follower, add.clone()).unwrap();
    assert_eq!(view.members.iter().find(|one| one.id == 4).unwrap().role, MemberRole::Learner);
    assert!(matches!(change(&cluster, follower, add), Err(Reject::Conflict { .. })));
    cluster.agree();
    wait_for("a promotion", || match change(&cluster, follower, MembershipChange::Promote { id: 4 }) {
        Ok(view) => Some(view),
        Err(Reject::Conflict { .. }) => None,
        Err(other) => panic!("{other:?}"),
    });
    cluster.work(4, 5);
    // The leader itself goes: the others go on.
    let leader = cluster.leader();
    change(&cluster, leader, MembershipChange::Remove { id: leader }).unwrap();
    cluster.kill(leader);
    let view = wait_for("three members", || {
        let view = cluster.view(cluster.leader());
        (view.members.len() == 3).then_some(view)
    });
    assert!(view.members.iter().all(|one| one.role == MemberRole::Voter && one.id != leader));
    cluster.work(4, 5);
    cluster.agree();
    assert!(matches!(change(&cluster, 4, MembershipChange::Remove { id: leader }), Err(Reject::NotFound { .. })));
}

/// Goal: while a change of members is not committed the leadership stays where it is, and the operator is told why.
#[test]
fn the_leadership_stays_while_members_change() {
    fn impatient(options: &mut placet_replica::Options) {
        options.deadline = Duration::from_secs(2);
    }
    let mut cluster = Cluster::start(3, impatient);
    cluster.publish();
    let leader = cluster.leader();
    cluster.allot(4);
    cluster.spawn(4);
    let change = |cluster: &Cluster, change: MembershipChange| {
        cluster.block_on(leader, cluster.node(leader).change_membership(change))
    };
    change(&cluster, MembershipChange::AddLearner { id: 4, addresses: cluster.addresses(4) }).unwrap();
    cluster.agree();
    // The leader hears of it a moment after the learner has everything, and promotes nobody who lags.
    wait_for("the leader to hear that the learner has all", || {
        let view = cluster.view(leader);
        let learner = view.members.iter().find(|one| one.id == 4)?;
        (learner.matched_index? >= view.last_log_index).then_some(())
    });
    let (stays, goes) = if leader == 3 {
        (1, 2)
    } else if leader == 1 {
        (2, 3)
    } else {
        (1, 3)
    };
    cluster.kill(4);
    cluster.kill(goes);
    // Two of three voters are there, and two of four: the change waits for one of those that are gone.
    let promoted = change(&cluster, MembershipChange::Promote { id: 4 });
    assert!(matches!(promoted, Err(Reject::Unknown { .. })), "{promoted:?}");
    for to in [Some(stays), None] {
        let refused = change(&cluster, MembershipChange::TransferLeader { to });
        let says = matches!(&refused, Err(Reject::Conflict { detail }) if detail.contains("members are being changed"));
        assert!(says, "{refused:?}");
    }
    cluster.spawn(goes);
    cluster.spawn(4);
    cluster.agree();
    cluster.work(stays, 1);
}

/// Goal: the leader ends what is due, by an event, on every node.
#[test]
fn a_permit_without_a_report_expires() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(2, 3);
    cluster.agree();
    assert_eq!(cluster.open_permits(3), 3);
    cluster.clock.fetch_add(601_000, Ordering::Relaxed);
    wait_for("expiry", || cluster.ids().into_iter().all(|id| cluster.open_permits(id) == 0).then_some(()));
    // A clock that steps back does not take the stamps with it.
    cluster.clock.fetch_sub(600_000, Ordering::Relaxed);
    cluster.work(2, 1);
    let view = cluster.agree();
    assert_eq!(view.evidence_index.0, 8, "a policy, three intents, three expiries, one intent");
}

/// Goal: reads are of the latest state, wherever they are asked.
#[test]
fn queries_see_what_was_answered_before() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    for at in 1..=3u32 {
        cluster.work(1, 1);
        let query = Query::Intents { after: None, limit: 10 };
        let answer = cluster.submit(u64::from(at), Op::Query(query));
        assert!(matches!(&answer, Ok(Answer::Intents(open)) if open.len() == at as usize), "{answer:?}");
    }
}

/// Goal: a leader without a quorum answers "unknown" or "unavailable" in time, and never a permit.
#[test]
fn a_leader_alone_permits_nothing() {
    fn impatient(options: &mut placet_replica::Options) {
        options.deadline = Duration::from_secs(2);
    }
    let mut cluster = Cluster::start(3, impatient);
    cluster.publish();
    cluster.work(1, 1);
    let leader = cluster.leader();
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    others.iter().for_each(|id| cluster.kill(*id));
    let body = cluster.body();
    let answer = cluster.submit(leader, Op::Decide(body.clone()));
    assert!(matches!(answer, Err(Reject::Unknown { .. } | Reject::Unavailable { .. })), "{answer:?}");
    wait_for("an honest health answer", || {
        (cluster.node(leader).health().status == HealthStatus::NoLeader).then_some(())
    });
    others.iter().for_each(|id| cluster.spawn(*id));
    cluster.leader();
    permit(cluster.submit(leader, Op::Decide(body)));
    assert_eq!(cluster.agree().evidence_index.0, 3, "asked twice, decided once");
}

/// Goal: a planned stop hands the leadership over instead of waiting for an election.
#[test]
fn a_leader_steps_down() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(1, 5);
    cluster.agree();
    let leader = cluster.leader();
    cluster.block_on(leader, cluster.node(leader).step_down());
    let next = wait_for("another leader", || Some(cluster.leader()).filter(|id| *id != leader));
    cluster.work(next, 5);
    cluster.agree();
}

/// Goal: one node is a cluster.
#[test]
fn one_node_is_enough_for_a_start() {
    let mut cluster = Cluster::start(1, plain);
    cluster.publish();
    cluster.work(1, 10);
    cluster.kill(1);
    cluster.spawn(1);
    cluster.work(1, 1);
    assert_eq!(cluster.agree().evidence_index.0, 12);
}

/// Goal: a node whose state is not the cluster's stops and says so, with both chain heads, and the others go on.
#[test]
fn a_diverged_node_stops_with_both_heads() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    let victim = cluster.follower();
    cluster.work(victim, 3);
    cluster.agree();
    cluster.kill(victim);
    {
        // An entry that never was in the log.
        let store = placet_store::open(&cluster.data(victim), &placet_store::StoreOptions::default()).unwrap();
        let mut overlay = Overlay::new(store.state.clone());
        let op = Op::SetKillSwitch { engaged: true, origin: "forged".to_owned(), note: None, scope: None };
        let call = Call { principal: Principal::new("nobody"), op };
        let outcome =
            evaluate(&overlay, &call, Stamp(harness::START_MS), Entropy::default(), &Default::default()).unwrap();
        outcome.events.iter().for_each(|event| fold(&mut overlay, event).unwrap());
        let position = store.state.position().unwrap().unwrap();
        store.state.apply(overlay.into_changes(), &position).unwrap();
    }
    let leader = cluster.leader();
    cluster.work(leader, 3);
    let head = cluster.view(leader).chain_head;
    cluster.spawn(victim);
    let stopped = async { tokio::time::timeout(harness::PATIENCE, cluster.node(victim).stopped()).await };
    let reason = cluster.block_on(victim, stopped).unwrap();
    assert!(reason.contains("chain head") && reason.contains("aud-"), "{reason}");
    let health = cluster.node(victim).health();
    assert_eq!((health.status, health.detail), (HealthStatus::Fatal, Some(reason)));
    assert_eq!(cluster.view(leader).chain_head, head);
    cluster.kill(victim);
    cluster.work(leader, 3);
}

fn authority() -> &'static PeerTls {
    static MADE: OnceLock<PeerTls> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["placet-peer".to_owned()];
        let cert = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        PeerTls {
            ca: ca_pem.into_bytes(),
            cert: cert.pem().into_bytes(),
            key: key.serialize_pem().into_bytes(),
            domain: Some("placet-peer".to_owned()),
        }
    })
}

/// Goal: with TLS only peers with a certificate of the authority get in.
#[test]
fn peers_know_each_other_by_certificate() {
    fn mutual(options: &mut placet_replica::Options) {
        options.tls = Some(authority().clone());
        options.snapshot_every = Some(40);
        options.log_kept = 10;
        options.replication_lag_max = 60;
    }
    let mut cluster = Cluster::start(3, mutual);
    cluster.publish();
    let follower = cluster.follower();
    cluster.work(follower, 5);
    cluster.agree();
    let address = cluster.addresses(1).peer;
    let status = |tls: Option<tonic::transport::ClientTlsConfig>, scheme: &str| {
        let mut endpoint = tonic::transport::Endpoint::from_shared(format!("{scheme}://{address}")).unwrap();
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls).unwrap();
        }
        cluster.block_on(1, async {
            PeerClient::new(endpoint.connect_lazy()).status(peer::StatusRequest { from: 9 }).await
        })
    };
    let trusting = || {
        let ca = tonic::transport::Certificate::from_pem(&authority().ca);
        tonic::transport::ClientTlsConfig::new().ca_certificate(ca).domain_name("placet-peer")
    };
    let identity = tonic::transport::Identity::from_pem(&authority().cert, &authority().key);
    assert!(status(None, "http").is_err(), "plain text");
    assert!(status(Some(trusting()), "https").is_err(), "no certificate");
    assert!(status(Some(trusting().identity(identity)), "https").is_ok(), "a peer");
}

/// Goal: a leader whose clock left everybody else's does not stamp anything.
#[test]
fn a_clock_that_jumps_alone_is_not_believed() {
    let mut cluster = Cluster::start(3, plain);
    cluster.publish();
    cluster.work(1, 1);
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.skew(leader, 48 * 3_600_000);
    cluster.spawn(leader);
    cluster.agree();
    // Whoever leads now: no stamp is from the day after tomorrow.
    for _ in 0..3 {
        let leads = cluster.leader();
        cluster.block_on(leads, cluster.node(leads).step_down());
        cluster.work(leader, 1);
    }
    cluster.agree();
    let latest = cluster.node(leader).records().0.meta().unwrap().last_stamp;
    assert!(latest.0 < harness::START_MS + 3_600_000, "{latest}");
}
