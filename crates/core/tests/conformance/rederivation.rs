//! Case 104, and re-derivation as an adversary meets it: whoever rewrites the record and makes its chain fit again is
//! still told which entry does not follow.

use placet_core::evaluate::{Difference, Rederivation, Rederived, rederive};
use placet_core::event::{ApprovalState, Body, Decided, Entry, Event, PolicyStep};
use placet_core::evidence::{ChainWalk, decode, encode, hash};
use placet_core::exact::Amount;
use placet_core::ids::{EvidenceIndex, Hash, PolicyDigest, Principal, RequestId};
use placet_core::policy::PolicySet;
use placet_core::reply::{Reason, Tier, Verdict};
use serde_json::Value;

use super::fixture::Pdp;
use super::random::mixed;

/// A few thousand entries; a forgery needs fewer.
const LONG: u64 = 1500;
const STEPS: u64 = 900;

pub fn all(pdp: &Pdp) -> Vec<Entry> {
    pdp.state.entries.values().map(|bytes| decode(bytes).unwrap()).collect()
}

/// Makes the entries a chain again, numbered from 1; references to entries behind `removed` move with them.
pub fn rechained(entries: Vec<Entry>, removed: Option<u64>) -> Vec<Vec<u8>> {
    let mut prev = Hash::GENESIS;
    let mut chain = Vec::new();
    for (mut entry, index) in entries.into_iter().zip(1..) {
        entry.index = EvidenceIndex(index);
        entry.prev = prev;
        let mut value: Value = serde_json::from_slice(&encode(&entry)).unwrap();
        if let Some(removed) = removed {
            moved(&mut value, removed);
        }
        let bytes = encode(&serde_json::from_value(value).unwrap());
        prev = hash(&bytes);
        chain.push(bytes);
    }
    let mut walk = ChainWalk::default();
    chain.iter().for_each(|bytes| drop(walk.step(bytes).unwrap()));
    chain
}

fn moved(value: &mut Value, removed: u64) {
    let Value::Object(members) = value else { return };
    for (name, value) in members {
        let reference = ["intent", "proposal", "resumes", "undo_of", "original", "decision"].contains(&name.as_str());
        match value.as_u64() {
            Some(index) if reference && index > removed => *value = (index - 1).into(),
            _ => moved(value, removed),
        }
    }
}

pub fn derived(chain: &[Vec<u8>]) -> Result<Vec<Rederived>, Difference> {
    rederive(chain.iter().map(Vec::as_slice))
}

/// The honest record, what is done to it, and which entry the derivation must name.
struct Forgery {
    entries: Vec<Entry>,
    removed: Option<u64>,
    named: u64,
}

fn check(name: &str, forgery: Forgery) {
    let difference = derived(&rechained(forgery.entries, forgery.removed)).expect_err(name);
    assert_eq!(difference.index.0, forgery.named, "{name}: {difference}");
}

/// The position of the first entry, from 1, that `wanted` accepts.
#[track_caller]
pub fn find(entries: &[Entry], wanted: impl Fn(&Entry) -> bool) -> usize {
    let Some(at) = entries.iter().position(wanted) else { panic!("the run has none of these") };
    at + 1
}

/// The entry at position `at`, changed.
fn changed(entries: &[Entry], at: usize, change: impl FnOnce(&mut Entry)) -> Forgery {
    let mut entries = entries.to_vec();
    change(&mut entries[at - 1]);
    Forgery { entries, removed: None, named: at as u64 }
}

pub fn decided(entry: &mut Entry) -> &mut Decided {
    match &mut entry.body {
        Body::Decision(decided) | Body::ExecIntent(decided) => decided,
        other => panic!("not a decision: {other:?}"),
    }
}

fn is_intent(entry: &Entry, action: &str) -> bool {
    matches!(&entry.body, Body::ExecIntent(decided) if decided.action_type.as_str() == action)
}

