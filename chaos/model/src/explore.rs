//! The search: every step from every state, breadth first, so that the first history that violates a property is a
//! shortest one.
//! Absent on purpose: luck. What was reached before is known by its name and not explored again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use placet_core::event::{ApprovalState, Body};
use placet_core::ids::Hash;

use crate::identity::Id;
use crate::log::{Applied, History};
use crate::machine::{Machine, Stopped};
use crate::properties::{self, Auditor, Property, View};
use crate::subject::Subject;
use crate::system::{News, Step, System};
use crate::world::World;

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps in one history.
    pub depth: usize,
    /// States in all, so that a search ends before memory does.
    pub states: usize,
}

/// A property that does not hold, and the history that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which property.
    pub property: &'static str,
    /// Where it is stated.
    pub stated: &'static str,
    /// What is wrong.
    pub detail: String,
    /// How many steps it takes.
    pub depth: usize,
    /// What happens, step by step.
    pub story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}) does not hold after {} steps: {}", self.property, self.stated, self.depth, self.detail)?;
        self.story.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// States that differ.
    pub states: usize,
    /// Steps from one to another, or to itself.
    pub transitions: usize,
    /// Steps of the longest history.
    pub depth: usize,
    /// Nothing is left within the bounds of the world; else the limits ended the search.
    pub complete: bool,
    /// Committed logs that differ.
    pub histories: usize,
    /// Those that no other one continues: their evidence was exported, verified and derived again.
    pub longest_histories: usize,
    /// Entries that were derived again.
    pub rederived: usize,
    /// How often the core judged; what it judged before on the same state counts once.
    pub judgements: u64,
    /// What happened how often: steps by their name, facts by theirs (once for each log that ends with them).
    pub seen: BTreeMap<&'static str, u64>,
    /// The first violation found.
    pub violation: Option<Violation>,
}

/// Searches a world for violations of all properties.
pub fn explore<S: Subject>(world: &World, subject: S, limits: Limits) -> Result<Exploration, Stopped> {
    explore_for(world, subject, limits, properties::ALL)
}

/// Searches a world for violations of some properties.
pub fn explore_for<S: Subject>(
    world: &World,
    subject: S,
    limits: Limits,
    properties: &[&dyn Property],
) -> Result<Exploration, Stopped> {
    let mut search = Search {
        world,
        properties,
        machine: Machine::new(world, subject),
        found: Exploration::default(),
        visited: HashSet::new(),
        paths: Vec::new(),
        logs: HashMap::new(),
    };
    search.run(limits)?;
    let mut found = search.found;
    found.histories = search.logs.len();
    found.judgements = search.machine.judgements;
    Ok(found)
}

/// A state that is still to be explored: its number, and itself.
type Open = (u32, System);

/// A committed log that was reached.
struct Reached {
    /// As how many were reached before: in the order of the search.
    number: usize,
    /// The state before, and the step that led to it.
    by: Option<(u32, Step)>,
    /// The log without its last entry, unless that is empty.
    before: Option<Id>,
    /// The last entry's facts: their bytes and hashes.
    last: Vec<(Vec<u8>, Hash)>,
    /// Another continues it.
    continued: bool,
}

struct Search<'w, S> {
    world: &'w World,
    properties: &'w [&'w dyn Property],
    machine: Machine<'w, S>,
    found: Exploration,
    visited: HashSet<Id>,
    /// For each state, the one before it and the step from there.
    paths: Vec<Option<(u32, Step)>>,
    logs: HashMap<Id, Reached>,
}

/// Why a property does not hold.
struct Broken {
    property: &'static str,
    stated: &'static str,
    detail: String,
}

