//! One run: a cluster under load, faults by a campaign, and at the end everything healed, read and checked.
//! Absent on purpose: which faults. A campaign decides that and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{Cluster, Shape, View};
use crate::dice::Dice;
use crate::doors::{Doors, HTTP_PORT, Said, text};
use crate::journal::{Journal, Told, position};
use crate::load::{Hand, Load, Pace};
use crate::means::Means;
use crate::network::Network;
use crate::properties::{self, Observed, Open};
use crate::relay::Relays;
use crate::sandbox::{Sandbox, address};
use crate::secrets::{AUDIT, OPERATE, POLICY};
use crate::summary::Summary;
use crate::timeline::Timeline;
use crate::{evidence, picture, requests};

/// How a run is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    pub campaign: String,
    pub shape: Shape,
    pub pace: Pace,
    pub seed: u64,
    /// Preload what shifts clocks and fails fsyncs.
    pub preload: bool,
    /// Nodes whose disk is a small one, of as many megabytes.
    pub small_disks: BTreeMap<u64, u64>,
    /// The program that all nodes begin with, if it is another one.
    pub begins_with: Option<PathBuf>,
    pub out: PathBuf,
}

/// How long a healed cluster may take until it decides again.
pub const HEALED_WITHIN: Duration = Duration::from_secs(30);

/// How long permits of two seconds may need to end, after clocks that were ahead.
const BRIEF_ENDS_WITHIN: Duration = Duration::from_secs(60);

/// How often an export that broke off is asked for again.
const EXPORT_TRIES: usize = 4;

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    pub cluster: Cluster,
    pub network: Network,
    pub relays: Option<Relays>,
    pub journal: Arc<Journal>,
    pub timeline: Timeline,
    pub dice: Dice,
    pub means: Means,
    pub load: Option<Load>,
    plan: Plan,
    /// Asked before it ran, since a build may replace the file meanwhile.
    program: String,
    watcher: JoinHandle<()>,
    stalls: JoinHandle<()>,
    stalled_ms: Arc<AtomicU64>,
    begun: Instant,
    /// Numbers of the campaign.
    pub figures: BTreeMap<String, u64>,
    /// What went wrong on the way.
    pub failures: Vec<String>,
    /// What was left out.
    pub skipped: Vec<String>,
}

impl Run {
    /// Starts the cluster, publishes the policy and starts the load.
    pub async fn start(plan: Plan) -> anyhow::Result<Self> {
        let sandbox = Sandbox::around().context("not in a sandbox")?;
        if plan.out.exists() {
            std::fs::remove_dir_all(&plan.out)?;
        }
        let program = program(&plan.shape.binary)?;
        let folder = plan.out.join("nodes");
        std::fs::create_dir_all(&folder)?;
        let means = Means::found(&plan.out);
        let relays = if plan.shape.relayed { Some(Relays::start().await?) } else { None };
        let journal = Arc::new(Journal::default());
        let timeline = Timeline::new(Arc::clone(&journal));
        if means.small_disks {
            for (id, megabytes) in &plan.small_disks {
                crate::disk::Disks::mount_small(&folder.join(format!("node-{id}")), *megabytes)?;
            }
        }
        let mut skipped = Vec::new();
        let preload = |cluster: &mut Cluster| {
            (1..=plan.shape.nodes).for_each(|id| cluster.run_program(id, plan.begins_with.clone()));
            if plan.preload && means.clocks {
                cluster.clocks.enable();
            }
            if plan.preload && means.compiler { cluster.disks.enable() } else { Ok(()) }
        };
        let cluster = Cluster::start(sandbox.clone(), &folder, plan.shape.clone(), preload).await?;
        let doors = Doors::new(&folder, Duration::from_secs(1))?;
        let watcher = timeline.watch(doors, (1..=crate::sandbox::NODES_MAX).collect());
        let stalled_ms = Arc::new(AtomicU64::new(0));
        let stalls = tokio::spawn(notice_stalls(Arc::clone(&stalled_ms)));
        let mut dice = Dice::new(plan.seed);
        publish(&cluster).await?;
        let load = Load::start(&folder, &journal, &cluster.ids(), plan.pace, &mut dice)?;
        skipped.extend(means.missing().into_iter().map(str::to_owned));
        Ok(Self {
            network: Network::new(sandbox),
            cluster,
            relays,
            journal,
            timeline,
            dice,
            means,
            load: Some(load),
            plan,
            program,
            watcher,
            stalls,
            stalled_ms,
            begun: Instant::now(),
            figures: BTreeMap::new(),
            failures: Vec::new(),
            skipped,
        })
    }

