//! How nodes start, die, and come back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use placet_core::cluster::HealthStatus;
use placet_core::state::MemState;
use placet_replica::{Clock, Node, Options, StartError, Work};
use tokio::time::sleep;

use super::World;
use crate::clock::SimClock;
use crate::disk::{DiskFaults, Disks, SimLog, SimState};
use crate::entropy::Rng;
use crate::life::Life;

/// The longest that a node is down while faults are played.
const DOWN_MS: u64 = 4000;

impl World {
    /// Starts a node, and starts it again whenever it is down, until the run ends.
    pub fn keep_running(&self, id: u64) {
        let world = self.clone();
        tokio::spawn(async move {
            let mut rng = Rng::new(world.seed(), &format!("restarts of {id}"));
            loop {
                world.one_life(id).await;
                let wait = if world.is_calm() { Duration::from_millis(50) } else { rng.millis(10, DOWN_MS) };
                sleep(wait).await;
            }
        });
    }

    fn begin_life(&self, id: u64) -> Option<(Life, SimLog, SimState, Options)> {
        let mut slots = self.0.slots.lock();
        let slot = slots.get_mut(&id)?;
        slot.lives += 1;
        let number = slot.lives;
        let (log, state) = (slot.disks.log.clone(), slot.disks.state.clone());
        let mut crash = Rng::new(self.seed(), &format!("crash {id}.{number}"));
        let (from, to) = (self.folder(id, number), self.folder(id, number + 1));
        let world = self.clone();
        let life = Life::new(id, number, move || {
            log.lock().crash(&mut crash);
            state.lock().crash(&mut crash);
            if let Err(error) = copy_folder(&from, &to) {
                world.violate("harness", &format!("a folder could not be copied: {error}"));
            }
        });
        slot.node = None;
        slot.life = Some(life.clone());
        let faults = slot.disks.faults.clone();
        let log = SimLog::new(slot.disks.log.clone(), faults.clone(), life.clone());
        let watcher = self.clone();
        let observer = Arc::new(move |node, state: &_, changes: &_| watcher.observe(node, state, changes));
        let state =
            SimState::new(slot.disks.state.clone(), self.0.checkpoints.clone(), faults.clone(), life.clone(), observer);
        let options = self.options(id, number, &life, &slot.clock, faults);
        Some((life, log, state, options))
    }

    fn options(&self, id: u64, number: u64, life: &Life, clock: &SimClock, faults: DiskFaults) -> Options {
        let tuning = self.tuning();
        let mut options = Options::new(id, self.folder(id, number));
        if self.is_founder(id) {
            options.initial_cluster = self.0.founders.clone();
        }
        options.dial = Some(self.net().dial(life.clone()));
        let disk = parking_lot::Mutex::new(Rng::new(self.seed(), &format!("disk {id}.{number}")));
        options.work = Work::simulated(move || disk.lock().millis(0, 1 + faults.slow_ms.load(Ordering::SeqCst)));
        let clock = clock.clone();
        options.clock = Clock::new(move || clock.now_ms());
        options.clock_skew_max = Duration::from_secs(2);
        options.deadline = Duration::from_secs(3);
        // Some lives are those of the version before, as during an upgrade that goes back and forth.
        let older = self.seed().wrapping_add(id).wrapping_add(number).is_multiple_of(5);
        options.log_format_max = if older { 1 } else { options.log_format_max };
        options.snapshot_every = Some(tuning.snapshot_every);
        options.log_kept = tuning.log_kept;
        options.replication_lag_max = tuning.snapshot_every + 50;
        options.snapshot_timeout = Duration::from_secs(20);
        options.batch_events_max = tuning.batch_events;
        options.in_flight_batches_max = tuning.batches;
        options
    }

    fn folder(&self, id: u64, life: u64) -> PathBuf {
        self.0.root.path().join(format!("{id}.{life}"))
    }

    /// From start to end; whoever dies is buried.
    async fn one_life(&self, id: u64) {
        let Some((life, log, state, options)) = self.begin_life(id) else { return };
        self.note(|| format!("{life:?} starts"));
        // Whatever happens to the folder of the life before, this one has its own.
        let folder = options.snapshot_dir.clone();
        if let Err(error) = fs::create_dir_all(&folder) {
            return self.violate("harness", &format!("a folder could not be made: {error}"));
        }
        let started = Node::start(options, Arc::new(log), Arc::new(state)).await;
        let node = match started {
            Ok(node) => node,
            Err(error) => return self.failed_start(&life, &error),
        };
        self.net().open_door(life.clone(), node.peer_service());
        if let Some(slot) = self.0.slots.lock().get_mut(&id) {
            slot.node = Some(node.clone());
        }
        tokio::select! {
            () = life.ended() => self.note(|| format!("{life:?} crashed")),
            reason = node.stopped() => self.stopped(&life, &reason),
        }
        // What is left of it ends in its own time: nothing that it does has an effect any more.
        tokio::spawn(async move { node.shutdown().await });
    }

    fn failed_start(&self, life: &Life, error: &StartError) {
        let damaged = self.is_damaged(life.node());
        let (alive, may) = (life.alive(), life.may_stop() || damaged);
        let why =
            std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
        self.note(|| format!("{life:?} could not start: {why}"));
        if alive && !may {
            self.violate("liveness", &format!("node {} could not start on a whole disk: {why}", life.node()));
        }
        life.end();
        if damaged {
            self.wipe(life.node());
        }
    }

    fn stopped(&self, life: &Life, reason: &str) {
        self.note(|| format!("{life:?} stopped: {reason}"));
        let damaged = self.is_damaged(life.node());
        if life.alive() && !life.may_stop() && !damaged {
            self.violate("agreement", &format!("node {} stopped by itself: {reason}", life.node()));
        }
        life.end();
        if damaged {
            self.wipe(life.node());
        }
    }

