//! Clocks that are fast, slow, drift, step back and jump, at the leader and at a follower: no stamp leaves the majority's
//! time by more than the bound, who decides has a clock that a majority agrees with, and all of it mends by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use placet_core::cluster::{ClockState, HealthStatus, MembershipChange};
use placet_core::ids::Principal;
use placet_core::op::{Answer, Call, Op, Query, Reject};
use placet_core::state::Read;
use placet_replica::Options;

use crate::harness::{Cluster, decide_body, permit, wait_for};

/// The default of the options, which these tests are about.
const BOUND_MS: i64 = 1000;

fn impatient(options: &mut Options) {
    assert_eq!(i64::try_from(options.clock_skew_max.as_millis()).unwrap(), BOUND_MS);
    options.deadline = Duration::from_secs(4);
}

fn started(tune: fn(&mut Options)) -> Cluster {
    let cluster = Cluster::start_ticking(3, tune);
    cluster.publish();
    healthy(&cluster);
    cluster
}

fn healthy(cluster: &Cluster) {
    wait_for("healthy clocks", || {
        let all = cluster.ids().into_iter().all(|id| {
            cluster.node(id).health().status == HealthStatus::Serving
                && cluster.view(id).clock.state == ClockState::Trusted
        });
        all.then_some(())
    });
}

/// The latest stamp that any node has applied.
fn latest_stamp(cluster: &Cluster) -> i64 {
    cluster.ids().into_iter().map(|id| cluster.node(id).records().meta().unwrap().last_stamp.0).max().unwrap()
}

fn unhealthy(cluster: &Cluster, id: u64, says: &str) {
    wait_for("an honest health answer", || {
        let health = cluster.node(id).health();
        (health.status == HealthStatus::ClockOff && health.detail.unwrap_or_default().contains(says)).then_some(())
    });
}

fn another_leader(cluster: &Cluster, than: u64) -> u64 {
    wait_for("another leader", || Some(cluster.leader()).filter(|id| *id != than))
}

/// Goal: a leader whose clock is fast or slow hands over, says so, and is healthy again when its clock is.
#[test]
fn a_leader_with_a_bad_clock_hands_over_and_recovers() {
    for (skew, says) in [(5_000, "ahead of the majority's"), (-5_000, "behind the majority's")] {
        let mut cluster = started(impatient);
        cluster.work(1, 3);
        let bad = cluster.leader();
        cluster.skew(bad, skew);
        // Nothing is asked of it: the watch finds it.
        let next = another_leader(&cluster, bad);
        unhealthy(&cluster, bad, says);
        let near = |ms: i64| (ms - skew).abs() < BOUND_MS;
        assert!(cluster.view(bad).clock.offset_ms.is_some_and(near), "{:?}", cluster.view(bad).clock);
        assert_eq!(cluster.view(next).clock.state, ClockState::Trusted);
        wait_for("what the others think of it", || {
            let view = cluster.view(next);
            let heard = view.members.iter().find(|one| one.id == bad)?.heard.clone()?;
            (near(heard.clock_ahead_ms) && heard.ago_ms < 5_000).then_some(())
        });
        // Every node still takes calls, and the others decide them.
        (1..=3).for_each(|at| drop(cluster.work(at, 2)));
        // The leadership is not for it: not by choice, not by an operator's word, not by an election.
        cluster.block_on(next, cluster.node(next).step_down());
        let third = another_leader(&cluster, next);
        assert_ne!(third, bad);
        let transfer = MembershipChange::TransferLeader { to: Some(bad) };
        // A new leader has to be answered by its followers before it knows anything about them.
        wait_for("a refusal", || {
            let refused = cluster.block_on(third, cluster.node(third).change_membership(transfer.clone()));
            match refused {
                Err(Reject::Conflict { detail }) => detail.contains("clock that disagrees").then_some(()),
                other => panic!("{other:?}"),
            }
        });
        cluster.kill(third);
        cluster.spawn(third);
        another_leader(&cluster, bad);
        cluster.work(bad, 1);
        assert!(latest_stamp(&cluster) <= cluster.now_ms(), "a stamp of the bad clock");
        cluster.skew(bad, 0);
        healthy(&cluster);
        wait_for("a transfer", || {
            let leader = cluster.leader();
            cluster.block_on(leader, cluster.node(leader).change_membership(transfer.clone())).ok()
        });
        cluster.work(bad, 2);
        cluster.agree();
    }
}

/// Goal: a leader whose clock jumps an hour ahead under load, or steps an hour back, stamps nothing with it, not even in
/// the second before the next round of the watch; no caller notices more than a pause.
#[test]
fn a_clock_that_jumps_under_load_stamps_nothing() {
    for skew in [3_600_000, -3_600_000] {
        let cluster = started(impatient);
        let bad = cluster.leader();
        let node = cluster.node(cluster.follower()).clone();
        let handle = cluster.block_on(node.id(), async { tokio::runtime::Handle::current() });
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let load = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut decided = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    decided += 1;
                    let op = Op::Decide(decide_body(decided));
                    permit(handle.block_on(node.submit(Call { principal: Principal::new("agent:test"), op })));
                }
                decided
            }
        });
        wait_for("load", || (cluster.view(bad).evidence_index.0 > 50).then_some(()));
        cluster.skew(bad, skew);
        let jumped = cluster.now_ms();
        let next = another_leader(&cluster, bad);
        let then = cluster.view(next).evidence_index.0;
        wait_for("more load", || (cluster.view(next).evidence_index.0 > then + 50).then_some(()));
        stop.store(true, Ordering::Relaxed);
        let decided = load.join().unwrap();
        assert_eq!(cluster.agree().evidence_index.0, decided + 1, "one policy and every decide, once");
        let latest = latest_stamp(&cluster);
        assert!(jumped < latest && latest <= cluster.now_ms(), "{jumped} {latest} {}", cluster.now_ms());
        unhealthy(&cluster, bad, if skew > 0 { "ahead of" } else { "behind" });
    }
}