    /// Since the load began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Where this run's files are.
    pub fn out(&self) -> &Path {
        &self.plan.out
    }

    /// The kill switch; `None` once the load has ended.
    pub fn switch(&self) -> Option<Hand> {
        self.load.as_ref().map(Load::switch)
    }

    /// A node at random among those.
    pub fn pick(&mut self, of: &[u64]) -> u64 {
        self.dice.pick(of).copied().unwrap_or(1)
    }

    /// The node that leads, within the time that a healed cluster may need.
    pub async fn leader(&mut self) -> anyhow::Result<u64> {
        self.cluster.leader(HEALED_WITHIN).await
    }

    /// Starts every node that ended by itself. Where no fault explains it, it is a failure of the run.
    pub fn restart_ended(&mut self, explained: bool) -> anyhow::Result<()> {
        for id in self.cluster.ids() {
            let status = self.cluster.ended(id)?;
            if let (Some(status), false) = (status, explained) {
                let tail = self.cluster.log_tail(id, 8);
                self.failures.push(format!("node {id} ended by itself ({status}):\n{tail}"));
            }
            if !self.cluster.runs(id) {
                self.cluster.spawn(id, &[])?;
            }
        }
        Ok(())
    }

    /// Undoes every fault and waits until the cluster decides. How long it took is liveness (architecture §7.8).
    pub async fn heal(&mut self) -> anyhow::Result<Duration> {
        let ids = self.cluster.ids();
        self.network.heal(&ids)?;
        if let Some(relays) = &self.relays {
            relays.delay(Duration::ZERO);
        }
        for id in ids {
            self.cluster.clocks.set(id, 0)?;
            self.cluster.disks.fail_syncs(id, false)?;
            self.cluster.resume(id);
        }
        self.restart_ended(true)?;
        let healed = Instant::now();
        self.leader().await?;
        Ok(healed.elapsed())
    }

    /// Finishes a run whose campaign may have broken off: that is a failure of the run, and what was seen is checked.
    pub async fn finish_after(mut self, struck: anyhow::Result<()>) -> anyhow::Result<Summary> {
        if let Err(error) = struck {
            self.failures.push(format!("the campaign broke off: {error:#}"));
        }
        self.finish().await
    }

