//! Pictures: memory over time of all allocators in one, and ratios with their intervals. SVG as text.
//!
//! ```text
//!   bytes │    ╭───────╮········ glibc          CPU time         peak RSS
//!         │ ╭──╯  ╭──╮ ╰──────── jemalloc       ──●─┼──          ┼ ─●─   jemalloc
//!         │▒╯▒▒▒▒▒╯▒▒╰────────── skinflint        ○─┼           ●┼       skinflint
//!         └───────────────── s                      1            1
//! ```
//!
//! G1  Lines are named where they end (before the program's own end makes them fall), not only in a legend.
//! G2  The run with the median peak is drawn (model::Column::typical).
//! G3  Text is escaped; nothing is fetched, and nothing runs.
//!
//! Not here: axes, colours, where names stand (`view::plot`); tables and the page around them (report_page.rs).

use std::fmt::Write as _;

use skinflint_view::html::escape;
use skinflint_view::plot::{Frame, Name, Size, color};
use skinflint_view::units;

use crate::model::{Cell, Column, Comparison, Measure, Point, Program, Sure};
use crate::words;

const SIZE: Size = Size {
    width: 1180.0,
    height: 380.0,
    left: 66.0,
    right: 118.0,
    top: 12.0,
    bottom: 28.0,
};

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
    let frame = Frame::new(SIZE, last_ms, most);
    let label = format!(
        "Resident memory over time of {} under each allocator",
        program.name
    );
    let mut svg = frame.begin(&label);
    let mut names: Vec<Name> = Vec::new();
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
            frame.path(run.curve.iter().copied()),
            color(*at),
            escape(&tip(column))
        );
        if let Some((ms, bytes)) = named_at(run) {
            names.push(Name {
                x: frame.x(*ms),
                y: frame.y(*bytes as f64),
                text: column.allocator.clone(),
                color: color(*at),
            });
        }
    }
    floor(&mut svg, &frame, &runs, &mut names);
    frame.names(&mut svg, names);
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

/// Draws live bytes as an area under the lines.
fn live(svg: &mut String, frame: &Frame, points: &[Point], names: &mut Vec<Name>) {
    let Some(last) = points.last() else {
        return;
    };
    let _ = write!(
        svg,
        "<path d=\"{}\" class=\"live\"><title>live bytes, as asked for</title></path><path d=\"{}\" \
         class=\"live-edge\"/>",
        frame.area(points),
        frame.path(points.iter().copied())
    );
    names.push(quiet(frame, *last, "live bytes"));
}

/// Returns the name of a line that is no allocator's.
fn quiet(frame: &Frame, (ms, bytes): Point, text: &str) -> Name {
    Name {
        x: frame.x(ms),
        y: frame.y(bytes as f64),
        text: text.into(),
        color: "var(--soft)".into(),
    }
}

/// Draws the lowest floor of any allocator at each moment that has one, and each allocator's own as a mark.
fn floor(
    svg: &mut String,
    frame: &Frame,
    runs: &[(usize, &Column, &crate::model::Run)],
    names: &mut Vec<Name>,
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
    let Some(last) = lowest.last().copied() else {
        return;
    };
    let _ = write!(svg, "<path d=\"{}\" class=\"floor\"/>", frame.path(lowest));
    names.push(quiet(frame, last, "page floor"));
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
        "<svg class=\"chart\" viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"Ratios to {}, with intervals\">",
        SIZE.width,
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
    let width = (SIZE.width - NAMES) / panels.len() as f64;
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
