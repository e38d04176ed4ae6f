//! Which changes loosen: one table, by path. `*` stands for any name.
//! A row asks whether its change lets something happen that did not happen before, or lets it happen with fewer
//! people, less budget, less time to undo it, or fewer traces. Paths without a row never loosen.

use serde_json::Value;

use crate::exact::Exact;
use crate::limits::PENDING_PER_PRINCIPAL_DEFAULT;
use crate::policy::{Action, Document};

/// One change, with both documents around it.
pub(super) struct Site<'a> {
    pub(super) path: &'a [String],
    pub(super) was: Option<&'a Value>,
    pub(super) is: Option<&'a Value>,
    /// Both lists, where the change is about one item of them.
    pub(super) lists: Option<(&'a [Value], &'a [Value])>,
    pub(super) before: &'a Document,
    pub(super) after: &'a Document,
}

/// Whether a change counts for a row.
type Test = fn(&Site<'_>) -> bool;

/// Path, what counts, and why it loosens. The first row that counts speaks.
pub(super) const RULES: &[(&str, Test, &str)] = &[
    ("actions/*", goes_live, "the action was denied by default"),
    ("actions/*/approval/group", not_added, "other people decide"),
    ("actions/*/approval/per_minute", raised_or_removed, "more proposals per minute"),
    ("actions/*/approval/per_principal", queue_raised, "more proposals may wait"),
    ("actions/*/approval/ttl_ms", ttl_raised, "proposals and grants live longer"),
    ("actions/*/bounds/enum/*", bound_went, "any value is accepted"),
    ("actions/*/bounds/enum/*", param_came, "an argument is accepted that was refused"),
    ("actions/*/bounds/enum/*/", added, "one more value is accepted"),
    ("actions/*/bounds/numeric/*", bound_went, "any value is accepted"),
    ("actions/*/bounds/numeric/*", param_came, "an argument is accepted that was refused"),
    ("actions/*/bounds/numeric/*/max", raised_or_removed, "larger values are accepted"),
    ("actions/*/bounds/numeric/*/min", lowered_or_removed, "smaller values are accepted"),
    ("actions/*/bounds/required/", removed, "the argument may be absent"),
    ("actions/*/bounds/required/", param_came, "an argument is accepted that was refused"),
    ("actions/*/bounds/strict_params", became_false, "arguments that the policy does not name are accepted"),
    ("actions/*/compensating_command", removed, "nothing reverses the action"),
    ("actions/*/cost", removed, "the request itself says what it costs"),
    ("actions/*/cost/*", always, "another amount counts as the cost"),
    ("actions/*/draws/", removed, "the budget no longer limits the action"),
    ("actions/*/dry_run", became_false, "the action no longer rehearses"),
    ("actions/*/dry_run_until", lowered_or_removed, "the rehearsal ends earlier"),
    ("actions/*/effects/", removed, "the effect's floor and budgets no longer apply"),
    ("actions/*/execute_within_ms", deadline_raised, "permits live longer"),
    ("actions/*/obligations/*", removed, "the obligation is gone"),
    ("actions/*/obligations/*/value", always, "the obligation demands something else"),
    ("actions/*/param_effects/*", removed, "matching arguments no longer have the effects"),
    ("actions/*/param_effects/*/pattern", always, "other arguments have the effects"),
    ("actions/*/param_effects/*/url", always, "other arguments have the effects"),
    ("actions/*/param_effects/*/url/cidrs/", removed, "the network no longer has the effects"),
    ("actions/*/param_effects/*/url/hosts/", removed, "the host no longer has the effects"),
    ("actions/*/param_effects/*/url/include_subdomains", became_false, "hosts below no longer have the effects"),
    ("actions/*/param_effects/*/url/opaque", removed, "redirectors no longer need a human"),
    ("actions/*/param_effects/*/url/opaque/builtin", became_false, "redirectors no longer need a human"),
    ("actions/*/param_effects/*/url/opaque/extra/", removed, "the redirector no longer needs a human"),
    ("actions/*/param_effects/*/url/schemes/", schemes_fewer, "other schemes no longer have the effects"),
    ("actions/*/present_bound", not_added, "permits go to another audience"),
    ("actions/*/redact/", removed, "the value is written in the clear"),
    ("actions/*/requires_external_authorization", became_false, "the mandate authority is no longer asked"),
    ("actions/*/tier", lowered_or_removed, "the tier is lower"),
    ("actions/*/undo_window_ms", lowered_or_removed, "there is less time to undo"),
    ("approval_ttl_ms", raised_or_removed, "proposals and grants live longer"),
    ("approvers/*/members/", added, "one more person may grant"),
    ("approvers/*/quorum", lowered_or_removed, "fewer people must grant"),
    ("budgets/*/kind", always, "the budget counts something else"),
    ("budgets/*/limit", raised_or_removed, "the limit is higher"),
    ("budgets/*/per", not_removed, "each has a counter of its own, where fewer counters held all"),
    ("budgets/*/unit", always, "the budget counts something else"),
    ("budgets/*/window", always, "the counter starts again, in another window"),
    ("effects/*/draws/", removed, "the budget no longer limits the effect"),
    ("effects/*/min_tier", lowered_or_removed, "the effect's floor is lower"),
    ("execute_within_ms", raised_or_removed, "permits live longer"),
    ("expiry_keeps_rate", became_false, "calls of expired permits are free again"),
    ("mandate_authority", not_added, "another key speaks for the mandate authority"),
    ("timezone", always, "calendar windows begin at another moment"),
];

/// Fields that cannot loosen, so that a field without a row is an oversight.
#[cfg(test)]
pub(super) const NEUTRAL: &[&str] = &[
    // They name the entry that they are part of.
    "actions/*/obligations/*/type",
    "actions/*/param_effects/*/add_effects/",
    "actions/*/param_effects/*/param",
    // A late report is still taken; the budget stays held meanwhile.
    "report_grace_ms",
    "scheme",
];

/// Why a change loosens, if it does.
pub(super) fn loosens(site: &Site<'_>) -> Option<&'static str> {
    RULES.iter().find(|(pattern, test, _)| site.is_at(pattern) && test(site)).map(|(_, _, why)| *why)
}

impl Site<'_> {
    /// A pattern that ends with `/` is about an item of a list.
    fn is_at(&self, pattern: &str) -> bool {
        let (pattern, item) = match pattern.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (pattern, false),
        };
        let words: Vec<&str> = pattern.split('/').collect();
        item == self.lists.is_some()
            && words.len() == self.path.len()
            && words.iter().zip(self.path).all(|(word, name)| *word == "*" || word == name)
    }

    /// The argument that a bound is about: a name in the path, or an item of `required`.
    fn param(&self) -> &str {
        let item = self.was.or(self.is).and_then(Value::as_str);
        match self.path.last().map(String::as_str) {
            Some("required") => item.unwrap_or_default(),
            last => last.unwrap_or_default(),
        }
    }

    fn action<'d>(&self, document: &'d Document) -> Option<&'d Action> {
        document.actions.get(self.path.get(1)?)
    }
}

