//! The picture: memory over time of all browsers in one graph with its checkpoints, and the table beside it.
//!
//! ```text
//!   PSS │    ╭─╮  ┊ chromium        name, median [least … most] of complete runs
//!       │  ╭─╯ ╰╮ ┊ ╭ firefox
//!       └──────── s
//! ```
//!
//! G1  For each browser the run with the median peak is drawn; the others are in the table.
//! G2  Only exact samples are drawn: there is no PSS between them.
//! G3  The file makes no request and runs nothing; all text is escaped.
//!
//! Not here: axes and the look of our pages (`view`), figures (series.rs).

use std::fmt::Write as _;
use std::path::Path;

use skinflint_view::html::{begin, escape};
use skinflint_view::plot::{self, Frame, Name, Size, color};
use skinflint_view::units;

use crate::result::{Row, Series, Spread, Versus};
use crate::run::Run;
use crate::sampler;

const SIZE: Size = Size {
    width: 1180.0,
    height: 420.0,
    left: 70.0,
    right: 150.0,
    top: 14.0,
    bottom: 30.0,
};

const OWN_STYLE: &str = "
td .i { display: block; font-size: 11px; color: var(--soft); }
";

/// A line of the graph.
struct Line {
    label: String,
    color: String,
    /// Milliseconds since the first checkpoint, and bytes.
    points: Vec<(f64, u64)>,
    marks: Vec<(f64, u64, String)>,
}

/// Renders the whole file.
pub fn render(series: &Series, out: &Path) -> String {
    let title = format!(
        "{} in {}",
        series.plan.name,
        units::plural(series.rows.len() as u64, "browser")
    );
    let mut text = begin(&title, &[plot::STYLE, OWN_STYLE]);
    head(&mut text, series);
    text.push_str("</header>\n<main>\n<section><div class=\"head\"><h2>Memory over time</h2></div>\n<p class=\"small soft\">PSS of all \
                   processes of the browser, each page of memory once. Of each browser the run with the median peak; circles are \
                   checkpoints.</p><div class=\"scroll\">");
    text.push_str(&graph(&lines(series, out)));
    text.push_str("</div></section>\n");
    table(&mut text, series);
    left(&mut text, series);
    doubts(&mut text, series);
    text.push_str("</main>\n</body>\n</html>\n");
    text
}

fn head(text: &mut String, series: &Series) {
    let plan = &series.plan;
    let complete: u32 = series.rows.iter().map(|row| row.complete).sum();
    let all: u32 = series.rows.iter().map(|row| row.runs).sum();
    let class = if complete == all && !series.interrupted {
        ""
    } else {
        "warn"
    };
    let said = if series.interrupted {
        "; interrupted"
    } else {
        ""
    };
    let _ = write!(
        text,
        "<p class=\"status {class}\"><b>{complete} of {all} runs complete{said}</b></p>\n<dl class=\"facts\">"
    );
    let keep = if plan.keep == 0 {
        "all".to_owned()
    } else {
        plan.keep.to_string()
    };
    let facts = [
        ("Pages", series.pages.len().to_string()),
        ("Cycles", plan.cycles.to_string()),
        ("Windows kept open", keep),
        ("Seconds between loads", plan.interval_s.to_string()),
        ("Machine", series.machine.clone()),
        ("Skinflint", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (name, value) in facts {
        let _ = write!(
            text,
            "<div><dt>{name}</dt><dd>{}</dd></div>",
            escape(&value)
        );
    }
    let _ = writeln!(
        text,
        "</dl>\n<p class=\"mono soft\">{}</p>",
        escape(&series.command.join(" "))
    );
}

/// Returns the run with the median peak.
fn typical<'a>(label: &str, runs: &'a [Run]) -> Option<&'a Run> {
    let own = |complete: bool| {
        runs.iter()
            .filter(move |r| r.subject.label == label && (r.complete || !complete))
    };
    let mut candidates: Vec<&Run> = own(true).collect();
    if candidates.is_empty() {
        candidates = own(false).collect();
    }
    candidates.sort_by_key(|run| run.figures.peak_pss);
    candidates
        .get(candidates.len().saturating_sub(1) / 2)
        .copied()
}

fn lines(series: &Series, out: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for (at, row) in series.rows.iter().enumerate() {
        let Some(run) = typical(&row.label, &series.runs) else {
            continue;
        };
        let file = out.join(format!(
            "runs/{}-{}/samples.jsonl",
            row.label, run.repetition
        ));
        let mut samples = sampler::read(&file).unwrap_or_default();
        sampler::cut_after_last_checkpoint(&mut samples, run.complete);
        // The time that a browser takes to start is not compared: all begin at their first checkpoint.
        let zero = run.checkpoints.first().map_or(0, |c| c.ms);
        let since = |ms: u64| ms.saturating_sub(zero) as f64;
        let points = samples.iter().filter(|s| s.ms >= zero);
        let marks = run.checkpoints.iter();
        lines.push(Line {
            label: row.label.clone(),
            color: color(at),
            points: points
                .filter_map(|s| Some((since(s.ms), s.pss()?)))
                .collect(),
            marks: marks
                .map(|c| (since(c.ms), c.pss, c.name.clone()))
                .collect(),
        });
    }
    lines
}

