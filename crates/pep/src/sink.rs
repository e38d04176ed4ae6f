//! What carries out an act, and what it says when it did not succeed (AADP §10.5).
//! Absent on purpose: repetition. An act whose outcome is not known is never done again (AADP §10.5, §16).

use std::error::Error;
use std::time::Duration;

use placet_core::request::Outcome;

/// How an act ended without success. Any error converts into one with `?`, and says `timeout`: nobody knows whether the
/// act happened, so it is not begun again. An error alone never proves more: what a sink did before it is not in it. A
/// sink that knows more says so.
///
/// ```
/// use std::io::ErrorKind;
///
/// use placet_pep::{Outcome, SinkError};
///
/// # fn send() -> std::io::Result<()> { Err(ErrorKind::ConnectionRefused.into()) }
/// let by_itself = SinkError::from(std::io::Error::from(ErrorKind::ConnectionRefused));
/// assert_eq!(by_itself.outcome(), Outcome::Timeout);
/// // This is the sink's only step, so a refused connection means that nothing was sent.
/// let said = send().map_err(|error| match error.kind() {
///     ErrorKind::ConnectionRefused => SinkError::no_effect(error.to_string()),
///     _ => error.into(),
/// });
/// assert!(said.is_err_and(|error| error.is_without_effect()));
/// assert_eq!(SinkError::failed("the valve answered: jammed").outcome(), Outcome::Failure);
/// assert_eq!(SinkError::refused("the valve is locked").outcome(), Outcome::NotAttempted);
/// ```
///
/// One error says `not_attempted`: that of [`crate::Governed::enter`], if no governed sink was entered before. So enter
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    outcome: Outcome,
    no_effect: bool,
    /// A governed sink did not open.
    entry: bool,
    error: String,
}

impl SinkError {
    /// Attempted, and it positively did not succeed: the target said so.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failure, no_effect: false, entry: false, error: error.into() }
    }

    /// Attempted, and positively without effect: the target said so. Its value goes back to the budgets.
    pub fn no_effect(error: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failure, no_effect: true, entry: false, error: error.into() }
    }

    /// Never begun.
    pub fn refused(error: impl Into<String>) -> Self {
        Self { outcome: Outcome::NotAttempted, no_effect: false, entry: false, error: error.into() }
    }

    /// It may or may not have happened.
    pub fn unknown(error: impl Into<String>) -> Self {
        Self { outcome: Outcome::Timeout, no_effect: false, entry: false, error: error.into() }
    }

    /// What it says when a governed sink was opened before: not opening another one does not undo that.
    pub(crate) fn after_entry(self, entered: bool) -> Self {
        if self.entry && entered { Self::unknown(self.error) } else { self }
    }

    /// What will be reported.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the act positively had no effect.
    pub fn is_without_effect(&self) -> bool {
        self.no_effect
    }

    /// Why.
    pub fn error(&self) -> &str {
        &self.error
    }
}

impl<E: Error + 'static> From<E> for SinkError {
    fn from(error: E) -> Self {
        let first: &(dyn Error + 'static) = &error;
        // A sink that was refused entry began nothing.
        if first.is::<crate::permit::NotPermittedError>() {
            return Self { entry: true, ..Self::refused(error.to_string()) };
        }
        let (mut text, mut next) = (String::new(), Some(first));
        while let Some(cause) = next {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        Self::unknown(text)
    }
}

/// A sink and what it declares about itself.
#[derive(Clone, Debug)]
pub struct Sink<F> {
    pub(crate) act: F,
    pub(crate) sends_idempotency_key: bool,
    pub(crate) within: Option<Duration>,
}

impl<F> Sink<F> {
    /// A sink that declares nothing.
    pub fn new<T, Fut>(act: F) -> Self
    where
        F: FnOnce(crate::Permit) -> Fut,
        Fut: Future<Output = Result<T, SinkError>>,
    {
        Self { act, sends_idempotency_key: false, within: None }
    }

    /// Declares that it transmits [`crate::Permit::idempotency_key`] as its target's idempotency key. Without this
    /// declaration, a permit that demands one is not acted on (AADP §13).
    pub fn sends_idempotency_key(mut self) -> Self {
        self.sends_idempotency_key = true;
        self
    }

    /// How long this act may take, instead of the builder's `sink_within`. `execute_within` still bounds it.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }
}
