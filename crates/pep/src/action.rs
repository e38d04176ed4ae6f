//! What an enforcement point proposes to do (AADP §10.1), and the body that asks for it.
//! Absent on purpose: judgement. A request that cannot be well formed is refused here, whatever the mode (AADP §16).

use std::collections::BTreeMap;

use placet_core::ids::RequestId;
use placet_core::json::Json;
use placet_core::reply::Protocol;
use placet_core::request::{DecideRequest, Source};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock;

/// One proposed action. It is asked for under one `request_id`, on every retry and on every node.
///
/// Amounts of money are decimal strings, never numbers (AADP §10, §18.3): a binary number has no exact value, and one
/// that is not finite becomes `null` on the way.
///
/// ```
/// use placet_pep::{Action, Source};
///
/// let action = Action::new("pay.small")
///     .param("payee", "acme")
///     .param("amount_eur", "60.00")
///     .source(Source::Llm)
///     .rationale("invoice 17 is due");
/// assert_eq!(action.action_type(), "pay.small");
/// ```
#[derive(Clone, Debug)]
pub struct Action {
    action_type: String,
    params: Result<Map<String, Value>, String>,
    source: Source,
    rationale: String,
    session_id: Option<String>,
    cost_eur: Option<String>,
    parent_id: Option<String>,
    approval_ref: Option<String>,
    request_id: Option<String>,
    resumed: bool,
}

impl Action {
    /// An action of a type that the policy names, such as `lamp.toggle`, without arguments.
    pub fn new(action_type: impl Into<String>) -> Self {
        Self {
            action_type: action_type.into(),
            params: Ok(Map::new()),
            source: Source::System,
            rationale: String::new(),
            session_id: None,
            cost_eur: None,
            parent_id: None,
            approval_ref: None,
            request_id: None,
            resumed: false,
        }
    }

    /// Adds one argument.
    pub fn param(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Ok(params) = &mut self.params {
            params.insert(name.into(), value.into());
        }
        self
    }

    /// Replaces all arguments by the members of `params`, which must serialise to a JSON object. If it does not, the
    /// action is refused when it is asked for, and nothing is done.
    pub fn params(mut self, params: &impl Serialize) -> Self {
        self.params = match serde_json::to_value(params) {
            Ok(Value::Object(params)) => Ok(params),
            Ok(_) => Err("the arguments are not a JSON object".to_owned()),
            Err(error) => Err(format!("the arguments cannot be serialised: {error}")),
        };
        self
    }

    /// Who built the request; `system` unless it is said. Never affects the verdict.
    pub fn source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Why, for the evidence. Never an input to the decision.
    pub fn rationale(mut self, rationale: impl Into<String>) -> Self {
        self.rationale = rationale.into();
        self
    }

    /// Groups requests; budgets may be counted per session.
    pub fn session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// The cost, as a decimal string of zero or more, where no argument holds it.
    pub fn cost_eur(mut self, amount: impl Into<String>) -> Self {
        self.cost_eur = Some(amount.into());
        self
    }

    /// The permit or evidence that this action reverses, with source `undo`.
    pub fn parent_id(mut self, parent_id: impl Into<String>) -> Self {
        self.parent_id = Some(parent_id.into());
        self
    }

    /// The approval that this action resumes (AADP §11.3). A resumption is a new request.
    pub fn approval_ref(mut self, approval_id: impl Into<String>) -> Self {
        self.approval_ref = Some(approval_id.into());
        self
    }

