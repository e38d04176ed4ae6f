//! What entries say about themselves, and summaries of runs of entries: a search reads a summary of a kilobyte instead
//! of a run that says nothing of what is looked for.
//! Absent on purpose: any part in what nodes agree on. Summaries follow from the entries, and where one is missing the
//! entries are read.
//!
//! A summary is a Bloom filter. What stands in one on disk is read for ever, so hash, size and probes never change.

use crate::event::{Body, Decided, Entry};
use crate::ids::{ActionType, EvidenceIndex, Hash, RequestId};
use crate::op::EvidenceFilter;

/// Entries in a run: 1 to 256, 257 to 512, and so on.
pub const RUN: u64 = 256;

/// Size of a summary. A run of decides says some five hundred different things: two wrong answers in a thousand.
pub const SUMMARY_BYTES: usize = 1024;

/// Bits that one thing sets.
const PROBES: u64 = 5;

/// Things that an entry can say.
const FACETS: usize = 8;

/// What an entry says about itself, as far as it does.
#[derive(Default)]
pub(crate) struct Facts<'e> {
    pub(crate) action_type: Option<&'e ActionType>,
    pub(crate) verdict: Option<&'static str>,
    pub(crate) reason: Option<&'e str>,
    pub(crate) request_id: Option<&'e RequestId>,
    pub(crate) permit: Option<Hash>,
    pub(crate) reconcile: bool,
}

impl<'e> Facts<'e> {
    pub(crate) fn of(body: &'e Body) -> Self {
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

/// What an entry says, as hashes; 0 where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks([u64; FACETS]);

impl Marks {
    /// Of an entry.
    pub fn of(entry: &Entry) -> Self {
        let facts = Facts::of(&entry.body);
        Self::from_parts([
            Some(entry.body.kind().as_bytes()),
            Some(entry.principal.as_str().as_bytes()),
            facts.action_type.map(|one| one.as_str().as_bytes()),
            facts.verdict.map(str::as_bytes),
            facts.reason.map(str::as_bytes),
            facts.request_id.map(|one| one.as_str().as_bytes()),
            facts.permit.as_ref().map(|digest| digest.0.as_slice()),
            facts.reconcile.then_some(b"".as_slice()),
        ])
    }

    /// Of what is looked for.
    pub(crate) fn wanted(filter: &EvidenceFilter) -> Self {
        Self::from_parts([
            filter.kind.as_deref().map(str::as_bytes),
            filter.principal.as_ref().map(|one| one.as_str().as_bytes()),
            filter.action_type.as_ref().map(|one| one.as_str().as_bytes()),
            filter.verdict.map(|one| one.as_str().as_bytes()),
            filter.reason.as_deref().map(str::as_bytes),
            filter.request_id.as_ref().map(|one| one.as_str().as_bytes()),
            filter.permit.as_ref().map(|digest| digest.0.as_slice()),
            filter.reconcile.then_some(b"".as_slice()),
        ])
    }

    fn from_parts(parts: [Option<&[u8]>; FACETS]) -> Self {
        let mut marks = [0; FACETS];
        for ((facet, mark), part) in (0u8..).zip(&mut marks).zip(parts) {
            if let Some(value) = part {
                *mark = hash(facet, value);
            }
        }
        Self(marks)
    }

    fn each(&self) -> impl Iterator<Item = u64> {
        self.0.into_iter().filter(|mark| *mark != 0)
    }

    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }
}

/// FNV-1a over the facet and the value, mixed so that all bits count; never 0.
fn hash(facet: u8, value: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in std::iter::once(&facet).chain(value) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ (hash >> 33)).max(1)
}

/// Byte and bit of each probe of a mark.
fn probes(mark: u64) -> impl Iterator<Item = (usize, u8)> {
    let (first, step) = (mark >> 32, (mark & 0xffff_ffff) | 1);
    (0..PROBES).map(move |probe| {
        let bit = first.wrapping_add(probe.wrapping_mul(step)) % (SUMMARY_BYTES as u64 * 8);
        ((bit / 8) as usize, 1 << (bit % 8))
    })
}

/// What the entries of one run say, with some that they do not.
#[derive(Clone, PartialEq, Eq)]
pub struct Summary(Box<[u8; SUMMARY_BYTES]>);

impl std::fmt::Debug for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Summary({} bits)", self.0.iter().map(|byte| byte.count_ones()).sum::<u32>())
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self(Box::new([0; SUMMARY_BYTES]))
    }
}

