//! Evidence as auditors read it (AADP §14): by position, by what it says, and with proofs.

use super::bounded;
use crate::event::Entry;
use crate::evidence;
use crate::ids::{ActionType, EvidenceIndex, RequestId};
use crate::limits::{PAGE_BYTES_MAX, SEARCHED_ENTRIES_MAX, SEARCHED_RUNS_MAX};
use crate::merkle::{self, Nodes};
use crate::op::{Answer, EvidenceFilter, EvidencePage, EvidenceView, ProofView, Reject};
use crate::search::{Facts, Marks, RUN, run_of};
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

/// Walks forward from `after`, past runs of entries that say nothing of it, and looks at so much at most that a page
/// costs the same whatever matches.
pub(super) fn find(
    state: &impl List,
    after: EvidenceIndex,
    limit: usize,
    filter: &EvidenceFilter,
) -> Result<Answer, Reject> {
    let page = |entries, next| Ok(Answer::EvidencePage(EvidencePage { entries, next }));
    let wanted = Marks::wanted(filter);
    let mut after = after.max(start(state, filter)?);
    let (mut found, mut bytes_found, mut looked_at, mut bytes_looked_at) = (Vec::new(), 0usize, 0usize, 0usize);
    let mut runs_left = SEARCHED_RUNS_MAX;
    let end = filter.until.map(|until| last_before(state, until)).transpose()?.unwrap_or(EvidenceIndex(u64::MAX));
    loop {
        after = pass_runs(state, after, end, &wanted, &mut runs_left)?;
        if after >= end {
            return page(found, None);
        }
        // As far as the next run at most, so that it can be passed.
        let few = usize::try_from(RUN - after.0 % RUN).unwrap_or(FEW).min(FEW);
        let entries = if runs_left == 0 { return page(found, Some(after)) } else { state.entries(after, few)? };
        let ended = entries.len() < few;
        for (index, bytes) in entries {
            after = index;
            looked_at += 1;
            bytes_looked_at = bytes_looked_at.saturating_add(bytes.len());
            let Ok(entry) = evidence::decode(&bytes) else { continue };
            if filter.until.is_some_and(|until| until <= entry.at) {
                return page(found, None);
            }
            if matches(filter, &entry) {
                bytes_found = bytes_found.saturating_add(bytes.len());
                found.push(view(index, bytes));
                if found.len() >= limit || bytes_found >= PAGE_BYTES_MAX {
                    return page(found, Some(after));
                }
            }
        }
        if ended || looked_at >= SEARCHED_ENTRIES_MAX || bytes_looked_at >= SEARCHED_BYTES_MAX {
            return page(found, (!ended).then_some(after));
        }
    }
}

/// Summaries read at once.
const RUNS_FEW: usize = 64;

/// The entry behind which the next run begins that may say what is wanted, if `after` stands between two runs; not far
/// behind `end`.
fn pass_runs(
    state: &impl List,
    mut after: EvidenceIndex,
    end: EvidenceIndex,
    wanted: &Marks,
    runs_left: &mut usize,
) -> Result<EvidenceIndex, ReadError> {
    if wanted.is_empty() || !after.0.is_multiple_of(RUN) {
        return Ok(after);
    }
    loop {
        let summaries = state.summaries(run_of(after.next()), RUNS_FEW.min(*runs_left))?;
        for (run, summary) in &summaries {
            // Where one is missing the entries are read.
            if after >= end || *run != run_of(after.next()) || summary.may_hold(wanted) {
                return Ok(after);
            }
            after = EvidenceIndex(after.0.saturating_add(RUN));
            *runs_left = runs_left.saturating_sub(1);
        }
        if summaries.len() < RUNS_FEW || *runs_left == 0 {
            return Ok(after);
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

    /// Goal: a search passes what cannot match without reading it, and finds what is behind; without a summary it reads.
    #[test]
    fn a_search_passes_runs_that_say_nothing_of_it() {
        let entry = |index: u64, principal: &str| crate::event::Entry {
            at: Stamp(i64::try_from(index).unwrap()),
            body: crate::event::Body::KillSwitch(crate::event::KillSwitchSet {
                engaged: true,
                lift: None,
                note: None,
                origin: "drill".to_owned(),
                scope: None,
            }),
            index: EvidenceIndex(index),
            policy: None,
            prev: crate::ids::Hash::GENESIS,
            principal: crate::ids::Principal::new(principal),
            protocol: crate::reply::Protocol::LATEST,
            v: evidence::ENTRY_VERSION,
        };
        let wanted = RUN + 40;
        let mut state = MemState::default();
        for index in 1..=3 * RUN {
            let entry = entry(index, if index == wanted { "ops:rare" } else { "ops:usual" });
            state.summaries.extend(state.open_run.push(entry.index, &Marks::of(&entry)));
            // Reading one of the first costs a page an eighth of all that it may look at.
            let heavy = || vec![b' '; SEARCHED_BYTES_MAX / 8];
            state.entries.insert(entry.index, if index <= 16 { heavy() } else { evidence::encode(&entry) });
        }
        let filter =
            EvidenceFilter { principal: Some(crate::ids::Principal::new("ops:rare")), ..EvidenceFilter::default() };
        let search = |state: &MemState| match find(state, EvidenceIndex(0), 10, &filter) {
            Ok(Answer::EvidencePage(page)) => {
                (page.entries.iter().map(|view| view.evidence_id.0).collect::<Vec<_>>(), page.next)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(search(&state), (vec![wanted], None));
        // More runs behind the end of the search than a page passes.
        let many = 3..=u64::try_from(SEARCHED_RUNS_MAX).unwrap() + 3;
        state.summaries.extend(many.map(|run| (run, crate::search::Summary::default())));
        state.meta.next_index = EvidenceIndex(3 * RUN + 1);
        let nobody = Some(crate::ids::Principal::new("ops:nobody"));
        let ends = EvidenceFilter { principal: nobody, until: Some(Stamp(266)), ..EvidenceFilter::default() };
        let Ok(Answer::EvidencePage(page)) = find(&state, EvidenceIndex(0), 10, &ends) else { panic!("no page") };
        assert_eq!((page.entries.len(), page.next), (0, None), "nothing behind its end is passed");
        state.summaries.remove(&0);
        assert_eq!(search(&state), (vec![], Some(EvidenceIndex(16))), "without its summary a run is read");
    }
}
