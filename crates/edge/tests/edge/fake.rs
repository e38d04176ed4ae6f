//! A decision point that records what it was asked and echoes it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use placet_core::cluster::{
    ClockState, ClockView, ClusterView, Health, HealthStatus, HeardView, MemberRole, MemberView, MembershipChange,
};
use placet_core::event::{ApprovalState, BudgetKind, MandateSet};
use placet_core::exact::Amount;
use placet_core::head::{Head, HeadSigner, SignedHead};
use placet_core::ids::{ActionType, ApprovalId, EvidenceIndex, Hash, PermitId, PolicyDigest, Principal, RequestId};
use placet_core::notice::Notice;
use placet_core::op::{
    Answer, ApprovalView, BudgetView, Call, EvidencePage, EvidenceView, IntentView, KillSwitchView, LocalRecorded,
    MandateView, Op, PermitCheck, PolicyDropped, PolicyFacts, PolicyPublished, PolicyView, ProofView, Query, Reject,
    SignedHeadView, StaticAction, StaticActions,
};
use placet_core::policy::Bounds;
use placet_core::reply::{DecideReply, Obligation, Protocol, Reason, ReportReply, Tier, Verdict};
use placet_core::request::{DecideRequest, LocalReport, Malformed, ReportRequest};
use placet_core::stamp::Stamp;
use placet_edge::{BackupParts, Pdp};
use placet_wire::archive::Part;
use tokio::sync::{Semaphore, broadcast, watch};