#[test]
fn case_104_every_verdict_is_derived_again_from_the_record() {
    for (seed, steps, least) in [(104, LONG, 1500), (105, 300, 300)] {
        let pdp = mixed(seed, steps);
        let found = derived(&pdp.state.entries.values().cloned().collect::<Vec<_>>()).unwrap();
        assert_eq!(found.len(), pdp.state.entries.len());
        let verdicts = found.iter().filter(|one| **one == Rederived::Verdict).count();
        let redacted = found.iter().filter(|one| matches!(one, Rederived::Redacted { .. })).count();
        assert!(found.len() > least && verdicts > least / 3 && redacted > 0, "{} {verdicts} {redacted}", found.len());
        // All kinds of entry were among them, and the state that they add up to is the one that answered.
        let kinds: std::collections::BTreeSet<_> = all(&pdp).iter().map(|entry| entry.body.kind()).collect();
        assert!(kinds.len() == 16 || steps < LONG, "{kinds:?}");
        let mut walk = Rederivation::default();
        for bytes in pdp.state.entries.values() {
            walk.step(decode(bytes).unwrap(), bytes.clone()).unwrap();
        }
        assert_eq!(walk.state().meta, pdp.state.meta);
        assert_eq!(walk.state().counters, pdp.state.counters);
        assert_eq!(walk.state().approvals, pdp.state.approvals);
        assert_eq!(walk.state().merkle, pdp.state.merkle);
        // The log alone adds up to the same, too.
        let restarted = pdp.restarted();
        assert_eq!(restarted.meta, pdp.state.meta);
        assert_eq!(restarted.permits, pdp.state.permits);
        assert_eq!(restarted.requests, pdp.state.requests);
    }
}

#[test]
fn a_changed_entry_is_named() {
    let pdp = mixed(7, STEPS);
    let entries = all(&pdp);
    let intent = find(&entries, |entry| is_intent(entry, "pay.card"));
    check(
        "amount",
        changed(&entries, intent, |entry| {
            let decided = decided(entry);
            let mut params: Value = serde_json::from_str(&decided.params).unwrap();
            params["amount"] = "0.02".into();
            decided.params = params.to_string();
            // The digest is made to fit.
            let request = placet_core::request::DecideRequest::of_record(
                entry.protocol,
                match &entry.body {
                    Body::ExecIntent(decided) => decided,
                    _ => unreachable!(),
                },
            );
            let request = request.unwrap();
            let digest = request.digest(&request.params_canonical());
            self::decided(entry).request_digest = digest;
        }),
    );
    check(
        "permit to deny",
        changed(&entries, intent, |entry| {
            let mut denied = decided(entry).clone();
            denied.verdict = Verdict::Deny;
            denied.reason = Reason::BudgetExhausted;
            (denied.permit_digest, denied.deadline) = (None, None);
            denied.draws.clear();
            denied.obligations.clear();
            entry.body = Body::Decision(Box::new(denied));
        }),
    );
    let denial = find(
        &entries,
        |entry| matches!(&entry.body, Body::Decision(decided) if decided.verdict == Verdict::Deny && decided.reason != Reason::Malformed),
    );
    check(
        "deny to permit",
        changed(&entries, denial, |entry| {
            let mut permitted = decided(entry).clone();
            permitted.verdict = Verdict::Permit;
            permitted.reason = Reason::Passed;
            permitted.permit_digest = Some(Hash::of(b"forged"));
            permitted.deadline = Some(entry.at.plus_ms(600_000));
            entry.body = Body::ExecIntent(Box::new(permitted));
        }),
    );
    check("reason", changed(&entries, denial, |entry| decided(entry).reason = Reason::Expired));
    check("tier", changed(&entries, intent, |entry| decided(entry).effective_tier = Tier::Observe));
    check("draws", changed(&entries, intent, |entry| decided(entry).draws[0].amount = Amount::ONE));
    check("one draw less", changed(&entries, intent, |entry| drop(decided(entry).draws.pop())));
    check(
        "deadline",
        changed(&entries, intent, |entry| {
            let decided = decided(entry);
            decided.deadline = decided.deadline.map(|deadline| deadline.plus_ms(1));
        }),
    );
    check(
        "whose",
        changed(&entries, intent, |entry| {
            entry.principal = Principal::new("P9");
        })
        .with_named(&entries, intent),
    );
    check(
        "hidden to escape",
        changed(&entries, intent, |entry| {
            decided(entry).redacted = vec!["params.amount".to_owned()];
        }),
    );
    let result =
        find(&entries, |entry| matches!(&entry.body, Body::ExecResult(result) if result.success == Some(true)));
    check(
        "outcome",
        changed(&entries, result, |entry| {
            let Body::ExecResult(result) = &mut entry.body else { unreachable!() };
            result.success = None;
        }),
    );
    let released = find(&entries, |entry| matches!(&entry.body, Body::ReservationReleased(_)));
    check(
        "released amount",
        changed(&entries, released, |entry| {
            let Body::ReservationReleased(ended) = &mut entry.body else { unreachable!() };
            ended.released[0].amount = ended.released[0].amount.checked_add(Amount::ONE).unwrap();
        }),
    );
    let expired =
        find(&entries, |entry| matches!(&entry.body, Body::ReservationExpired(ended) if !ended.released.is_empty()));
    check(
        "expired amount",
        changed(&entries, expired, |entry| {
            let Body::ReservationExpired(ended) = &mut entry.body else { unreachable!() };
            ended.released.pop();
        }),
    );
    let refused = find(
        &entries,
        |entry| matches!(&entry.body, Body::ReportRefused(refused) if refused.reason == Reason::Expired),
    );
    check(
        "a late report that is no longer one",
        changed(&entries, refused, |entry| {
            let Body::ReportRefused(refused) = &mut entry.body else { unreachable!() };
            refused.reconcile = !refused.reconcile;
        }),
    );
    let transition =
        find(&entries, |entry| matches!(&entry.body, Body::ApprovalTransition(change) if change.votes.len() == 1));
    check(
        "a vote more",
        changed(&entries, transition, |entry| {
            let Body::ApprovalTransition(change) = &mut entry.body else { unreachable!() };
            change.votes.push(Principal::new("A1"));
            change.votes.push(Principal::new("A2"));
        }),
    );
    let attempt =
        find(&entries, |entry| matches!(&entry.body, Body::ApprovalRefused(refused) if refused.attempt == "grant"));
    check(
        "an attempt by another",
        changed(&entries, attempt, |entry| {
            let Body::ApprovalRefused(refused) = &mut entry.body else { unreachable!() };
            refused.proposal = refused.proposal.next();
        }),
    );
    let mandate = find(&entries, |entry| matches!(&entry.body, Body::MandateSet(_)));
    check(
        "the authority's word",
        changed(&entries, mandate, |entry| {
            let Body::MandateSet(set) = &mut entry.body else { unreachable!() };
            set.denied = !set.denied;
        }),
    );
}