fn always(_: &Site<'_>) -> bool {
    true
}

fn added(site: &Site<'_>) -> bool {
    site.was.is_none()
}

fn removed(site: &Site<'_>) -> bool {
    site.is.is_none()
}

fn not_added(site: &Site<'_>) -> bool {
    site.was.is_some()
}

fn not_removed(site: &Site<'_>) -> bool {
    site.is.is_some()
}

fn became_false(site: &Site<'_>) -> bool {
    site.is == Some(&Value::Bool(false))
}

fn raised_or_removed(site: &Site<'_>) -> bool {
    match (site.was, site.is) {
        (Some(was), Some(is)) => number(is).zip(number(was)).is_none_or(|(is, was)| is > was),
        (was, _) => was.is_some(),
    }
}

fn lowered_or_removed(site: &Site<'_>) -> bool {
    match (site.was, site.is) {
        (Some(Value::String(was)), Some(Value::String(is))) if Exact::parse_decimal(is).is_none() => is < was,
        (Some(was), Some(is)) => number(is).zip(number(was)).is_none_or(|(is, was)| is < was),
        (was, _) => was.is_some(),
    }
}

/// An action that came and does more than to rehearse.
fn goes_live(site: &Site<'_>) -> bool {
    let live = |action: &Action| !action.dry_run || u8::from(action.tier) == 0;
    site.was.is_none() && site.action(site.after).is_some_and(live)
}

fn queue_raised(site: &Site<'_>) -> bool {
    let most = |document| {
        site.action(document).and_then(|action| action.approval.per_principal).unwrap_or(PENDING_PER_PRINCIPAL_DEFAULT)
    };
    most(site.after) > most(site.before)
}

fn ttl_raised(site: &Site<'_>) -> bool {
    let ttl = |document: &Document| {
        site.action(document).and_then(|action| action.approval.ttl_ms).unwrap_or(document.approval_ttl_ms)
    };
    ttl(site.after) > ttl(site.before)
}

fn deadline_raised(site: &Site<'_>) -> bool {
    let within = |document: &Document| {
        site.action(document).and_then(|action| action.execute_within_ms).unwrap_or(document.execute_within_ms)
    };
    within(site.after) > within(site.before)
}

/// A bound that went, on an argument that is still accepted.
fn bound_went(site: &Site<'_>) -> bool {
    site.is.is_none() && site.action(site.after).is_some_and(|action| accepts(action, site.param()))
}

/// A rule that came, about an argument that was refused until then.
fn param_came(site: &Site<'_>) -> bool {
    site.was.is_none() && site.action(site.before).is_some_and(|action| !accepts(action, site.param()))
}

/// Fewer URLs are covered; a rule without schemes covers all of them.
fn schemes_fewer(site: &Site<'_>) -> bool {
    site.lists.is_some_and(|(was, is)| if site.is.is_none() { !is.is_empty() } else { was.is_empty() })
}

/// Whether an action accepts an argument of this name at all.
fn accepts(action: &Action, param: &str) -> bool {
    let bounds = &action.bounds;
    !bounds.strict_params
        || bounds.numeric.contains_key(param)
        || bounds.choices.contains_key(param)
        || bounds.required.iter().any(|name| name == param)
}

fn number(value: &Value) -> Option<Exact> {
    match value {
        Value::Number(number) => Exact::parse_number(&number.to_string()),
        Value::String(text) => Exact::parse_decimal(text),
        _ => None,
    }
}
