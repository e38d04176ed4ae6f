//! Single use (architecture §7.4): an approval is consumed at most once; one human decision, one permit. And the human
//! decision is one: enough different people who may decide, none of whom proposed it, before its deadline.
//! Absent on purpose: the approval records of the core. The facts are counted again.

use std::collections::BTreeMap;

use placet_core::event::{ApprovalState, ApprovalTransition, Body, Decided, Entry};
use placet_core::ids::{ApprovalId, EvidenceIndex, Principal};
use placet_core::stamp::Stamp;

use super::{Property, View};
use crate::world::{Granters, World};

/// The property.
#[derive(Clone, Copy, Debug)]
pub struct SingleUse;

/// What is known of a proposal.
#[derive(Debug)]
struct Proposal<'e> {
    index: EvidenceIndex,
    proposer: &'e Principal,
    decided: &'e Decided,
    deadline: Stamp,
    grants: Vec<&'e Principal>,
    /// Granted by enough, and not withdrawn.
    granted: bool,
    ended: bool,
    consumed_by: Option<EvidenceIndex>,
}

impl Property for SingleUse {
    fn name(&self) -> &'static str {
        "single use"
    }

    fn stated(&self) -> &'static str {
        "architecture §7.4"
    }

    fn of_log(&self, view: &View<'_>) -> Result<(), String> {
        let mut proposals = BTreeMap::new();
        for event in &view.history.events {
            let entry = &event.entry;
            match &entry.body {
                Body::Decision(decided) | Body::ExecIntent(decided) => {
                    consume(&mut proposals, entry, decided)?;
                    needs_people(view.world, entry, decided)?;
                    if let (Some(id), Some(deadline)) = (&decided.approval_id, decided.approval_deadline) {
                        proposals.insert(
                            id,
                            Proposal {
                                index: entry.index,
                                proposer: &entry.principal,
                                decided,
                                deadline,
                                grants: Vec::new(),
                                granted: false,
                                ended: false,
                                consumed_by: None,
                            },
                        );
                    }
                }
                Body::ApprovalTransition(change) => transition(view.world, &mut proposals, entry, change)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// A decision that honours an approval.
fn consume<'e>(
    proposals: &mut BTreeMap<&'e ApprovalId, Proposal<'e>>,
    entry: &'e Entry,
    decided: &'e Decided,
) -> Result<(), String> {
    let (Some(id), Some(of)) = (&decided.approval_ref, decided.resumes) else { return Ok(()) };
    let here = entry.index;
    let Some(proposal) = proposals.get_mut(id).filter(|proposal| proposal.index == of) else {
        return Err(format!("`{here}` resumes `{of}`, which proposed nothing"));
    };
    if let Some(before) = proposal.consumed_by {
        return Err(format!("the approval of `{of}` is consumed by `{before}` and by `{here}`"));
    }
    if !proposal.granted || proposal.ended || proposal.deadline <= entry.at {
        return Err(format!("`{here}` consumes the approval of `{of}`, which is not granted"));
    }
    let same = (&decided.action_type, &decided.params) == (&proposal.decided.action_type, &proposal.decided.params);
    if !same || entry.principal != *proposal.proposer {
        return Err(format!("`{here}` consumes the approval of `{of}` for another act"));
    }
    proposal.consumed_by = Some(here);
    Ok(())
}

/// What people must decide is permitted by their decision alone.
fn needs_people(world: &World, entry: &Entry, decided: &Decided) -> Result<(), String> {
    let action = decided.action_type.as_str();
    let people = world.action(action).is_some_and(|fact| fact.granted_by.is_some());
    if people && matches!(entry.body, Body::ExecIntent(_)) && decided.resumes.is_none() {
        return Err(format!("`{}` permits `{action}` and nobody granted it", entry.index));
    }
    Ok(())
}

fn transition<'e>(
    world: &World,
    proposals: &mut BTreeMap<&'e ApprovalId, Proposal<'e>>,
    entry: &'e Entry,
    change: &'e ApprovalTransition,
) -> Result<(), String> {
    let here = entry.index;
    let Some(proposal) = proposals.get_mut(&change.approval_id) else {
        return Err(format!("`{here}` decides what nobody proposed"));
    };
    if proposal.ended || proposal.consumed_by.is_some() {
        return Err(format!("`{here}` decides the approval of `{}`, which has ended", proposal.index));
    }
    match change.to {
        ApprovalState::Pending | ApprovalState::Approved => {
            let granters = world.action(proposal.decided.action_type.as_str()).and_then(|fact| fact.granted_by);
            let Some(Granters { members, quorum }) = granters else {
                return Err(format!("`{here}` grants what needs nobody"));
            };
            let who = &entry.principal;
            let may = members.is_none_or(|members| members.contains(&who.as_str())) && who != proposal.proposer;
            if !may || proposal.grants.contains(&who) || proposal.granted || proposal.deadline <= entry.at {
                return Err(format!("{who} cannot grant the approval of `{}` by `{here}`", proposal.index));
            }
            proposal.grants.push(who);
            proposal.granted = change.to == ApprovalState::Approved;
            if proposal.granted != (proposal.grants.len() >= quorum) {
                let (count, of) = (proposal.grants.len(), proposal.index);
                return Err(format!("after `{here}` the approval of `{of}` has {count} grants of {quorum}"));
            }
        }
        ApprovalState::Denied => proposal.ended = true,
        ApprovalState::Expired if proposal.deadline <= entry.at => proposal.ended = true,
        ApprovalState::Expired | ApprovalState::Consumed => {
            return Err(format!("`{here}` ends the approval of `{}` before its time", proposal.index));
        }
    }
    Ok(())
}
