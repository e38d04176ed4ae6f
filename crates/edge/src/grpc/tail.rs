//! `EvidenceService.Tail`: every entry, then new ones as they come (AADP §14).
//! Absent on purpose: a task per tail. A tail reads its next page when its client has taken the one before.

use std::collections::VecDeque;

use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, EvidenceView, Op, Query};
use placet_wire::v1;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::Status;

use super::convert;
use crate::auth::Caller;
use crate::edge::Edge;
use crate::limits::TAIL_PAGE;
use crate::listen::told;
use crate::reject::{Kind, Refusal};

/// One client's tail.
pub(super) struct Tail {
    edge: Edge,
    caller: Caller,
    drain: watch::Receiver<bool>,
    /// The last entry that was handed out or is ready.
    after: EvidenceIndex,
    ready: VecDeque<EvidenceView>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Tail {
    pub(super) fn new(
        edge: &Edge,
        caller: Caller,
        drain: watch::Receiver<bool>,
        after: EvidenceIndex,
    ) -> Result<Self, Refusal> {
        let place = edge.enter_tail()?;
        let ready = VecDeque::new();
        Ok(Self { edge: edge.clone(), caller, drain, after, ready, ended: false, _place: place })
    }

    pub(super) async fn step(mut self) -> Option<(Result<v1::Evidence, Status>, Self)> {
        if self.ended {
            return None;
        }
        match self.next().await {
            Ok(view) => Some((Ok(convert::evidence(view)), self)),
            Err(refusal) => {
                self.ended = true;
                Some((Err(refusal.into()), self))
            }
        }
    }

    async fn next(&mut self) -> Result<EvidenceView, Refusal> {
        loop {
            if let Some(view) = self.ready.pop_front() {
                return Ok(view);
            }
            self.ready = self.page().await?.into();
            match self.ready.back() {
                Some(last) => self.after = last.evidence_id,
                None => self.wait().await?,
            }
        }
    }

    async fn page(&self) -> Result<Vec<EvidenceView>, Refusal> {
        let query = Query::EvidenceTail { after: self.after, limit: TAIL_PAGE };
        match self.edge.ask(&self.caller, Op::Query(query)).await? {
            Answer::EvidenceTail(views) => Ok(views),
            _ => Err(Refusal::wrong_answer()),
        }
    }

    async fn wait(&self) -> Result<(), Refusal> {
        tokio::select! {
            () = self.edge.pdp().evidence_beyond(self.after) => Ok(()),
            () = told(self.drain.clone()) => {
                let detail = format!("this node closes; tail another from `{}`", self.after);
                Err(Refusal::new(Kind::Unavailable, detail))
            }
        }
    }
}