impl Forgery {
    /// A principal is part of what budgets and duties are counted for: the first entry that depends on it is named.
    fn with_named(mut self, entries: &[Entry], intent: usize) -> Self {
        let digest = match &entries[intent - 1].body {
            Body::ExecIntent(decided) => decided.permit_digest,
            _ => None,
        };
        let scoped =
            matches!(&entries[intent - 1].body, Body::ExecIntent(d) if d.draws.iter().any(|draw| draw.scope.is_some()));
        if !scoped {
            let later = entries.iter().skip(intent).find(|entry| permit_of(entry) == digest);
            self.named = later.map_or(self.named, |entry| entry.index.0);
        }
        self
    }
}

fn permit_of(entry: &Entry) -> Option<Hash> {
    match &entry.body {
        Body::ExecResult(result) => Some(result.permit_digest),
        Body::ReservationExpired(ended) | Body::ReservationReleased(ended) => Some(ended.permit_digest),
        Body::ReportRefused(refused) => refused.intent.map(|_| refused.permit_digest),
        _ => None,
    }
}

#[test]
fn a_removed_entry_is_named_where_it_is_missed() {
    let pdp = mixed(8, STEPS);
    let entries = all(&pdp);
    let without = |at: usize, named: usize| {
        let mut entries = entries.clone();
        entries.remove(at - 1);
        Forgery { entries, removed: Some(at as u64), named: named as u64 }
    };
    // An intent: its result, its expiry or its refused report has no permit.
    let intent = find(&entries, |entry| {
        is_intent(entry, "lamp.toggle")
            && entries.iter().any(|later| permit_of(later).is_some() && permit_of(later) == digest_of(entry))
    });
    let digest = digest_of(&entries[intent - 1]);
    let missed = find(&entries, |entry| permit_of(entry) == digest);
    // Unless a head that was signed in between is first.
    let signed = entries.iter().skip(intent).position(|entry| matches!(entry.body, Body::HeadSigned(_)));
    let first = signed.map_or(missed, |behind| missed.min(intent + behind + 1));
    check("an intent", without(intent, first - 1));
    // A result behind its release: something else stands there.
    let release = find(&entries, |entry| matches!(&entry.body, Body::ReservationReleased(_)));
    check("a result", without(release + 1, release + 1));
    check("a release", without(release, release));
    // The moment at which a switch was engaged: the denial right behind it does not follow.
    let engaged = (1..entries.len())
        .find(|at| {
            let (set, next) = (&entries[at - 1].body, &entries[*at].body);
            matches!(set, Body::KillSwitch(set) if set.engaged)
                && matches!(next, Body::Decision(decided) if decided.reason == Reason::KillSwitch)
        })
        .unwrap();
    check("a kill switch", without(engaged, engaged));
    let grant = (1..entries.len())
        .find(|at| match (&entries[at - 1].body, &entries[*at].body) {
            (Body::ApprovalTransition(change), Body::ExecIntent(decided)) => {
                change.to == ApprovalState::Approved && decided.approval_ref.as_ref() == Some(&change.approval_id)
            }
            _ => false,
        })
        .unwrap();
    check("a grant", without(grant, grant));
    // What leaves no trace in later judgements is missed by the next signed head.
    let noted = find(&entries, |entry| matches!(&entry.body, Body::MalformedRequest(_)));
    let head = entries.iter().skip(noted).find(|entry| matches!(entry.body, Body::HeadSigned(_))).unwrap();
    check("a malformed request", without(noted, head.index.0 as usize - 1));
}

