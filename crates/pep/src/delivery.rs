//! Delivery: what is in the outbox reaches a decision point, however long that takes (AADP §16).
//! Absent on purpose: giving up. A report is retried until it is answered; `accepted: false` is an answer too: on a
//! retry it means that the report arrived before.
//!
//! INVARIANT (order): acts that were decided here are delivered oldest first, one delivery at a time, and all of them
//! before a new one is decided here once a decision point was reachable again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use placet_core::reply::Protocol;
use placet_core::request::{LocalReport, Outcome};
use placet_core::stamp::Stamp;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::answer::{Receipt, clip, object};
use crate::ask::{Asker, DeliveryFault, LOCAL_PATH, bit};
use crate::clock;
use crate::limits::{
    BACKOFF_FIRST, DELIVERIES_MAX, DELIVERY_BACKOFF_MAX, ERROR_BYTES_MAX, LOCAL_BATCH_BYTES_MAX, LOCAL_BATCH_MAX,
};
use crate::outbox::{Ending, Item, LocalAct, Outbox, Subject};

/// A report request (AADP §10.3).
#[derive(Serialize)]
pub(crate) struct ReportBody<'a> {
    protocol: Protocol,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    completed_at: Stamp,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_effect: bool,
}

impl<'a> ReportBody<'a> {
    pub(crate) fn new(permit_id: Option<&'a str>, request_id: Option<&'a str>, ending: &'a Ending) -> Self {
        Self {
            protocol: Protocol::LATEST,
            permit_id,
            request_id,
            outcome: ending.outcome,
            payload: ending.payload.as_ref(),
            error: ending.error.as_deref(),
            completed_at: ending.completed_at,
            no_effect: ending.no_effect,
        }
    }
}

/// The body of `POST /v1/local`.
#[derive(Serialize)]
struct LocalBody<'a> {
    protocol: Protocol,
    entries: Vec<LocalEntry<'a>>,
}

#[derive(Serialize)]
struct LocalEntry<'a> {
    #[serde(flatten)]
    act: &'a LocalAct,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    completed_at: Stamp,
}

/// Something to send, and the items that its answer takes off the outbox.
struct Parcel {
    keys: Vec<u64>,
    path: &'static str,
    body: Vec<u8>,
    /// What to send instead when the decision point will never take `body`.
    bare: Option<Vec<u8>>,
    local: bool,
    /// Endpoints that know no such permit of this sender.
    passed_over: u64,
}

/// The side of delivery that runs look at.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The last decision was not answered.
    away: AtomicBool,
    /// A decision point answered while acts that were decided here were waiting.
    returned: AtomicBool,
}

impl Gate {
    /// No decision point answered.
    pub(crate) fn unanswered(&self) {
        self.away.store(true, Ordering::Release);
    }

    /// A decision point answered: what waits goes first from now on, and at once.
    pub(crate) fn answered(&self, outbox: &Outbox) {
        if self.away.swap(false, Ordering::AcqRel) {
            hurry(outbox);
        }
        if outbox.items().locals > 0 {
            self.returned.store(true, Ordering::Release);
        }
    }

    /// Whether an act may be permitted here.
    pub(crate) fn is_open(&self, outbox: &Outbox) -> bool {
        if !self.returned.load(Ordering::Acquire) {
            return true;
        }
        let waits = |item: &Item| matches!(item.subject, Subject::Local(_)) && !item.set_aside;
        let waiting = outbox.items().by_key.values().any(waits);
        if !waiting {
            self.returned.store(false, Ordering::Release);
        }
        !waiting
    }
}

/// Makes everything that waits for its next try due now.
pub(crate) fn hurry(outbox: &Outbox) {
    {
        let mut items = outbox.items();
        (items.pause_until, items.pauses) = (None, 0);
        for item in items.by_key.values_mut() {
            item.next_at = None;
        }
    }
    outbox.touch();
}

/// Delivers for ever; ends when its task is aborted.
pub(crate) async fn run(outbox: Outbox, asker: Arc<Asker>) {
    let mut changed = outbox.watch();
    let mut sending: JoinSet<()> = JoinSet::new();
    loop {
        changed.mark_unchanged();
        let mut next_at = None;
        // While the decision point is away, one try at a time is enough to see it return.
        let most = if outbox.items().pauses > 0 { 1 } else { DELIVERIES_MAX };
        while sending.len() < most {
            match next_parcel(&outbox) {
                Ok(parcel) => {
                    let (outbox, asker) = (outbox.clone(), asker.clone());
                    sending.spawn(async move { send(&outbox, &asker, parcel).await });
                }
                Err(at) => {
                    next_at = at;
                    break;
                }
            }
        }
        let later = async {
            match next_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = changed.changed() => {}
            Some(_) = sending.join_next() => {}
            () = later => {}
        }
    }
}

