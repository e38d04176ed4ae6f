//! The store from ten thousand entries to as many as are asked for: latency, memory, start, and bytes on disk.

use std::time::Duration;

use crate::cluster::{Cluster, Load};
use crate::comparison::Place;
use crate::results::{Bound, Part, Plot, Row, Series, median};

/// Entries of the small store.
const SMALL: u64 = 10_000;

/// Decides per second while latency is measured: a load that any size of the store carries.
const RATE: u64 = 1_000;

/// In flight while the store is filled.
const FILLING: u64 = 512;

#[derive(Debug, Default)]
struct Sized {
    entries: u64,
    p99_us: Vec<f64>,
    resident: Vec<f64>,
    ready: Duration,
    log: u64,
    state: u64,
}

pub(crate) fn measure(place: &Place, part: &mut Part) -> anyhow::Result<()> {
    let mut cluster = place.cluster()?;
    let mut sizes = Vec::new();
    let mut target = SMALL;
    loop {
        fill(&cluster, target.min(place.entries))?;
        sizes.push(at_this_size(place, &mut cluster)?);
        if target >= place.entries {
            break;
        }
        target = target.saturating_mul(10);
    }
    let (Some(small), Some(large)) = (sizes.first(), sizes.last()) else { return Ok(()) };
    let named = |what: &str| format!("{what} with {} entries", large.entries);
    let other = format!("with {} entries", small.entries);
    let row = |measure: String, unit: &str, ours: &[f64], others: &[f64], bound: f64| Row {
        measure,
        unit: unit.to_owned(),
        ours: ours.to_vec(),
        other: other.clone(),
        others: others.to_vec(),
        must: Bound::AtMost(bound),
        aim: 1.1,
    };
    part.rows.push(row(named("decide p99 at 1,000/s"), "µs", &large.p99_us, &small.p99_us, 1.5));
    part.rows.push(row(named("resident memory"), "MB", &large.resident, &small.resident, 1.3));
    for size in &sizes {
        part.notes.push(format!(
            "{} entries: ready {} ms after the start of all nodes, {} bytes of state and {} of log on a node's disk, {} bytes of state for each entry",
            size.entries,
            size.ready.as_millis(),
            size.state,
            size.log,
            size.state / size.entries.max(1),
        ));
    }
    let line = |value: fn(&Sized) -> f64| sizes.iter().map(|size| (size.entries as f64, value(size))).collect();
    part.plots.push(Plot {
        name: "latency-by-store".to_owned(),
        title: "Decide p99 at 1,000/s by entries in the store".to_owned(),
        x: "entries".to_owned(),
        y: "ms".to_owned(),
        series: vec![Series { name: "p99".to_owned(), points: line(|size| median(&size.p99_us) / 1000.0) }],
    });
    part.plots.push(Plot {
        name: "memory-by-store".to_owned(),
        title: "Resident memory of the largest node by entries in the store".to_owned(),
        x: "entries".to_owned(),
        y: "MB".to_owned(),
        series: vec![Series { name: "resident".to_owned(), points: line(|size| median(&size.resident)) }],
    });
    Ok(())
}

/// Decides and reports until the evidence has as many entries.
fn fill(cluster: &Cluster, target: u64) -> anyhow::Result<()> {
    let mut rate = 5_000.0;
    loop {
        let left = target.saturating_sub(cluster.entries()?);
        if left == 0 {
            return Ok(());
        }
        // Two entries a cycle; the last piece is short.
        let seconds = ((left as f64 / (2.0 * rate)) as u64).clamp(1, 60);
        let took = cluster.load(&Load { cycle: true, ..Load::new("stream", FILLING, seconds) })?;
        rate = took.per_second.max(1.0);
        eprintln!("  {left} entries to go, {rate:.0} cycles per second");
    }
}

fn at_this_size(place: &Place, cluster: &mut Cluster) -> anyhow::Result<Sized> {
    cluster.stop();
    let mut size = Sized { ready: cluster.launch()?, entries: cluster.entries()?, ..Sized::default() };
    for _ in 0..place.runs {
        let load = Load { rate: Some(RATE), ..Load::new("grpc", 64, place.seconds) };
        size.p99_us.push(cluster.load(&load)?.p99_us);
        size.resident.push(cluster.resident()? as f64 / 1e6);
    }
    (size.log, size.state) = cluster.disk()?;
    Ok(size)
}
