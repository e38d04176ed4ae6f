//! The parts of the comparison: what is measured, against what, in which order.
//! Absent on purpose: figures from another run. In each row ours and the other are measured in turn.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use crate::cluster::{Cluster, Load};
use crate::peers::disk;
use crate::peers::etcd::Etcd;
use crate::peers::onedoor::Onedoor;
use crate::peers::redis::Redis;
use crate::process::output;
use crate::results::{Bound, Part, Plot, Row, Series, median};
use crate::{machine, store};

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// One client against the disk.
    Sequential,
    /// Decide and report over HTTP, against onedoor.
    Cycles,
    /// gRPC unary against etcd.
    Unary,
    /// The gRPC stream against Redis.
    Stream,
    /// One hot budget against a thousand.
    Budgets,
    /// Latency under half of the load that can be carried.
    Tail,
    /// Throughput by connections.
    Connections,
    /// Latency, memory and start by the size of the store.
    Store,
}

/// Where everything is, and how much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) binary: PathBuf,
    pub(crate) policy: PathBuf,
    /// Data of all servers, on the disk that is measured.
    pub(crate) work: PathBuf,
    pub(crate) results: PathBuf,
    /// Of an environment with onedoor; without it its rows are left out.
    pub(crate) python: Option<PathBuf>,
    pub(crate) runs: usize,
    pub(crate) seconds: u64,
    /// Entries of the large store.
    pub(crate) entries: u64,
}