pub(crate) const REQUEST_ID: &str = "0d9c1f3e-0000-4000-8000-000000000001";
pub(crate) const APPROVAL_ID: &str = "apr-00112233445566778899aabbccddeeff";
pub(crate) const PERMIT_ID: &str = "pmt-00112233445566778899aabbccddeeff";
/// So few that a test can fall behind.
pub(crate) const NOTICES_KEPT: usize = 8;

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) changes: Mutex<Vec<MembershipChange>>,
    /// Given to every call while it is set.
    pub(crate) reject: Mutex<Option<Reject>>,
    /// The same, as the answer to an attempt that is on record.
    pub(crate) refused: Mutex<Option<Reject>>,
    /// Decides wait here.
    pub(crate) gate: Semaphore,
    /// Decides that wait now, and the most that ever did.
    pub(crate) waiting: watch::Sender<(usize, usize)>,
    pub(crate) evidence: watch::Sender<Vec<EvidenceView>>,
    pub(crate) status: Mutex<HealthStatus>,
    pub(crate) notices: broadcast::Sender<Arc<Notice>>,
    pub(crate) intents: Mutex<Vec<IntentView>>,
    /// Listings of open permits wait here.
    pub(crate) scans: Semaphore,
    /// The leader's last entry, where this node is behind it.
    pub(crate) position: Mutex<Option<EvidenceIndex>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            changes: Mutex::default(),
            reject: Mutex::default(),
            refused: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            waiting: watch::Sender::new((0, 0)),
            evidence: watch::Sender::new(Vec::new()),
            status: Mutex::new(HealthStatus::Serving),
            notices: broadcast::channel(NOTICES_KEPT).0,
            scans: Semaphore::new(Semaphore::MAX_PERMITS),
            position: Mutex::default(),
            intents: Mutex::new(vec![intent(7, "agent", "pay.small")]),
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
        if matches!(call.op, Op::Query(Query::Intents { .. })) {
            self.scans.acquire().await.unwrap().forget();
        }
        if let Some(reject) = self.reject.lock().unwrap().clone() {
            return Err(reject);
        }
        if let Some(reject) = self.refused.lock().unwrap().clone() {
            return Ok(Answer::Refused(reject));
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
            Op::SetKillSwitch { engaged, origin, note, scope } => {
                Answer::KillSwitch(KillSwitchView { note, scope, ..switch(engaged, Some(origin)) })
            }
            Op::ResumeApproval { id, note } if note.as_deref() == Some("not yet") => {
                Answer::Approval(ApprovalView { note, votes: vec![call.principal], ..approval(id) })
            }
            Op::ResumeApproval { .. } => Answer::Decide(resumed()),
            Op::RatifyApproval { id, approved, .. } => {
                let state = if approved { ApprovalState::Pending } else { ApprovalState::Denied };
                Answer::Approval(ApprovalView { state, ratified: approved, needs_authority: true, ..approval(id) })
            }
            Op::SetMandate(MandateSet { action_type, denied, serial, .. }) => {
                Answer::Mandate(MandateView { action_type, denied, serial, evidence_id: EvidenceIndex(9) })
            }
            Op::PublishPolicy { activate, .. } => Answer::PolicyPublished(published(digest("ab"), activate)),
            Op::ActivatePolicy { digest, .. } => Answer::PolicyPublished(published(digest, true)),
            Op::DropPolicy { digest } => Answer::PolicyDropped(PolicyDropped { digest, evidence_id: EvidenceIndex(9) }),
            Op::RecordLocal(body) => match LocalReport::parse(&body) {
                Ok(report) => Answer::Local(LocalRecorded {
                    evidence_ids: (9..).take(report.entries.len()).map(|at| format!("aud-{at}")).collect(),
                }),
                Err(detail) => return Err(Reject::Invalid { detail }),
            },
            Op::SignHead => Answer::Head(SignedHeadView { signed: signed_head(), evidence_id: EvidenceIndex(9) }),
            Op::Notified { up_to } => Answer::Notified(up_to),
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
                heard: Some(HeardView {
                    ago_ms: 300,
                    round_trip_ms: 2,
                    clock_ahead_ms: -7,
                    version: "0.1.0".to_owned(),
                    log_format: 1,
                    last_log_index: 5,
                    applied_index: 4,
                    recovering: false,
                }),
            }],
            last_log_index: 5,
            applied_index: 5,
            snapshot_index: 0,
            evidence_index: self.evidence.borrow().last().map(|view| view.evidence_id).unwrap_or_default(),
            chain_head: Hash::GENESIS,
            clock: ClockView { state: ClockState::Split, offset_ms: Some(-12), bound_ms: 1000, stamp_ahead_ms: 1 },
            version: "0.1.0".to_owned(),
            log_format: 1,
            cluster: Some(Hash::of(b"cluster")),
        })
    }

    async fn health(&self) -> Health {
        Health {
            status: *self.status.lock().unwrap(),
            node_id: 1,
            leader_id: Some(2),
            kill_switch: false,
            pending_intents: 3,
            late_reports: 0,
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

    async fn backup(&self, _local: bool) -> Result<BackupParts, Reject> {
        let part = |part| Ok::<_, std::io::Error>(part);
        let parts = [Part::File { name: "manifest.json".to_owned(), size: 3 }, Part::Data(Bytes::from_static(b"{}\n"))];
        Ok(futures::stream::iter(parts.map(part)).boxed())
    }

    async fn evidence_beyond(&self, after: EvidenceIndex) {
        let beyond = |evidence: &Vec<EvidenceView>| evidence.iter().any(|view| view.evidence_id > after);
        self.evidence.subscribe().wait_for(beyond).await.unwrap();
    }

    fn notices(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.notices.subscribe()
    }
}

impl Fake {
    fn entries(&self, after: EvidenceIndex, limit: usize) -> Vec<EvidenceView> {
        let evidence = self.evidence.borrow();
        evidence.iter().filter(|view| view.evidence_id > after).take(limit).cloned().collect()
    }

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
            Query::EvidenceTail { after, limit } => Answer::EvidenceTail(self.entries(after, page(limit))),
            Query::Policies { limit, .. } => {
                let facts = [("aa", false), ("ab", true)].map(|(pair, active)| PolicyFacts {
                    digest: digest(pair),
                    active,
                    used: active,
                    published_at: Stamp(0),
                    published_by: Principal::new("policyr"),
                    evidence_id: EvidenceIndex(9),
                });
                Answer::Policies(facts.into_iter().take(page(limit)).collect())
            }
            Query::EvidenceFind { after, limit, .. } => {
                let entries: Vec<_> = self.entries(after, page(limit));
                let next = entries.last().map(|view| view.evidence_id);
                Answer::EvidencePage(EvidencePage { entries, next })
            }
            Query::InclusionProof { size, .. } => Answer::Proof(proof(size)),
            Query::ConsistencyProof { to, .. } => Answer::Proof(proof(to)),
            Query::CheckPermit { permit_id } => Answer::Permit(check(permit_id.as_str() == PERMIT_ID)),
            Query::StaticActions => Answer::Static(StaticActions {
                policy: Some(digest("ab")),
                as_of: Stamp(0),
                actions: vec![StaticAction {
                    action_type: ActionType::new("read.mail"),
                    tier: Tier::Observe,
                    params: Bounds { required: vec!["box".to_owned()], ..Bounds::default() },
                }],
            }),
            Query::Position => {
                let last = self.evidence.borrow().last().map(|view| view.evidence_id).unwrap_or_default();
                Answer::Position(self.position.lock().unwrap().unwrap_or(last))
            }
            Query::Notified => Answer::Notified(EvidenceIndex(3)),
            Query::Intents { after, limit } => {
                let after = after.unwrap_or_default();
                let intents = self.intents.lock().unwrap();
                let open = intents.iter().filter(|view| view.evidence_id > after);
                Answer::Intents(open.take(page(limit)).cloned().collect())
            }
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

pub(crate) fn intent(index: u64, principal: &str, action_type: &str) -> IntentView {
    IntentView {
        permit_id: PermitId::new(PERMIT_ID),
        request_id: RequestId::new(REQUEST_ID),
        action_type: ActionType::new(action_type),
        principal: Principal::new(principal),
        evidence_id: EvidenceIndex(index),
        at: Stamp(0),
        deadline: Stamp(1000),
        draws: Vec::new(),
        effects: vec!["money".to_owned()],
    }
}

fn digest(pair: &str) -> PolicyDigest {
    PolicyDigest::new(pair.repeat(32))
}

fn published(digest: PolicyDigest, active: bool) -> PolicyPublished {
    PolicyPublished { digest, previous: None, active, evidence_id: EvidenceIndex(9), warnings: Vec::new() }
}

pub(crate) fn signed_head() -> SignedHead {
    let head = Head { at: Stamp(0), chain_head: Hash::of(b"chain"), root: Hash::of(b"root"), size: 8 };
    HeadSigner::new(&[7; 32]).sign(head)
}

fn proof(size: u64) -> ProofView {
    ProofView { path: vec![Hash::of(b"path")], root: Hash::of(b"root"), size, start: Hash::of(b"start") }
}

fn check(usable: bool) -> PermitCheck {
    PermitCheck {
        usable,
        reason: (!usable).then(|| "unknown".to_owned()),
        deadline: usable.then_some(Stamp(1000)),
        evidence_id: usable.then(|| "aud-7".to_owned()),
    }
}

/// As the approver sees it: the permit is the proposer's.
fn resumed() -> DecideReply {
    let malformed = Malformed::refused(b"", "none", "resumed");
    DecideReply { verdict: Verdict::Permit, reason: Reason::Passed, ..decided(Err(Box::new(malformed))) }
}

fn switch(engaged: bool, origin: Option<String>) -> KillSwitchView {
    KillSwitchView {
        engaged,
        since: None,
        by: None,
        origin,
        note: None,
        scope: None,
        policy: None,
        warning: None,
        scoped: Vec::new(),
        evidence_id: None,
    }
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
        cost: Amount::parse("1.5"),
        budgets: Vec::new(),
        group: Some("treasury".to_owned()),
        quorum: 2,
        votes: Vec::new(),
        needs_authority: false,
        ratified: false,
        resumed_request: None,
        redacted: Vec::new(),
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
            vec![Obligation { required: true, kind: "report_result".into(), value: None }]
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
