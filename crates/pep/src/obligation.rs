//! Obligations (AADP §13): the whole list is checked before anything is done, and what this enforcement point cannot
//! do stops it.
//! Absent on purpose: ignoring. Only a type that is known may be advisory, and only where the permit says so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use placet_core::stamp::Stamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::answer::{Obligation, clip};
use crate::clock;
use crate::limits::{NAME_BYTES_MAX, OBLIGATION_WITHIN};

/// What this crate discharges itself; a handler for one of these is refused.
const BUILT_IN: [&str; 6] =
    ["report_result", "undo_available_until", "execute_within", "isolate", "idempotency_key", "present_bound"];

/// Discharges one type of vendor obligation.
///
/// ```
/// use placet_pep::testing::LocalPdp;
/// use placet_pep::{Action, Obligation, ObligationHandler, Pep, Unreachable};
/// use serde_json::{Value, json};
///
/// struct Audit;
///
/// #[async_trait::async_trait]
/// impl ObligationHandler for Audit {
///     async fn discharge(&self, obligation: &Obligation) -> Result<Value, String> {
///         Ok(json!({ "audited": obligation.text() }))
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("placet-doc-obligation-{}", std::process::id()));
/// # let policies = "{ apiVersion: placet/v1, policies: [{ action_type: log.add, tier: 1, dry_run: false, compensating_command: log.add, \
/// #     obligations: [{ type: x-acme.audit, value: full }] }] }";
/// # let pdp = LocalPdp::start(policies).await?;
/// # let builder = Pep::builder().endpoint(pdp.url()).bearer_token(pdp.token()).outbox(&folder);
/// # let builder = builder.unreachable(Unreachable::FailClosed);
/// let pep = builder.obligation("x-acme.audit", Audit).build()?;
/// pep.run(Action::new("log.add"), async |_| Ok(())).await?;
/// pep.flush().await;
/// let report = &pdp.received("/v1/report")[0];
/// assert_eq!(report["payload"]["obligations"][0]["evidence"], json!({ "audited": "full" }));
/// # pep.close().await;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait ObligationHandler: Send + Sync + 'static {
    /// Whether it can be discharged, by its look; called for the whole list before anything is done. The error says
    /// why not, for the report.
    fn check(&self, obligation: &Obligation) -> Result<(), String> {
        let _ = obligation;
        Ok(())
    }

    /// Does it, before the act and after the intent is on disk; it is called once, also if this process dies meanwhile
    /// (then the permit is reported as `timeout`). Returns evidence for the report (`null` for none). The error says why it could not be
    /// done; the act then does not happen.
    async fn discharge(&self, obligation: &Obligation) -> Result<Value, String>;
}

/// What an enforcement point is able to discharge.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    pub(crate) boundary: Option<String>,
    handlers: BTreeMap<String, Arc<dyn ObligationHandler>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("boundary", &self.boundary).field("handlers", &self.handlers.keys()).finish()
    }
}

/// An obligation that stops the act: its type, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) obligation_type: String,
    pub(crate) why: String,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "obligation `{}`: {}", self.obligation_type, self.why)
    }
}

/// What the checked list says about the act.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(crate) deadline: Option<Stamp>,
    pub(crate) idempotency_key: Option<String>,
    /// Evidence that is known before the act, in the order of the list.
    pub(crate) evidence: Vec<(String, Value)>,
    /// For handlers, in the order of the list.
    handled: Vec<Obligation>,
}

impl Registry {
    /// Adds a handler; the error says why the type cannot have one.
    pub(crate) fn add(&mut self, kind: &str, handler: Arc<dyn ObligationHandler>) -> Result<(), String> {
        if BUILT_IN.contains(&kind) {
            return Err(format!("obligation `{kind}` is discharged by this crate itself"));
        }
        if kind.is_empty() || kind.len() > NAME_BYTES_MAX {
            return Err(format!("an obligation type has 1 to {NAME_BYTES_MAX} bytes"));
        }
        self.handlers.insert(kind.to_owned(), handler);
        Ok(())
    }

    /// Checks the whole list; does nothing.
    pub(crate) fn check(&self, obligations: &[Obligation], sends_key: bool) -> Result<Terms, Stopped> {
        let mut terms = Terms::default();
        for obligation in obligations {
            let known = BUILT_IN.contains(&obligation.kind.as_str()) || self.handlers.contains_key(&obligation.kind);
            match self.check_one(obligation, sends_key, &mut terms) {
                // To present a permit instead of using it is not advice.
                Err(_) if known && !obligation.required && obligation.kind != "present_bound" => {}
                Err(why) => return Err(Stopped { obligation_type: clip(&obligation.kind), why }),
                Ok(()) => {}
            }
        }
        Ok(terms)
    }

