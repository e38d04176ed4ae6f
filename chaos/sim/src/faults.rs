//! What breaks, and when. One task plays one fault after the other; some last while others begin.

use std::sync::atomic::Ordering;
use std::time::Duration;

use placet_core::cluster::MembershipChange;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::entropy::Rng;
use crate::network::Weather;
use crate::world::World;

/// Plays faults until `done`.
pub async fn play(world: World, done: watch::Receiver<bool>) {
    let mut rng = Rng::new(world.seed(), "faults");
    // Not every run has every kind: some bugs show only when a kind is rare or alone.
    let kinds: Vec<u64> = (0..KINDS).filter(|_| rng.chance(600)).collect();
    let (least, most) = *rng.pick(&[(20, 400), (100, 1500), (500, 3000)]).unwrap_or(&(100, 1500));
    while !*done.borrow() {
        sleep(rng.millis(least, most)).await;
        let Some(kind) = rng.pick(&kinds).copied() else { continue };
        let ids = world.ids();
        let node = match world.leader() {
            Some(leader) if rng.chance(500) => leader,
            _ => rng.pick(&ids).copied().unwrap_or(1),
        };
        play_one(&world, &mut rng, kind, node, &ids).await;
    }
}

const KINDS: u64 = 16;

async fn play_one(world: &World, rng: &mut Rng, kind: u64, node: u64, ids: &[u64]) {
    match kind {
        0 => {
            world.note(|| format!("fault: node {node} is killed"));
            world.kill(node);
        }
        1 => {
            let after = i64::try_from(rng.within(1, 60)).unwrap_or(1);
            world.note(|| format!("fault: node {node} dies at its {after}th operation from now"));
            if let Some(life) = world.life(node) {
                life.end_after(after);
            }
        }
        2 => {
            world.note(|| "fault: every node is killed".to_owned());
            ids.iter().for_each(|id| world.kill(*id));
        }
        3 => {
            world.note(|| format!("fault: node {node} is cut off"));
            for other in ids.iter().filter(|id| **id != node) {
                world.net().cut(node, *other);
                world.net().cut(*other, node);
            }
            heal_later(world, rng.millis(200, 6000));
        }
        4 => {
            let other = rng.pick(ids).copied().unwrap_or(node);
            world.note(|| format!("fault: nothing gets from node {node} to node {other}"));
            world.net().cut(node, other);
            heal_later(world, rng.millis(200, 4000));
        }
        5 => {
            let side: Vec<u64> = ids.iter().copied().filter(|_| rng.chance(500)).collect();
            world.note(|| format!("fault: nodes {side:?} are parted from the others"));
            for from in ids {
                for to in ids.iter().filter(|to| side.contains(to) != side.contains(from)) {
                    world.net().cut(*from, *to);
                }
            }
            heal_later(world, rng.millis(200, 6000));
        }
        6 => {
            let weather = Weather { least_ms: rng.within(0, 30), most_ms: rng.within(30, 400), lost: 0, doubled: 0 };
            blow(world, weather, rng.millis(300, 4000));
        }
        7 => {
            let weather = Weather { lost: rng.within(10, 300), ..Weather::CALM };
            blow(world, weather, rng.millis(300, 4000));
        }
        8 => {
            let weather = Weather { most_ms: 40, doubled: rng.within(100, 900), ..Weather::CALM };
            blow(world, weather, rng.millis(300, 6000));
        }
        9 => {
            world.note(|| format!("fault: the next sync of node {node} fails"));
            if let Some(faults) = world.disk_faults(node) {
                faults.sync_fails.store(true, Ordering::SeqCst);
            }
        }
        10 => {
            world.note(|| format!("fault: the disk of node {node} is full"));
            if let Some(faults) = world.disk_faults(node) {
                faults.full.store(true, Ordering::SeqCst);
                let wait = rng.millis(300, 4000);
                tokio::spawn(async move {
                    sleep(wait).await;
                    faults.full.store(false, Ordering::SeqCst);
                });
            }
        }
        11 => {
            let slow = rng.within(5, 300);
            world.note(|| format!("fault: the disk of node {node} takes up to {slow} ms"));
            if let Some(faults) = world.disk_faults(node) {
                faults.slow_ms.store(slow, Ordering::SeqCst);
                let wait = rng.millis(300, 4000);
                tokio::spawn(async move {
                    sleep(wait).await;
                    faults.slow_ms.store(0, Ordering::SeqCst);
                });
            }
        }
        12 => {
            let (back, ahead) = (rng.chance(500), i64::try_from(rng.within(0, 6000)).unwrap_or_default());
            let (offset, drift) =
                (if back { -ahead } else { ahead }, i64::try_from(rng.within(0, 80)).unwrap_or(0) - 40);
            world.note(|| format!("fault: the clock of node {node} is {offset} ms off and gains {drift} ms a second"));
            if let Some(clock) = world.clock(node) {
                clock.set(offset, drift);
            }
        }
        13 => {
            world.note(|| "fault: the leadership is transferred".to_owned());
            if let Some((_, node)) = world.running(node) {
                tokio::spawn(
                    async move { node.change_membership(MembershipChange::TransferLeader { to: None }).await },
                );
            }
        }
        14 => change_members(world, rng),
        _ => damage(world, rng, node),
    }
}

