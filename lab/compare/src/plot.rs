//! Pictures: memory over time of all allocators in one, and ratios with their intervals. SVG as text.
//!
//! ```text
//!   bytes │    ╭───────╮········ glibc          CPU time         peak RSS
//!         │ ╭──╯  ╭──╮ ╰──────── jemalloc       ──●─┼──          ┼ ─●─   jemalloc
//!         │▒╯▒▒▒▒▒╯▒▒╰────────── skinflint        ○─┼           ●┼       skinflint
//!         └───────────────── s                      1            1
//! ```
//!
//! G1  Colours are variables of the page, so light and dark need one picture. An allocator has the same colour
//!     everywhere; the reference has that of the text.
//! G2  Lines are named where they end (before the program's own end makes them fall), not only in a legend; names do
//!     not cover each other.
//! G3  The axis of bytes begins at 0. The run with the median peak is drawn (model::Column::typical).
//! G4  Text is escaped; nothing is fetched, and nothing runs.
//!
//! Not here: tables and the page around them (page.rs).

use std::fmt::Write as _;

use skinflint_view::html::escape;
use skinflint_view::units;

use crate::model::{Cell, Column, Comparison, Measure, Point, Program, Sure};
use crate::words;

/// The number of colours for the allocators after the reference.
const COLORS: usize = 8;
const ORDER: [usize; COLORS] = [0, 1, 3, 7, 4, 6, 5, 8];

/// Returns the colour of the allocator at a position.
pub fn color(at: usize) -> String {
    match at {
        0 => "var(--ink)".into(),
        n => format!("var(--c{})", ORDER[(n - 1) % COLORS]),
    }
}

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 118.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;
/// The distance between two names at the right.
const NAME_STEP: f64 = 14.0;

/// The frame of the picture: where values lie.
struct Frame {
    last_ms: f64,
    most_bytes: f64,
}

impl Frame {
    fn x(&self, ms: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (ms / self.last_ms).clamp(0.0, 1.0)
    }

    fn y(&self, bytes: f64) -> f64 {
        let share = (bytes / self.most_bytes).clamp(0.0, 1.0);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)
    }

    fn path(&self, points: &[Point]) -> String {
        let mut path = String::new();
        for (at, (ms, bytes)) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(
                path,
                "{letter}{:.1} {:.1}",
                self.x(*ms),
                self.y(*bytes as f64)
            );
        }
        path
    }
}

/// Returns the run of a column that is drawn.
fn drawn(column: &Column) -> Option<&crate::model::Run> {
    column
        .runs
        .get(column.typical?)
        .filter(|run| !run.curve.is_empty())
}

/// Draws memory over time under all allocators; `None` if nothing was measured.
pub fn over_time(program: &Program) -> Option<String> {
    let runs: Vec<(usize, &Column, &crate::model::Run)> = program
        .columns
        .iter()
        .enumerate()
        .filter_map(|(at, column)| Some((at, column, drawn(column)?)))
        .collect();
    let all = || {
        runs.iter()
            .flat_map(|(_, _, run)| run.curve.iter().chain(&run.live))
    };
    let last_ms = all().map(|(ms, _)| *ms).fold(0.0, f64::max);
    let most = all().map(|(_, bytes)| *bytes).max()?;
    let frame = Frame {
        last_ms: last_ms.max(1e-3),
        most_bytes: nice_bytes(most as f64),
    };
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Resident memory over time of {} \
         under each allocator\">",
        escape(&program.name)
    );
    axes(&mut svg, &frame);
    let mut names: Vec<(f64, f64, String, String)> = Vec::new();
    if let Some((_, _, run)) = runs.iter().find(|(_, _, run)| !run.live.is_empty()) {
        live(&mut svg, &frame, &run.live, &mut names);
    }
    // The reference comes last, on top of the others.
    for (at, column, run) in runs.iter().rev() {
        let width = if *at == 0 { 2.4 } else { 1.7 };
        let _ = write!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"><title>{}\
             </title></path>",
            frame.path(&run.curve),
            color(*at),
            escape(&tip(column))
        );
        if let Some((ms, bytes)) = named_at(run) {
            names.push((
                frame.x(*ms),
                frame.y(*bytes as f64),
                column.allocator.clone(),
                color(*at),
            ));
        }
    }
    floor(&mut svg, &frame, &runs, &mut names);
    name_lines(&mut svg, names);
    svg.push_str("</svg>");
    Some(svg)
}

