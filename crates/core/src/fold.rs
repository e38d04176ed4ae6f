//! Folding: one fact into state.
//! Absent on purpose: judgement and failure. INVARIANT (total): every decodable event folds on every state; only the
//! store below can fail. Arithmetic clamps instead of failing, because a node that stops here stops all of them.

use std::sync::Arc;

use crate::evaluate::{local_key, minute_draw, open_key, permit_of};
use crate::event::{ApprovalState, Body, Decided, Draw, Event, ExecResult, KillSwitchSet, PolicyChange, PolicyStep};
use crate::exact::Amount;
use crate::ids::{EvidenceIndex, Hash, PermitId};
use crate::json;
use crate::merkle::{self, MerkleError};
use crate::planted::{self, Bug};
use crate::policy::{PolicySet, Window};
use crate::reply::Verdict;
use crate::request::Outcome;
use crate::stamp::Stamp;
use crate::state::{
    ApprovalRecord, Counter, CounterKey, KillSwitch, Mandate, Meta, Overlay, PermitRecord, PermitStatus, PolicyRecord,
    Read, ReadError, RequestRecord, Spent, Tree,
};

/// Adds one event to the state.
pub fn fold<R: Read>(state: &mut Overlay<R>, event: &Event) -> Result<(), ReadError> {
    let entry = &event.entry;
    let mut meta = state.meta()?;
    match &entry.body {
        Body::Decision(decided) => decision(state, &mut meta, event, decided)?,
        Body::ExecIntent(decided) => {
            decision(state, &mut meta, event, decided)?;
            intent(state, &mut meta, event, decided)?;
        }
        Body::ExecResult(found) => result(state, &mut meta, event.permit_id.as_ref(), found)?,
        Body::ReservationReleased(ended) => release(state, event.permit_id.as_ref(), &ended.released)?,
        Body::ReservationExpired(ended) => expiry(state, &mut meta, event.permit_id.as_ref(), &ended.released)?,
        Body::ApprovalTransition(change) => {
            if let Some(mut approval) = state.approval(&change.approval_id)? {
                approval.votes.clone_from(&change.votes);
                approval.ratified = change.ratified;
                if change.to != ApprovalState::Pending {
                    leave_pending(state, &mut meta, &approval)?;
                    approval.state = change.to;
                }
                if matches!(change.to, ApprovalState::Approved | ApprovalState::Denied) {
                    approval.decided_by = Some(entry.principal.clone());
                    approval.decided_at = Some(entry.at);
                    approval.note.clone_from(&change.note);
                }
                state.put_approval(change.approval_id.clone(), approval);
            }
        }
        Body::KillSwitch(set) => kill_switch(&mut meta, event, set),
        Body::PolicyChange(change) => policy_change(state, &mut meta, event, change)?,
        Body::ReportRefused(refused) => meta.late_reports = meta.late_reports.saturating_add(refused.reconcile.into()),
        Body::MandateSet(set) => {
            let mandate = Mandate { authority: set.authority.clone(), denied: set.denied, serial: set.serial };
            Arc::make_mut(&mut meta.mandates).insert(set.action_type.clone(), mandate);
        }
        Body::LocalDecision(local) => {
            let record = RequestRecord {
                digest: Hash::of(local.params.as_bytes()),
                index: entry.index,
                permit_id: None,
                principal: entry.principal.clone(),
            };
            state.put_request(local_key(local, &entry.principal), record);
        }
        Body::Notified(delivered) => meta.notified = meta.notified.max(delivered.up_to),
        Body::Restored(restored) => {
            meta.cluster = Some(restored.cluster);
            meta.restoring = false;
        }
        Body::MalformedRequest(_)
        | Body::ReplayMismatch(_)
        | Body::ReportNoted(_)
        | Body::HeadSigned(_)
        | Body::ApprovalRefused(_) => {}
    }
    grow_tree(state, &meta, event)?;
    meta.last_stamp = meta.last_stamp.max(entry.at);
    meta.next_index = entry.index.next();
    meta.chain_head = event.hash;
    state.put_entry(entry.index, event.bytes.clone());
    state.put_meta(meta);
    Ok(())
}

/// Adds the entry's leaf to the tree over the entries (RFC 6962). An entry out of its place leaves a hole in the tree,
/// and whoever asks for a root over the hole is told; it does not stop the node.
fn grow_tree<R: Read>(state: &mut Overlay<R>, meta: &Meta, event: &Event) -> Result<(), ReadError> {
    let index = event.entry.index.0.saturating_sub(1);
    let leaf = merkle::leaf_hash(&event.hash);
    let before = (index > 0).then(|| merkle::leaf_hash(&meta.chain_head));
    let complete = match merkle::appended(&Tree(&*state), index, leaf, before) {
        Ok(complete) => complete,
        Err(MerkleError::Read { source }) => return Err(source),
        Err(MerkleError::Missing { .. } | MerkleError::Beyond { .. }) => Vec::new(),
    };
    for (node, hash) in complete {
        state.put_merkle(node, hash);
    }
    Ok(())
}

