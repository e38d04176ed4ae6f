//! `placet bench`: loads a cluster and says what it took. Every call is a real one: it is judged, recorded and kept.
//! Absent on purpose: starting a cluster, and judging the figures.

mod calls;
mod http;
mod load;
mod stream;
mod tally;
mod unary;

use serde_json::{Value, json};

use self::calls::Calls;
use self::load::Plan;
use self::tally::{Figures, PER_CENTS};
use super::{print, table};
use crate::cli::{Bench, Door, Target, Work, exit};
use crate::client::{Role, credential};

pub async fn run(target: &Target, command: &Bench) -> anyhow::Result<u8> {
    let addresses = match (command.door, &command.grpc) {
        (Door::Http, _) => &target.node,
        (Door::Grpc | Door::Stream, Some(grpc)) => grpc,
        (Door::Grpc | Door::Stream, None) => anyhow::bail!("--grpc (or PLACET_GRPC) names no address"),
    };
    let addresses: Vec<String> = addresses
        .split(',')
        .map(|one| one.trim().trim_end_matches('/').to_owned())
        .filter(|one| !one.is_empty())
        .collect();
    anyhow::ensure!(!addresses.is_empty(), "there is no address to ask");
    let connections = command.connections.unwrap_or(match command.door {
        Door::Http | Door::Grpc => command.in_flight,
        Door::Stream => 1,
    });
    anyhow::ensure!(
        command.door != Door::Http || connections == command.in_flight,
        "over HTTP/1.1 a connection carries one call at a time: --connections is --in-flight"
    );
    let plan = Plan {
        door: command.door,
        addresses,
        connections: connections.min(command.in_flight),
        in_flight: command.in_flight,
        reports: command.work == Work::Cycle,
        rate: command.rate,
        warm_up: std::time::Duration::from_secs(command.warm_up),
        time: std::time::Duration::from_secs(command.seconds),
        token: credential(target, Role::Decide),
        ca: target.ca.clone(),
    };
    let calls = std::sync::Arc::new(Calls::new(&command.action_type, &command.params, command.sessions)?);
    let figures = load::run(&plan, &calls).await?;
    print(target.output, &as_json(&plan, &figures), |_| as_text(&figures));
    // Whoever compares figures must not take a load that failed for one that was carried.
    let carried = figures.failed() == 0 && figures.never_begun == 0 && !figures.kinds().is_empty();
    Ok(if carried { exit::OK } else { exit::FAILED })
}

fn as_json(plan: &Plan, figures: &Figures) -> Value {
    let kinds = figures.kinds().into_iter().map(|(name, kind)| {
        let latencies = PER_CENTS.iter().map(|(name, per_cent)| ((*name).to_owned(), kind.at(*per_cent).into()));
        let body = json!({
            "answered": kind.answered(), "per_second": figures.per_second(kind),
            "latency_us": Value::Object(latencies.collect()),
        });
        (name.to_owned(), body)
    });
    json!({
        "door": format!("{:?}", plan.door).to_lowercase(), "connections": plan.connections, "in_flight": plan.in_flight,
        "rate": plan.rate, "seconds": plan.time.as_secs(),
        "calls": Value::Object(kinds.collect()),
        "verdicts": figures.verdicts, "failures": figures.failures, "never_begun": figures.never_begun,
    })
}

fn as_text(figures: &Figures) -> String {
    let heading: Vec<&str> =
        ["", "answered", "per second"].into_iter().chain(PER_CENTS.iter().map(|(name, _)| *name)).collect();
    let milliseconds = |us: u64| format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
    let rows: Vec<Vec<String>> = figures
        .kinds()
        .into_iter()
        .map(|(name, kind)| {
            let counts = [name.to_owned(), kind.answered().to_string(), figures.per_second(kind).to_string()];
            counts.into_iter().chain(PER_CENTS.iter().map(|(_, per_cent)| milliseconds(kind.at(*per_cent)))).collect()
        })
        .collect();
    let mut lines = vec![table(&heading, &rows, "nothing was answered")];
    for (what, counts) in [("verdict", &figures.verdicts), ("failed", &figures.failures)] {
        lines.extend(counts.iter().map(|(name, count)| format!("{what} {name}: {count}")));
    }
    if figures.never_begun > 0 {
        lines.push(format!("never begun: {} calls of this rate; the cluster does not carry it", figures.never_begun));
    }
    lines.join("\n")
}
