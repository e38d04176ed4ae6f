//! One request id, sent again by its owner, with another body and by somebody else, while leaders change: batches are
//! lost, kept, overtaken, refused, and come back late; the follower lags; a leader that was replaced still answers.

use placet_core::request::Outcome;
use serde_json::json;

use super::budgets::{ACTIONS, BUDGETS, POLICY};
use crate::world::{Bounds, CallSpec, World, call, decide, report};

pub(super) fn world() -> World {
    World {
        name: "failover",
        about: "duplicates of one request id over two changes of the leader, with every loss and reordering of batches",
        policy: POLICY,
        budgets: BUDGETS,
        actions: ACTIONS,
        expiry_keeps_rate: false,
        calls: vec![
            CallSpec { times: 3, ..call("P1", decide(0, "pay", json!({ "amount": "60" }))) },
            call("P1", decide(0, "pay", json!({ "amount": "50" }))),
            call("P2", decide(0, "pay", json!({ "amount": "60" }))),
            call("P1", decide(1, "pay", json!({ "amount": "50" }))),
            call("P1", report(0, Outcome::Success)),
        ],
        moments: vec![0, 600_000],
        second_clock_behind_ms: 60_000,
        bounds: Bounds {
            calls: 4,
            in_flight: 3,
            batch: 2,
            elections: 2,
            overtakes: 1,
            refusals: 1,
            strays: 1,
            lag: 1,
            deposed_answers: true,
        },
        shows: &[
            "exec_intent",
            "replay_mismatch",
            "deny",
            "exec_result",
            "fenced batch",
            "stray batch",
            "overtaking",
            "refusal",
            "call to a former leader",
            "following",
            "election",
            "reservation_expired",
        ],
        short_depth: 7,
    }
}
