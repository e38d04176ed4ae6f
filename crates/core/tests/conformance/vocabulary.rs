//! Case 132: every word that the decision point can say is registered, or a vendor's. Case 118: what discharges an
//! obligation is kept.

use placet_core::event::Body;
use placet_core::reply::{Reason, Verdict};
use serde_json::{Value, json};

use super::features;
use super::fixture::{Pdp, report_body, with};
use super::random;

const REASONS: [&str; 20] = [
    "passed",
    "malformed",
    "kill_switch",
    "default_deny",
    "bounds",
    "tier_confirm",
    "effect_floor",
    "no_compensating_command",
    "observe",
    "dry_run",
    "cost_unknown",
    "cap_daily_rate",
    "cap_eur_day",
    "cap_eur_month",
    "rate_exhausted",
    "budget_exhausted",
    "expired",
    "sender_mismatch",
    "external_authorization",
    "present_bound",
];

const VERDICTS: [&str; 5] = ["permit", "deny", "propose", "dry_run", "observe"];

const OBLIGATIONS: [&str; 6] =
    ["report_result", "undo_available_until", "execute_within", "isolate", "idempotency_key", "present_bound"];

fn registered(word: &str, registry: &[&str]) -> bool {
    let vendor = word.strip_prefix("x-").and_then(|rest| rest.split_once('.'));
    registry.contains(&word) || vendor.is_some_and(|(vendor, name)| !vendor.is_empty() && !name.is_empty())
}

#[test]
fn case_132_every_word_is_registered() {
    // Every reason there is: a new one must be named here, or this does not compile.
    let all = |reason: Reason| match reason {
        Reason::Passed | Reason::Malformed | Reason::KillSwitch | Reason::DefaultDeny | Reason::Bounds => (),
        Reason::TierConfirm | Reason::EffectFloor | Reason::NoCompensatingCommand | Reason::Observe => (),
        Reason::DryRun | Reason::CostUnknown | Reason::CapDailyRate | Reason::CapEurDay | Reason::CapEurMonth => (),
        Reason::RateExhausted | Reason::BudgetExhausted | Reason::Expired | Reason::SenderMismatch => (),
        Reason::ExternalAuthorization | Reason::PresentBound | Reason::ProposalsExhausted => (),
        Reason::UndoRefused | Reason::AlreadyReported => (),
    };
    for word in
        REASONS.iter().chain(&["x-placet.proposals_exhausted", "x-placet.undo_refused", "x-placet.already_reported"])
    {
        let reason: Reason = serde_json::from_value(json!(word)).unwrap();
        all(reason);
        assert_eq!(reason.as_str(), *word);
        assert_eq!(serde_json::to_value(reason).unwrap(), *word);
        assert!(registered(reason.as_str(), &REASONS));
    }
    for verdict in [Verdict::Permit, Verdict::Deny, Verdict::Propose, Verdict::DryRun, Verdict::Observe] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        assert!(VERDICTS.contains(&verdict.as_str()));
    }
    // And every obligation that a long mixed run gives.
    let pdp = random::mixed(132, 600);
    let mut seen = std::collections::BTreeSet::new();
    for entry in pdp.entries() {
        if let Body::Decision(decided) | Body::ExecIntent(decided) = entry.body {
            seen.extend(decided.obligations.into_iter().map(|one| one.kind));
        }
    }
    assert!(seen.iter().all(|kind| registered(kind, &OBLIGATIONS)), "{seen:?}");
    assert_eq!(seen.len(), 7, "{seen:?}");
    // What a policy may ask for is held to the same registry.
    for (kind, fits) in
        [("x-acme.audit", true), ("teleport", false), ("x-acme", false), ("x-.a", false), ("isolate", true)]
    {
        let line = format!("{{ type: {kind}, value: full }}");
        let document = features::document().replace("{ type: x-acme.audit, value: full }", &line);
        let document = if kind == "isolate" {
            document.replace("      - { type: isolate, value: microvm }\n", "")
        } else {
            document
        };
        assert_eq!(Pdp::new().publish(&document).is_ok(), fits, "{kind}");
    }
}

#[test]
fn case_118_what_discharges_an_obligation_is_on_the_entry() {
    let mut pdp = features::pdp();
    let permit = pdp.ask("obliged", json!({})).permit_id.unwrap();
    let payload = json!({"obligations": [
        {"type": "isolate", "evidence": {"boundary": "microvm-7"}},
        {"type": "idempotency_key", "evidence": "ack-1"},
    ]});
    let reply = pdp.report_as("P1", &with(report_body(&permit, "success"), json!({"payload": payload})));
    let Body::ExecResult(result) = pdp.entry(reply.evidence_id).body else { panic!("another kind") };
    assert_eq!(serde_json::from_str::<Value>(&result.payload.unwrap()).unwrap(), payload);
    // Also of a report that changes nothing, and exactly as it came.
    let text = with(report_body(&permit, "success"), json!({"payload": "@"})).to_string();
    let spaced = text.replace("\"@\"", "{ \"b\" : 1.50 ,\"a\":[ ] }");
    let refused = match pdp.call("P1", placet_core::op::Op::Report(spaced.into_bytes())).unwrap() {
        placet_core::op::Answer::Report(reply) => reply,
        other => panic!("{other:?}"),
    };
    let Body::ReportRefused(kept) = pdp.entry(refused.evidence_id).body else { panic!("another kind") };
    assert_eq!(kept.payload.as_deref(), Some("{ \"b\" : 1.50 ,\"a\":[ ] }"));
}
