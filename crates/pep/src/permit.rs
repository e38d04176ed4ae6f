//! The right to act, as a value: only this crate makes one, and it ends with the run that it was made for (AADP §16).
//! Absent on purpose: a way to make, copy or prolong a permit, and a way to a governed sink without one.
//!
//! INVARIANT (no act without a permit): [`Governed::enter`] is the only way in, and it takes a live [`Permit`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use placet_core::stamp::Stamp;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::answer::Obligation;
use crate::clock;

/// On what an act rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A decision point permitted it.
    Permitted,
    /// A decision point recorded it as a read, and the configuration of this enforcement point lists it as one.
    Observed,
    /// No decision point answers; the cached list allows it (`fail_static`).
    FailStatic,
    /// No decision point answers; the configuration says to act anyway (`fail_open`).
    FailOpen,
}

/// What a sink gets: the right to act once, now, and what it should know about it.
#[derive(Debug)]
pub struct Permit {
    live: Arc<Live>,
}

/// The shared part: the run closes it when the act is over, wherever the permit has gone by then.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) basis: Basis,
    pub(crate) request_id: String,
    pub(crate) action_type: String,
    pub(crate) params: Value,
    pub(crate) deadline: Option<Stamp>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) obligations: Vec<Obligation>,
    open: AtomicBool,
    entered: AtomicBool,
    notes: Mutex<Notes>,
}

/// What the sink wants in the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) payload: Map<String, Value>,
    /// By obligation type.
    pub(crate) evidence: Vec<(String, Value)>,
}

impl Permit {
    /// On what this act rests.
    pub fn basis(&self) -> Basis {
        self.live.basis
    }

    /// The request that was decided.
    pub fn request_id(&self) -> &str {
        &self.live.request_id
    }

    /// What is permitted.
    pub fn action_type(&self) -> &str {
        &self.live.action_type
    }

    /// With which arguments. Act on these, so that what was judged is what is done.
    pub fn params(&self) -> &Value {
        &self.live.params
    }

    /// The moment at which the act must not start any more (`execute_within`).
    pub fn deadline(&self) -> Option<Stamp> {
        self.live.deadline
    }

    /// What to send to the target as its idempotency key (AADP §12), if the permit demands it.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.live.idempotency_key.as_deref()
    }

    /// Everything that the permit demands.
    pub fn obligations(&self) -> &[Obligation] {
        &self.live.obligations
    }

    /// Adds a member to the payload of the report: result data worth keeping.
    pub fn note(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.notes(|notes| notes.payload.insert(name.into(), value.into()));
    }

    /// Adds evidence that an obligation was discharged, such as the target's acknowledgement of an idempotency key.
    pub fn discharged(&self, obligation_type: impl Into<String>, evidence: impl Into<Value>) {
        self.notes(|notes| notes.evidence.push((obligation_type.into(), evidence.into())));
    }

    fn notes<T>(&self, change: impl FnOnce(&mut Notes) -> T) {
        change(&mut self.live.notes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Live {
    pub(crate) fn new(basis: Basis, request_id: String, action_type: String, params: Value) -> Self {
        Self {
            basis,
            request_id,
            action_type,
            params,
            deadline: None,
            idempotency_key: None,
            obligations: Vec::new(),
            open: AtomicBool::new(true),
            entered: AtomicBool::new(false),
            notes: Mutex::default(),
        }
    }

    pub(crate) fn permit(self: &Arc<Self>) -> Permit {
        Permit { live: self.clone() }
    }

    /// Whether a governed sink was opened with it.
    pub(crate) fn was_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }

    /// Ends the right to act, and returns what the sink noted.
    pub(crate) fn close(&self) -> Notes {
        self.open.store(false, Ordering::Release);
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Why a governed sink was not opened. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotPermittedError {
    /// The permit is for something else.
    #[error("the permit is for `{permitted}`, this sink does `{governed}`")]
    OtherAction {
        /// What the permit is for.
        permitted: String,
        /// What the sink does.
        governed: String,
    },
    /// The run of this permit is over.
    #[error("the permit is used up")]
    Over,
    /// `execute_within` is reached.
    #[error("the permit's deadline is reached")]
    Late,
}

/// A capability that does one type of action, out of reach without a [`Permit`] for it. Build it where the capability
/// is made, and hand only this out.
///
/// There is no other way in, and no permit but from [`crate::Pep::run`]:
///
/// ```compile_fail
/// let permit = placet_pep::Permit { live: todo!() };
/// ```
///
/// ```compile_fail
/// # fn without(lamp: placet_pep::Governed<u32>) {
/// let inner: &u32 = &lamp.inner;
/// # }
/// ```
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use placet_pep::testing::Scene;
/// use placet_pep::{Action, Governed};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scene = Scene::open().await?;
/// # let pep = &scene.pep;
/// let lamp = Governed::new("lamp.toggle", AtomicBool::new(false));
/// let action = Action::new("lamp.toggle").param("state", "on");
/// let done = pep
///     .run(action, async |permit| {
///         lamp.enter(&permit)?.store(true, Ordering::Relaxed);
///         Ok(permit)
///     })
///     .await?;
/// // A permit that is kept opens nothing more.
/// assert!(lamp.enter(&done.value).is_err());
/// # Ok(())
/// # }
/// ```
pub struct Governed<S> {
    action_type: String,
    inner: S,
}

impl<S> Governed<S> {
    /// Closes a capability in. It serves permits of this action type only.
    pub fn new(action_type: impl Into<String>, inner: S) -> Self {
        Self { action_type: action_type.into(), inner }
    }

    /// The capability, for a permit of its action type that is live and in time.
    pub fn enter(&self, permit: &Permit) -> Result<&S, NotPermittedError> {
        if permit.live.action_type != self.action_type {
            return Err(NotPermittedError::OtherAction {
                permitted: permit.live.action_type.clone(),
                governed: self.action_type.clone(),
            });
        }
        if !permit.live.open.load(Ordering::Acquire) {
            return Err(NotPermittedError::Over);
        }
        if permit.live.deadline.is_some_and(|deadline| clock::until(deadline).is_none()) {
            return Err(NotPermittedError::Late);
        }
        permit.live.entered.store(true, Ordering::Release);
        Ok(&self.inner)
    }
}

impl<S> fmt::Debug for Governed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governed").field("action_type", &self.action_type).finish_non_exhaustive()
    }
}
