//! Evidence as auditors read it (AADP §14): by position, by what it says, and with proofs.

use super::bounded;
use crate::event::{Body, Decided, Entry};
use crate::evidence;
use crate::ids::{ActionType, EvidenceIndex, Hash, RequestId};
use crate::limits::{PAGE_BYTES_MAX, SEARCHED_ENTRIES_MAX};
use crate::merkle::{self, Nodes};
use crate::op::{Answer, EvidenceFilter, EvidencePage, EvidenceView, ProofView, Reject};
use crate::stamp::Stamp;
use crate::state::{List, Read, ReadError, Tree};

/// Entries read at once while searching: each may be as large as a request.
const FEW: usize = 16;

/// Bytes that one page of a search looks at, matching or not.
const SEARCHED_BYTES_MAX: usize = 4 * PAGE_BYTES_MAX;

pub(super) fn view(index: EvidenceIndex, bytes: Vec<u8>) -> EvidenceView {
    let hash = evidence::hash(&bytes);
    let entry = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    EvidenceView { evidence_id: index, entry, hash }
}

pub(super) fn tail(state: &impl List, after: EvidenceIndex, limit: usize) -> Result<Answer, Reject> {
    let size = |view: &EvidenceView| (view.evidence_id, view.entry.len());
    let views = bounded(after, limit, size, |after, few| {
        let entries = state.entries(after, few)?;
        Ok(entries.into_iter().map(|(index, bytes)| view(index, bytes)).collect())
    })?;
    Ok(Answer::EvidenceTail(views))
}

/// Walks forward from `after`, at most so many entries that a page costs the same whatever matches.
pub(super) fn find(
    state: &impl List,
    after: EvidenceIndex,
    limit: usize,
    filter: &EvidenceFilter,
) -> Result<Answer, Reject> {
    let mut after = after.max(start(state, filter)?);
    let (mut found, mut bytes_found, mut looked_at, mut bytes_looked_at) = (Vec::new(), 0usize, 0usize, 0usize);
    loop {
        let entries = state.entries(after, FEW)?;
        let ended = entries.len() < FEW;
        for (index, bytes) in entries {
            after = index;
            looked_at += 1;
            bytes_looked_at = bytes_looked_at.saturating_add(bytes.len());
            let Ok(entry) = evidence::decode(&bytes) else { continue };
            if filter.until.is_some_and(|until| until <= entry.at) {
                return Ok(Answer::EvidencePage(EvidencePage { entries: found, next: None }));
            }
            if matches(filter, &entry) {
                bytes_found = bytes_found.saturating_add(bytes.len());
                found.push(view(index, bytes));
                if found.len() >= limit || bytes_found >= PAGE_BYTES_MAX {
                    return Ok(Answer::EvidencePage(EvidencePage { entries: found, next: Some(after) }));
                }
            }
        }
        if ended || looked_at >= SEARCHED_ENTRIES_MAX || bytes_looked_at >= SEARCHED_BYTES_MAX {
            let next = (!ended).then_some(after);
            return Ok(Answer::EvidencePage(EvidencePage { entries: found, next }));
        }
    }
}

/// The entry behind which the first match can be: time only grows.
fn start(state: &impl List, filter: &EvidenceFilter) -> Result<EvidenceIndex, ReadError> {
    filter.since.map_or(Ok(EvidenceIndex(0)), |since| last_before(state, since))
}

/// The last entry before `since`, by halving.
fn last_before(state: &impl Read, since: Stamp) -> Result<EvidenceIndex, ReadError> {
    let (mut low, mut high) = (0, state.meta()?.next_index.0.saturating_sub(1));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let bytes = state.entry(EvidenceIndex(middle))?;
        let before = bytes.and_then(|bytes| evidence::decode(&bytes).ok()).is_some_and(|entry| entry.at < since);
        if before { low = middle } else { high = middle - 1 }
    }
    Ok(EvidenceIndex(low))
}

fn matches(filter: &EvidenceFilter, entry: &Entry) -> bool {
    let facts = Facts::of(&entry.body);
    let is = |wanted: Option<&str>, found: Option<&str>| wanted.is_none_or(|wanted| found == Some(wanted));
    filter.since.is_none_or(|since| since <= entry.at)
        && is(filter.kind.as_deref(), Some(entry.body.kind()))
        && is(filter.principal.as_ref().map(|one| one.as_str()), Some(entry.principal.as_str()))
        && is(filter.action_type.as_ref().map(|one| one.as_str()), facts.action_type.map(ActionType::as_str))
        && is(filter.verdict.map(|one| one.as_str()), facts.verdict)
        && is(filter.reason.as_deref(), facts.reason)
        && is(filter.request_id.as_ref().map(|one| one.as_str()), facts.request_id.map(RequestId::as_str))
        && filter.permit.is_none_or(|permit| facts.permit == Some(permit))
        && (!filter.reconcile || facts.reconcile)
}

