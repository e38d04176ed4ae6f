//! A decision that read what only a digest is kept of: what the hidden values decided is assumed as it was recorded, and
//! everything else is judged again. INVARIANT: an assumption is one that some value could have given.
//!
//! | rule about a hidden argument | what stands in for it |
//! |---|---|
//! | labels of patterns and URLs | the recorded labels, between those that must be there and those that may |
//! | an unreadable URL, a number or a choice out of bounds | the mark, which is neither |
//! | bounds that were kept | presence |
//! | an opaque host | another host of the same list |
//! | the cost | what was drawn; else an amount that gives the recorded refusal |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Check, Difference};
use crate::evaluate::{bounds, effects};
use crate::event::Decided;
use crate::exact::Amount;
use crate::json::Json;
use crate::policy::url::{Opaque, UrlRule};
use crate::policy::{Action, Document, ParamEffect, PolicySet};
use crate::redact;
use crate::reply::Reason;
use crate::request::{DecideRequest, Source};
use crate::trace::{self, CheckResult};

/// A host of the builtin list.
const BUILTIN_URL: &str = "https://bit.ly/";

/// Less than any difference between an amount and what a budget has left.
const LITTLE: &str = "0.000000001";

pub(super) struct Assumed {
    /// Hidden, and read by a rule.
    pub(super) paths: Vec<String>,
    /// The policy in force, with rules about hidden values replaced by what they came to.
    pub(super) policy: Arc<PolicySet>,
    /// The request with stand-ins for hidden values.
    pub(super) request: DecideRequest,
}

impl Check<'_> {
    /// What to judge in place of a request that hides what a rule reads; `None` when none does.
    pub(super) fn assumed(&self, recorded: &Decided, request: &DecideRequest) -> Result<Option<Assumed>, Difference> {
        let name = recorded.action_type.as_str();
        let Some(policy) = self.policy().filter(|_| !recorded.redacted.is_empty()) else { return Ok(None) };
        let Some(action) = policy.document().actions.get(name) else { return Ok(None) };
        let hidden: BTreeSet<&str> = read_by_rules(action)
            .filter(|name| redact::covers(&recorded.redacted, name) && bounds::present(&request.params, name).is_some())
            .map(String::as_str)
            .collect();
        if hidden.is_empty() {
            return Ok(None);
        }
        let paths = recorded.redacted.iter().filter(|path| redact::is_judged(action, path)).cloned().collect();
        let mut visible = request.clone();
        visible.params.retain(|name, _| !hidden.contains(name.as_str()));
        let visible = effects::resolve(policy, action, &visible);
        self.labels(recorded, action, &visible.labels, &hidden)?;
        let mut request = request.clone();
        let mut assumed = Action { effects: recorded.effects.clone(), ..action.clone() };
        let opaque = recorded.opaque_class.as_deref().filter(|class| !class.contains(':'));
        let synthetic = match opaque.filter(|class| visible.opaque.as_deref() != Some(class)) {
            Some(class) => Some(
                opaque_host(action, class, &hidden)
                    .ok_or_else(|| self.differs("opaque_class", class, "no opaque host that a rule names"))?,
            ),
            None => None,
        };
        // Before an engaged switch an unreadable URL is enough to make a read an act.
        let unreadable = recorded.malformed_kind.is_some() || recorded.reason == Reason::KillSwitch;
        assumed.param_effects = url_rules(action, &hidden, synthetic.as_ref(), unreadable);
        if let Some((rule, url)) = synthetic {
            request.params.insert(rule.param, Json::String(url));
        }
        let cost = action.cost.as_ref().filter(|cost| hidden.contains(cost.param.as_str()));
        if let (Some(cost), Some(amount)) = (cost, amount(recorded, policy.document())) {
            request.params.insert(cost.param.clone(), Json::String(amount.to_string()));
        }
        let drawn = cost.filter(|_| recorded.cost.is_some()).map(|cost| cost.param.as_str());
        keep_bounds(&mut assumed, recorded, &hidden, drawn);
        let mut actions = BTreeMap::from([(name.to_owned(), assumed)]);
        if recorded.source == Source::Undo {
            // The action to be reversed names what reverses it.
            let others = policy.document().actions.iter().filter(|(other, _)| *other != name);
            actions.extend(others.map(|(other, action)| {
                (other.clone(), Action { param_effects: Vec::new(), redact: Vec::new(), ..action.clone() })
            }));
        }
        let document = Document { actions, ..policy.document().clone() };
        let policy = PolicySet::compile(document).map_err(|error| self.differs("effects", "readable", error))?;
        Ok(Some(Assumed { paths, policy: Arc::new(policy), request }))
    }

    /// The recorded labels are those of the action and of visible arguments, and some that hidden ones can add.
    fn labels(
        &self,
        recorded: &Decided,
        action: &Action,
        least: &[String],
        hidden: &BTreeSet<&str>,
    ) -> Result<(), Difference> {
        let of_hidden = action.param_effects.iter().filter(|rule| hidden.contains(rule.param.as_str()));
        let most: BTreeSet<&String> = least.iter().chain(of_hidden.flat_map(|rule| &rule.add_effects)).collect();
        let possible = recorded.effects.starts_with(&action.effects)
            && least.iter().all(|label| recorded.effects.contains(label))
            && recorded.effects.iter().all(|label| most.contains(label));
        if possible {
            return Ok(());
        }
        let derived = format!("{least:?}, and at most {most:?}");
        Err(self.differs("effects", format!("{:?}", recorded.effects), derived))
    }
}

