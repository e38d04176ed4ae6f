//! The timeline of a run as SVG: faults as bars, leaders by colour, throughput, and latency.
//! Absent on purpose: a library for it, and fractions: a pixel is the smallest thing to be seen.

use std::fmt::Write as _;
use std::path::Path;

use crate::journal::{Known, Micros};
use crate::summary::Summary;
use crate::timeline::Timeline;

const WIDTH: u64 = 1200;
const LEFT: u64 = 110;
const ROW: u64 = 18;
const CHART: u64 = 130;
const COLOURS: [&str; 6] = ["#777777", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377"];
/// Columns of the charts.
const COLUMNS: u64 = 300;

fn colour(node: u64) -> &'static str {
    let at = usize::try_from(node).unwrap_or_default();
    COLOURS.get(at).copied().unwrap_or("#000000")
}

/// Where a moment is.
struct Scale {
    end: Micros,
}

impl Scale {
    fn x(&self, at: Micros) -> u64 {
        LEFT + at.min(self.end).saturating_mul(WIDTH) / self.end
    }
}

/// Writes the picture.
pub fn write(path: &Path, summary: &Summary, timeline: &Timeline, known: &Known) -> anyhow::Result<()> {
    let last = known.attempts.iter().map(|one| one.at).max().unwrap_or_default();
    let scale = Scale { end: last.max(1_000_000) };
    let nodes = timeline.faults().iter().map(|fault| fault.node).max().unwrap_or_default().max(summary.nodes);
    let lanes = 40 + ROW * (nodes + 2);
    let height = lanes + 3 * CHART + 60;
    let mut out = String::new();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">",
        LEFT + WIDTH + 20
    )?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>")?;
    let title = format!(
        "{}, {} nodes, {} s, {}, placet {}",
        summary.campaign, summary.nodes, summary.seconds, summary.date, summary.program
    );
    writeln!(out, "<text x=\"10\" y=\"18\" font-size=\"14\">{}</text>", escaped(&title))?;
    draw_faults(&mut out, timeline, &scale, nodes)?;
    let columns = columns(known, &scale);
    let rate = |column: &Column| column.answered.saturating_mul(COLUMNS).saturating_mul(1_000_000) / scale.end;
    chart(&mut out, lanes, "answers per second", &columns.iter().map(rate).collect::<Vec<_>>(), "#4477aa")?;
    let p50: Vec<u64> = columns.iter().map(|column| column.quantile(50) / 1000).collect();
    let p99: Vec<u64> = columns.iter().map(|column| column.quantile(99) / 1000).collect();
    chart(&mut out, lanes + CHART, "median, ms", &p50, "#228833")?;
    chart(&mut out, lanes + 2 * CHART, "99th percentile, ms", &p99, "#ee6677")?;
    for tenth in 0..=10 {
        let at = scale.end * tenth / 10;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} s</text>",
            scale.x(at),
            height - 30,
            at / 1_000_000
        )?;
    }
    writeln!(out, "</svg>")?;
    std::fs::write(path, out)?;
    Ok(())
}

fn draw_faults(out: &mut String, timeline: &Timeline, scale: &Scale, nodes: u64) -> std::fmt::Result {
    let row = |node: u64| 40 + ROW * (node + 1);
    let mut label = |y: u64, text: &str| writeln!(out, "<text x=\"10\" y=\"{}\">{text}</text>", y + 12);
    label(40, "leader")?;
    label(row(0), "network")?;
    for node in 1..=nodes {
        label(row(node), &format!("node {node}"))?;
    }
    let leaders = timeline.leaders();
    let until = leaders.iter().skip(1).map(|leader| leader.from).chain([scale.end]);
    for (leader, until) in leaders.iter().zip(until) {
        let (x, end) = (scale.x(leader.from), scale.x(until));
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"42\" width=\"{}\" height=\"12\" fill=\"{}\"><title>node {}, term {}</title></rect>",
            end.saturating_sub(x).max(1),
            colour(leader.node),
            leader.node,
            leader.term
        )?;
    }
    for fault in timeline.faults() {
        let (x, end) = (scale.x(fault.from), scale.x(fault.until.unwrap_or(scale.end)));
        let width = end.saturating_sub(x).max(2);
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"14\" fill=\"{}\" fill-opacity=\"0.7\"><title>{} at {} ms</title></rect>",
            row(fault.node),
            colour(fault.node),
            escaped(&fault.kind),
            fault.from / 1000
        )?;
        if width > 60 {
            writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" font-size=\"9\">{}</text>",
                x + 2,
                row(fault.node) + 11,
                escaped(&fault.kind)
            )?;
        }
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Column {
    answered: u64,
    latencies: Vec<u64>,
}

impl Column {
    fn quantile(&self, per_cent: usize) -> u64 {
        self.latencies.get(self.latencies.len() * per_cent / 100).copied().unwrap_or_default()
    }
}

fn columns(known: &Known, scale: &Scale) -> Vec<Column> {
    let mut columns = vec![Column::default(); usize::try_from(COLUMNS).unwrap_or(1)];
    for attempt in &known.attempts {
        let at = attempt.at.min(scale.end.saturating_sub(1)).saturating_mul(COLUMNS) / scale.end;
        let Some(column) = columns.get_mut(usize::try_from(at).unwrap_or_default()) else { continue };
        column.answered += u64::from(attempt.answered);
        column.latencies.push(attempt.at.saturating_sub(attempt.sent));
    }
    columns.iter_mut().for_each(|column| column.latencies.sort_unstable());
    columns
}

fn chart(out: &mut String, top: u64, title: &str, values: &[u64], stroke: &str) -> std::fmt::Result {
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let (bottom, tall) = (top + CHART - 10, CHART - 30);
    writeln!(
        out,
        "<text x=\"10\" y=\"{}\">{title}</text><text x=\"10\" y=\"{}\">most {most}</text>",
        top + 20,
        top + 36
    )?;
    writeln!(out, "<line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{}\" y2=\"{bottom}\" stroke=\"#999999\"/>", LEFT + WIDTH)?;
    let count = (values.len() as u64).max(1);
    let points: Vec<String> = values
        .iter()
        .zip(0u64..)
        .map(|(value, at)| format!("{},{}", LEFT + at * WIDTH / count, bottom - value.saturating_mul(tall) / most))
        .collect();
    writeln!(out, "<polyline fill=\"none\" stroke=\"{stroke}\" points=\"{}\"/>", points.join(" "))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