impl<S: Subject> Search<'_, S> {
    fn run(&mut self, limits: Limits) -> Result<(), Stopped> {
        let first = self.machine.begin()?;
        self.visited.insert(first.id());
        self.paths.push(None);
        self.found.states = 1;
        if let Some(broken) = self.check(None, &first, &News::default(), true) {
            self.found.violation = Some(self.violation(broken, None)?);
            return Ok(());
        }
        let mut open: Vec<Open> = vec![(0, first)];
        while !open.is_empty() && self.found.depth < limits.depth {
            let last = self.found.depth + 1 == limits.depth;
            let (known, mut next) = (self.found.states, Vec::new());
            for (number, system) in open {
                if self.expand(number, &system, &mut next, last)? {
                    return Ok(());
                }
                if self.found.states >= limits.states {
                    return self.evidence();
                }
            }
            open = next;
            // Neighbours ask the core alike, so that its answers are still in memory.
            open.sort_by_key(|(_, system)| system.lead.star.id);
            self.found.complete = self.found.states == known;
            self.found.depth += usize::from(!self.found.complete);
        }
        self.evidence()
    }

    /// All steps from one state. Whether a violation was found. States of the last depth are checked and not kept.
    fn expand(&mut self, number: u32, system: &System, next: &mut Vec<Open>, last: bool) -> Result<bool, Stopped> {
        for step in self.machine.steps(system) {
            let (after, news) = match attempt(&mut self.machine, system, step) {
                Ok(Some(taken)) => taken,
                Ok(None) => continue,
                Err(Stopped(detail)) => {
                    // What a correct leader proposed stops no node (and a difference between nodes stops one).
                    let broken = Broken { property: "agreement", stated: "architecture §7.7", detail };
                    self.found.violation = Some(self.violation(broken, Some((number, step)))?);
                    return Ok(true);
                }
            };
            self.found.transitions += 1;
            self.see(step.name());
            let new = self.visited.insert(after.id());
            if let Some(broken) = self.check(Some((number, step)), &after, &news, new) {
                self.found.violation = Some(self.violation(broken, Some((number, step)))?);
                return Ok(true);
            }
            if new {
                let name = u32::try_from(self.paths.len()).map_err(|_| Stopped("too many states".to_owned()))?;
                self.paths.push(Some((number, step)));
                self.found.states += 1;
                if !last {
                    next.push((name, after));
                }
            }
        }
        Ok(false)
    }

    /// Everything that must hold: for each log once, for each new state, and for each answer.
    fn check(&mut self, by: Option<(u32, Step)>, system: &System, news: &News, new: bool) -> Option<Broken> {
        for (history, applied) in self.machine.fresh() {
            if self.logs.contains_key(&history.id) {
                continue;
            }
            let before = history.before.as_ref().map(|before| before.id);
            let before = before.filter(|before| match self.logs.get_mut(before) {
                Some(before) => {
                    before.continued = true;
                    true
                }
                None => false,
            });
            let known = history.before.as_ref().map_or(0, |before| before.events.len());
            let last = history.events.iter().skip(known).map(|event| (event.bytes.to_vec(), event.hash)).collect();
            let number = self.logs.len();
            self.logs.insert(history.id, Reached { number, by, before, last, continued: false });
            self.see_last(&history);
            let view = View { world: self.world, history: &history, applied: &applied };
            for property in self.properties {
                if let Err(detail) = property.of_log(&view) {
                    return Some(Broken { property: property.name(), stated: property.stated(), detail });
                }
            }
        }
        for property in self.properties {
            let held = if new { property.of_state(self.world, system, news) } else { Ok(()) };
            let held = held.and_then(|()| property.of_answers(self.world, system, news));
            if let Err(detail) = held {
                return Some(Broken { property: property.name(), stated: property.stated(), detail });
            }
        }
        None
    }

    fn see(&mut self, what: &'static str) {
        let count = self.found.seen.entry(what).or_default();
        *count = count.saturating_add(1);
    }

    fn see_last(&mut self, history: &History) {
        let Some(last) = &history.last else { return };
        if last.applied == Applied::Fenced {
            return self.see("fenced batch");
        }
        for event in &last.batch.events {
            match &event.entry.body {
                Body::Decision(decided) => self.see(decided.verdict.as_str()),
                Body::ApprovalTransition(change) => self.see(match change.to {
                    ApprovalState::Pending => "vote",
                    ApprovalState::Approved => "approved",
                    ApprovalState::Denied => "denied",
                    ApprovalState::Expired => "expired approval",
                    ApprovalState::Consumed => "consumed",
                }),
                other => self.see(other.kind()),
            }
        }
    }

    /// The evidence of every log that no other continues, derived again from nothing: a walk over the tree of logs, so
    /// that what two logs share is derived once.
    fn evidence(&mut self) -> Result<(), Stopped> {
        self.found.longest_histories = self.logs.values().filter(|reached| !reached.continued).count();
        let property = &properties::EVIDENCE;
        if !self.properties.iter().any(|one| one.name() == property.name()) {
            return Ok(());
        }
        let mut children: HashMap<Option<Id>, Vec<Id>> = HashMap::new();
        for (id, reached) in &self.logs {
            children.entry(reached.before).or_default().push(*id);
        }
        // The log that was reached first has a shortest history.
        let mut first: Option<(&Reached, String)> = None;
        let mut open = vec![(None, Auditor::default())];
        while let Some((at, auditor)) = open.pop() {
            for id in children.remove(&at).unwrap_or_default() {
                let Some(reached) = self.logs.get(&id) else { continue };
                self.found.rederived += reached.last.len();
                let mut reading = auditor.clone();
                let mut audited = reading.read(&reached.last);
                if !reached.continued {
                    audited = audited.and_then(|()| reading.close());
                }
                match audited {
                    Ok(()) => open.push((Some(id), reading)),
                    Err(detail) if first.as_ref().is_none_or(|(before, _)| reached.number < before.number) => {
                        first = Some((reached, detail));
                    }
                    Err(_) => {}
                }
            }
        }
        if let Some((by, detail)) = first.map(|(reached, detail)| (reached.by, detail)) {
            let broken = Broken { property: property.name(), stated: property.stated(), detail };
            self.found.violation = Some(self.violation(broken, by)?);
        }
        Ok(())
    }

    fn violation(&mut self, broken: Broken, by: Option<(u32, Step)>) -> Result<Violation, Stopped> {
        let mut steps = Vec::new();
        let mut at = by;
        while let Some((before, step)) = at {
            steps.push(step);
            at = self.paths.get(usize::try_from(before).unwrap_or(usize::MAX)).copied().flatten();
        }
        steps.reverse();
        let story = self.story(&steps)?;
        let Broken { property, stated, detail } = broken;
        Ok(Violation { property, stated, detail, depth: steps.len(), story })
    }

    /// Takes the steps again and listens.
    fn story(&mut self, steps: &[Step]) -> Result<Vec<String>, Stopped> {
        self.machine.talks = true;
        let mut system = self.machine.begin()?;
        let mut story = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            match attempt(&mut self.machine, &system, *step) {
                Ok(Some((next, news))) => {
                    let mut lines = news.lines.into_iter();
                    story.push(format!("{:>2}. {}", number + 1, lines.next().unwrap_or_default()));
                    story.extend(lines.map(|line| format!("    {line}")));
                    system = next;
                }
                Ok(None) => story.push(format!("{:>2}. {step:?} does not happen", number + 1)),
                Err(Stopped(why)) => story.push(format!("{:>2}. {step:?}: {why}", number + 1)),
            }
        }
        self.machine.talks = false;
        Ok(story)
    }
}

/// Takes a step; a core that panics stops its node.
fn attempt<S: Subject>(
    machine: &mut Machine<'_, S>,
    system: &System,
    step: Step,
) -> Result<Option<(System, News)>, Stopped> {
    catch_unwind(AssertUnwindSafe(|| machine.take(system, step)))
        .unwrap_or_else(|_| Err(Stopped("the core panicked".to_owned())))
}