/// The oldest thing that is due, marked as on its way; or when the next one will be.
fn next_parcel(outbox: &Outbox) -> Result<Parcel, Option<Instant>> {
    let now = Instant::now();
    let mut items = outbox.items();
    if let Some(until) = items.pause_until.filter(|until| *until > now) {
        return Err(Some(until));
    }
    let mut soonest: Option<Instant> = None;
    let mut locals_blocked = false;
    let mut found = None;
    for (key, item) in &mut items.by_key {
        let local = matches!(item.subject, Subject::Local(_));
        if item.set_aside || (local && locals_blocked) {
            continue;
        }
        let later = item.next_at.filter(|at| *at > now);
        if item.in_flight || item.ending.is_none() || later.is_some() {
            soonest = soonest.into_iter().chain(later).min();
            locals_blocked |= local;
            continue;
        }
        if local {
            found = Some((*key, true));
            break;
        }
        item.in_flight = true;
        found = Some((*key, false));
        break;
    }
    let (key, local) = found.ok_or(soonest)?;
    if local { Ok(local_parcel(&mut items.by_key, key)) } else { Ok(report_parcel(key, items.by_key.get(&key))) }
}

fn report_parcel(key: u64, item: Option<&Item>) -> Parcel {
    let build = |bare: bool| {
        let item = item?;
        let ending = item.ending.as_ref()?;
        let slim = Ending { payload: None, error: ending.error.as_deref().map(clip), ..ending.clone() };
        let ending = if bare { &slim } else { ending };
        let body = match &item.subject {
            Subject::Permit { permit_id, .. } => ReportBody::new(Some(permit_id), None, ending),
            Subject::Request { request_id } => ReportBody::new(None, Some(request_id), ending),
            Subject::Local(_) => return None,
        };
        serde_json::to_vec(&body).ok()
    };
    Parcel {
        keys: vec![key],
        path: "/v1/report",
        body: build(false).unwrap_or_default(),
        bare: build(true),
        local: false,
        passed_over: item.map_or(0, |item| item.strangers),
    }
}