fn decision<R: Read>(
    state: &mut Overlay<R>,
    meta: &mut Meta,
    event: &Event,
    decided: &Decided,
) -> Result<(), ReadError> {
    let entry = &event.entry;
    let record = RequestRecord {
        digest: decided.request_digest,
        index: entry.index,
        permit_id: event.permit_id.clone(),
        principal: entry.principal.clone(),
    };
    state.put_request(decided.request_id.clone(), record);
    // INVARIANT (single use): a decision that honoured an approval consumes it, whatever the verdict.
    if let (Some(id), Some(_)) = (&decided.approval_ref, decided.resumes)
        && let Some(mut approval) = state.approval(id)?
    {
        leave_pending(state, meta, &approval)?;
        if planted::on(Bug::ApprovalNotConsumed) {
            return Ok(());
        }
        approval.state = ApprovalState::Consumed;
        approval.consumed_by = Some(entry.index);
        approval.resumed_request = decided.resumed_by.as_ref().map(|_| decided.request_id.clone());
        state.put_approval(id.clone(), approval);
    }
    if let (Verdict::Propose, Some(id), Some(deadline)) =
        (decided.verdict, &decided.approval_id, decided.approval_deadline)
    {
        meta.pending_approvals = meta.pending_approvals.saturating_add(1);
        let open = open_key(&decided.action_type, &entry.principal);
        change_open(state, open, |count| count.checked_add(Amount::ONE).unwrap_or(count))?;
        reserve(state, &minute_draw(&decided.action_type, &entry.principal, entry.at))?;
        let params_digest = json::parse_record(decided.params.as_bytes()).map_or_else(
            |_| Hash::of(decided.params.as_bytes()),
            |params| Hash::of(json::canonical(&params).as_bytes()),
        );
        let approval = ApprovalRecord {
            approval_id: id.clone(),
            action_type: decided.action_type.clone(),
            consumed_by: None,
            cost_eur: decided.cost_eur,
            created: entry.at,
            deadline,
            decided_at: None,
            decided_by: None,
            nominal_tier: decided.nominal_tier,
            note: None,
            params: decided.params.clone(),
            params_digest,
            proposal: entry.index,
            proposer: entry.principal.clone(),
            rationale: decided.rationale.clone(),
            reason: decided.reason,
            request_id: decided.request_id.clone(),
            state: ApprovalState::Pending,
            terms: decided.approval_terms.clone().unwrap_or_default(),
            votes: Vec::new(),
            ratified: false,
            resumed_request: None,
            redacted: decided.redacted.iter().filter(|path| path.starts_with("params.")).cloned().collect(),
        };
        state.put_approval(id.clone(), approval);
    }
    Ok(())
}

fn intent<R: Read>(state: &mut Overlay<R>, meta: &mut Meta, event: &Event, decided: &Decided) -> Result<(), ReadError> {
    let Some(permit_id) = &event.permit_id else { return Ok(()) };
    let entry = &event.entry;
    for draw in &decided.draws {
        reserve(state, draw)?;
    }
    meta.open_permits = meta.open_permits.saturating_add(1);
    let permit = PermitRecord {
        action_type: decided.action_type.clone(),
        at: entry.at,
        deadline: decided.deadline.unwrap_or(entry.at),
        draws: decided.draws.clone(),
        index: entry.index,
        principal: entry.principal.clone(),
        request_id: decided.request_id.clone(),
        status: PermitStatus::Held,
        act_until: act_until(decided).unwrap_or(entry.at),
        effects: decided.effects.clone(),
        outcome: None,
        undo_until: decided.undo_until,
        undone_by: None,
        undo_of: decided.undo_of,
    };
    link_undo(state, decided.undo_of, Some(entry.index))?;
    state.put_permit(permit_id.clone(), permit);
    Ok(())
}

/// What the obligation tells the enforcement point (AADP §13).
fn act_until(decided: &Decided) -> Option<Stamp> {
    let obligation = decided.obligations.iter().find(|one| one.kind == "execute_within")?;
    Stamp::parse(obligation.value.as_deref()?)
}

/// Marks the intent `of` as reversed by `by`, or as not reversed after all.
fn link_undo<R: Read>(
    state: &mut Overlay<R>,
    of: Option<EvidenceIndex>,
    by: Option<EvidenceIndex>,
) -> Result<(), ReadError> {
    let Some(of) = of else { return Ok(()) };
    if let Some((id, mut original)) = permit_of(&*state, of)? {
        original.undone_by = by;
        state.put_permit(id, original);
    }
    Ok(())
}

