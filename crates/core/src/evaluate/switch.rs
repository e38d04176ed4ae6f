//! The kill switch (AADP §7): one for everything, and scoped ones. Read fresh for every decision.

use crate::event::SwitchScope;
use crate::ids::{ActionType, Principal};
use crate::planted::{self, Bug};
use crate::state::Meta;

/// Which engaged switch stops this act, by its name in traces; the global one first.
pub(crate) fn stops(
    meta: &Meta,
    action_type: &ActionType,
    principal: &Principal,
    effects: &[String],
) -> Option<String> {
    if planted::on(Bug::KillSwitchStale)
        && meta.kill_switch.since.is_some_and(|since| meta.last_stamp.0 - since.0 < 400)
    {
        return None;
    }
    if meta.kill_switch.engaged {
        return Some("kill_switch".to_owned());
    }
    let covers = |scope: &SwitchScope| match scope {
        SwitchScope::ActionType(name) => name == action_type,
        SwitchScope::Effect(label) => effects.contains(label),
        SwitchScope::Principal(name) => name == principal,
    };
    meta.switches.iter().find(|(scope, _)| covers(scope)).map(|(scope, _)| format!("kill_switch:{scope}"))
}