impl Place {
    pub(crate) fn cluster(&self) -> anyhow::Result<Cluster> {
        Cluster::start(&self.binary, &self.work.join("placet"), &self.policy)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Bytes of a value of etcd: about an evidence entry. Our log packs them, etcd's does not; the note of the part says so.
const ETCD_VALUE: usize = 1200;

/// Connections at which onedoor is asked; the best of them counts.
const ONEDOOR_CONNECTIONS: [u64; 4] = [1, 2, 4, 8];

/// Measures one part and writes it down.
pub(crate) async fn run(place: &Place, which: Which) -> anyhow::Result<Part> {
    let name = which.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut part = Part {
        name,
        date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        program: output(Command::new(&place.binary).arg("--version"))?.trim().to_owned(),
        machine: machine::describe(&place.work),
        rows: Vec::new(),
        plots: Vec::new(),
        notes: Vec::new(),
    };
    match which {
        Which::Sequential => sequential(place, &mut part)?,
        Which::Cycles => cycles(place, &mut part)?,
        Which::Unary => unary(place, &mut part).await?,
        Which::Stream => stream(place, &mut part)?,
        Which::Budgets => budgets(place, &mut part)?,
        Which::Tail => tail(place, &mut part)?,
        Which::Connections => connections(place, &mut part)?,
        Which::Store => store::measure(place, &mut part)?,
    }
    part.write(&place.results)?;
    Ok(part)
}

fn row(measure: &str, unit: &str, other: &str, must: Bound, aim: f64) -> Row {
    Row {
        measure: measure.to_owned(),
        unit: unit.to_owned(),
        ours: Vec::new(),
        other: other.to_owned(),
        others: Vec::new(),
        must,
        aim,
    }
}

fn sequential(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let measure = "decide p50, one sequential gRPC client, 3 nodes";
    let mut row = row(measure, "µs", "fdatasync of 512 bytes, p50", Bound::AtMost(6.0), 4.0);
    for _ in 0..place.runs {
        row.others.push(disk::sync_p50_us(&place.work.join("disk"), place.time())?);
        row.ours.push(cluster.load(&Load::new("grpc", 1, place.seconds))?.p50_us);
    }
    part.rows.push(row);
    Ok(())
}

fn cycles(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let Some(python) = &place.python else {
        part.notes
            .push("onedoor was left out: it could not be installed here; it needs Python 3.12 or newer".to_owned());
        return Ok(());
    };
    let cluster = place.cluster()?;
    let onedoor = Onedoor::start(python, &place.work.join("onedoor"))?;
    let mut one = row("cycles over HTTP, 1 connection", "cycles/s", "onedoor, 1 connection", Bound::AtLeast(1.5), 2.0);
    let mut many = row(
        "cycles over HTTP, 64 connections, none failed",
        "cycles/s",
        "onedoor, best of 1, 2, 4, 8 connections",
        Bound::AtLeast(12.0),
        20.0,
    );
    let mut failed = 0;
    for _ in 0..place.runs {
        let mut best: f64 = 0.0;
        for connections in ONEDOOR_CONNECTIONS {
            let cycles = onedoor.cycles(connections, place.time())?;
            failed += cycles.failed;
            anyhow::ensure!(cycles.per_second > 0.0, "no cycle of onedoor succeeded");
            best = best.max(cycles.per_second);
            if connections == 1 {
                one.others.push(cycles.per_second);
                one.ours.push(cluster.load(&Load { cycle: true, ..Load::new("http", 1, place.seconds) })?.per_second);
            }
        }
        many.others.push(best);
        many.ours.push(cluster.load(&Load { cycle: true, ..Load::new("http", 64, place.seconds) })?.per_second);
    }
    part.notes.push(format!("of ours no cycle failed; {failed} of onedoor's did and are not counted"));
    part.rows.extend([one, many]);
    Ok(())
}

async fn unary(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let etcd = Etcd::start(&place.work.join("etcd"))?;
    let measure = "decides over gRPC unary, 64 clients";
    let other = format!("etcd {}, 3 nodes, puts, 64 clients", Etcd::version()?);
    let mut row = row(measure, "per second", &other, Bound::AtLeast(3.0), 5.0);
    for _ in 0..place.runs {
        row.others.push(etcd.puts_per_second(64, ETCD_VALUE, place.time()).await?);
        row.ours.push(cluster.load(&Load::new("grpc", 64, place.seconds))?.per_second);
    }
    part.notes.push(format!(
        "values of etcd have {ETCD_VALUE} bytes, about what a decide's evidence entry has; our log packs entries, etcd's does not"
    ));
    part.rows.push(row);
    Ok(())
}

fn stream(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let redis = Redis::start(&place.work.join("redis"))?;
    let other = format!("Redis {}, 1 node, appendfsync always, Lua, 64 connections", redis.version()?);
    for (in_flight, must, aim) in [(64, 0.35, 0.6), (1024, 0.7, 1.0)] {
        let measure = format!("decides over one gRPC stream, {in_flight} in flight");
        let mut row = row(&measure, "per second", &other, Bound::AtLeast(must), aim);
        for _ in 0..place.runs {
            // As many calls as it makes in the time of ours, about.
            row.others.push(redis.reservations_per_second(64, 40_000 * place.seconds)?);
            row.ours.push(cluster.load(&Load::new("stream", in_flight, place.seconds))?.per_second);
        }
        part.rows.push(row);
    }
    Ok(())
}

fn budgets(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let measure = "decides over one gRPC stream, 256 in flight, one hot budget";
    let mut row = row(measure, "per second", "the same, 1,000 budgets", Bound::AtLeast(0.9), 1.0);
    let hot = Load { action: "payments.scoped", ..Load::new("stream", 256, place.seconds) };
    let cold = Load { sessions: 1000, ..hot.clone() };
    for _ in 0..place.runs {
        row.others.push(cluster.load(&cold)?.per_second);
        row.ours.push(cluster.load(&hot)?.per_second);
    }
    part.rows.push(row);
    Ok(())
}

fn tail(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let open = Load::new("grpc", 256, place.seconds);
    let mut peaks = Vec::new();
    for _ in 0..3 {
        peaks.push(cluster.load(&Load::new("grpc", 64, place.seconds))?.per_second);
    }
    let peak = median(&peaks);
    part.notes
        .push(format!("peak over gRPC unary with 64 clients: {peak:.0} decides per second, the median of 3 runs"));
    let at = |per_cent: f64| Load { rate: Some((peak * per_cent / 100.0) as u64), ..open.clone() };
    let measure = "decide p99 at 50% of peak throughput, fixed rate";
    let mut row = row(measure, "µs", "its own p50", Bound::AtMost(10.0), 5.0);
    for _ in 0..place.runs {
        let took = cluster.load(&at(50.0))?;
        row.ours.push(took.p99_us);
        row.others.push(took.p50_us);
    }
    part.rows.push(row);
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for per_cent in [10.0, 25.0, 50.0, 75.0, 90.0, 100.0] {
        let took = cluster.load(&Load { may_overload: true, ..at(per_cent) })?;
        for (line, value) in lines.iter_mut().zip([took.p50_us, took.p99_us, took.p999_us]) {
            line.push((per_cent, value / 1000.0));
        }
        if took.never_begun > 0 {
            part.notes.push(format!("at {per_cent}% of peak {} calls were never begun", took.never_begun));
        }
    }
    part.plots.push(Plot {
        name: "latency-by-load".to_owned(),
        title: "Decide latency by load, gRPC unary, fixed rate".to_owned(),
        x: "per cent of peak throughput".to_owned(),
        y: "ms".to_owned(),
        series: ["p50", "p99", "p99.9"]
            .into_iter()
            .zip(lines)
            .map(|(name, points)| Series { name: name.to_owned(), points })
            .collect(),
    });
    Ok(())
}

fn connections(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let cluster = place.cluster()?;
    let mut series = Vec::new();
    for door in ["http", "grpc", "stream"] {
        let mut points = Vec::new();
        for in_flight in [1, 4, 16, 64, 256, 1024] {
            // On a stream these are calls in flight; a thousand connections of one call each are another question.
            if in_flight <= 256 || door == "stream" {
                points.push((in_flight as f64, cluster.load(&Load::new(door, in_flight, place.seconds))?.per_second));
            }
        }
        series.push(Series { name: door.to_owned(), points });
    }
    part.plots.push(Plot {
        name: "throughput-by-connections".to_owned(),
        title: "Decides per second by calls in flight".to_owned(),
        x: "calls in flight".to_owned(),
        y: "decides/s".to_owned(),
        series,
    });
    Ok(())
}

/// Makes an empty folder for a run.
pub(crate) fn fresh(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(std::fs::create_dir_all(folder)?)
}