fn result<R: Read>(
    state: &mut Overlay<R>,
    meta: &mut Meta,
    permit_id: Option<&PermitId>,
    found: &ExecResult,
) -> Result<(), ReadError> {
    let Some((permit_id, mut permit)) = open_permit(state, permit_id)? else { return Ok(()) };
    for draw in std::mem::take(&mut permit.draws) {
        change(state, &draw, |spent| {
            spent.reserved = spent.reserved.minus_clamped(draw.amount);
            spent.settled = spent.settled.add_at_least(draw.amount);
        })?;
    }
    if permit.status == PermitStatus::Held {
        permit.status = PermitStatus::Settled;
    }
    permit.outcome = Some(found.outcome);
    if found.outcome == Outcome::NotAttempted || found.no_effect {
        // Nothing was reversed, so it still can be.
        link_undo(state, permit.undo_of, None)?;
    }
    meta.open_permits = meta.open_permits.saturating_sub(1);
    state.put_permit(permit_id, permit);
    Ok(())
}

/// Gives the named draws back; what remains is settled by the result that follows in the same log entry.
fn release<R: Read>(state: &mut Overlay<R>, permit_id: Option<&PermitId>, released: &[Draw]) -> Result<(), ReadError> {
    let Some((permit_id, mut permit)) = open_permit(state, permit_id)? else { return Ok(()) };
    for draw in released {
        if let Some(position) = permit.draws.iter().position(|held| held == draw) {
            if !planted::on(Bug::BudgetReleasedTwice) {
                permit.draws.remove(position);
            }
            change(state, draw, |spent| spent.reserved = spent.reserved.minus_clamped(draw.amount))?;
        }
    }
    permit.status = PermitStatus::Released;
    state.put_permit(permit_id, permit);
    Ok(())
}

/// Gives the named draws back and keeps the rest spent.
fn expiry<R: Read>(
    state: &mut Overlay<R>,
    meta: &mut Meta,
    permit_id: Option<&PermitId>,
    released: &[Draw],
) -> Result<(), ReadError> {
    let Some((permit_id, mut permit)) = open_permit(state, permit_id)? else { return Ok(()) };
    for draw in std::mem::take(&mut permit.draws) {
        change(state, &draw, |spent| {
            spent.reserved = spent.reserved.minus_clamped(draw.amount);
            if !released.contains(&draw) {
                spent.settled = spent.settled.add_at_least(draw.amount);
            }
        })?;
    }
    // A reversal that expired may have happened all the same, so its original stays reversed.
    permit.status = PermitStatus::Expired;
    meta.open_permits = meta.open_permits.saturating_sub(1);
    state.put_permit(permit_id, permit);
    Ok(())
}

/// A permit that has not ended: held, or released and waiting for the result of the same log entry.
fn open_permit<R: Read>(
    state: &Overlay<R>,
    permit_id: Option<&PermitId>,
) -> Result<Option<(PermitId, PermitRecord)>, ReadError> {
    let Some(id) = permit_id else { return Ok(None) };
    let permit =
        state.permit(id)?.filter(|permit| matches!(permit.status, PermitStatus::Held | PermitStatus::Released));
    Ok(permit.map(|permit| (id.clone(), permit)))
}

fn reserve<R: Read>(state: &mut Overlay<R>, draw: &Draw) -> Result<(), ReadError> {
    let key = counter_key(draw);
    if draw.scope.is_some() {
        let (all, since) = scopes_key(draw);
        let known = state.counter(&key)?.is_some_and(|counter| counter.buckets.range(since..).next().is_some());
        if !known && let Some(counter) = state.counter_mut(all, true)? {
            counter.scopes = counter.scopes.saturating_add(1);
        }
    }
    if let Some(counter) = state.counter_mut(key, true)? {
        forget_old_buckets(counter, draw);
        let spent = counter.buckets.entry(draw.bucket).or_default();
        spent.reserved = spent.reserved.add_at_least(draw.amount);
    }
    Ok(())
}

/// Drops the buckets that a rolling window can no longer see, so that a counter stays small.
fn forget_old_buckets(counter: &mut Counter, draw: &Draw) {
    if let Some(Window::Rolling(length_ms)) = Window::parse(&draw.window) {
        let first = draw.bucket.saturating_sub(length_ms).saturating_sub(Window::bucket_ms(length_ms));
        counter.buckets = counter.buckets.split_off(&first);
    }
}

fn change<R: Read>(state: &mut Overlay<R>, draw: &Draw, with: impl Fn(&mut Spent)) -> Result<(), ReadError> {
    if let Some(counter) = state.counter_mut(counter_key(draw), false)? {
        // A bucket that has left its window takes its reservations with it.
        if let Some(spent) = counter.buckets.get_mut(&draw.bucket) {
            with(spent);
            // A scope that gave everything back is still counted, so it keeps its bucket: else it would count again.
            let empty = *spent == Spent { reserved: Amount::ZERO, settled: Amount::ZERO };
            if empty && draw.bucket != 0 && draw.scope.is_none() {
                counter.buckets.remove(&draw.bucket);
            }
        }
    }
    Ok(())
}

