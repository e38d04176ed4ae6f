//! Every world, as far as a test of a minute goes: nothing that must hold is violated, and everything that the world is
//! about does happen.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails, panics")]

use placet_model::explore::{Limits, explore};
use placet_model::subject::Core;
use placet_model::worlds;

#[track_caller]
fn holds(name: &str) {
    let world = worlds::named(name).unwrap();
    let limits = Limits { depth: world.short_depth, states: 1_000_000 };
    let found = explore(&world, Core, limits).unwrap();
    println!("{name}: {found:?}");
    if let Some(violation) = found.violation {
        panic!("{name}: {violation}");
    }
    assert!(found.complete || found.depth == limits.depth, "{name} ended after {} steps", found.depth);
    for what in world.shows {
        assert!(found.seen.contains_key(what), "{name} has no {what}: {:?}", found.seen);
    }
    assert!(found.longest_histories > 0 && found.rederived > 0);
}

#[test]
fn budgets() {
    holds("budgets");
}

#[test]
fn windows() {
    holds("windows");
}

#[test]
fn approvals() {
    holds("approvals");
}

#[test]
fn approvals_in_flight() {
    holds("approvals-in-flight");
}

#[test]
fn switches() {
    holds("switches");
}

#[test]
fn undo() {
    holds("undo");
}

#[test]
fn failover() {
    holds("failover");
}

#[test]
fn everything() {
    holds("everything");
}

#[test]
fn every_world_has_a_test_here() {
    let names: Vec<&str> = worlds::all().iter().map(|world| world.name).collect();
    let tested =
        ["budgets", "windows", "approvals", "approvals-in-flight", "switches", "undo", "failover", "everything"];
    assert_eq!(names, tested);
}
