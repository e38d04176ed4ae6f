//! Evidence page by page for one client, up to an entry or for ever (AADP §14).
//! Absent on purpose: more than one page in memory. The next is read when the client has taken the one before. There is
//! a task for each, because nothing else can give up on a client that does not read: a door asks for no page then.

use futures::stream::{self, BoxStream, StreamExt};
use placet_core::ids::EvidenceIndex;
use placet_core::op::{Answer, EvidenceView, Op, Query};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::Instrument;

use crate::auth::Caller;
use crate::edge::Edge;
use crate::limits::{PAGE_MAX, TAIL_PAGE, TAIL_PAGE_BYTES};
use crate::listen::told;
use crate::reject::{Kind, Refusal};

/// What one client follows.
pub(crate) struct Follow {
    edge: Edge,
    caller: Caller,
    drain: watch::Receiver<bool>,
    /// The last entry that was handed out.
    after: EvidenceIndex,
    /// The last entry to hand out.
    until: Option<EvidenceIndex>,
    /// How many entries make a page of the right size.
    limit: u32,
    _place: OwnedSemaphorePermit,
}

pub(crate) type Page = Vec<EvidenceView>;

impl Follow {
    pub(crate) fn new(
        edge: &Edge,
        caller: Caller,
        drain: watch::Receiver<bool>,
        after: EvidenceIndex,
    ) -> Result<Self, Refusal> {
        let place = edge.enter_tail()?;
        Ok(Self { edge: edge.clone(), caller, drain, after, until: None, limit: TAIL_PAGE, _place: place })
    }

    /// Ends behind `until`.
    pub(crate) fn until(self, until: EvidenceIndex) -> Self {
        Self { until: Some(until), ..self }
    }

    /// The pages. A failure is the last element; an end without one is the end of what was asked for.
    pub(crate) fn pages(self) -> BoxStream<'static, Result<Page, Refusal>> {
        let (pages, taken) = mpsc::channel(1);
        let (end, ended) = oneshot::channel();
        let run = async move {
            // A client that left does not need to hear.
            let _ = end.send(self.run(pages).await);
        };
        tokio::spawn(run.in_current_span());
        stream::unfold((taken, Some(ended)), |(mut taken, ended)| async move {
            if let Some(page) = taken.recv().await {
                return Some((Ok(page), (taken, ended)));
            }
            let broken = |_| Err(Refusal::new(Kind::Internal, "reading on failed inside"));
            let refusal = ended?.await.unwrap_or_else(broken).err()?;
            Some((Err(refusal), (taken, None)))
        })
        .boxed()
    }

    async fn run(mut self, pages: mpsc::Sender<Page>) -> Result<(), Refusal> {
        let drain = self.drain.clone();
        while self.until.is_none_or(|until| self.after < until) {
            let slot = tokio::select! {
                biased;
                () = told(drain.clone()) => return Err(self.closes()),
                slot = timeout(self.edge.taken_within(), pages.reserve()) => match slot {
                    Ok(Ok(slot)) => slot,
                    // The client left.
                    Ok(Err(_)) => return Ok(()),
                    Err(_) => return Err(self.stalls()),
                },
            };
            let page = tokio::select! {
                biased;
                () = told(drain.clone()) => return Err(self.closes()),
                () = pages.closed() => return Ok(()),
                page = self.next() => page?,
            };
            slot.send(page);
        }
        Ok(())
    }

    /// The next page that has something.
    async fn next(&mut self) -> Result<Page, Refusal> {
        loop {
            let mut page = self.read().await?;
            if let Some(until) = self.until {
                whole(&mut page, self.after, until)?;
            }
            if let Some(last) = page.last() {
                self.after = last.evidence_id;
                self.limit = limit(&page);
                return Ok(page);
            }
            self.edge.pdp().evidence_beyond(self.after).await;
        }
    }

    async fn read(&self) -> Result<Page, Refusal> {
        let query = Query::EvidenceTail { after: self.after, limit: self.limit };
        match self.edge.ask(&self.caller, Op::Query(query)).await? {
            Answer::EvidenceTail(views) => Ok(views),
            _ => Err(Refusal::wrong_answer()),
        }
    }

    fn closes(&self) -> Refusal {
        Refusal::new(Kind::Unavailable, format!("this node closes; go on at another from `{}`", self.after))
    }

    fn stalls(&self) -> Refusal {
        let detail = format!("what was sent was not read in time; go on from the last entry before `{}`", self.after);
        Refusal::new(Kind::Timeout, detail)
    }
}

/// Cuts a page at `until`. One that does not follow on from `after` breaks off: no client takes a part for the whole.
fn whole(page: &mut Page, after: EvidenceIndex, until: EvidenceIndex) -> Result<(), Refusal> {
    page.retain(|view| view.evidence_id <= until);
    let mut expected = after;
    let follows = page.iter().all(|view| {
        expected = expected.next();
        view.evidence_id == expected
    });
    if follows && !page.is_empty() {
        return Ok(());
    }
    tracing::error!(%after, %until, "entries are missing; verify this evidence");
    Err(Refusal::new(Kind::Internal, "entries are missing"))
}

/// How many entries like these make a page.
fn limit(page: &Page) -> u32 {
    let bytes: usize = page.iter().map(|view| view.entry.len()).sum();
    let fit = TAIL_PAGE_BYTES.saturating_mul(page.len()) / bytes.max(1);
    u32::try_from(fit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX)
}
