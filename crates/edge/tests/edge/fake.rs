//! A decision point that records what it was asked and echoes it.

use std::sync::Mutex;

use async_trait::async_trait;
use placet_core::cluster::{ClusterView, Health, HealthStatus, MemberRole, MemberView, MembershipChange};
use placet_core::event::{ApprovalState, BudgetKind};
use placet_core::exact::Amount;
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use placet_core::op::{
    Answer, ApprovalView, BudgetView, Call, EvidenceView, IntentView, KillSwitchView, Op, PolicyPublished, PolicyView,
    Query, Reject,
};
use placet_core::reply::{DecideReply, Obligation, Protocol, Reason, ReportReply, Tier, Verdict};
use placet_core::request::{DecideRequest, Malformed, ReportRequest};
use placet_core::stamp::Stamp;
use placet_edge::Pdp;
use tokio::sync::{Semaphore, watch};

pub(crate) const REQUEST_ID: &str = "0d9c1f3e-0000-4000-8000-000000000001";
pub(crate) const APPROVAL_ID: &str = "apr-00112233445566778899aabbccddeeff";
pub(crate) const PERMIT_ID: &str = "pmt-00112233445566778899aabbccddeeff";

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) changes: Mutex<Vec<MembershipChange>>,
    /// Given to every call while it is set.
    pub(crate) reject: Mutex<Option<Reject>>,
    /// Decides wait here.
    pub(crate) gate: Semaphore,
    /// Decides that wait now, and the most that ever did.
    pub(crate) waiting: watch::Sender<(usize, usize)>,
    pub(crate) evidence: watch::Sender<Vec<EvidenceView>>,
    pub(crate) status: Mutex<HealthStatus>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            changes: Mutex::default(),
            reject: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            waiting: watch::Sender::new((0, 0)),
            evidence: watch::Sender::new(Vec::new()),
            status: Mutex::new(HealthStatus::Serving),
        }
    }
}

impl Fake {
    pub(crate) fn last(&self) -> Call {
        self.calls.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) fn record(&self, index: u64, entry: &str) {
        let view = EvidenceView {
            evidence_id: EvidenceIndex(index),
            entry: entry.to_owned(),
            hash: Hash::of(entry.as_bytes()),
        };
        self.evidence.send_modify(|evidence| evidence.push(view));
    }
}

#[async_trait]
impl Pdp for Fake {
    async fn submit(&self, call: Call) -> Result<Answer, Reject> {
        self.calls.lock().unwrap().push(call.clone());
        if matches!(call.op, Op::Decide(_)) {
            self.waiting.send_modify(|(now, most)| {
                *now += 1;
                *most = (*most).max(*now);
            });
            self.gate.acquire().await.unwrap().forget();
            self.waiting.send_modify(|(now, _)| *now -= 1);
        }
        if let Some(reject) = self.reject.lock().unwrap().clone() {
            return Err(reject);
        }
        Ok(match call.op {
            Op::Decide(body) => Answer::Decide(decided(DecideRequest::parse(&body))),
            Op::Report(body) => Answer::Report(reported(ReportRequest::parse(&body))),
            Op::Malformed { operation, request } if operation == "decide" => {
                Answer::Decide(decided(Err(Box::new(request))))
            }
            Op::Malformed { request, .. } => Answer::Report(reported(Err(Box::new(request)))),
            Op::ResolveApproval { id, grant, note } => {
                let state = if grant { ApprovalState::Approved } else { ApprovalState::Denied };
                Answer::Approval(ApprovalView { state, note, decided_by: Some(call.principal), ..approval(id) })
            }
            Op::SetKillSwitch { origin, .. } if origin == "panic" => panic!("as asked"),
            Op::SetKillSwitch { engaged, origin } => Answer::KillSwitch(switch(engaged, Some(origin))),
            Op::PublishPolicy { .. } => Answer::PolicyPublished(PolicyPublished {
                digest: PolicyDigest::new("ab".repeat(32)),
                previous: None,
                evidence_id: EvidenceIndex(9),
                warnings: Vec::new(),
            }),
            Op::Query(query) => self.answer(query),
        })
    }

    async fn cluster(&self) -> Result<ClusterView, Reject> {
        Ok(ClusterView {
            node_id: 1,
            leader_id: Some(2),
            term: 3,
            members: vec![MemberView {
                id: 1,
                role: MemberRole::Voter,
                addresses: Default::default(),
                matched_index: Some(4),
            }],
            last_log_index: 5,
            applied_index: 5,
            snapshot_index: 0,
            evidence_index: EvidenceIndex(6),
            chain_head: Hash::GENESIS,
        })
    }

    async fn health(&self) -> Health {
        Health {
            status: *self.status.lock().unwrap(),
            node_id: 1,
            leader_id: Some(2),
            kill_switch: false,
            pending_intents: 3,
            durable: true,
            detail: None,
        }
    }

