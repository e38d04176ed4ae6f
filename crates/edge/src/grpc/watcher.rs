//! `DecisionService.WatchPermits`: what ends or wakes the permits of one caller, told at once (AADP §7, §11.3, §16).
//! Absent on purpose: history, and a guarantee. A watcher that may have missed something is told that it did, by the end
//! of its stream; then it asks. Silence of a node that is cut off or behind would be a lie, so that ends it too.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use placet_core::cluster::HealthStatus;
use placet_core::event::SwitchScope;
use placet_core::ids::EvidenceIndex;
use placet_core::notice::{Fact, Notice};
use placet_wire::v1;
use placet_wire::v1::permit_notice::Notice as Told;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tonic::Status;

use super::{Service, convert};
use crate::auth::Caller;
use crate::covered::Covered;
use crate::edge::Edge;
use crate::listen::told;
use crate::pulse::Felt;
use crate::reject::{Kind, Refusal};

pub(super) type Notices = BoxStream<'static, Result<v1::PermitNotice, Status>>;

impl Service {
    /// A stream for the permits of `caller`. It listens, and then makes sure that this node is up to date, before it
    /// says so: what comes after `ready` is told.
    pub(super) async fn watch(&self, caller: Caller) -> Result<Notices, Refusal> {
        let place = self.edge.enter_watch()?;
        let notices = self.edge.pdp().notices();
        let felt = self.edge.feel();
        if !serves(&self.edge).await {
            return Err(Refusal::new(Kind::Unavailable, "this node hears no leader; watch another"));
        }
        let watcher = Watcher {
            edge: self.edge.clone(),
            caller,
            drain: self.drain.clone(),
            notices,
            felt,
            up_to_date: false,
            ready: VecDeque::new(),
            scan: None,
            ended: false,
            _place: place,
        };
        Ok(stream::unfold(watcher, Watcher::step).boxed())
    }
}

async fn serves(edge: &Edge) -> bool {
    edge.health().await.status == HealthStatus::Serving
}

struct Watcher {
    edge: Edge,
    caller: Caller,
    drain: watch::Receiver<bool>,
    notices: broadcast::Receiver<Arc<Notice>>,
    felt: Felt,
    /// This node was up to date after this watcher had begun to listen; `ready` was said.
    up_to_date: bool,
    /// Messages of one notice: one for each permit that a switch covers.
    ready: VecDeque<v1::PermitNotice>,
    /// A switch that was told; which permits it covers was not, yet.
    scan: Option<(EvidenceIndex, Option<SwitchScope>)>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Watcher {
    async fn step(mut self) -> Option<(Result<v1::PermitNotice, Status>, Self)> {
        if self.ended {
            return None;
        }
        match self.next().await {
            Ok(notice) => Some((Ok(notice), self)),
            Err(refusal) => {
                self.ended = true;
                Some((Err(refusal.into()), self))
            }
        }
    }

    async fn next(&mut self) -> Result<v1::PermitNotice, Refusal> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(message);
            }
            let closes = || Refusal::new(Kind::Unavailable, "this node closes; check your permits and watch another");
            if let Some((index, scope)) = self.scan.take() {
                let covered = tokio::select! {
                    biased;
                    () = told(self.drain.clone()) => return Err(closes()),
                    covered = self.covered(index, scope.as_ref()) => covered?,
                };
                let revoked = |permit| message(&index.to_string(), Told::Revoked(name(permit)));
                self.ready.extend(covered.into_iter().map(revoked));
                continue;
            }
            tokio::select! {
                biased;
                () = told(self.drain.clone()) => return Err(closes()),
                notice = self.notices.recv(), if self.up_to_date => match notice {
                    Ok(notice) => self.hear(&notice)?,
                    Err(RecvError::Lagged(_)) => return Err(missed("this watch fell behind")),
                    Err(RecvError::Closed) => return Err(closes()),
                },
                fresh = self.felt.next() => {
                    if fresh? && !std::mem::replace(&mut self.up_to_date, true) {
                        return Ok(message("", Told::Ready(v1::WatchReady {})));
                    }
                }
            }
        }
    }

    /// Makes the messages of one notice, if it is for this caller.
    fn hear(&mut self, notice: &Notice) -> Result<(), Refusal> {
        let index = notice.index.to_string();
        let me = &self.caller.principal;
        match &notice.fact {
            Fact::PermitExpired { owner: Some(owner), action_type, permit_digest, request_id } if owner == me => {
                let permit = v1::PermitName {
                    request_id: request_id.to_string(),
                    permit_digest: permit_digest.to_string(),
                    action_type: action_type.to_string(),
                };
                self.ready.push_back(message(&index, Told::Expired(permit)));
            }
            Fact::Resumed { proposer, approval_id, request_id } if proposer == me => {
                let (request_id, approval_id) = (request_id.to_string(), approval_id.to_string());
                let resumed = v1::ProposalResumed { request_id, approval_id };
                self.ready.push_back(message(&index, Told::Resumed(resumed)));
            }
            Fact::KillSwitch { scope: Some(SwitchScope::Principal(other)), .. } if other != me => {}
            Fact::KillSwitch { engaged, scope } => {
                let changed = v1::SwitchChanged { engaged: *engaged, scope: scope.clone().map(convert::switch_scope) };
                self.ready.push_back(message(&index, Told::KillSwitch(changed)));
                if *engaged {
                    self.scan = Some((notice.index, scope.clone()));
                }
            }
            Fact::Missed => return Err(missed("this node caught up without telling what happened")),
            Fact::PermitExpired { .. } | Fact::Resumed { .. } | Fact::Approval { .. } => {}
        }
        Ok(())
    }

    async fn covered(&self, index: EvidenceIndex, scope: Option<&SwitchScope>) -> Result<Vec<Covered>, Refusal> {
        let found = self.edge.scans().of(&self.edge, index, scope, &self.caller.principal).await;
        found.map_err(|refusal| {
            tracing::warn!(code = refusal.kind().code(), "which permits a switch covers is not known");
            missed("a kill switch was engaged, and which permits it covers could not be read")
        })
    }
}

fn missed(what: &str) -> Refusal {
    Refusal::new(Kind::Missed, format!("{what}; check your permits and watch again"))
}

fn message(evidence_id: &str, notice: Told) -> v1::PermitNotice {
    v1::PermitNotice { evidence_id: evidence_id.to_owned(), notice: Some(notice) }
}

fn name(permit: Covered) -> v1::PermitName {
    v1::PermitName {
        request_id: permit.request_id.to_string(),
        permit_digest: permit.permit_digest.to_string(),
        action_type: permit.action_type.to_string(),
    }
}
