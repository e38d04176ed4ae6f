//! Re-derivation of what is no verdict: local decisions, notes, refusals, mismatches; and capabilities that are named
//! twice, by the record or by a client.

use placet_core::event::{ApprovalState, Body, Decided, Entry};
use placet_core::ids::{ApprovalId, EvidenceIndex, Hash, PermitId, Principal};
use placet_core::op::Op;
use placet_core::reply::DecideReply;
use serde_json::json;

use super::features;
use super::fixture::{Pdp, report_body, request, says, uuid, with};
use super::rederivation::{all, decided, derived, rechained};

fn last(pdp: &Pdp) -> EvidenceIndex {
    EvidenceIndex(pdp.state.meta.next_index.0 - 1)
}

/// The field that the entry at `at` is named for when `change` is made to it.
#[track_caller]
fn named(pdp: &Pdp, at: EvidenceIndex, change: impl FnOnce(&mut Entry)) -> String {
    let mut entries = all(pdp);
    change(&mut entries[usize::try_from(at.0 - 1).unwrap()]);
    named_in(entries, at)
}

#[track_caller]
fn named_in(entries: Vec<Entry>, at: EvidenceIndex) -> String {
    let difference = derived(&rechained(entries, None)).unwrap_err();
    assert_eq!(difference.index, at, "{difference}");
    difference.field
}

#[test]
fn capabilities_are_issued_once() {
    let mut pdp = features::pdp();
    let first = pdp.ask("lamp.toggle", json!({"state": "on"}));
    let second = pdp.ask("lamp.toggle", json!({"state": "off"}));
    let digest = pdp.decided(&first).permit_digest;
    assert_eq!(named(&pdp, second.evidence_id, |entry| decided(entry).permit_digest = digest), "permit_digest");
    let (one, other) = (pdp.ask("flood.plain", json!({})), pdp.ask("flood.plain", json!({})));
    let id = one.approval_id.clone();
    assert_eq!(named(&pdp, other.evidence_id, |entry| decided(entry).approval_id = id), "approval_id");
    let id = one.request_id.clone().unwrap();
    assert_eq!(named(&pdp, other.evidence_id, |entry| decided(entry).request_id = id), "request_id");
}

/// Goal: the stand-in under which re-derivation knows a permit was a name that a client could use (found by review).
#[test]
fn nobody_names_a_stand_in() {
    let mut pdp = features::pdp();
    let done = pdp.ask("obliged", json!({"n": 1}));
    pdp.report(done.permit_id.as_ref().unwrap(), "success");
    let digest = done.permit_id.as_ref().unwrap().digest();
    let undo =
        |parent: &str| with(request("pay.back", json!({"n": 1})), json!({"source": "undo", "parent_id": parent}));
    let stand_in = pdp.decide(&undo(&format!("digest:{digest}")));
    assert_eq!(says(&stand_in), ("deny", "x-placet.undo_refused"));
    let real = pdp.decide(&undo(done.permit_id.as_ref().unwrap().as_str()));
    assert_eq!(says(&real).0, "permit");
}

#[test]
fn who_resumes_may_decide_and_changes_nothing() {
    let mut pdp = features::pdp();
    let proposed = pdp.ask("wire.treasury", json!({"amount": "5"}));
    let id = proposed.approval_id.unwrap();
    pdp.grant(&id);
    pdp.resume_as("A2", &id).unwrap();
    assert_eq!(pdp.approval_state(&id), ApprovalState::Consumed);
    let at = last(&pdp);
    let by = |name: &str| {
        let name = Some(Principal::new(name));
        named(&pdp, at, |entry| decided(entry).resumed_by = name)
    };
    assert_eq!([by("P1"), by("A9")], ["resumed_by", "resumed_by"]);
    let other = |change: &dyn Fn(&mut Decided)| named(&pdp, at, |entry| change(decided(entry)));
    assert_eq!(other(&|decided| decided.rationale = "another".to_owned()), "resumed");
    assert_eq!(other(&|decided| decided.session_id = Some("another".to_owned())), "resumed");
    assert_eq!(other(&|decided| decided.approval_ref = Some(ApprovalId::new("apr-none"))), "request_digest");
}

