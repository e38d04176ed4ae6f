//! What is owed in the middle of a run, and is paid however the run ends: dropped, panicking, or to its end.
//! Absent on purpose: decisions. What happened is said by the run; what is not said is `timeout` or `not_attempted`.

use placet_core::request::Outcome;

use crate::action::{Asked, Origin};
use crate::answer::Decision;
use crate::ask::AskError;
use crate::outbox::{Ack, Ending, Outbox, OutboxError, Subject};
use crate::permit::{Live, Notes};

/// A decision on its way to its run. Dropped on that way, a permit in it was not attempted.
pub(super) struct Answered {
    pub(super) outbox: Outbox,
    pub(super) asked: Asked,
    pub(super) decided: Option<Result<Decision, AskError>>,
}

impl Drop for Answered {
    fn drop(&mut self) {
        if let Some(Ok(decision)) = self.decided.take()
            // The permit of a resumption was not asked for here first: it can still be collected.
            && self.asked.origin != Origin::Resumed
            && let Some(permit_id) = decision.permit_id
            && self.outbox.claim(&permit_id)
        {
            let ending = Ending::new(Outcome::NotAttempted, "the caller left before the permit arrived");
            self.outbox.record(permit_of(&self.asked, permit_id), ending);
        }
    }
}

/// What the outbox is owed. Dropped before its end, it writes down what is known: nothing was begun, or nobody knows.
pub(super) struct Held<'a> {
    outbox: &'a Outbox,
    /// Until it is begun.
    subject: Option<Subject>,
    /// The request id that is claimed with it.
    claim: Option<String>,
    key: Option<u64>,
    pub(super) acting: bool,
}

impl<'a> Held<'a> {
    pub(super) fn new(outbox: &'a Outbox, subject: Subject, claim: Option<&str>) -> Self {
        Self { outbox, subject: Some(subject), claim: claim.map(str::to_owned), key: None, acting: false }
    }

    pub(super) async fn begin(&mut self) -> Result<(), OutboxError> {
        let Some(subject) = self.subject.clone() else { return Err(OutboxError::Closed) };
        let (key, ack) = self.outbox.begin(subject, self.claim.as_deref());
        self.key = Some(key);
        let begun = ack.wait().await;
        match &begun {
            Ok(()) => self.subject = None,
            Err(_) => self.key = None,
        }
        begun
    }

    pub(super) async fn end(mut self, ending: Ending) {
        if let Some(ack) = self.write(ending)
            && let Err(error) = ack.wait().await
        {
            tracing::error!(%error, "an outcome could not be made durable; it is delivered from memory");
        }
    }

    fn write(&mut self, ending: Ending) -> Option<Ack> {
        match (self.key.take(), self.subject.take()) {
            (Some(key), _) => Some(self.outbox.end(key, ending)),
            // An act that was decided here and never begun is nothing that happened.
            (None, Some(Subject::Local(_))) | (None, None) => None,
            (None, Some(subject)) => Some(self.outbox.record(subject, ending)),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let ending = if self.acting {
            Ending::new(Outcome::Timeout, "the act was abandoned; it may have happened")
        } else {
            Ending::new(Outcome::NotAttempted, "the run was abandoned before the act")
        };
        self.write(ending);
    }
}

/// Ends the right to act when the act is over, also when it ends in a panic.
pub(super) struct Closing<'a>(pub(super) &'a Live);

impl Closing<'_> {
    pub(super) fn close(&self) -> Notes {
        self.0.close()
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

pub(super) fn permit_of(asked: &Asked, permit_id: String) -> Subject {
    Subject::Permit {
        permit_id,
        request_id: asked.request_id.as_str().to_owned(),
        action_type: asked.action_type.clone(),
    }
}
