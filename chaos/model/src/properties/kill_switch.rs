//! No way round the switch (architecture §7.5): no permit has a log position after an engaged kill switch, the global
//! one or one that covers it.
//! Absent on purpose: when an answer arrives. A permit that was recorded before the switch may be told after it.

use placet_core::event::{Body, SwitchScope};

use super::{Property, View};
use crate::world::World;

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct NoWayRound;

impl Property for NoWayRound {
    fn name(&self) -> &'static str {
        "no way round the switch"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.5"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        let mut engaged: Vec<Option<SwitchScope>> = Vec::new();
        for event in &view.history.events {
            match &event.entry.body {
                Body::KillSwitch(set) => {
                    engaged.retain(|scope| *scope != set.scope);
                    if set.engaged {
                        engaged.push(set.scope.clone());
                    }
                }
                Body::ExecIntent(decided) => {
                    let (action, principal) = (decided.action_type.as_str(), event.entry.principal.as_str());
                    if let Some(scope) = engaged.iter().find(|scope| covers(view.world, scope, action, principal)) {
                        let what = scope.as_ref().map_or("everything".to_owned(), ToString::to_string);
                        return Err(format!(
                            "`{}` permits `{action}`; the switch for {what} is engaged",
                            event.entry.index
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// By what the world says about the action type, not by what was recorded with the permit.
fn covers(world: &World, scope: &Option<SwitchScope>, action: &str, principal: &str) -> bool {
    match scope {
        None => true,
        Some(SwitchScope::ActionType(name)) => name.as_str() == action,
        Some(SwitchScope::Principal(name)) => name.as_str() == principal,
        Some(SwitchScope::Effect(label)) => {
            world.action(action).is_some_and(|fact| fact.effects.contains(&label.as_str()))
        }
    }
}
