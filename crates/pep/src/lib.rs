//! Client SDK for enforcement points of the Agent Action Decision Protocol (AADP §16): ask before acting, act only on
//! a permit, report exactly once.
//!
//! ```text
//!  program ─ Action ─► Pep::run ─ decide ─► any node of the decision point
//!                        │  every obligation checked, intent on disk
//!                        ├─ Permit ─► sink (once) ─► outcome on disk
//!                        └─ report ─► until it is answered, also after a restart
//! ```
//!
//! Start with [`Pep`]. What governs a capability is [`Governed`]; what happens without a decision point is
//! [`Unreachable`]; how a run can end is [`RunError`].
//!
//! Absent on purpose: judgement and policy. The one thing decided here is an action on the list for `fail_static`,
//! with the decision core's own bounds. The exact forms on the wire are the specification's, over HTTP (AADP §15).

mod action;
mod answer;
mod ask;
mod builder;
mod clock;
mod delivery;
mod endpoint;
mod limits;
mod obligation;
mod outbox;
mod pep;
mod permit;
mod report;
mod run;
mod sink;
mod static_list;
#[cfg(feature = "testing")]
pub mod testing;

pub use action::Action;
pub use answer::{Decision, Obligation, Receipt};
pub use ask::{AskError, FailClosed, ReportError};
pub use builder::{BuildError, PepBuilder};
pub use obligation::ObligationHandler;
pub use outbox::{OutboxError, OutboxStatus};
pub use pep::{Pep, RefreshError, Unreachable};
pub use permit::{Basis, Governed, NotPermittedError, Permit};
pub use placet_core::reply::{BudgetObject, Verdict};
pub use placet_core::request::{Outcome, Source};
pub use placet_core::stamp::Stamp;
pub use report::Report;
pub use run::{Done, RunError};
pub use sink::{Sink, SinkError};
pub use static_list::{StaticList, StaticListError};