    /// The node that is running under an id.
    pub fn running(&self, id: u64) -> Option<(Life, Node)> {
        let slots = self.0.slots.lock();
        let slot = slots.get(&id)?;
        let life = slot.life.clone().filter(Life::alive)?;
        Some((life, slot.node.clone()?))
    }

    /// The life of a node.
    pub fn life(&self, id: u64) -> Option<Life> {
        self.0.slots.lock().get(&id)?.life.clone().filter(Life::alive)
    }

    /// Ends a node's life, wherever it is.
    pub fn kill(&self, id: u64) {
        if let Some(life) = self.life(id) {
            life.end();
        }
    }

    /// The node that believes that it leads with the highest term, as far as anybody knows.
    pub fn leader(&self) -> Option<u64> {
        let running = self.ids().into_iter().filter_map(|id| self.running(id));
        let leading = running
            .filter(|(_, node)| node.leads())
            .filter_map(|(life, node)| Some((node.cluster().ok()?.term, life.node())));
        leading.max().map(|(_, id)| id)
    }

    /// Lives that began.
    pub fn lives(&self) -> u64 {
        self.0.slots.lock().values().map(|slot| slot.lives).sum()
    }

    /// Whether every member runs, all have applied the same, and no permit is open.
    pub fn agrees(&self) -> bool {
        let Some((_, leader)) = self.leader().and_then(|id| self.running(id)) else { return false };
        let Ok(view) = leader.cluster() else { return false };
        let members = view.members.iter().map(|member| member.id);
        let views = members.map(|id| {
            let (_, node) = self.running(id)?;
            let view = node.cluster().ok()?;
            Some((view.applied_index, view.evidence_index, view.chain_head, node.health().pending_intents))
        });
        let Some(views) = views.collect::<Option<Vec<_>>>() else { return false };
        let first = views.first().copied();
        first.is_some_and(|first| first.3 == 0 && views.iter().all(|view| *view == first))
    }

    /// Notes where every node stands.
    pub fn describe(&self) {
        for id in self.ids() {
            let Some((life, node)) = self.running(id) else {
                self.note(|| format!("node {id} is down"));
                continue;
            };
            self.note(|| format!("{life:?} {:?} {:?}", node.health(), node.cluster()));
        }
    }

    /// The states of all members, as the leader knows them.
    pub fn states_of_members(&self) -> Vec<(u64, MemState)> {
        let leader = self.leader().and_then(|id| self.running(id));
        let Some(view) = leader.and_then(|(_, node)| node.cluster().ok()) else { return Vec::new() };
        let slots = self.0.slots.lock();
        let members = view.members.iter().filter_map(|member| Some((member.id, slots.get(&member.id)?)));
        members.map(|(id, slot)| (id, slot.disks.state.lock().now.mem.clone())).collect()
    }

    /// The state with the most entries.
    pub fn longest_state(&self) -> MemState {
        let slots = self.0.slots.lock();
        let longest = slots.values().max_by_key(|slot| slot.disks.state.lock().now.mem.meta.next_index);
        longest.map(|slot| slot.disks.state.lock().now.mem.clone()).unwrap_or_default()
    }

    /// The clock of a node.
    pub fn clock(&self, id: u64) -> Option<SimClock> {
        Some(self.0.slots.lock().get(&id)?.clock.clone())
    }

    /// The faults of a node's disks.
    pub fn disk_faults(&self, id: u64) -> Option<DiskFaults> {
        Some(self.0.slots.lock().get(&id)?.disks.faults.clone())
    }

    fn is_damaged(&self, id: u64) -> bool {
        self.0.slots.lock().get(&id).is_some_and(|slot| slot.damaged || slot.disks.log.lock().is_rotten())
    }

    /// Whether some node lost data and has not caught up since. Only a minority may lose data at once.
    pub fn anyone_damaged(&self) -> bool {
        let damaged: Vec<u64> = self
            .0
            .slots
            .lock()
            .iter()
            .filter(|(_, slot)| slot.damaged || slot.disks.log.lock().is_rotten())
            .map(|(id, _)| *id)
            .collect();
        let mut left = false;
        for id in damaged {
            let back = self.running(id).is_some_and(|(_, node)| {
                let health = node.health();
                let applied = node.cluster().is_ok_and(|view| view.applied_index > 0);
                health.status == HealthStatus::Serving && health.detail.is_none() && applied
            });
            match self.0.slots.lock().get_mut(&id) {
                Some(slot) if back && !slot.disks.log.lock().is_rotten() => slot.damaged = false,
                _ => left = true,
            }
        }
        left
    }

    /// Ends a node and turns a bit of its log.
    pub fn damage(&self, id: u64, rng: &mut Rng) -> bool {
        self.kill(id);
        let mut slots = self.0.slots.lock();
        let Some(slot) = slots.get_mut(&id) else { return false };
        let done = slot.disks.log.lock().flip(rng);
        slot.damaged |= done;
        done
    }

    /// Ends a node and takes its disks away.
    pub fn wipe(&self, id: u64) {
        self.kill(id);
        let mut slots = self.0.slots.lock();
        let Some(slot) = slots.get_mut(&id) else { return };
        slot.disks = Disks { faults: slot.disks.faults.clone(), ..Disks::default() };
        slot.damaged = true;
        let folder = self.folder(id, slot.lives + 1);
        // It may not exist; then there is nothing to forget.
        let _ = fs::remove_dir_all(folder);
        drop(slots);
        self.note(|| format!("node {id} lost its disks"));
    }
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    if !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