/// Returns where a line is named: its last point at the final level, since programs fall to nothing when they end.
fn named_at(run: &crate::model::Run) -> Option<&Point> {
    let last = run.figures.get(&Measure::FinalBytes).copied();
    let least = 0.9 * last.unwrap_or(0.0);
    let mut points = run.curve.iter().rev();
    let found = points.find(|(_, bytes)| *bytes as f64 >= least);
    found.or(run.curve.last())
}

fn tip(column: &Column) -> String {
    let figures = [
        Measure::PeakBytes,
        Measure::AfterFreeBytes,
        Measure::FinalBytes,
    ];
    let said = figures.iter().filter_map(|measure| {
        let cell = column.cells.iter().find(|cell| cell.measure == *measure)?;
        Some(format!(
            "{} {}",
            measure.title(),
            words::value(*measure, cell.median)
        ))
    });
    format!(
        "{}: {}",
        column.allocator,
        said.collect::<Vec<_>>().join(", ")
    )
}

fn axes(svg: &mut String, frame: &Frame) {
    for step in 0..=4 {
        let bytes = frame.most_bytes * f64::from(step) / 4.0;
        let y = frame.y(bytes);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            units::bytes(bytes as u64)
        );
    }
    let step = nice_step(frame.last_ms / 6.0);
    let mut ms = 0.0;
    while ms <= frame.last_ms * 1.0001 {
        let x = frame.x(ms);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/><text x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 4.0,
            HEIGHT - 8.0,
            time(ms, step)
        );
        ms += step;
    }
}

/// Formats a time on the axis, in the unit of its steps.
fn time(ms: f64, step: f64) -> String {
    let (value, step, unit) = match step {
        s if s >= 60_000.0 => (ms / 60_000.0, s / 60_000.0, "min"),
        s if s >= 100.0 => (ms / 1e3, s / 1e3, "s"),
        s if s >= 0.1 => (ms, s, "ms"),
        s => (ms * 1e3, s * 1e3, "µs"),
    };
    let decimals = usize::from(step.fract() > 1e-6);
    format!("{value:.decimals$} {unit}")
}

/// Draws live bytes as an area under the lines.
fn live(
    svg: &mut String,
    frame: &Frame,
    points: &[Point],
    names: &mut Vec<(f64, f64, String, String)>,
) {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return;
    };
    let path = frame.path(points);
    let _ = write!(
        svg,
        "<path d=\"{path}L{:.1} {:.1}L{:.1} {:.1}Z\" class=\"live\"><title>live bytes, as asked for</title></path>\
         <path d=\"{path}\" class=\"live-edge\"/>",
        frame.x(last.0),
        frame.y(0.0),
        frame.x(first.0),
        frame.y(0.0)
    );
    let at = (frame.x(last.0), frame.y(last.1 as f64));
    names.push((at.0, at.1, "live bytes".into(), "var(--soft)".into()));
}

/// Draws the lowest floor of any allocator at each moment that has one, and each allocator's own as a mark.
fn floor(
    svg: &mut String,
    frame: &Frame,
    runs: &[(usize, &Column, &crate::model::Run)],
    names: &mut Vec<(f64, f64, String, String)>,
) {
    let mut lowest: Vec<Point> = Vec::new();
    for (at, column, run) in runs {
        for (ms, bytes) in &run.floor {
            let (x, y) = (frame.x(*ms), frame.y(*bytes as f64));
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"floor-mark\" style=\"stroke:{}\"><title>floor under \
                 {}: {}</title></circle>",
                color(*at),
                escape(&column.allocator),
                units::bytes(*bytes)
            );
            match lowest.iter_mut().find(|(other, _)| other == ms) {
                Some((_, least)) => *least = (*least).min(*bytes),
                None => lowest.push((*ms, *bytes)),
            }
        }
    }
    lowest.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((ms, bytes)) = lowest.last().copied() else {
        return;
    };
    let _ = write!(svg, "<path d=\"{}\" class=\"floor\"/>", frame.path(&lowest));
    let (x, y) = (frame.x(ms), frame.y(bytes as f64));
    names.push((x, y, "page floor".into(), "var(--soft)".into()));
}