impl Summary {
    fn add(&mut self, marks: &Marks) {
        for (byte, bit) in marks.each().flat_map(probes) {
            if let Some(byte) = self.0.get_mut(byte) {
                *byte |= bit;
            }
        }
    }

    /// Whether an entry of the run may say all of that; `false` is certain.
    pub(crate) fn may_hold(&self, wanted: &Marks) -> bool {
        wanted.each().flat_map(probes).all(|(byte, bit)| self.0.get(byte).is_some_and(|byte| byte & bit != 0))
    }

    /// As it is kept.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// A kept one, if it is one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Box::new(*bytes.first_chunk().filter(|_| bytes.len() == SUMMARY_BYTES)?)))
    }
}

/// The run that an entry is in, from 0.
pub fn run_of(index: EvidenceIndex) -> u64 {
    index.0.saturating_sub(1) / RUN
}

/// The run that is not complete yet.
#[derive(Clone, Debug, Default)]
pub struct OpenRun {
    /// The entry that belongs here next; none while entries of the run are missing.
    next: Option<EvidenceIndex>,
    summary: Summary,
}

impl OpenRun {
    /// Takes an entry in its turn. Returns number and summary of the run that it completes. A run of which an entry was
    /// left out has no summary.
    pub fn push(&mut self, index: EvidenceIndex, marks: &Marks) -> Option<(u64, Summary)> {
        if index.0.saturating_sub(1).is_multiple_of(RUN) {
            *self = Self { next: Some(index), summary: Summary::default() };
        }
        if self.next != Some(index) {
            self.next = None;
            return None;
        }
        self.summary.add(marks);
        self.next = Some(index.next());
        index.0.is_multiple_of(RUN).then(|| (run_of(index), std::mem::take(&mut self.summary)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(id: u64) -> Marks {
        let (id, permit) = (id.to_string(), Hash::of(&id.to_be_bytes()));
        let (request, permit) = (Some(id.as_bytes()), Some(permit.0.as_slice()));
        Marks::from_parts([Some(b"exec_intent"), Some(b"agent"), None, None, None, request, permit, None])
    }

    fn asks(id: &str) -> Marks {
        Marks::from_parts([None, None, None, None, None, Some(id.as_bytes()), None, None])
    }

    /// Goal: a summary knows everything that its run says, and little else; the same word as something else is not it.
    #[test]
    fn a_summary_answers_for_its_run() {
        let mut open = OpenRun::default();
        let mut summaries = Vec::new();
        for index in 1..=2 * RUN {
            summaries.extend(open.push(EvidenceIndex(index), &marks(index)));
        }
        let [(0, first), (1, second)] = summaries.as_slice() else { panic!("{summaries:?}") };
        assert!((1..=RUN).all(|id| first.may_hold(&asks(&id.to_string()))));
        assert!((RUN + 1..=2 * RUN).all(|id| second.may_hold(&asks(&id.to_string()))));
        let wrong = (10_000..20_000).filter(|id| first.may_hold(&asks(&id.to_string()))).count();
        assert!(wrong < 40, "{wrong} of 10000");
        let principal = Marks::from_parts([None, Some(b"1"), None, None, None, None, None, None]);
        assert!(!first.may_hold(&principal), "1 is a request, not a principal");
        assert!(first.may_hold(&Marks::default()));
        let kept = Summary::from_bytes(first.as_bytes());
        assert_eq!(kept.as_ref(), Some(first));
        assert_eq!(Summary::from_bytes(&[0; 5]), None);
    }

    /// Goal: a run of which an entry was not seen has no summary, and the next one has.
    #[test]
    fn a_run_with_a_gap_has_no_summary() {
        let mut open = OpenRun::default();
        let indexes = (1..=3 * RUN).filter(|index| *index != 7);
        let runs: Vec<u64> =
            indexes.filter_map(|index| open.push(EvidenceIndex(index), &marks(index))).map(|(run, _)| run).collect();
        assert_eq!(runs, [1, 2]);
    }

    /// Goal: what is on disk stays readable: the bits of a mark never move.
    #[test]
    fn the_bits_of_a_mark_never_move() {
        assert_eq!(hash(5, b"req-1"), 0x0696_a2fd_3371_41b2);
        assert_eq!(probes(hash(5, b"req-1")).collect::<Vec<_>>(), [(95, 32), (150, 1), (204, 8), (258, 64), (313, 2)]);
    }
}