/// What an entry says about itself, as far as it does.
#[derive(Default)]
struct Facts<'e> {
    action_type: Option<&'e ActionType>,
    verdict: Option<&'static str>,
    reason: Option<&'e str>,
    request_id: Option<&'e RequestId>,
    permit: Option<Hash>,
    reconcile: bool,
}

impl<'e> Facts<'e> {
    fn of(body: &'e Body) -> Self {
        match body {
            Body::Decision(decided) | Body::ExecIntent(decided) => Self::decided(decided),
            Body::ExecResult(result) => Self {
                action_type: Some(&result.action_type),
                request_id: Some(&result.request_id),
                permit: Some(result.permit_digest),
                ..Self::default()
            },
            Body::ReservationExpired(ended) | Body::ReservationReleased(ended) => Self {
                action_type: Some(&ended.action_type),
                reason: Some(&ended.reason),
                request_id: Some(&ended.request_id),
                permit: Some(ended.permit_digest),
                ..Self::default()
            },
            Body::ReportRefused(refused) => Self {
                reason: Some(refused.reason.as_str()),
                permit: Some(refused.permit_digest),
                reconcile: refused.reconcile,
                ..Self::default()
            },
            Body::ReportNoted(noted) => Self { request_id: Some(&noted.request_id), ..Self::default() },
            Body::ReplayMismatch(mismatch) => Self { request_id: Some(&mismatch.request_id), ..Self::default() },
            Body::LocalDecision(local) => {
                Self { action_type: Some(&local.action_type), request_id: Some(&local.request_id), ..Self::default() }
            }
            Body::MandateSet(set) => Self { action_type: Some(&set.action_type), ..Self::default() },
            Body::MalformedRequest(malformed) => Self {
                verdict: (malformed.operation == "decide").then_some("deny"),
                reason: Some("malformed"),
                request_id: malformed.request.request_id.as_ref(),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    fn decided(decided: &'e Decided) -> Self {
        Self {
            action_type: Some(&decided.action_type),
            verdict: Some(decided.verdict.as_str()),
            reason: Some(decided.reason.as_str()),
            request_id: Some(&decided.request_id),
            permit: decided.permit_digest,
            reconcile: false,
        }
    }
}

pub(super) fn inclusion(state: &impl List, index: EvidenceIndex, size: u64) -> Result<Answer, Reject> {
    within(state, size)?;
    let tree = Tree(state);
    let leaf = index.0.saturating_sub(1);
    let path = merkle::inclusion(&tree, leaf, size)?;
    let start = tree.leaf(leaf)?.ok_or_else(|| Reject::NotFound { detail: format!("no evidence entry `{index}`") })?;
    Ok(Answer::Proof(ProofView { path, root: merkle::root(&tree, size)?, size, start }))
}

pub(super) fn consistency(state: &impl List, from: u64, to: u64) -> Result<Answer, Reject> {
    within(state, to)?;
    let tree = Tree(state);
    let path = merkle::consistency(&tree, from, to)?;
    Ok(Answer::Proof(ProofView { path, root: merkle::root(&tree, to)?, size: to, start: merkle::root(&tree, from)? }))
}

fn within(state: &impl List, size: u64) -> Result<(), Reject> {
    let entries = state.meta()?.next_index.0.saturating_sub(1);
    if size <= entries {
        return Ok(());
    }
    Err(Reject::Invalid { detail: format!("`{size}` is beyond the evidence, which has {entries} entries") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MemState;

    #[test]
    fn a_search_ends_before_it_has_read_everything() {
        let mut state = MemState::default();
        state.entries.extend((1..=12).map(|index| (EvidenceIndex(index), vec![b' '; SEARCHED_BYTES_MAX / 8])));
        state.entries.extend((13..=40).map(|index| (EvidenceIndex(index), Vec::new())));
        let filter = EvidenceFilter::default();
        let Ok(Answer::EvidencePage(page)) = find(&state, EvidenceIndex(0), 10, &filter) else { panic!("no page") };
        assert_eq!((page.entries.len(), page.next), (0, Some(EvidenceIndex(16))));
        let Ok(Answer::EvidencePage(page)) = find(&state, EvidenceIndex(16), 10, &filter) else { panic!("no page") };
        assert_eq!(page.next, None);
    }
}