/// Writes the names at the right, moved apart (G2).
fn name_lines(svg: &mut String, mut names: Vec<(f64, f64, String, String)>) {
    names.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places: Vec<f64> = names.iter().map(|name| name.1).collect();
    let (top, bottom) = (TOP + 4.0, HEIGHT - BOTTOM);
    for at in 0..places.len() {
        let least = if at == 0 {
            top
        } else {
            places[at - 1] + NAME_STEP
        };
        places[at] = places[at].max(least);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - NAME_STEP;
    }
    let x = WIDTH - RIGHT + 14.0;
    for ((from_x, from_y, name, color), y) in names.iter().zip(places) {
        let _ = write!(
            svg,
            "<path d=\"M{:.1} {from_y:.1}L{:.1} {y:.1}\" class=\"leader\"/><text x=\"{x}\" y=\"{:.1}\" class=\"name\" \
             style=\"fill:{color}\">{}</text>",
            from_x + 2.0,
            x - 3.0,
            y + 4.0,
            escape(name)
        );
    }
}

/// Returns the next 1, 2, 3, 4, 6 or 8 times a power of two of a unit: quarters of it are readable.
fn nice_bytes(bytes: f64) -> f64 {
    let mut unit = 4096.0;
    loop {
        for factor in [1.0, 1.25, 1.5, 1.75] {
            if unit * factor >= bytes * 1.02 {
                return unit * factor;
            }
        }
        unit *= 2.0;
    }
}

/// Returns the next 1, 2 or 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-6).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors
        .iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

/// The figures compared in the picture of ratios.
const PANELS: [Measure; 6] = [
    Measure::CpuNs,
    Measure::OpNs,
    Measure::PeakBytes,
    Measure::MeanBytes,
    Measure::AfterFreeBytes,
    Measure::FinalBytes,
];
const ROW: f64 = 22.0;
const HEAD: f64 = 26.0;
const NAMES: f64 = 96.0;