fn read_by_rules(action: &Action) -> impl Iterator<Item = &String> {
    let bounds = action.bounds.numeric.keys().chain(action.bounds.choices.keys());
    let rules = action.param_effects.iter().map(|rule| &rule.param);
    bounds.chain(rules).chain(action.cost.iter().map(|cost| &cost.param))
}

/// A rule about a hidden argument whose list `class` names, and a URL that is on it.
fn opaque_host(action: &Action, class: &str, hidden: &BTreeSet<&str>) -> Option<(ParamEffect, String)> {
    action.param_effects.iter().filter(|rule| hidden.contains(rule.param.as_str())).find_map(|rule| {
        let opaque = rule.url.as_ref()?.opaque.as_ref()?;
        let (opaque, url) = match class {
            "builtin" if opaque.builtin => (Opaque { builtin: true, extra: Vec::new() }, BUILTIN_URL.to_owned()),
            "extra" => (
                Opaque { builtin: false, extra: opaque.extra.clone() },
                opaque.extra.first().map(|host| format!("https://{host}/"))?,
            ),
            _ => return None,
        };
        let url_rule = UrlRule { opaque: Some(opaque), ..UrlRule::default() };
        let rule = ParamEffect { add_effects: Vec::new(), url: Some(url_rule), ..rule.clone() };
        Some((rule, url))
    })
}

/// The URL rules without the labels that they add: a URL must still be one, and an opaque host still shows.
fn url_rules(
    action: &Action,
    hidden: &BTreeSet<&str>,
    synthetic: Option<&(ParamEffect, String)>,
    unreadable: bool,
) -> Vec<ParamEffect> {
    let other = |rule: &&ParamEffect| {
        let replaced = synthetic.is_some_and(|(one, _)| one.param == rule.param);
        rule.url.is_some() && !replaced && (unreadable || !hidden.contains(rule.param.as_str()))
    };
    let plain = |rule: &ParamEffect| ParamEffect { add_effects: Vec::new(), ..rule.clone() };
    let others = action.param_effects.iter().filter(other).map(plain);
    synthetic.iter().map(|(rule, _)| rule.clone()).chain(others).collect()
}

/// Bounds of hidden arguments become presence, but for the one that failed, and those of an amount that is on record.
fn keep_bounds(action: &mut Action, recorded: &Decided, hidden: &BTreeSet<&str>, drawn: Option<&str>) {
    let last = last_check(recorded).filter(|check| check.check == "bounds" && check.result == CheckResult::Fail);
    let failed = last.as_ref().map(|check| &*check.rule);
    let stays = |kind: &str, name: &String| {
        !hidden.contains(name.as_str())
            || (kind == "numeric" && drawn == Some(name.as_str()))
            || failed.and_then(|rule| rule.strip_prefix(kind)).and_then(|rule| rule.strip_prefix('.')) == Some(name)
    };
    let bounds = &mut action.bounds;
    let named: BTreeSet<String> = bounds.numeric.keys().chain(bounds.choices.keys()).cloned().collect();
    bounds.numeric.retain(|name, _| stays("numeric", name));
    bounds.choices.retain(|name, _| stays("enum", name));
    bounds.required.extend(named.into_iter().filter(|name| hidden.contains(name.as_str())));
}

/// The check that decided. `None` for a trace that cannot be read, too: the comparison of traces tells of it.
fn last_check(recorded: &Decided) -> Option<trace::Check> {
    recorded.trace.checks().ok()?.pop()
}

/// A cost that gives what is recorded: the one that was drawn, nothing where calls ran out, and a little more than was
/// left where amounts did. `None` leaves the mark, which is no amount.
fn amount(recorded: &Decided, document: &Document) -> Option<Amount> {
    if recorded.cost.is_some() {
        return recorded.cost;
    }
    match recorded.reason {
        Reason::RateExhausted | Reason::CapDailyRate => Some(Amount::ZERO),
        Reason::BudgetExhausted | Reason::CapEurDay | Reason::CapEurMonth => {
            let check = last_check(recorded)?;
            let limit = document.budgets.get(&*check.rule)?.limit;
            let left = limit.minus_clamped(Amount::parse(&check.value)?);
            left.checked_add(Amount::parse(LITTLE)?).or_else(|| left.checked_add(Amount::ONE))
        }
        _ => None,
    }
}