#[test]
fn a_local_decision_is_delivered_once_and_ends_the_permit_that_it_was_for() {
    let mut pdp = features::pdp();
    let local = |body: &serde_json::Value| {
        let times = json!({"completed_at": "2026-08-17T09:00:00Z", "decided_at": "2026-08-17T09:00:00Z"});
        let act = with(body.clone(), json!({"outcome": "success", "mode": "fail_open", "error": "e"}));
        let act = with(act, json!({"protocol": null, "created_at": null}));
        Op::RecordLocal(json!({"protocol": "aadp/0.2", "entries": [with(act, times)]}).to_string().into_bytes())
    };
    let lost = request("lamp.toggle", json!({"state": "on"}));
    pdp.decide(&lost);
    pdp.call("P1", local(&lost)).unwrap();
    let (act, result) = (EvidenceIndex(last(&pdp).0 - 1), last(&pdp));
    assert!(matches!(pdp.entry(act).body, Body::LocalDecision(_)));
    assert!(matches!(pdp.entry(result).body, Body::ExecResult(_)));
    pdp.ask("read.status", json!({}));
    // Without the result, something else stands in its place.
    let mut entries = all(&pdp);
    entries.remove(usize::try_from(result.0 - 1).unwrap());
    assert_eq!(named_in(entries, result), "body");
    // A second entry for one act.
    let mut entries = all(&pdp);
    entries.push(Entry { at: pdp.state.meta.last_stamp, ..pdp.entry(act) });
    assert_eq!(named_in(entries, last(&pdp).next()), "request_id");
    let spelled = named(&pdp, act, |entry| {
        let Body::LocalDecision(local) = &mut entry.body else { panic!("another kind") };
        local.params = local.params.replace(':', ": ");
    });
    assert_eq!(spelled, "params.canonical");
}

#[test]
fn notes_refusals_and_mismatches_say_what_is_so() {
    let mut pdp = Pdp::new();
    let body = request("lamp.toggle", json!({"state": "on"}));
    let permitted = pdp.decide(&body);
    let observed = pdp.ask("read.status", json!({}));
    let by_request = |reply: &DecideReply| {
        let id = reply.request_id.as_ref().unwrap().as_str();
        with(report_body(&PermitId::new("x"), "success"), json!({"permit_id": null, "request_id": id}))
    };
    let noted = pdp.report_as("P1", &by_request(&observed)).evidence_id;
    let mismatched = pdp.decide(&with(body.clone(), json!({"params": {"state": "off"}}))).evidence_id;
    let foreign = pdp.decide_as("P2", &body).evidence_id;
    let malformed = pdp.decide_bytes("P1", b"{bad").evidence_id;
    let coded = pdp.decide_bytes("P1", b"\xff{").evidence_id;
    let long = pdp.decide_bytes("P1", " ".repeat(20_000).as_bytes()).evidence_id;
    let note = |change: &dyn Fn(&mut placet_core::event::ReportNoted)| {
        named(&pdp, noted, |entry| {
            let Body::ReportNoted(noted) = &mut entry.body else { panic!("another kind") };
            change(noted);
        })
    };
    assert_eq!(note(&|noted| noted.decision = None), "decision");
    assert_eq!(note(&|noted| noted.decision = Some(EvidenceIndex(1))), "decision");
    let of_permit = note(&|noted| {
        noted.request_id = permitted.request_id.clone().unwrap();
        noted.decision = Some(permitted.evidence_id);
    });
    assert_eq!(of_permit, "permit");
    let mismatch = |at: EvidenceIndex, change: &dyn Fn(&mut placet_core::event::ReplayMismatch)| {
        named(&pdp, at, |entry| {
            let Body::ReplayMismatch(mismatch) = &mut entry.body else { panic!("another kind") };
            change(mismatch);
        })
    };
    let digest = pdp.decided(&permitted).request_digest;
    assert_eq!(mismatch(mismatched, &|found| found.original = observed.evidence_id), "original");
    assert_eq!(mismatch(mismatched, &|found| found.differs = "principal".to_owned()), "differs");
    assert_eq!(mismatch(mismatched, &|found| found.request_digest = digest), "request_digest.equal");
    assert_eq!(mismatch(foreign, &|found| found.differs = "request".to_owned()), "differs");
    let unknown = placet_core::ids::RequestId::new(uuid());
    assert_eq!(mismatch(foreign, &|found| found.request_id = unknown.clone()), "request_id");
    let body = |at: EvidenceIndex, change: &dyn Fn(&mut placet_core::event::MalformedRequest)| {
        named(&pdp, at, |entry| {
            let Body::MalformedRequest(found) = &mut entry.body else { panic!("another kind") };
            change(found);
        })
    };
    for at in [malformed, coded] {
        assert_eq!(body(at, &|found| found.request.digest = Hash::GENESIS), "received.digest");
        assert_eq!(body(at, &|found| found.request.bytes += 1), "received.digest");
        assert_eq!(body(at, &|found| found.request.received.push('0')), "received.digest");
        assert_eq!(body(at, &|found| found.operation = "other".to_owned()), "operation");
    }
    assert_eq!(body(long, &|found| found.request.received_clipped = false), "received.digest");
    assert_eq!(body(long, &|found| found.request.bytes = 5), "received");
}