    async fn change_membership(&self, change: MembershipChange) -> Result<ClusterView, Reject> {
        self.changes.lock().unwrap().push(change);
        let reject = self.reject.lock().unwrap().clone();
        if let Some(reject) = reject {
            return Err(reject);
        }
        self.cluster().await
    }

    async fn evidence_beyond(&self, after: EvidenceIndex) {
        let beyond = |evidence: &Vec<EvidenceView>| evidence.iter().any(|view| view.evidence_id > after);
        self.evidence.subscribe().wait_for(beyond).await.unwrap();
    }
}

impl Fake {
    fn answer(&self, query: Query) -> Answer {
        let page = |limit: u32| usize::try_from(limit).unwrap();
        match query {
            Query::Approvals { limit, .. } => {
                Answer::Approvals(vec![approval(ApprovalId::new(APPROVAL_ID)); page(limit).min(2)])
            }
            Query::Approval { id } => Answer::Approval(approval(id)),
            Query::KillSwitch => Answer::KillSwitch(switch(false, None)),
            Query::Policy { digest } => Answer::Policy(PolicyView {
                active: digest.is_none(),
                digest: digest.unwrap_or_else(|| PolicyDigest::new("cd".repeat(32))),
                document: "{}".to_owned(),
            }),
            Query::Evidence { index } => Answer::Evidence(
                self.evidence.borrow().iter().find(|view| view.evidence_id == index).cloned().unwrap_or(EvidenceView {
                    evidence_id: index,
                    entry: "{}".to_owned(),
                    hash: Hash::GENESIS,
                }),
            ),
            Query::EvidenceTail { after, limit } => Answer::EvidenceTail(
                self.evidence
                    .borrow()
                    .iter()
                    .filter(|view| view.evidence_id > after)
                    .take(page(limit))
                    .cloned()
                    .collect(),
            ),
            Query::Intents { .. } => Answer::Intents(vec![IntentView {
                permit_id: PermitId::new(PERMIT_ID),
                request_id: RequestId::new(REQUEST_ID),
                action_type: ActionType::new("pay.small"),
                principal: Principal::new("agent"),
                evidence_id: EvidenceIndex(7),
                at: Stamp(0),
                deadline: Stamp(1000),
                draws: Vec::new(),
            }]),
            Query::Budgets { .. } => Answer::Budgets(vec![BudgetView {
                name: "pay|\"ü".to_owned(),
                kind: BudgetKind::Value,
                dimension: "EUR".to_owned(),
                window: "day".to_owned(),
                window_key: "2026-08-17".to_owned(),
                scope: None,
                limit: Amount::parse("100.5"),
                reserved: Amount::ZERO,
                settled: Amount::ZERO,
                consumed: Amount::ZERO,
                remaining: Amount::parse("100.5"),
            }]),
        }
    }
}

fn switch(engaged: bool, origin: Option<String>) -> KillSwitchView {
    KillSwitchView { engaged, since: None, by: None, origin, policy: None, evidence_id: None }
}

fn approval(id: ApprovalId) -> ApprovalView {
    ApprovalView {
        approval_id: id,
        state: ApprovalState::Pending,
        action_type: ActionType::new("pay.small"),
        params: "{ \"amount\": 1.0 }".to_owned(),
        rationale: String::new(),
        reason: Reason::TierConfirm,
        nominal_tier: Tier::Confirm,
        proposer: Principal::new("agent"),
        request_id: RequestId::new(REQUEST_ID),
        proposal: EvidenceIndex(5),
        created: Stamp(0),
        deadline: Stamp(1000),
        decided_by: None,
        decided_at: None,
        note: None,
        consumed_by: None,
    }
}

/// A permit that echoes the arguments in `detail`, or the denial of what could not be read.
fn decided(request: Result<DecideRequest, Box<Malformed>>) -> DecideReply {
    let (request_id, verdict, reason, detail) = match request {
        Ok(request) => (Some(request.request_id), Verdict::Permit, Reason::Passed, request.params_raw),
        Err(malformed) => (malformed.request_id, Verdict::Deny, Reason::Malformed, malformed.detail),
    };
    let permit = verdict == Verdict::Permit;
    DecideReply {
        protocol: Protocol::V02,
        request_id,
        verdict,
        reason,
        detail,
        nominal_tier: Tier::Confirm,
        effective_tier: Tier::Confirm,
        permit_id: permit.then(|| PermitId::new(PERMIT_ID)),
        obligations: if permit {
            vec![Obligation { required: true, kind: "report_result".to_owned(), value: None }]
        } else {
            Vec::new()
        },
        approval_id: None,
        evidence_id: EvidenceIndex(7),
        replayed: false,
        budget: None,
    }
}

fn reported(request: Result<ReportRequest, Box<Malformed>>) -> ReportReply {
    let (accepted, reason, detail) = match request {
        Ok(request) => (true, None, request.payload_raw.unwrap_or_default()),
        Err(malformed) => (false, Some(Reason::Malformed), malformed.detail),
    };
    ReportReply { protocol: Protocol::V02, accepted, evidence_id: EvidenceIndex(8), reason, detail }
}