/// As many of the oldest local acts as one delivery holds. One that was refused as a part of several goes alone.
fn local_parcel(items: &mut std::collections::BTreeMap<u64, Item>, first: u64) -> Parcel {
    let (mut keys, mut entries, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    for (key, item) in items.range_mut(first..) {
        let (Subject::Local(_), false) = (&item.subject, item.set_aside) else { continue };
        let alone = item.alone;
        let room = keys.len() < LOCAL_BATCH_MAX && bytes.saturating_add(item.bytes) <= LOCAL_BATCH_BYTES_MAX as u64;
        if !keys.is_empty() && (!room || alone) || item.ending.is_none() {
            break;
        }
        item.in_flight = true;
        bytes = bytes.saturating_add(item.bytes);
        keys.push(*key);
        let item = &*item;
        if let (Subject::Local(act), Some(ending)) = (&item.subject, &item.ending) {
            entries.push(LocalEntry {
                act,
                outcome: ending.outcome,
                error: ending.error.as_deref(),
                completed_at: ending.completed_at,
            });
        }
        if alone {
            break;
        }
    }
    let body = serde_json::to_vec(&LocalBody { protocol: Protocol::LATEST, entries }).unwrap_or_default();
    Parcel { keys, path: LOCAL_PATH, body, bare: None, local: true, passed_over: 0 }
}

/// Whether a local act can be delivered whatever becomes of it, read as a decision point would: it is larger and nested
/// deeper than the decide request that it was made from.
pub(crate) fn fits(act: &LocalAct) -> Result<(), String> {
    // What JSON takes the most bytes for.
    let error = "\u{1}".repeat(ERROR_BYTES_MAX);
    let entry = LocalEntry { act, outcome: Outcome::NotAttempted, error: Some(&error), completed_at: clock::now() };
    let body = LocalBody { protocol: Protocol::LATEST, entries: vec![entry] };
    let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
    if body.len() > LOCAL_BATCH_BYTES_MAX {
        return Err(format!("{} bytes, and a delivery has {LOCAL_BATCH_BYTES_MAX}", body.len()));
    }
    LocalReport::parse(&body).map(drop)
}

async fn send(outbox: &Outbox, asker: &Asker, parcel: Parcel) {
    let answer = match deliver(asker, &parcel, &parcel.body).await {
        Err(NotTaken::Fault(DeliveryFault::Refused(why))) => match &parcel.bare {
            // The payload may be what it does not take; the outcome itself must still arrive.
            Some(bare) => {
                tracing::warn!(%why, "a report was refused; it is sent again without its payload");
                deliver(asker, &parcel, bare).await
            }
            None => Err(DeliveryFault::Refused(why).into()),
        },
        answer => answer,
    };
    match answer {
        Ok(()) => {
            {
                let mut items = outbox.items();
                (items.pause_until, items.pauses) = (None, 0);
            }
            if let Err(error) = outbox.delivered(&parcel.keys).wait().await {
                tracing::warn!(%error, "a delivery could not be written down; it may be repeated after a restart");
            }
            return;
        }
        Err(NotTaken::Stranger(at)) => {
            let strangers = parcel.passed_over | bit(at);
            let to = if asker.are_all(strangers) { Back::Aside } else { Back::Elsewhere(strangers) };
            if to == Back::Aside {
                tracing::error!("no endpoint knows the permit of a report as this sender's; it is set aside");
            }
            put_back(outbox, &parcel, to);
        }
        // Of the endpoints that are left for this one; others may be there.
        Err(NotTaken::Fault(DeliveryFault::Away(why))) if parcel.passed_over != 0 => {
            tracing::debug!(%why, path = parcel.path, "not delivered; it is tried again");
            put_back(outbox, &parcel, Back::Later);
        }
        Err(NotTaken::Fault(DeliveryFault::Away(why))) => {
            tracing::debug!(%why, path = parcel.path, "not delivered; nothing is, for a while");
            put_back(outbox, &parcel, Back::Later);
            pause(outbox);
        }
        Err(NotTaken::Fault(DeliveryFault::Again(why))) => {
            tracing::debug!(%why, path = parcel.path, "not delivered; it is tried again");
            put_back(outbox, &parcel, Back::Later);
        }
        Err(NotTaken::Fault(DeliveryFault::Refused(why))) => {
            let only = parcel.keys.len() == 1;
            if only {
                tracing::error!(%why, path = parcel.path, "the decision point will not take this; it is set aside");
            }
            put_back(outbox, &parcel, if only { Back::Aside } else { Back::Alone });
        }
    }
    outbox.touch();
}

/// Why a parcel is still here.
enum NotTaken {
    Fault(DeliveryFault),
    /// This endpoint knows no such permit of this sender.
    Stranger(usize),
}

impl From<DeliveryFault> for NotTaken {
    fn from(fault: DeliveryFault) -> Self {
        Self::Fault(fault)
    }
}

/// Sends it once. A refusal inside a 200 is a receipt like any other, except that the body was not understood.
async fn deliver(asker: &Asker, parcel: &Parcel, body: &[u8]) -> Result<(), NotTaken> {
    let (at, reply) = asker.deliver(parcel.path, body, parcel.passed_over).await?;
    if parcel.local {
        let ids = object(&reply.body).map_err(DeliveryFault::Again)?;
        let ids = ids.get("evidence_ids").and_then(Value::as_array).map_or(0, Vec::len);
        return if ids == parcel.keys.len() {
            Ok(())
        } else {
            Err(DeliveryFault::Again(format!("{} acts were sent, {ids} were acknowledged", parcel.keys.len())).into())
        };
    }
    let receipt = Receipt::read(&reply.body).map_err(DeliveryFault::Again)?;
    match (receipt.accepted, receipt.reason.as_deref()) {
        (true, _) | (false, Some("x-placet.already_reported")) => Ok(()),
        (false, Some("malformed")) => Err(DeliveryFault::Refused(receipt.detail).into()),
        // The permit was given at another endpoint, which may know this sender by another name.
        (false, Some("sender_mismatch")) => Err(NotTaken::Stranger(at)),
        (false, reason) => {
            // It is recorded as a refused report; repeating it changes nothing.
            let reason = reason.unwrap_or("none");
            tracing::warn!(reason, detail = receipt.detail, "a report was answered with a refusal");
            Ok(())
        }
    }
}

/// Waits with everything: one try at a time finds out whether the decision point is back. Of several that fail
/// together, the first counts.
fn pause(outbox: &Outbox) {
    let now = Instant::now();
    let mut items = outbox.items();
    if items.pause_until.is_none_or(|until| until <= now) {
        items.pauses = items.pauses.saturating_add(1);
        items.pause_until = Some(now + clock::backoff(BACKOFF_FIRST, DELIVERY_BACKOFF_MAX, items.pauses));
    }
}

/// Where an item goes that was not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Back {
    Later,
    Alone,
    /// At once, to an endpoint that is not among these.
    Elsewhere(u64),
    Aside,
}

fn put_back(outbox: &Outbox, parcel: &Parcel, to: Back) {
    let mut items = outbox.items();
    for key in &parcel.keys {
        if let Some(item) = items.by_key.get_mut(key) {
            item.in_flight = false;
            item.tries = item.tries.saturating_add(1);
            item.alone |= to == Back::Alone;
            item.set_aside = to == Back::Aside;
            item.next_at = Some(Instant::now() + clock::backoff(BACKOFF_FIRST, DELIVERY_BACKOFF_MAX, item.tries));
            if let Back::Elsewhere(strangers) = to {
                (item.strangers, item.next_at) = (strangers, None);
            }
        }
    }
}