/// Goal: another wording of a refusal made old exports look forged.
#[test]
fn wording_is_nothing_and_the_attempt_is() {
    let mut pdp = features::pdp();
    let id = pdp.ask("wire.treasury", json!({"amount": "5"})).approval_id.unwrap();
    for (who, grant) in [("A9", true), ("A9", false), ("P1", true)] {
        assert!(pdp.resolve(who, &id, grant).is_err());
        assert!(matches!(pdp.entry(last(&pdp)).body, Body::ApprovalRefused(_)));
    }
    let by_proposer = last(&pdp);
    pdp.grant(&id);
    pdp.resolve("A2", &id, true).unwrap();
    assert!(pdp.resume_as("A9", &id).is_err());
    let resumed = last(&pdp);
    let reworded = |entry: &mut Entry| match &mut entry.body {
        Body::ApprovalRefused(refused) => refused.detail = "another wording".to_owned(),
        Body::Decision(decided) | Body::ExecIntent(decided) => decided.detail = "another wording".to_owned(),
        Body::ReportRefused(refused) => refused.detail = "another wording".to_owned(),
        Body::MalformedRequest(found) => found.request.detail = "another wording".to_owned(),
        Body::ReservationExpired(ended) | Body::ReservationReleased(ended) => {
            ended.detail = "another wording".to_owned();
        }
        _ => {}
    };
    let mut entries = all(&pdp);
    entries.iter_mut().for_each(reworded);
    derived(&rechained(entries, None)).unwrap();
    let refused = |at: EvidenceIndex, change: &dyn Fn(&mut Entry)| named(&pdp, at, |entry| change(entry));
    for at in [by_proposer, resumed] {
        assert_eq!(refused(at, &|entry| entry.principal = Principal::new("A3")), "attempt");
        let attempt = |entry: &mut Entry, attempt: &str| {
            let Body::ApprovalRefused(refused) = &mut entry.body else { panic!("another kind") };
            attempt.clone_into(&mut refused.attempt);
        };
        assert_eq!(refused(at, &|entry| attempt(entry, "ratify")), "attempt");
        assert_eq!(refused(at, &|entry| attempt(entry, "other")), "attempt");
    }
}