fn digest_of(entry: &Entry) -> Option<Hash> {
    match &entry.body {
        Body::ExecIntent(decided) => decided.permit_digest,
        _ => None,
    }
}

#[test]
fn a_swapped_pair_is_named() {
    let pdp = mixed(9, STEPS);
    let entries = all(&pdp);
    let swapped = |first: usize| {
        let mut entries = entries.clone();
        entries.swap(first - 1, first);
        Forgery { entries, removed: None, named: first as u64 }
    };
    let release = find(&entries, |entry| matches!(&entry.body, Body::ReservationReleased(_)));
    check("release and result", swapped(release));
    let engaged = (1..entries.len())
        .find(|at| {
            matches!(&entries[at - 1].body, Body::KillSwitch(set) if set.engaged)
                && matches!(&entries[*at].body, Body::Decision(decided) if decided.reason == Reason::KillSwitch)
        })
        .unwrap();
    check("switch and denial", swapped(engaged));
    // Two that could stand in either order, were it not for their times.
    let apart = (1..entries.len()).find(|at| entries[at - 1].at < entries[*at].at).unwrap();
    let forgery = swapped(apart);
    let difference = derived(&rechained(forgery.entries, None)).unwrap_err();
    assert!((apart as u64..=apart as u64 + 1).contains(&difference.index.0), "{difference}");
}

