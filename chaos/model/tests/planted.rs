//! The proof of the checkers: mistakes that a decision point could make, each planted around the real core, and each
//! found, after as few steps as it takes to show.
//! Absent on purpose: features and flags. A planted mistake is a subject of its own, in this file alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails, panics")]

use std::sync::Arc;

use placet_core::evaluate::{self, Due, Keys, Outcome};
use placet_core::event::{ApprovalState, Body, Draw, Event};
use placet_core::ids::{Entropy, Principal};
use placet_core::op::{Answer, Call, Op, Reject};
use placet_core::stamp::Stamp;
use placet_core::state::{Changes, CounterKey, MemState, PermitStatus, Read, ReadError};
use placet_model::explore::{Limits, explore, explore_for};
use placet_model::log::{Applied, Batch};
use placet_model::properties::{
    Agreement, Conservation, DurableIntent, EVIDENCE, NoWayRound, OneFate, OneReversal, OpenWork, Property, SameAnswer,
    SingleUse,
};
use placet_model::snapshot::Snapshot;
use placet_model::subject::{Role, Subject};
use placet_model::world::{What, World};
use placet_model::worlds;

/// Explores with the mistake in place: this property finds it after `depth` steps, and all together no later.
#[track_caller]
fn finds(mistake: impl Subject + Copy, world: &str, property: &'static dyn Property, depth: usize) {
    finds_in(mistake, &worlds::named(world).unwrap(), property, depth);
}

#[track_caller]
fn finds_in(mistake: impl Subject + Copy, world: &World, property: &'static dyn Property, depth: usize) {
    // No deeper than it should be found: a search that ends with nothing is a short one, too.
    let limits = Limits { depth, states: 200_000 };
    let found = explore_for(world, mistake, limits, &[property]).unwrap().violation;
    let found = found.unwrap_or_else(|| panic!("{mistake:?} is not found in `{}`", world.name));
    println!("{mistake:?}: {found}");
    assert_eq!((found.property, found.depth), (property.name(), depth), "{found}");
    assert!(!found.story.is_empty(), "{found}");
    let among_all = explore(world, mistake, limits).unwrap().violation.unwrap();
    assert!(among_all.depth <= depth, "{among_all}");
}

/// Judges on a state that somebody changed first.
fn judged_on(
    state: &Snapshot,
    call: &Call,
    at: Stamp,
    entropy: Entropy,
    change: impl FnOnce(&mut MemState),
) -> Result<Outcome, Reject> {
    evaluate::evaluate(&state.patched("changed", change), call, at, entropy, &Keys::default())
}

fn rightly(state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
    evaluate::evaluate(state, call, at, entropy, &Keys::default())
}

fn counter_of(draw: &Draw) -> CounterKey {
    CounterKey { budget: draw.budget.clone(), window: draw.window.clone(), scope: draw.scope.clone() }
}

#[derive(Clone, Copy, Debug)]
struct RepliesBeforeCommit;

impl Subject for RepliesBeforeCommit {
    fn waits_for_commit(&self, _own_facts: bool) -> bool {
        false
    }
}

#[test]
fn a_reply_before_its_commit() {
    finds(RepliesBeforeCommit, "budgets", &DurableIntent, 1);
}

#[derive(Clone, Copy, Debug)]
struct RepliesToADuplicateBeforeCommit;

impl Subject for RepliesToADuplicateBeforeCommit {
    fn waits_for_commit(&self, own_facts: bool) -> bool {
        own_facts
    }
}

#[test]
fn a_reply_to_a_duplicate_before_the_commit_of_the_original() {
    finds(RepliesToADuplicateBeforeCommit, "budgets", &DurableIntent, 2);
}

#[derive(Clone, Copy, Debug)]
struct AcceptsASecondReport;

impl Subject for AcceptsASecondReport {
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        judged_on(state, call, at, entropy, |records| {
            records.permits.values_mut().for_each(|permit| permit.status = PermitStatus::Held);
        })
    }
}

#[test]
fn a_second_report_is_accepted() {
    finds(AcceptsASecondReport, "budgets", &OneFate, 6);
}

#[derive(Clone, Copy, Debug)]
struct AcceptsALateReport;

impl Subject for AcceptsALateReport {
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        judged_on(state, call, at, entropy, |records| {
            records.permits.values_mut().for_each(|permit| permit.deadline = permit.deadline.plus_ms(3_600_000));
        })
    }
}

#[test]
fn a_report_is_accepted_after_the_deadline() {
    finds(AcceptsALateReport, "budgets", &OneFate, 5);
}

#[derive(Clone, Copy, Debug)]
struct ExpiresTwice;