    /// Asks under this UUID instead of a new random one. This outbox acts at most once under it, also after a restart,
    /// and with or without a decision point; a permit that was given under it before, to whomever, is not acted on.
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Collects the permit of a resumption that an approver drove (`POST /v1/approvals/{id}/approve`, AADP §11.3): the
    /// approval's `resumed_request`, and its id. Type and arguments are those of the proposal.
    ///
    /// That permit was answered before, to the approver. So it is acted on once by this outbox, after the claim is on
    /// disk and the decision point said that the permit is still usable. One enforcement point collects it: another
    /// one, with an outbox of its own, does not see the claim before the act is reported.
    ///
    /// ```
    /// use placet_pep::testing::Scene;
    /// use placet_pep::{Action, RunError};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scene = Scene::open().await?;
    /// # let (pep, pdp) = (&scene.pep, &scene.pdp);
    /// let transfer = Action::new("wire.send").param("payee", "acme");
    /// let Err(RunError::Proposed(proposal)) = pep.run(transfer.clone(), async |_| Ok(())).await else { panic!() };
    /// let approval_id = proposal.approval_id.unwrap_or_default();
    /// // … an approver says yes …
    /// # let resumed_request = pdp.approve(&approval_id)?;
    /// pep.run(transfer.resumed(resumed_request, approval_id), async |_| Ok(())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resumed(mut self, request_id: impl Into<String>, approval_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self.approval_ref = Some(approval_id.into());
        self.resumed = true;
        self
    }

    /// The exact key into the policy.
    pub fn action_type(&self) -> &str {
        &self.action_type
    }

    /// Builds the body and reads it back as a decision point would: what is not well formed never leaves.
    pub(crate) fn ask(self) -> Result<Asked, String> {
        let params = self.params?;
        let (request_id, origin) = match self.request_id {
            Some(text) => {
                let id = RequestId::parse(&text).ok_or_else(|| "`request_id` is not a UUID".to_owned())?;
                (id, if self.resumed { Origin::Resumed } else { Origin::Caller })
            }
            None => (clock::new_request_id().map_err(|error| error.to_string())?, Origin::ThisCall),
        };
        let body = Body {
            protocol: Protocol::LATEST,
            request_id: &request_id,
            action_type: &self.action_type,
            params: &params,
            source: self.source,
            rationale: &self.rationale,
            session_id: self.session_id.as_deref(),
            cost_eur: self.cost_eur.as_deref(),
            created_at: clock::now().to_string(),
            parent_id: self.parent_id.as_deref(),
            approval_ref: self.approval_ref.as_deref(),
        };
        let body = serde_json::to_vec(&body).map_err(|error| format!("the request cannot be serialised: {error}"))?;
        let read = DecideRequest::parse(&body).map_err(|malformed| malformed.detail)?;
        Ok(Asked {
            request_id,
            origin,
            action_type: self.action_type,
            source: self.source,
            rationale: self.rationale,
            params: Value::Object(params),
            exact_params: read.params,
            body,
        })
    }
}

/// Who chose a request id, and so who may have been permitted under it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This call, at random: nobody else.
    ThisCall,
    /// The caller: anyone.
    Caller,
    /// A decision point, when an approver drove the resumption.
    Resumed,
}

/// A well-formed request, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) request_id: RequestId,
    pub(crate) origin: Origin,
    pub(crate) action_type: String,
    pub(crate) source: Source,
    pub(crate) rationale: String,
    pub(crate) params: Value,
    /// The same arguments as a decision point reads them.
    pub(crate) exact_params: BTreeMap<String, Json>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// The id that this outbox may act on once; none where it was made for this call alone.
    pub(crate) fn claim(&self) -> Option<&str> {
        (self.origin != Origin::ThisCall).then(|| self.request_id.as_str())
    }
}

#[derive(Serialize)]
struct Body<'a> {
    protocol: Protocol,
    request_id: &'a RequestId,
    action_type: &'a str,
    params: &'a Map<String, Value>,
    source: Source,
    rationale: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_eur: Option<&'a str>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_ref: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_formed_never_leaves() {
        let deep = (0..70).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        for (action, word) in [
            (Action::new("no such type"), "action_type"),
            (Action::new("a").request_id("17"), "request_id"),
            (Action::new("a").cost_eur("-1"), "cost_eur"),
            (Action::new("a").approval_ref(""), "approval_ref"),
            (Action::new("a").params(&[1, 2]), "not a JSON object"),
            (Action::new("a").param("p", deep), "nested"),
            (Action::new("a").param("p", "x".repeat(2 << 20)), "1 MiB"),
        ] {
            let refused = action.ask().unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        assert!(Action::new("a").param("p", 1).ask().is_ok());
    }
}
