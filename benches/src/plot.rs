//! Pictures of figures, as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::results::Plot;

const SIZE: (u32, u32) = (720, 420);

const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// Writes `plot` into a folder, under its own name. An axis over more than two powers of ten is logarithmic.
pub(crate) fn write(plot: &Plot, folder: &Path) -> anyhow::Result<()> {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1e-9, f64::max);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let (x_most, y_most) = (most(&mut points().map(|(x, _)| *x)), most(&mut points().map(|(_, y)| *y)));
    let x_least = least(&mut points().map(|(x, _)| *x)).min(x_most);
    let path = folder.join(format!("{}.svg", plot.name));
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area);
    chart.caption(&plot.title, ("sans-serif", 18)).margin(12).x_label_area_size(40).y_label_area_size(64);
    macro_rules! draw {
        ($x:expr) => {{
            let mut chart = chart.build_cartesian_2d($x, 0.0..y_most * 1.1)?;
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(&plot.x).y_desc(&plot.y).x_label_formatter(&|x| short(*x)).y_label_formatter(&|y| short(*y));
            mesh.draw()?;
            for (series, colour) in plot.series.iter().zip(COLOURS.iter().cycle()) {
                let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
                let colour = *colour;
                chart
                    .draw_series(line)?
                    .label(&series.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
                chart.draw_series(series.points.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }};
    }
    if x_least > 0.0 && x_most / x_least > 100.0 {
        draw!((x_least..x_most * 1.05).log_scale());
    } else {
        draw!(0.0..x_most * 1.05);
    }
    area.present()?;
    Ok(())
}

/// A number as an axis shows it.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
