//! Which open permits an engaged switch covers (AADP §7): read once for all who watch their permits on this node, since
//! all of them ask at the same moment, the one in which the leader has other things to do.
//! Absent on purpose: the capability. A permit is named by its digest and its request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use placet_core::event::SwitchScope;
use placet_core::ids::{ActionType, EvidenceIndex, Hash, Principal, RequestId};
use placet_core::op::{Answer, IntentView, Query};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::args;
use crate::edge::Edge;
use crate::limits::{PAGE_MAX, SCAN_KEPT, SCAN_WITHIN};
use crate::reject::{Kind, Refusal};

/// A permit, as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) request_id: RequestId,
    pub(crate) permit_digest: Hash,
    pub(crate) action_type: ActionType,
}

type ByOwner = BTreeMap<Principal, Vec<Covered>>;

/// What one scan found. A failure is shared as well: a leader that does not answer is not asked by everyone in turn.
type Scan = OnceCell<Result<ByOwner, Refusal>>;

/// Scans of the last moments, by the entry of the switch.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    open: Mutex<BTreeMap<EvidenceIndex, Arc<Scan>>>,
}

impl Scans {
    /// The open permits of `owner` that the switch engaged at `index` covers.
    pub(crate) async fn of(
        self: &Arc<Self>,
        edge: &Edge,
        index: EvidenceIndex,
        scope: Option<&SwitchScope>,
        owner: &Principal,
    ) -> Result<Vec<Covered>, Refusal> {
        let scan = self.open(index);
        match scan.get_or_init(|| in_time(scanned(edge, index, scope))).await {
            Ok(found) => Ok(found.get(owner).cloned().unwrap_or_default()),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    fn open(self: &Arc<Self>, index: EvidenceIndex) -> Arc<Scan> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = open.entry(index).or_insert_with(|| {
            let scans = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(SCAN_KEPT).await;
                scans.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
            });
            Arc::default()
        });
        Arc::clone(kept)
    }
}

async fn in_time(scan: impl Future<Output = Result<ByOwner, Refusal>>) -> Result<ByOwner, Refusal> {
    let late = |_| Refusal::new(Kind::Unavailable, "what the switch covers was not found in time");
    timeout(SCAN_WITHIN, scan).await.map_err(late)?
}

/// Every permit that was open when the switch was engaged: what came later is under no switch, or was never permitted.
async fn scanned(edge: &Edge, index: EvidenceIndex, scope: Option<&SwitchScope>) -> Result<ByOwner, Refusal> {
    let mut found = ByOwner::new();
    let mut after = None;
    loop {
        let intents = match edge.ask_self(Query::Intents { after, limit: PAGE_MAX }).await? {
            Answer::Intents(intents) => intents,
            _ => return Err(Refusal::wrong_answer()),
        };
        let last = args::last_of_full(&intents, PAGE_MAX).map(|last| last.evidence_id);
        for intent in intents.into_iter().filter(|intent| intent.evidence_id < index && covers(scope, intent)) {
            let permit_digest = intent.permit_id.digest();
            let covered = Covered { request_id: intent.request_id, permit_digest, action_type: intent.action_type };
            found.entry(intent.principal).or_default().push(covered);
        }
        match last {
            Some(last) if last < index => after = Some(last),
            _ => return Ok(found),
        }
    }
}

fn covers(scope: Option<&SwitchScope>, intent: &IntentView) -> bool {
    match scope {
        None => true,
        Some(SwitchScope::ActionType(name)) => *name == intent.action_type,
        Some(SwitchScope::Effect(label)) => intent.effects.contains(label),
        Some(SwitchScope::Principal(name)) => *name == intent.principal,
    }
}