/// Where the live counters of a scoped budget are counted, and from which bucket on a counter is counted there: once
/// per calendar window, once per length of a rolling one. So the count starts again and old scopes do not fill it.
pub(crate) fn scopes_key(draw: &Draw) -> (CounterKey, i64) {
    let key = CounterKey { scope: None, ..counter_key(draw) };
    match Window::parse(&draw.window) {
        Some(Window::Rolling(length_ms)) => {
            let turn = draw.bucket.div_euclid(length_ms.max(1));
            (CounterKey { window: format!("{}@{turn}", draw.window), ..key }, turn.saturating_mul(length_ms))
        }
        _ => (key, i64::MIN),
    }
}

fn counter_key(draw: &Draw) -> CounterKey {
    CounterKey { budget: draw.budget.clone(), window: draw.window.clone(), scope: draw.scope.clone() }
}

fn leave_pending<R: Read>(state: &mut Overlay<R>, meta: &mut Meta, approval: &ApprovalRecord) -> Result<(), ReadError> {
    if approval.state == ApprovalState::Pending {
        meta.pending_approvals = meta.pending_approvals.saturating_sub(1);
        let open = open_key(&approval.action_type, &approval.proposer);
        change_open(state, open, |count| count.minus_clamped(Amount::ONE))?;
    }
    Ok(())
}

fn change_open<R: Read>(
    state: &mut Overlay<R>,
    key: CounterKey,
    with: impl FnOnce(Amount) -> Amount,
) -> Result<(), ReadError> {
    if let Some(counter) = state.counter_mut(key, true)? {
        let open = counter.buckets.entry(0).or_default();
        open.reserved = with(open.reserved);
    }
    Ok(())
}

fn kill_switch(meta: &mut Meta, event: &Event, set: &KillSwitchSet) {
    match &set.scope {
        None => {
            let before = std::mem::take(&mut meta.kill_switch);
            meta.kill_switch = switched(before, meta, event, set);
        }
        Some(scope) => {
            let found = meta.switches.iter().position(|(other, _)| other == scope);
            let switches = Arc::make_mut(&mut meta.switches);
            let before = found.map(|at| switches.remove(at).1).unwrap_or_default();
            if set.engaged {
                let now = switched(before, meta, event, set);
                Arc::make_mut(&mut meta.switches).push((scope.clone(), now));
            }
        }
    }
}

/// Engaging again while engaged keeps the first moment and what happened since (AADP §7).
fn switched(before: KillSwitch, meta: &Meta, event: &Event, set: &KillSwitchSet) -> KillSwitch {
    let continued = set.engaged && before.engaged;
    KillSwitch {
        engaged: set.engaged,
        by: Some(event.entry.principal.clone()),
        origin: Some(set.origin.clone()),
        note: set.note.clone(),
        since: if continued { before.since } else { Some(event.entry.at) },
        baseline: if continued { before.baseline } else { meta.active_policy.clone().filter(|_| set.engaged) },
        policy_changed: continued && before.policy_changed,
    }
}

fn policy_change<R: Read>(
    state: &mut Overlay<R>,
    meta: &mut Meta,
    event: &Event,
    change: &PolicyChange,
) -> Result<(), ReadError> {
    let entry = &event.entry;
    if change.step == PolicyStep::Dropped {
        state.put_policy_record(change.digest.clone(), None);
        return Ok(());
    }
    let activated = change.step == PolicyStep::Activated;
    if activated && meta.active_policy.as_ref() != Some(&change.digest) {
        meta.kill_switch.policy_changed |= meta.kill_switch.engaged;
        if !meta.switches.is_empty() {
            Arc::make_mut(&mut meta.switches).iter_mut().for_each(|(_, switch)| switch.policy_changed = true);
        }
    }
    let known = state.policy_record(&change.digest)?;
    let mut record = known.unwrap_or_else(|| PolicyRecord {
        at: entry.at,
        by: entry.principal.clone(),
        index: entry.index,
        used: false,
    });
    record.used |= activated;
    state.put_policy_record(change.digest.clone(), Some(record));
    if activated {
        meta.active_policy = Some(change.digest.clone());
    }
    // A document that this version cannot compile stays readable in evidence. This node then answers decides as
    // unavailable when it leads, never with another verdict than other nodes; a later version reads it from there.
    if let Some(document) = &change.document
        && let Ok(policy) = PolicySet::from_canonical(document)
    {
        state.put_policy(change.digest.clone(), Arc::new(policy));
    }
    Ok(())
}