/// Goal: a clock that drifts is found when it has passed the bound, and its stamps never were further off than that.
#[test]
fn a_clock_that_drifts_leads_only_within_the_bound() {
    let mut cluster = started(impatient);
    let bad = cluster.leader();
    let mut skew = 0;
    // Found within two rounds, so it gets no further than some steps past the bound.
    while cluster.node(bad).leads() {
        skew += 50;
        assert!(skew < 4 * BOUND_MS, "nobody noticed a clock that is {skew} ms ahead");
        cluster.skew(bad, skew);
        cluster.work(bad, 1);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(skew >= BOUND_MS, "a clock within the bound is good enough: {skew}");
    let (stamped, now) = (latest_stamp(&cluster), cluster.now_ms());
    assert!(stamped <= now + BOUND_MS + 100, "a stamp was {} ms off", stamped - now);
    assert_ne!(another_leader(&cluster, bad), bad);
    // Close to the bound again is not back yet; well within it is.
    unhealthy(&cluster, bad, "ahead");
    cluster.skew(bad, BOUND_MS - 50);
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(cluster.node(bad).health().status, HealthStatus::ClockOff);
    cluster.skew(bad, BOUND_MS / 2);
    healthy(&cluster);
    cluster.work(bad, 1);
    assert!(latest_stamp(&cluster) >= stamped, "time may stand still, it does not run backwards");
    cluster.agree();
}

/// Goal: a follower with a bad clock is unhealthy, and nothing else happens.
#[test]
fn a_follower_with_a_bad_clock_only_says_so() {
    for skew in [60_000, -60_000] {
        let mut cluster = started(impatient);
        let (leader, bad) = (cluster.leader(), cluster.follower());
        let term = cluster.view(leader).term;
        cluster.skew(bad, skew);
        unhealthy(&cluster, bad, " ms ");
        (1..=3).for_each(|at| drop(cluster.work(at, 5)));
        assert_eq!((cluster.leader(), cluster.view(leader).term), (leader, term));
        assert_eq!(cluster.node(leader).health().status, HealthStatus::Serving);
        assert!(latest_stamp(&cluster) <= cluster.now_ms());
        cluster.skew(bad, 0);
        healthy(&cluster);
    }
}

/// Goal: with three clocks that all disagree nobody is believed: no permit, at once and in clear words; the kill switch
/// and reads work; time does not move; and one clock that comes back is enough.
#[test]
fn without_a_majority_of_clocks_nothing_is_decided() {
    let mut cluster = started(impatient);
    let permits = cluster.work(1, 2);
    let leader = cluster.leader();
    cluster.agree();
    let last = latest_stamp(&cluster);
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    cluster.skew(others[0], 20_000);
    cluster.skew(others[1], -20_000);
    for id in cluster.ids() {
        unhealthy(&cluster, id, "no majority of the voters' clocks agrees within 1000 ms");
    }
    for at in cluster.ids() {
        let body = cluster.body();
        let begun = std::time::Instant::now();
        let refused = cluster.submit(at, Op::Decide(body));
        let says = matches!(&refused, Err(Reject::Unavailable { detail }) if detail.contains("no majority"));
        assert!(says && begun.elapsed() < Duration::from_secs(3), "{refused:?} after {:?}", begun.elapsed());
    }
    let permit_id = permits[0].permit_id.clone().unwrap();
    let check = cluster.submit(leader, Op::Query(Query::CheckPermit { permit_id }));
    assert!(matches!(check, Err(Reject::Unavailable { .. })), "{check:?}");
    let open = cluster.submit(leader, Op::Query(Query::Intents { after: None, limit: 10 }));
    assert!(matches!(&open, Ok(Answer::Intents(open)) if open.len() == 2), "{open:?}");
    let switch = |engaged| Op::SetKillSwitch { engaged, origin: "test".to_owned(), note: None, scope: None };
    let engaged = cluster.submit(others[0], switch(true));
    assert!(matches!(engaged, Ok(Answer::KillSwitch(_))), "{engaged:?}");
    assert!(cluster.node(leader).health().kill_switch);
    assert_eq!(latest_stamp(&cluster), last, "time stands still");
    let term = cluster.view(leader).term;
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(cluster.view(leader).term, term, "nobody is better, so nobody takes over");
    assert!(matches!(cluster.submit(leader, switch(false)), Ok(Answer::KillSwitch(_))));
    cluster.skew(others[0], 0);
    wait_for("decisions", || {
        let body = cluster.body();
        cluster.submit(leader, Op::Decide(body)).ok()
    });
    unhealthy(&cluster, others[1], "behind the majority's");
    cluster.skew(others[1], 0);
    healthy(&cluster);
    cluster.agree();
}

/// Goal: clocks that are set together, as after a common correction, are no reason for anything.
#[test]
fn clocks_that_move_together_stay_believed() {
    let mut cluster = started(impatient);
    let (leader, term) = (cluster.leader(), cluster.view(cluster.leader()).term);
    for step in [86_400_000, -7_200_000, 10_000] {
        cluster.clock.fetch_add(step, Ordering::Relaxed);
        cluster.work(1, 3);
    }
    assert_eq!((cluster.leader(), cluster.view(leader).term), (leader, term));
    healthy(&cluster);
    let ahead = cluster.view(leader).clock.stamp_ahead_ms;
    assert!((7_000_000..7_190_000).contains(&ahead), "time stands still until the clocks have caught up: {ahead}");
}
