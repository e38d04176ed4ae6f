//! Configuration of an enforcement point. What must be chosen has no default; what is missing stops the start.
//! Absent on purpose: the environment and files; the program that enforces brings its settings.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::ask::Asker;
use crate::endpoint::{Address, Credentials, Endpoint, is_token};
use crate::limits::{
    ATTEMPT_WITHIN_DEFAULT, ATTEMPTS_DEFAULT, ATTEMPTS_MAX, DECIDE_WITHIN_DEFAULT, ENDPOINTS_MAX, SINK_WITHIN_DEFAULT,
    STATIC_AGE_MAX,
};
use crate::obligation::{ObligationHandler, Registry};
use crate::outbox::{Outbox, OutboxError};
use crate::pep::{Pep, Settings, Unreachable};

/// Why an enforcement point does not start.
#[derive(Debug, Error)]
pub enum BuildError {
    /// What to do without a decision point must be said (AADP §11, §16).
    #[error("no unreachability mode is configured: say fail_closed, fail_static or fail_open")]
    NoMode,
    /// Nobody to ask.
    #[error("no endpoint is configured")]
    NoEndpoint,
    /// More endpoints than the bound allows.
    #[error("more than {ENDPOINTS_MAX} endpoints")]
    TooManyEndpoints,
    /// An endpoint that is none.
    #[error("an endpoint is wrong: {0}")]
    Endpoint(String),
    /// Reports must survive this process.
    #[error("no folder for the outbox is configured")]
    NoOutbox,
    /// A limit outside its range.
    #[error("{0}")]
    Limit(String),
    /// A handler that cannot be.
    #[error("a handler is wrong: {0}")]
    Obligation(String),
    /// A bearer token that no request can carry.
    #[error("the bearer token is not visible ASCII")]
    Token,
    /// Certificates, or the transport they are for.
    #[error("the connection cannot be set up: {0}")]
    Transport(String),
    /// It cannot be opened.
    #[error("the outbox cannot be opened")]
    Outbox(#[from] OutboxError),
    /// Delivery goes on in the background: build it inside a tokio runtime.
    #[error("there is no tokio runtime here")]
    NoRuntime,
}

/// Settings of a [`Pep`]. An endpoint, an outbox folder and an unreachability mode must be given.
///
/// ```
/// use placet_pep::{BuildError, Pep};
///
/// let folder = std::env::temp_dir().join("never-made");
/// let built = Pep::builder().endpoint("https://pdp-1:7101").outbox(folder).build();
/// assert!(matches!(built, Err(BuildError::NoMode)));
/// ```
#[derive(Default)]
pub struct PepBuilder {
    endpoints: Vec<String>,
    token: Option<String>,
    root_ca_pem: Option<Vec<u8>>,
    identity_pem: Option<Vec<u8>>,
    outbox: Option<PathBuf>,
    unreachable: Option<Unreachable>,
    reads: BTreeSet<String>,
    boundary: Option<String>,
    handlers: Vec<(String, Arc<dyn ObligationHandler>)>,
    note_refusals: bool,
    check_before_act: bool,
    attempts: Option<u32>,
    attempt_within: Option<Duration>,
    decide_within: Option<Duration>,
    sink_within: Option<Duration>,
}

impl std::fmt::Debug for PepBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PepBuilder")
            .field("endpoints", &self.endpoints)
            .field("unreachable", &self.unreachable)
            .finish_non_exhaustive()
    }
}