/// Damage beyond what a crash may do: one node at a time, until it is whole again.
fn damage(world: &World, rng: &mut Rng, node: u64) {
    if !world.is_founder(node) || world.anyone_damaged() {
        return;
    }
    if rng.chance(500) {
        world.note(|| format!("fault: node {node} loses its disks"));
        world.wipe(node);
    } else if world.damage(node, rng) {
        world.note(|| format!("fault: a bit of the log of node {node} is turned"));
    }
}

/// One more node joins, becomes a voter, and leaves again, as far as the other faults let it.
fn change_members(world: &World, rng: &mut Rng) {
    // One of them is enough to have every kind of membership.
    if world.ids().len() as u64 > world.tuning().nodes {
        return;
    }
    let (id, addresses) = world.add_spare();
    world.note(|| format!("node {id} is to join"));
    world.keep_running(id);
    let (world, mut rng) = (world.clone(), Rng::new(rng.number(), "members"));
    tokio::spawn(async move {
        let steps = [
            MembershipChange::AddLearner { id, addresses },
            MembershipChange::Promote { id },
            MembershipChange::Remove { id },
        ];
        for step in steps {
            for _ in 0..20 {
                sleep(rng.millis(100, 1200)).await;
                let ids = world.ids();
                let asked = rng.pick(&ids).and_then(|id| world.running(*id));
                let Some((life, node)) = asked else { continue };
                let answer = node.change_membership(step.clone()).await;
                world.note(|| format!("{step:?} at {life:?}: {}", if answer.is_ok() { "done" } else { "not done" }));
                if answer.is_ok() {
                    break;
                }
            }
        }
    });
}

fn heal_later(world: &World, wait: Duration) {
    let world = world.clone();
    tokio::spawn(async move {
        sleep(wait).await;
        world.note(|| "the network is whole".to_owned());
        world.net().heal();
    });
}

fn blow(world: &World, weather: Weather, wait: Duration) {
    world.note(|| format!("fault: {weather:?}"));
    world.net().set_weather(weather);
    let world = world.clone();
    tokio::spawn(async move {
        sleep(wait).await;
        world.net().set_weather(Weather::CALM);
    });
}

/// Ends every fault that lasts.
pub fn end(world: &World) {
    world.note(|| "no more faults".to_owned());
    world.net().heal();
    world.net().set_weather(Weather::CALM);
    for id in world.ids() {
        if let Some(faults) = world.disk_faults(id) {
            faults.sync_fails.store(false, Ordering::SeqCst);
            faults.full.store(false, Ordering::SeqCst);
            faults.slow_ms.store(0, Ordering::SeqCst);
        }
        if let Some(clock) = world.clock(id) {
            clock.set(0, 0);
        }
        if let Some(life) = world.life(id) {
            life.end_after(-1);
        }
    }
    world.calm_down();
}