fn graph(lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let last_ms = points().map(|point| point.0).fold(1e3, f64::max);
    let most = points().map(|point| point.1).max().unwrap_or(0);
    let frame = Frame::new(SIZE, last_ms, most);
    let mut svg = frame.begin("PSS over time");
    let mut names = Vec::new();
    for line in lines {
        let _ = write!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"/>",
            frame.path(line.points.iter().copied()),
            line.color
        );
        for (ms, bytes, name) in &line.marks {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.4\" fill=\"var(--card)\" stroke=\"{}\" stroke-width=\"1.5\"><title>{}: {}, {}</title></circle>",
                frame.x(*ms),
                frame.y(*bytes as f64),
                line.color,
                escape(&line.label),
                escape(name),
                escape(&units::bytes(*bytes))
            );
        }
        if let Some((ms, bytes)) = line.points.last() {
            names.push(Name {
                x: frame.x(*ms),
                y: frame.y(*bytes as f64),
                text: line.label.clone(),
                color: line.color.clone(),
            });
        }
    }
    frame.names(&mut svg, names);
    svg.push_str("</svg>");
    svg
}

/// Formats a figure in the way that its name needs.
pub fn say(name: &str, value: f64) -> String {
    if name.contains("share") {
        return format!("{:.1} %", value * 100.0);
    }
    if name.contains("bytes per minute") {
        let sign = if value < 0.0 { "−" } else { "+" };
        return format!("{sign}{}/min", units::bytes(value.abs() as u64));
    }
    if name.contains("PSS") || name.contains("USS") || name.contains("RSS") || name.contains("AWSY")
    {
        return units::bytes(value.max(0.0) as u64);
    }
    if name.ends_with(", s") {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Formats the median, and the range if there are several runs.
pub fn say_spread(name: &str, spread: &Spread) -> (String, String) {
    let range = if spread.runs > 1 {
        format!("{} … {}", say(name, spread.low), say(name, spread.high))
    } else {
        String::new()
    };
    (say(name, spread.median), range)
}

/// Returns the names of figures, in the order of their first row.
pub fn names(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.figures) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn table(text: &mut String, series: &Series) {
    text.push_str("<section><div class=\"head\"><h2>Figures</h2></div><p class=\"small soft\">Median of complete runs; below it the least and the greatest.</p><div class=\"scroll\"><table class=\"figures\"><thead><tr><th></th>");
    for row in &series.rows {
        let _ = write!(
            text,
            "<th class=\"n\">{}<br>{}</th>",
            escape(&row.label),
            escape(&row.version)
        );
    }
    text.push_str("</tr></thead><tbody>\n<tr><td>complete runs</td>");
    for row in &series.rows {
        let _ = write!(
            text,
            "<td class=\"n\">{} of {}</td>",
            row.complete, row.runs
        );
    }
    text.push_str("</tr><tr><td>failed loads</td>");
    for row in &series.rows {
        let _ = write!(
            text,
            "<td class=\"n\">{} of {}</td>",
            row.failed_loads, row.loads
        );
    }
    text.push_str("</tr>");
    for name in names(&series.rows) {
        let _ = write!(text, "<tr><td>{}</td>", escape(&name));
        for row in &series.rows {
            match row.figure(&name) {
                Some(spread) => {
                    let (mid, range) = say_spread(&name, spread);
                    let _ = write!(
                        text,
                        "<td class=\"n\">{}<span class=\"i\">{}</span></td>",
                        escape(&mid),
                        escape(&range)
                    );
                }
                None => text.push_str("<td class=\"n\">–</td>"),
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>");
    for one in &series.versus {
        let _ = write!(text, "<p>{}</p>", escape(&say_versus(one)));
    }
    text.push_str("</section>\n");
}

/// Describes a ratio in words.
pub fn say_versus(one: &Versus) -> String {
    let interval = match one.interval {
        Some((low, high)) => format!(" (95 %: {low:.2} to {high:.2})"),
        None => " (too few repetitions for an interval)".into(),
    };
    format!(
        "{}: {:.2} × {}, the best of the others{interval}, {}",
        one.label, one.ratio, one.reference, one.figure
    )
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".into(),
        n => format!("{n} processes"),
    }
}

/// Describes what is left of closed pages.
pub fn say_left(run: &Run) -> String {
    let zombies = &run.zombies;
    let held: u64 = zombies.content_processes.iter().map(|(_, pss)| pss).sum();
    let mut said = format!(
        "{} {}: {} for pages ({}) with {} open",
        run.subject.label,
        run.repetition,
        processes(zombies.content_processes.len()),
        units::bytes(held),
        units::plural(u64::from(zombies.tabs_open), "tab")
    );
    if let Some(ghosts) = zombies.ghost_windows {
        let detached = zombies
            .windows
            .values()
            .filter(|kinds| kinds.contains_key("detached"))
            .count();
        let _ = write!(
            said,
            "; {} by Firefox's own count, windows of {detached} pages detached",
            units::plural(ghosts, "ghost window")
        );
    }
    for (address, detached) in &zombies.detached {
        let _ = write!(
            said,
            "; {} in no tab: {address} ({})",
            units::plural(detached.windows, "window"),
            units::bytes(detached.bytes)
        );
    }
    if let Some(objects) = zombies.objects.get("left of closed tabs") {
        let bytes = zombies.own_figures.get("left of closed tabs").copied();
        let _ = write!(
            said,
            "; {} of closed tabs alive ({}) by the host's own count",
            units::plural(*objects, "object"),
            units::bytes(bytes.unwrap_or(0))
        );
    }
    for kind in ["Document", "Frame", "DetachedScriptState", "Node"] {
        if let Some(count) = zombies.objects.get(kind) {
            let _ = write!(said, "; {kind}: {}", units::count(*count));
        }
    }
    said
}

fn left(text: &mut String, series: &Series) {
    text.push_str("<section><div class=\"head\"><h2>What is left of closed pages</h2></div><p class=\"small soft\">Browsers keep spare and cached processes on purpose; ghost windows are what Firefox itself calls leaked.</p><ul class=\"plain\">");
    for run in series.runs.iter().filter(|run| run.complete) {
        let _ = write!(text, "<li>{}</li>", escape(&say_left(run)));
    }
    text.push_str("</ul></section>\n");
}

/// Returns what a reader should know before believing a figure.
pub fn doubts_of(series: &Series) -> Vec<String> {
    let mut doubts = Vec::new();
    for proof in &series.proofs {
        match &proof.in_vain {
            Some(why) => doubts.push(format!("{}: the preload had no effect: {why}", proof.label)),
            None => doubts.push(format!(
                "{}: {} calls of {} were counted, all served by {}",
                proof.label,
                units::count(proof.calls),
                processes(proof.processes as usize),
                proof.served_by
            )),
        }
    }
    for run in &series.runs {
        if run.subject.allocator.is_some()
            && !series.proofs.iter().any(|p| p.label == run.subject.label)
        {
            doubts.push(format!(
                "{}: it was not counted whether the allocator served",
                run.subject.label
            ));
        }
        let name = format!("{} {}", run.subject.label, run.repetition);
        if !run.complete {
            doubts.push(format!("{name}: not complete: {}", run.ended));
        }
        if !run.beside.is_empty() {
            doubts.push(format!(
                "{name}: ran beside {}: loads take longer than alone, and a browser may collect at other moments; nearly no \
                 memory is shared between different browsers",
                run.beside.join(", ")
            ));
        }
        for load in run
            .loads
            .iter()
            .filter(|load| load.failed.is_some())
            .take(5)
        {
            doubts.push(format!(
                "{name}: {} did not load: {}",
                load.page,
                load.failed.as_deref().unwrap_or("")
            ));
        }
        let figures = &run.figures;
        if figures.late > 0 {
            doubts.push(format!(
                "{name}: {} of {} samples were late",
                figures.late, figures.samples
            ));
        }
        if figures.sampler_share_median > 0.02 {
            doubts.push(format!(
                "{name}: the sampler took {:.1} % of a core",
                figures.sampler_share_median * 100.0
            ));
        }
        if let Some(preload) = run
            .preload
            .as_ref()
            .filter(|p| p.content == 0 || p.content_mapped < p.content)
        {
            doubts.push(format!(
                "{name}: the allocator was mapped in {} of {} processes for pages",
                preload.content_mapped, preload.content
            ));
        }
        if !run.left_over.is_empty() {
            doubts.push(format!(
                "{name}: {} had to be killed by their mark",
                processes(run.left_over.len())
            ));
        }
        let outside: u64 = run.outside.values().sum();
        if outside > 0 {
            let hosts: Vec<&str> = run.outside.keys().take(6).map(String::as_str).collect();
            doubts.push(format!(
                "{name}: {} to the outside refused ({}{})",
                units::plural(outside, "request"),
                hosts.join(", "),
                if run.outside.len() > 6 { ", …" } else { "" }
            ));
        }
        doubts.extend(run.notes.iter().map(|note| format!("{name}: {note}")));
    }
    doubts
}

fn doubts(text: &mut String, series: &Series) {
    let doubts = doubts_of(series);
    if doubts.is_empty() {
        return;
    }
    text.push_str(
        "<section><div class=\"head\"><h2>Notes on the measurement</h2></div><ul class=\"plain\">",
    );
    for doubt in doubts {
        let _ = write!(text, "<li>{}</li>", escape(&doubt));
    }
    text.push_str("</ul></section>\n");
}