impl Subject for ExpiresTwice {
    fn expire(&self, state: &Snapshot, due: &Due, at: Stamp) -> Result<Option<Event>, ReadError> {
        let reopened = state.patched("reopened", |records| {
            records.permits.values_mut().for_each(|permit| permit.status = PermitStatus::Held);
        });
        evaluate::expire(&reopened, due, at)
    }
}

#[test]
fn a_permit_expires_although_it_has_ended() {
    finds(ExpiresTwice, "budgets", &OneFate, 7);
}

#[derive(Clone, Copy, Debug)]
struct LeavesTheApproval;

impl Subject for LeavesTheApproval {
    fn written(&self, _base: &Snapshot, _events: &[&Event], _role: Role, changes: &mut Changes) {
        for approval in changes.approvals.values_mut().filter(|one| one.state == ApprovalState::Consumed) {
            approval.state = ApprovalState::Approved;
            approval.consumed_by = None;
        }
    }
}

#[test]
fn an_approval_is_not_consumed() {
    finds(LeavesTheApproval, "approvals-in-flight", &SingleUse, 5);
}

#[test]
fn an_approval_serves_two_permits() {
    // Without the denial, which finds the same mistake sooner.
    let mut world = worlds::named("approvals").unwrap();
    world.calls.retain(|call| !matches!(call.what, What::Resolve { grant: false, .. }));
    finds_in(LeavesTheApproval, &world, &SingleUse, 5);
}

#[derive(Clone, Copy, Debug)]
struct LetsTheProposerGrant;

impl Subject for LetsTheProposerGrant {
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        if !matches!(call.op, Op::ResolveApproval { .. }) {
            return rightly(state, call, at, entropy);
        }
        judged_on(state, call, at, entropy, |records| {
            records.approvals.values_mut().for_each(|one| one.proposer = Principal::new("nobody"));
        })
    }
}

#[test]
fn a_proposer_grants_its_own_proposal() {
    finds(LetsTheProposerGrant, "approvals", &SingleUse, 2);
}

#[derive(Clone, Copy, Debug)]
struct CountsAVoteTwice;

impl Subject for CountsAVoteTwice {
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        judged_on(state, call, at, entropy, |records| {
            let pending =
                records.approvals.values_mut().filter(|one| one.terms.group.is_some() && one.votes.is_empty());
            pending.for_each(|one| one.votes.push(Principal::new("P1")));
        })
    }
}

#[test]
fn one_grant_is_a_quorum_of_two() {
    finds(CountsAVoteTwice, "approvals", &SingleUse, 2);
}

#[derive(Clone, Copy, Debug)]
struct ReadsAStaleSwitch;

impl Subject for ReadsAStaleSwitch {
    fn sees(&self, star: &Arc<Snapshot>, applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        let meta = &applied.records.meta;
        if star.records.meta.kill_switch == meta.kill_switch && star.records.meta.switches == meta.switches {
            return star.clone();
        }
        Arc::new(star.patched("stale switch", |records| {
            records.meta.kill_switch = meta.kill_switch.clone();
            records.meta.switches = meta.switches.clone();
        }))
    }
}

#[test]
fn the_switch_is_read_from_what_is_applied() {
    finds(ReadsAStaleSwitch, "switches", &NoWayRound, 3);
}

#[derive(Clone, Copy, Debug)]
struct IgnoresScopedSwitches;

impl Subject for IgnoresScopedSwitches {
    fn sees(&self, star: &Arc<Snapshot>, _applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        Arc::new(star.patched("no scopes", |records| records.meta.switches = Arc::default()))
    }
}

#[test]
fn a_scoped_switch_stops_nothing() {
    finds(IgnoresScopedSwitches, "switches", &NoWayRound, 3);
}

#[derive(Clone, Copy, Debug)]
struct ReturnsABudgetTwice;

impl Subject for ReturnsABudgetTwice {
    fn written(&self, _base: &Snapshot, events: &[&Event], _role: Role, changes: &mut Changes) {
        for event in events {
            let Body::ReservationExpired(ended) = &event.entry.body else { continue };
            for draw in &ended.released {
                let counter = changes.counters.get_mut(&counter_of(draw));
                if let Some(spent) = counter.and_then(|counter| counter.buckets.get_mut(&draw.bucket)) {
                    spent.reserved = spent.reserved.minus_clamped(draw.amount);
                }
            }
        }
    }
}

#[test]
fn a_budget_is_returned_twice() {
    finds(ReturnsABudgetTwice, "budgets", &Conservation, 7);
}

#[derive(Clone, Copy, Debug)]
struct ReservesNothing;