    /// Heals, ends the load, reads everything and checks it; writes summary and picture.
    pub async fn finish(mut self) -> anyhow::Result<Summary> {
        let seconds = self.elapsed().as_secs();
        match self.heal().await {
            Ok(took) => self.figure("healed_ms", took),
            Err(error) => self.failures.push(format!("liveness: {error:#}")),
        }
        if let Some(load) = self.load.take()
            && let Err(error) = load.end().await
        {
            self.failures.push(format!("a client did not end: {error:#}"));
        }
        let mut seen = Observed::default();
        if let Err(error) = self.observe(&mut seen).await {
            self.failures.push(format!("the evidence could not be read: {error:#}"));
        }
        // Nothing was done to the nodes since they were healed.
        self.restart_ended(false)?;
        self.watcher.abort();
        self.stalls.abort();
        self.figures.insert("stalled_at_most_ms".to_owned(), self.stalled_ms.load(Ordering::Relaxed));
        seen.known = self.journal.known();
        self.failures.extend(seen.known.oddities.iter().take(properties::SHOWN).cloned());
        let findings = if seen.entries.is_empty() { Vec::new() } else { properties::check(&seen) };
        let mut summary = Summary {
            campaign: self.plan.campaign.clone(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            program: std::mem::take(&mut self.program),
            seed: self.plan.seed,
            nodes: self.plan.shape.nodes,
            seconds,
            faults: BTreeMap::new(),
            load: work(&seen),
            figures: std::mem::take(&mut self.figures),
            properties: findings.into_iter().map(|(name, found)| (name.to_owned(), found)).collect(),
            failures: std::mem::take(&mut self.failures),
            skipped: std::mem::take(&mut self.skipped),
        };
        for (at, count) in &seen.known.deaths {
            summary.faults.insert(format!("clients dead {at}"), *count);
        }
        for fault in self.timeline.faults() {
            *summary.faults.entry(fault.kind).or_default() += 1;
        }
        picture::write(&self.plan.out.join("timeline.svg"), &summary, &self.timeline, &seen.known)?;
        summary.write(&self.plan.out)?;
        let nodes = self.plan.out.join("nodes");
        let clean = summary.clean();
        drop(self);
        if clean {
            // Data of nodes is large, and says nothing that the evidence does not say. A mounted disk goes with the run.
            let _ = std::fs::remove_dir_all(nodes);
        }
        Ok(summary)
    }

    /// Notes a duration of this campaign, in milliseconds.
    pub fn figure(&mut self, name: &str, value: Duration) {
        self.figures.insert(name.to_owned(), u64::try_from(value.as_millis()).unwrap_or(u64::MAX));
    }

    async fn observe(&mut self, seen: &mut Observed) -> anyhow::Result<()> {
        self.brief_permits_end().await?;
        self.agree().await?;
        let export = self.plan.out.join("evidence.jsonl");
        let members = self.members().await;
        for id in members.into_iter().filter(|(_, role)| role == "voter").map(|(id, _)| id) {
            // An export is the leader's, so each voter leads once.
            self.cluster.transfer(id, Duration::from_secs(20)).await?;
            let mut exported = self.export(id, &export).await;
            for _ in 0..EXPORT_TRIES {
                let Err(error) = &exported else { break };
                // It says so and never passes a part for the whole; an auditor asks again.
                eprintln!("an export broke off: {error:#}");
                *self.figures.entry("exports_broken_off".to_owned()).or_default() += 1;
                exported = self.export(id, &export).await;
            }
            exported.with_context(|| format!("node {id} gives no export"))?;
            let bytes = std::fs::read(&export)?;
            seen.exports.insert(id, (bytes.len() as u64, blake3::hash(&bytes).to_hex().to_string()));
        }
        seen.views = self.agree().await?;
        seen.open = open(&self.cluster).await?;
        seen.entries = evidence::read(std::fs::File::open(&export)?)?;
        for verb in ["verify", "rederive"] {
            let begun = Instant::now();
            let output = tokio::process::Command::new(self.cluster.binary())
                .args(["evidence", verb])
                .arg(&export)
                .output()
                .await?;
            if !output.status.success() {
                let said =
                    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
                self.failures.push(format!("evidence {verb}: {said}"));
            }
            self.figure(&format!("{verb}_ms"), begun.elapsed());
        }
        Ok(())
    }

    /// Waits until no permit of two seconds is open: they end by events, which must not come between two exports. A
    /// clock that was ahead makes that longer, since stamps never run backwards.
    async fn brief_permits_end(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + BRIEF_ENDS_WITHIN;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let brief = open(&self.cluster).await?.into_iter().filter(|open| open.action == "pay.brief").count();
            if brief == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{brief} permits of two seconds are still open");
            }
        }
    }

    /// What an auditor does, at one node.
    async fn export(&self, node: u64, into: &Path) -> anyhow::Result<()> {
        let output = tokio::process::Command::new(self.cluster.binary())
            .args(["evidence", "export", "--no-sign", "--out"])
            .arg(into)
            .env("PLACET_HTTP", format!("https://{}:{HTTP_PORT}", address(node)))
            .env("PLACET_CA", self.cluster.folder().join("ca.pem"))
            .env("PLACET_TOKEN", AUDIT)
            .output()
            .await?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Who belongs to the cluster, as the leader says: a node that was removed hears nothing any more.
    async fn members(&self) -> BTreeMap<u64, String> {
        for id in self.cluster.ids() {
            if let Some(view) = self.cluster.view(id).await
                && view.leader == Some(id)
            {
                return view.roles;
            }
        }
        BTreeMap::new()
    }

    /// Waits until every node has the same evidence; what they say then.
    async fn agree(&self) -> anyhow::Result<Vec<View>> {
        let deadline = Instant::now() + HEALED_WITHIN;
        loop {
            let mut views = Vec::new();
            let members = self.members().await;
            for id in members.keys() {
                views.extend(self.cluster.view(*id).await);
            }
            let same = views.windows(2).all(|pair| match pair {
                [one, other] => one.evidence == other.evidence && one.head == other.head,
                _ => true,
            });
            if same && !members.is_empty() && views.len() == members.len() {
                return Ok(views);
            }
            if Instant::now() > deadline {
                bail!("the nodes do not agree: {views:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// How late this process is woken, at most: a machine that is busy with something else.
async fn notice_stalls(worst_ms: Arc<AtomicU64>) {
    const TICK: Duration = Duration::from_millis(20);
    loop {
        let begun = Instant::now();
        tokio::time::sleep(TICK).await;
        let late = begun.elapsed().saturating_sub(TICK).as_millis();
        worst_ms.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

async fn publish(cluster: &Cluster) -> anyhow::Result<()> {
    let document = Value::String(requests::POLICY_DOCUMENT.to_owned());
    let deadline = Instant::now() + HEALED_WITHIN;
    loop {
        let said = cluster.doors.call(1, "POST", "/v1/policies", POLICY, Some(&document)).await;
        match said {
            Said::Answer(200, _) => return Ok(()),
            Said::Answer(status, body) => bail!("the policy is refused with {status}: {body}"),
            _ if Instant::now() > deadline => bail!("the policy cannot be published"),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Every unresolved intent, page by page.
async fn open(cluster: &Cluster) -> anyhow::Result<Vec<Open>> {
    // A decide to find the leader would be one more entry.
    let mut leader = 1;
    for id in cluster.ids() {
        leader = cluster.view(id).await.and_then(|view| view.leader).unwrap_or(leader);
    }
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = cluster.doors.get(leader, &format!("/v1/intents?limit=1000{after}"), OPERATE).await;
        let page = page.context("the intents cannot be listed")?;
        let listed = page.get("intents").and_then(Value::as_array).context("no list of intents")?;
        all.extend(listed.iter().map(|one| Open {
            permit: text(one, "permit_id").to_owned(),
            request: text(one, "request_id").to_owned(),
            action: text(one, "action_type").to_owned(),
            evidence: position(text(one, "evidence_id")),
        }));
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

fn work(seen: &Observed) -> crate::summary::Work {
    let known = &seen.known;
    let count = |number: usize| number as u64;
    let mut latencies: Vec<u64> =
        known.attempts.iter().filter(|one| one.answered).map(|one| one.at.saturating_sub(one.sent)).collect();
    latencies.sort_unstable();
    let quantile =
        |per_cent: usize| latencies.get(latencies.len() * per_cent / 100).copied().unwrap_or_default() / 1000;
    let accepted = |permit: &crate::journal::Permit| {
        permit.reports.iter().any(|report| matches!(report.told, Told::Accepted { .. }))
    };
    crate::summary::Work {
        requests: count(known.requests.len()),
        attempts: count(known.attempts.len()),
        answered: count(latencies.len()),
        permits: count(known.permits.len()),
        reports: count(known.permits.values().filter(|permit| accepted(permit)).count()),
        approvals_used: count(
            known
                .requests
                .values()
                .filter(|one| one.approval_ref.is_some() && one.answers.iter().any(|a| a.permit.is_some()))
                .count(),
        ),
        switch_settings: count(known.switches.iter().filter(|switch| switch.acknowledged.is_some()).count()),
        entries: count(seen.entries.len()),
        open_intents: count(seen.open.len()),
        median_ms: quantile(50),
        p99_ms: quantile(99),
    }
}

/// What a program says of its version, without its name.
fn program(binary: &Path) -> anyhow::Result<String> {
    let output = Command::new(binary).arg("--version").output()?;
    anyhow::ensure!(output.status.success(), "{} does not tell its version", binary.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("placet ").to_owned())
}