#[test]
fn another_policy_is_named() {
    let pdp = mixed(10, STEPS);
    let entries = all(&pdp);
    let put = |entry: &Entry| matches!(&entry.body, Body::PolicyChange(change) if change.document.is_some());
    let at = entries.iter().rposition(put).unwrap() + 1;
    let Body::PolicyChange(change) = &entries[at - 1].body else { unreachable!() };
    assert_eq!(change.step, PolicyStep::Activated);
    let mut document = PolicySet::from_canonical(change.document.as_ref().unwrap()).unwrap().document().clone();
    document.actions.get_mut("lamp.toggle").unwrap().tier = Tier::Confirm;
    let forged = PolicySet::compile(document).unwrap();
    let swap = |entry: &mut Entry, digest: bool| {
        let Body::PolicyChange(change) = &mut entry.body else { unreachable!() };
        change.document = Some(forged.canonical().to_owned());
        if digest {
            change.digest = forged.digest().clone();
            entry.policy = Some(forged.digest().clone());
        }
    };
    check("the document alone", changed(&entries, at, |entry| swap(entry, false)));
    let mut forgery = changed(&entries, at, |entry| swap(entry, true));
    forgery.named += 1;
    check("the document and its digest", forgery);
    // With every later entry made to fit, the first verdict that the forged policy would not give.
    let original = change.digest.clone();
    let mut forgery = changed(&entries, at, |entry| swap(entry, true));
    for entry in forgery.entries.iter_mut().skip(at) {
        if entry.policy.as_ref() == Some(&original) {
            entry.policy = Some(forged.digest().clone());
        }
        if let Body::PolicyChange(change) = &mut entry.body {
            let forge = |digest: &mut PolicyDigest| {
                if *digest == original {
                    *digest = forged.digest().clone();
                }
            };
            forge(&mut change.digest);
            change.previous.iter_mut().for_each(forge);
        }
    }
    let judged = entries.iter().skip(at).find(|entry| {
        matches!(&entry.body, Body::Decision(d) | Body::ExecIntent(d)
            if d.action_type.as_str() == "lamp.toggle" && entry.policy.as_ref() == Some(&original))
    });
    forgery.named = judged.unwrap().index.0;
    // Heads that were signed meanwhile would tell as well; the forger has the key.
    let heads = forgery.entries.iter().take(usize::try_from(forgery.named).unwrap()).skip(at);
    assert!(heads.clone().all(|entry| !matches!(entry.body, Body::HeadSigned(_))), "choose another seed");
    check("everything made to fit", forgery);
}

#[test]
fn an_added_entry_is_named() {
    let mut pdp = mixed(11, STEPS);
    let open = pdp.ask("lamp.toggle", serde_json::json!({"state": "on"}));
    assert!(open.permit_id.is_some());
    let entries = all(&pdp);
    let last = entries.last().unwrap().clone();
    let added = |body: Body, principal: &str| {
        let mut entries = entries.clone();
        let principal = Principal::new(principal);
        entries.push(Entry { body, principal, ..last.clone() });
        let named = entries.len() as u64;
        Forgery { entries, removed: None, named }
    };
    // An approval is consumed a second time.
    let resumed =
        entries.iter().find(|entry| matches!(&entry.body, Body::ExecIntent(d) if d.resumes.is_some())).unwrap();
    let Body::ExecIntent(again) = &resumed.body else { unreachable!() };
    let mut again = again.clone();
    again.request_id = RequestId::from_random([5; 16]);
    again.permit_digest = Some(Hash::of(b"second"));
    check("an approval consumed twice", added(Body::ExecIntent(again), resumed.principal.as_str()));
    // A request that was decided before is decided again.
    let twice = entries.iter().rfind(|entry| matches!(entry.body, Body::ExecIntent(_))).unwrap();
    check("a request decided twice", added(twice.body.clone(), twice.principal.as_str()));
    // A permit expires before its deadline.
    let mut early = pdp.clone();
    early.tampered = true;
    early.now = last.at.plus_ms(600_000);
    early.sweep();
    let expiry = early
        .log
        .iter()
        .map(|event: &Event| &event.entry.body)
        .rfind(|body| matches!(body, Body::ReservationExpired(ended) if ended.intent == open.evidence_id))
        .unwrap();
    check("an early expiry", added(expiry.clone(), "system"));
    let mut later = pdp.clone();
    later.tampered = true;
    later.now = last.at.plus_ms(7_200_000);
    later.sweep();
    let lapse = later
        .log
        .iter()
        .map(|event| &event.entry.body)
        .rfind(|body| matches!(body, Body::ApprovalTransition(change) if change.to == ApprovalState::Expired));
    check("an approval that ends early", added(lapse.unwrap().clone(), "system"));
    // A release that nobody reported, and a result of a permit that has one.
    let released = entries.iter().find(|entry| matches!(entry.body, Body::ReservationReleased(_))).unwrap();
    check("a second release", added(released.body.clone(), released.principal.as_str()));
    let result = entries.iter().find(|entry| matches!(entry.body, Body::ExecResult(_))).unwrap();
    check("a second result", added(result.body.clone(), result.principal.as_str()));
}