impl Subject for ReservesNothing {
    fn written(&self, _base: &Snapshot, events: &[&Event], _role: Role, changes: &mut Changes) {
        if events.iter().any(|event| matches!(event.entry.body, Body::ExecIntent(_))) {
            changes.counters.clear();
        }
    }
}

#[test]
fn a_permit_reserves_nothing() {
    finds(ReservesNothing, "budgets", &Conservation, 2);
}

#[derive(Clone, Copy, Debug)]
struct ForgetsSpending;

impl Subject for ForgetsSpending {
    fn sees(&self, star: &Arc<Snapshot>, _applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        Arc::new(star.patched("no counters", |records| records.counters.clear()))
    }
}

#[test]
fn a_budget_of_a_day_is_overspent() {
    finds(ForgetsSpending, "budgets", &Conservation, 4);
}

#[test]
fn a_rolling_budget_is_overspent() {
    finds(ForgetsSpending, "windows", &Conservation, 3);
}

#[derive(Clone, Copy, Debug)]
struct ForgetsRequests;

impl Subject for ForgetsRequests {
    fn take(&self, applied: &Arc<Snapshot>) -> Arc<Snapshot> {
        Arc::new(applied.patched("no requests", |records| records.requests.clear()))
    }
}

#[test]
fn a_new_leader_forgets_what_was_decided() {
    finds(ForgetsRequests, "budgets", &SameAnswer, 4);
}

#[derive(Clone, Copy, Debug)]
struct FencesNothing;

impl Subject for FencesNothing {
    fn admit(&self, _state: &dyn Read, _term: u64, _batch: &Batch) -> Result<Applied, String> {
        Ok(Applied::Folded)
    }
}

#[test]
fn a_batch_of_a_former_leader_is_folded() {
    finds(FencesNothing, "failover", &SameAnswer, 6);
}

#[test]
fn a_batch_that_overtook_another_is_folded() {
    finds(FencesNothing, "failover", &EVIDENCE, 5);
}

#[derive(Clone, Copy, Debug)]
struct BelievesItsClock;

impl Subject for BelievesItsClock {
    fn stamp(&self, clock: Stamp, _last: Stamp) -> Stamp {
        clock
    }
}

#[test]
fn a_new_leader_whose_clock_is_behind_goes_back_in_time() {
    finds(BelievesItsClock, "windows", &EVIDENCE, 2);
}

#[derive(Clone, Copy, Debug)]
struct FollowsWithoutCounters;

impl Subject for FollowsWithoutCounters {
    fn written(&self, _base: &Snapshot, _events: &[&Event], role: Role, changes: &mut Changes) {
        if role == Role::Follower {
            changes.counters.clear();
        }
    }
}

#[test]
fn a_follower_folds_something_else() {
    finds(FollowsWithoutCounters, "budgets", &Agreement, 2);
}

#[derive(Clone, Copy, Debug)]
struct TellsThePermitToAnyone;

impl Subject for TellsThePermitToAnyone {
    fn evaluate(&self, state: &Snapshot, call: &Call, at: Stamp, entropy: Entropy) -> Result<Outcome, Reject> {
        let mut outcome = rightly(state, call, at, entropy)?;
        if let Answer::Decide(reply) = &mut outcome.answer
            && let Some(id) = &reply.request_id
            && let Some(record) = state.request(id)?
        {
            reply.permit_id = record.permit_id;
        }
        Ok(outcome)
    }
}

#[test]
fn a_permit_is_told_to_whoever_names_its_request() {
    finds(TellsThePermitToAnyone, "failover", &SameAnswer, 4);
}

#[derive(Clone, Copy, Debug)]
struct ForgetsReversals;

impl Subject for ForgetsReversals {
    fn written(&self, _base: &Snapshot, _events: &[&Event], _role: Role, changes: &mut Changes) {
        changes.permits.values_mut().for_each(|permit| permit.undone_by = None);
    }
}

#[test]
fn an_act_is_reversed_twice() {
    finds(ForgetsReversals, "undo", &OneReversal, 4);
}

#[derive(Clone, Copy, Debug)]
struct CountsOpenPermitsForEver;

impl Subject for CountsOpenPermitsForEver {
    fn written(&self, base: &Snapshot, _events: &[&Event], _role: Role, changes: &mut Changes) {
        if let Some(meta) = &mut changes.meta {
            meta.open_permits = meta.open_permits.max(base.records.meta.open_permits);
        }
    }
}

#[test]
fn a_permit_that_ended_stays_open() {
    finds(CountsOpenPermitsForEver, "undo", &OpenWork, 2);
}
