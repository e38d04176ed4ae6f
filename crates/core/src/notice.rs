//! Notices: facts that someone waits for, drawn from events as they are applied. Told at most once and to whoever
//! listens; the evidence is what counts.
//! Absent on purpose: permits themselves; a digest names them to their owner.

use crate::event::{Body, Event, SwitchScope};
use crate::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, Principal, RequestId};

/// One fact and where it is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The entry.
    pub index: EvidenceIndex,
    /// What happened.
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the facts of the entries that they are drawn from")]
pub enum Fact {
    /// A permit ended without a report; its owner must not start the act any more.
    PermitExpired { owner: Option<Principal>, action_type: ActionType, permit_digest: Hash, request_id: RequestId },
    /// A switch was engaged or released. Engaged, it stops every act that it covers and that has not started.
    KillSwitch { engaged: bool, scope: Option<SwitchScope> },
    /// An approver resumed a proposal in the proposer's name: asking again under this request id gives the permit.
    Resumed { proposer: Principal, approval_id: ApprovalId, request_id: RequestId },
    /// Entries were taken over whole from another node: what happened in them was not told here.
    Missed,
    /// Something that approvers may want to hear of.
    Approval { approval_id: ApprovalId },
}

impl Notice {
    /// The notice that an event gives, if it gives one.
    pub fn of(event: &Event) -> Option<Self> {
        let fact = match &event.entry.body {
            Body::ReservationExpired(ended) => Fact::PermitExpired {
                owner: ended.owner.clone(),
                action_type: ended.action_type.clone(),
                permit_digest: ended.permit_digest,
                request_id: ended.request_id.clone(),
            },
            Body::KillSwitch(set) => Fact::KillSwitch { engaged: set.engaged, scope: set.scope.clone() },
            Body::Decision(decided) | Body::ExecIntent(decided) => {
                match (&decided.approval_id, &decided.approval_ref) {
                    (Some(id), _) => Fact::Approval { approval_id: id.clone() },
                    (None, Some(id)) if decided.resumed_by.is_some() => Fact::Resumed {
                        proposer: event.entry.principal.clone(),
                        approval_id: id.clone(),
                        request_id: decided.request_id.clone(),
                    },
                    _ => return None,
                }
            }
            Body::ApprovalTransition(change) => Fact::Approval { approval_id: change.approval_id.clone() },
            _ => return None,
        };
        Some(Self { index: event.entry.index, fact })
    }
}