impl PepBuilder {
    /// Adds a node to ask: `http://`, `https://`, or `unix:` and the path of a socket. Any node answers any call;
    /// with several, a retry goes to another one.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoints.push(endpoint.into());
        self
    }

    /// The bearer token of this enforcement point's principal, in visible ASCII. It is not sent to a socket, where the
    /// process is the identity.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trusts these certificates, in PEM, and no others.
    pub fn root_ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_ca_pem = Some(pem.into());
        self
    }

    /// Presents this client certificate: its chain and its key, in PEM.
    pub fn identity_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.identity_pem = Some(pem.into());
        self
    }

    /// The folder of the outbox, on a disk that survives this process. One running enforcement point per folder.
    pub fn outbox(mut self, folder: impl Into<PathBuf>) -> Self {
        self.outbox = Some(folder.into());
        self
    }

    /// What happens when no decision point can be reached. There is no default (AADP §11).
    pub fn unreachable(mut self, mode: Unreachable) -> Self {
        self.unreachable = Some(mode);
        self
    }

    /// Lists an action type as a read: the verdict `observe` lets it pass (AADP §4). Not listed, it is refused.
    pub fn read(mut self, action_type: impl Into<String>) -> Self {
        self.reads.insert(action_type.into());
        self
    }

    /// The isolation boundary that everything here runs in. Without it, `isolate` is refused.
    pub fn boundary(mut self, name: impl Into<String>) -> Self {
        self.boundary = Some(name.into());
        self
    }

    /// Discharges a vendor obligation such as `x-acme.audit`. A type without a handler stops the act.
    pub fn obligation(mut self, kind: impl Into<String>, handler: impl ObligationHandler) -> Self {
        self.handlers.push((kind.into(), Arc::new(handler)));
        self
    }

    /// Also reports `not_attempted` for proposals and rehearsals, as information (AADP §10.5). Off unless it is said.
    pub fn note_refusals(mut self) -> Self {
        self.note_refusals = true;
        self
    }

    /// Asks the decision point right before each permitted act starts whether it still may (`POST /v1/permits/check`): a
    /// kill switch that was engaged meanwhile, or a permit that is over, stops the act, which is reported as
    /// `not_attempted`. So does a check that is not answered, whatever the mode. Off unless it is said.
    pub fn check_before_act(mut self, check: bool) -> Self {
        self.check_before_act = check;
        self
    }

    /// Attempts for one decision, 1 to 64, over all endpoints; 8 unless it is said.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How long one attempt may take; 5 seconds unless it is said.
    pub fn attempt_within(mut self, limit: Duration) -> Self {
        self.attempt_within = Some(limit);
        self
    }

    /// How long a decision may take over all attempts; 20 seconds unless it is said.
    pub fn decide_within(mut self, limit: Duration) -> Self {
        self.decide_within = Some(limit);
        self
    }

    /// How long an act may take before its outcome counts as unknown; 60 seconds unless it is said. `execute_within`
    /// may shorten it.
    pub fn sink_within(mut self, limit: Duration) -> Self {
        self.sink_within = Some(limit);
        self
    }

    /// Opens the outbox, reports what an earlier life left in it, and starts delivering.
    pub fn build(self) -> Result<Pep, BuildError> {
        let unreachable = self.unreachable.ok_or(BuildError::NoMode)?;
        if let Unreachable::FailStatic { max_age } = unreachable
            && (max_age.is_zero() || max_age > STATIC_AGE_MAX)
        {
            return Err(BuildError::Limit(format!(
                "max_age of fail_static is more than 0 and at most {STATIC_AGE_MAX:?}"
            )));
        }
        let attempts = self.attempts.unwrap_or(ATTEMPTS_DEFAULT);
        if attempts == 0 || attempts > ATTEMPTS_MAX {
            return Err(BuildError::Limit(format!("attempts are 1 to {ATTEMPTS_MAX}")));
        }
        if self.token.as_deref().is_some_and(|token| !is_token(token)) {
            return Err(BuildError::Token);
        }
        let folder = self.outbox.ok_or(BuildError::NoOutbox)?;
        let mut registry = Registry::default();
        registry.boundary = self.boundary;
        for (kind, handler) in self.handlers {
            registry.add(&kind, handler).map_err(BuildError::Obligation)?;
        }
        let endpoints = match self.endpoints.len() {
            0 => return Err(BuildError::NoEndpoint),
            count if count > ENDPOINTS_MAX => return Err(BuildError::TooManyEndpoints),
            _ => self.endpoints.iter().map(|text| Address::read(text)).collect::<Result<Vec<_>, _>>(),
        };
        let credentials = Credentials {
            token: self.token,
            root_ca_pem: self.root_ca_pem,
            identity_pem: self.identity_pem,
            attempt_within: self.attempt_within.unwrap_or(ATTEMPT_WITHIN_DEFAULT),
        };
        let endpoints =
            Endpoint::all(&endpoints.map_err(BuildError::Endpoint)?, &credentials).map_err(BuildError::Transport)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (outbox, thread) = Outbox::open(&folder)?;
        let settings = Settings {
            asker: Asker::new(endpoints, attempts, self.decide_within.unwrap_or(DECIDE_WITHIN_DEFAULT)),
            folder,
            note_refusals: self.note_refusals,
            check_before_act: self.check_before_act,
            reads: self.reads,
            registry,
            sink_within: self.sink_within.unwrap_or(SINK_WITHIN_DEFAULT),
            unreachable,
        };
        Ok(Pep::start(settings, outbox, thread, &runtime))
    }
}