    fn check_one(&self, obligation: &Obligation, sends_key: bool, terms: &mut Terms) -> Result<(), String> {
        match obligation.kind.as_str() {
            "report_result" | "undo_available_until" => Ok(()),
            "execute_within" => {
                let deadline = obligation.text().and_then(Stamp::parse).ok_or("its value is not an instant in UTC")?;
                clock::until(deadline).ok_or("the permit's deadline has passed")?;
                terms.deadline = Some(terms.deadline.map_or(deadline, |known| known.min(deadline)));
                Ok(())
            }
            "isolate" => {
                let asked = obligation.text().ok_or("its value is not the name of a boundary")?;
                if self.boundary.as_deref() != Some(asked) {
                    return Err(format!("this enforcement point does not act inside boundary `{}`", clip(asked)));
                }
                terms.evidence.push(("isolate".to_owned(), json!({ "boundary": asked })));
                Ok(())
            }
            "idempotency_key" => {
                let key = obligation.text().filter(|key| !key.is_empty() && key.len() <= NAME_BYTES_MAX);
                let key = key.ok_or("its value is not a key")?;
                if !sends_key {
                    return Err("the sink does not declare that it sends an idempotency key".to_owned());
                }
                if terms.idempotency_key.as_deref().is_some_and(|other| other != key) {
                    return Err("the permit names two keys".to_owned());
                }
                terms.idempotency_key = Some(key.to_owned());
                terms.evidence.push(("idempotency_key".to_owned(), json!({ "key": key })));
                Ok(())
            }
            "present_bound" => Err("a bound permit may only be presented to its recipient, never used here".to_owned()),
            kind => {
                let handler = self.handlers.get(kind).ok_or("this enforcement point does not know this type")?;
                handler.check(obligation)?;
                terms.handled.push(obligation.clone());
                Ok(())
            }
        }
    }

    /// Discharges what handlers are for, in order, and adds their evidence. The first that cannot stops the act.
    pub(crate) async fn discharge(&self, terms: &mut Terms) -> Result<(), Stopped> {
        for obligation in std::mem::take(&mut terms.handled) {
            let Some(handler) = self.handlers.get(&obligation.kind) else { continue };
            let done = timeout(OBLIGATION_WITHIN, handler.discharge(&obligation)).await;
            match done.unwrap_or_else(|_| Err(format!("its handler took longer than {OBLIGATION_WITHIN:?}"))) {
                Ok(Value::Null) => {}
                Ok(evidence) => terms.evidence.push((obligation.kind, evidence)),
                Err(_) if !obligation.required => {}
                Err(why) => return Err(Stopped { obligation_type: clip(&obligation.kind), why }),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obligation(kind: &str, value: Option<&str>, required: bool) -> Obligation {
        Obligation { kind: kind.to_owned(), value: value.map(Value::from), required }
    }

    /// A list of obligations passes only if every one of them can be discharged.
    #[test]
    fn the_table_of_types() {
        let registry = Registry { boundary: Some("cell-1".to_owned()), ..Registry::default() };
        let past = Some("2020-01-01T00:00:00Z");
        for (kind, value, required, sends_key, passes) in [
            ("report_result", None, true, false, true),
            ("undo_available_until", Some("whatever"), true, false, true),
            ("execute_within", Some("2999-01-01T00:00:00Z"), true, false, true),
            ("execute_within", past, true, false, false),
            ("execute_within", past, false, false, true),
            ("execute_within", Some("soon"), true, false, false),
            ("execute_within", None, true, false, false),
            ("isolate", Some("cell-1"), true, false, true),
            ("isolate", Some("cell-2"), true, false, false),
            ("isolate", Some("cell-2"), false, false, true),
            ("isolate", None, true, false, false),
            ("idempotency_key", Some("k"), true, true, true),
            ("idempotency_key", Some("k"), true, false, false),
            ("idempotency_key", Some("k"), false, false, true),
            ("idempotency_key", None, true, true, false),
            ("present_bound", Some("https://x.example"), true, true, false),
            ("present_bound", Some("https://x.example"), false, true, false),
            ("x-acme.teleport", None, true, true, false),
            ("x-acme.teleport", None, false, true, false),
            ("frobnicate", None, false, true, false),
            ("", None, false, true, false),
        ] {
            let list = [obligation("report_result", None, true), obligation(kind, value, required)];
            let checked = registry.check(&list, sends_key);
            assert_eq!(checked.is_ok(), passes, "{kind} {value:?} required {required}: {checked:?}");
            if let Err(stopped) = checked {
                assert_eq!(stopped.obligation_type, kind);
            }
        }
    }

    #[test]
    fn the_nearest_deadline_counts() {
        let list = [
            obligation("execute_within", Some("2999-01-02T00:00:00Z"), true),
            obligation("execute_within", Some("2999-01-01T00:00:00Z"), true),
        ];
        let terms = Registry::default().check(&list, false).unwrap();
        assert_eq!(terms.deadline, Stamp::parse("2999-01-01T00:00:00Z"));
    }
}