/// Draws ratios to the reference with their intervals, one panel for each figure; `None` if there are none.
pub fn ratios(comparison: &Comparison, program: &Program) -> Option<String> {
    let rows: Vec<(usize, &Column)> = program
        .columns
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, column)| !column.cells.is_empty())
        .collect();
    let cell = |column: &'_ Column, measure| {
        let found = column
            .cells
            .iter()
            .find(|cell: &&Cell| cell.measure == measure);
        found.filter(|cell| cell.ratio.is_some()).cloned()
    };
    let panels: Vec<Measure> = PANELS
        .into_iter()
        .filter(|measure| {
            rows.iter()
                .any(|(_, column)| cell(column, *measure).is_some())
        })
        .collect();
    if panels.is_empty() {
        return None;
    }
    let height = HEAD + ROW * rows.len() as f64 + 24.0;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Ratios to {}, with intervals\">",
        escape(&comparison.settings.reference)
    );
    for (line, (at, column)) in rows.iter().enumerate() {
        let y = HEAD + ROW * (line as f64 + 0.5) + 4.0;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\" class=\"name\" style=\"fill:{}\">{}</text>",
            NAMES - 8.0,
            color(*at),
            escape(&column.allocator)
        );
    }
    let width = (WIDTH - NAMES) / panels.len() as f64;
    for (number, measure) in panels.iter().enumerate() {
        let cells: Vec<(usize, usize, Cell)> = rows
            .iter()
            .enumerate()
            .filter_map(|(line, (at, column))| Some((line, *at, cell(column, *measure)?)))
            .collect();
        let left = NAMES + width * number as f64 + 8.0;
        panel(&mut svg, *measure, &cells, (left, width - 20.0), rows.len());
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Draws one panel: a logarithmic axis around 1, a dot and its interval in each row.
fn panel(
    svg: &mut String,
    measure: Measure,
    cells: &[(usize, usize, Cell)],
    (left, width): (f64, f64),
    rows: usize,
) {
    let bounds = cells.iter().flat_map(|(_, _, cell)| {
        let ratio = cell.ratio.unwrap_or(1.0);
        let (low, high) = cell.interval.unwrap_or((ratio, ratio));
        [low, high, ratio]
    });
    // The axis shows at least 0.8 to 1.25, at most a factor of 16 each way: what lies beyond is drawn at the edge.
    let reach = bounds
        .filter(|bound| *bound > 0.0)
        .map(|bound| bound.ln().abs())
        .fold(1.25_f64.ln(), f64::max)
        .min(16_f64.ln())
        * 1.08;
    let x =
        |ratio: f64| left + width * (0.5 + 0.5 * (ratio.max(1e-9).ln() / reach).clamp(-1.0, 1.0));
    let bottom = HEAD + ROW * rows as f64;
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"14\" text-anchor=\"middle\" class=\"name\">{}</text><line class=\"one\" x1=\"{:.1}\" \
         x2=\"{:.1}\" y1=\"{HEAD}\" y2=\"{bottom}\"/>",
        x(1.0),
        measure.title(),
        x(1.0),
        x(1.0)
    );
    let edge = reach.exp();
    for (ratio, anchor) in [(1.0 / edge, "start"), (1.0, "middle"), (edge, "end")] {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            x(ratio),
            bottom + 16.0,
            words::plain_ratio(ratio)
        );
    }
    for (line, at, cell) in cells {
        let y = HEAD + ROW * (*line as f64 + 0.5);
        let ratio = cell.ratio.unwrap_or(1.0);
        let (low, high) = cell.interval.unwrap_or((ratio, ratio));
        let fill = match cell.sure {
            Sure::Distinct | Sure::Reference => color(*at),
            Sure::NotDistinguishable | Sure::TooFewRuns => "var(--card)".into(),
        };
        let _ = write!(
            svg,
            "<g><title>{}</title><line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:{}\" \
             stroke-width=\"2\"/><circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.2\" style=\"stroke:{};fill:{fill}\" \
             stroke-width=\"2\"/></g>",
            escape(&format!("{} {}", words::ratio(cell), words::interval(cell))),
            x(low),
            x(high),
            color(*at),
            x(ratio),
            color(*at)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn scales_are_readable() {
        assert_eq!(nice_bytes(4090.0), 5120.0);
        assert_eq!(nice_bytes(100.0 * 1048576.0), 112.0 * 1048576.0);
        assert_eq!(nice_step(0.9), 1.0);
        assert_eq!(nice_step(130.0), 200.0);
        assert_eq!(time(1500.0, 500.0), "1.5 s");
        assert_eq!(time(20.0, 10.0), "20 ms");
    }

    #[test]
    fn all_allocators_are_in_one_picture_and_names_are_escaped() {
        let mut program = testing::program("app", &[("glibc", 4e7), ("<lean>", 2e7), ("bad", 3e7)]);
        program.columns[2].runs.clear();
        let comparison = testing::comparison(vec![program]);
        let svg = over_time(&comparison.programs[0]).expect("measured");
        assert_eq!(svg.matches("fill=\"none\"").count(), 2);
        assert!(svg.contains(">&lt;lean&gt;</text>") && !svg.contains("<lean>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let svg = ratios(&comparison, &comparison.programs[0]).expect("ratios");
        assert!(svg.contains("peak RSS") && !svg.contains("NaN"));
    }

    #[test]
    fn a_line_is_named_before_it_falls() {
        let mut program = testing::program("app", &[("glibc", 4e7)]);
        let run = &mut program.columns[0].runs[0];
        run.curve = vec![(0.0, 1), (50.0, 40), (90.0, 30), (99.0, 2)];
        run.figures.insert(Measure::FinalBytes, 30.0);
        assert_eq!(named_at(run), Some(&(90.0, 30)));
        run.figures.clear();
        assert_eq!(named_at(run), Some(&(99.0, 2)));
    }

    #[test]
    fn names_at_the_right_keep_their_distance() {
        let mut svg = String::new();
        let names = (0..9).map(|i| (100.0, HEIGHT - BOTTOM, format!("n{i}"), color(i)));
        name_lines(&mut svg, names.collect());
        let mut places: Vec<f64> = svg
            .split("class=\"name\"")
            .filter_map(|part| part.rsplit_once(" y=\"")?.1.split('"').next()?.parse().ok())
            .collect();
        places.sort_by(f64::total_cmp);
        assert_eq!(places.len(), 9);
        assert!(
            places
                .windows(2)
                .all(|pair| pair[1] - pair[0] > NAME_STEP - 0.2)
        );
        assert!(places[8] <= HEIGHT - BOTTOM + 4.1);
    }

    #[test]
    fn a_replay_shows_live_bytes_and_floor() {
        let mut program = testing::program("app", &[("glibc", 4e7)]);
        for run in &mut program.columns[0].runs {
            run.live = vec![(0.0, 0), (100.0, 10_000_000)];
            run.floor = vec![(50.0, 12_000_000), (100.0, 11_000_000)];
        }
        let comparison = testing::comparison(vec![program]);
        let svg = over_time(&comparison.programs[0]).expect("measured");
        assert!(svg.contains(">live bytes</text>") && svg.contains(">page floor</text>"));
    }
}
