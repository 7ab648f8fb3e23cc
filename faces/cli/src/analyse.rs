//! Turns a trace into a report: glue between `recording`, `analysis` and `symbols`.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::{Frame, Report};
use skinflint_analysis::pass::Pass;
use skinflint_analysis::{Analyzer, At, Facts, Options, Symbolizer, WindowLimits};
use skinflint_recording::{Progress, Recording};
use skinflint_symbols::{SymbolOptions, Symbols};
use skinflint_trace::{Event, Trace};

use crate::args::{AnalysisOptions, NameOptions};
use crate::debuginfod;
use crate::reach;

/// Traces with fewer events are read before a progress bar could be seen.
const PROGRESS_FROM: u64 = 8 << 20;

/// A report, and what its reader should know about the names in it.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// How to get names for addresses that have none.
    pub hints: Vec<String>,
}

/// Names of functions, as the analysis wants them.
pub struct Names(Symbols);

impl Symbolizer for Names {
    fn frames(&mut self, node_pc: u64, node: u32) -> Vec<Frame> {
        let frames = self.0.frames_shared(node_pc, node, true);
        let frame = |frame: &skinflint_symbols::Frame| Frame {
            function: frame.function.clone(),
            module: frame.module.clone(),
            file: frame.file.clone(),
            line: frame.line,
            inlined: frame.inlined,
        };
        frames.iter().map(frame).collect()
    }
}

/// Returns the moment that `--at` names.
pub fn moment(text: &str) -> Option<At> {
    match text {
        "peak" => None,
        "end" => Some(At::End),
        "heap-peak" => Some(At::HeapPeak),
        "after-free" => Some(At::AfterFree),
        text => Some(time(text).map_or_else(|| At::Mark(text.to_owned()), At::Time)),
    }
}

/// Parses `1.5s` or `200ms` as nanoseconds after the start. A mark with the same name cannot be reached by it.
fn time(text: &str) -> Option<u64> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e6),
        None => (text.strip_suffix('s')?, 1e9),
    };
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * unit_ns) as u64)
}

/// Opens a trace, together with the traces of the processes that it is a copy of.
///
/// # Errors
/// If it cannot be read; the error says what to do next.
pub fn open(path: &Path) -> Result<Recording> {
    Ok(Recording::open(path)?)
}

/// Analyses a trace; also computes the figures for windows, which the page needs, if `windows` is set.
///
/// # Errors
/// If the trace cannot be read, or does not have the moment that was asked for.
pub fn analyse(path: &Path, options: &AnalysisOptions, windows: bool) -> Result<Analysed> {
    let more = More {
        windows,
        ..More::default()
    };
    analyse_with(&open(path)?, options, more)
}

/// What an analysis does in addition.
#[derive(Default)]
pub struct More {
    /// Figures for windows.
    pub windows: bool,
    /// Every stack that pins pages at the report's instant, and not only the largest.
    pub all_pins: bool,
    /// An additional pass.
    pub pass: Option<Box<dyn Pass>>,
}

/// Analyses a trace that is already open.
///
/// # Errors
/// Those of [`analyse`], except for the opening.
pub fn analyse_with(
    recording: &Recording,
    options: &AnalysisOptions,
    more: More,
) -> Result<Analysed> {
    let (trace, path) = (&recording.trace, recording.path.as_path());
    let mut wanted = Options {
        at: moment(&options.at),
        windows: more.windows.then(WindowLimits::default),
        ..Options::default()
    };
    if more.all_pins {
        wanted.limits.pins = usize::MAX;
    }
    recording.settle(&mut wanted);
    let facts = Facts::of(trace);
    let mut analyzer = Analyzer::new(facts, wanted)?;
    if let Some(pass) = more.pass {
        analyzer.add_pass(pass);
    }
    if let Some(found) = reach::of(recording, &options.at) {
        analyzer.add_pass(Box::new(found.pass()));
    }
    for missing in recording.not_found() {
        analyzer.missing(missing.clone());
    }
    recording.bequeath(&mut analyzer);
    let bar = progress(trace.event_count());
    let damage = recording.events(|event| analyzer.event(event), |events| bar.inc(events));
    bar.finish_and_clear();
    for damage in damage {
        analyzer.damaged(damage.to_string());
    }
    let mut names = names(trace, path, &options.names)?;
    let mut report = analyzer.finish(&mut names);
    report.analysed_by = format!("skinflint {}", env!("CARGO_PKG_VERSION"));
    Ok(Analysed {
        report,
        hints: names.0.hints(),
    })
}

/// Returns names for the addresses of a trace.
///
/// # Errors
/// If a file or folder that was named cannot be read.
pub fn names(trace: &Trace, path: &Path, options: &NameOptions) -> Result<Names> {
    Ok(Names(symbols(trace, path, options)?))
}

/// Returns the symbols of a trace, also for addresses that are not code.
///
/// # Errors
/// Those of [`names`].
pub fn symbols(trace: &Trace, path: &Path, options: &NameOptions) -> Result<Symbols> {
    let symbol_options = SymbolOptions {
        debug_dirs: debuginfod::folders(options, &trace.modules)?,
        sysroot: options.sysroot.clone(),
        perf_maps: perf_maps(path, &options.perf_map)?,
    };
    Ok(Symbols::new(&trace.modules, symbol_options))
}

/// Returns the perf maps that were named, or the one that was kept beside the trace.
fn perf_maps(trace: &Path, named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    for path in named {
        std::fs::File::open(path).with_context(|| {
            format!(
                "--perf-map {}: cannot be read; give the file that the program wrote",
                path.display()
            )
        })?;
    }
    let kept = trace.with_extension("perf.map");
    Ok(match named {
        [] if kept.exists() => vec![kept],
        named => named.to_vec(),
    })
}

/// Reads all events once more, for what only a ledger can tell: it inherits what a fork left, then
/// `each` gets the events of the trace.
pub fn events_again(
    recording: &Recording,
    ledger: &mut Ledger,
    each: &mut dyn FnMut(&mut Ledger, &Event),
) {
    recording.bequeath(ledger);
    recording.events(|event| each(ledger, event), |_| {});
}

/// A progress bar on stderr, for long work on a terminal.
#[derive(Default)]
pub struct Bar(RefCell<Option<ProgressBar>>);

impl Progress for Bar {
    fn begin(&self, events: u64) {
        *self.0.borrow_mut() = Some(progress(events));
    }

    fn step(&self, events: u64) {
        if let Some(bar) = &*self.0.borrow() {
            bar.inc(events);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

/// Creates a progress bar on stderr, for long work on a terminal.
pub fn progress(events: u64) -> ProgressBar {
    if events < PROGRESS_FROM || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(events);
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} events, {eta} left")
    {
        bar.set_style(style);
    }
    bar.set_message("analysing");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Returns the last ticket of a moment, for counts; `None` for the end.
///
/// # Errors
/// If there is no such mark, or there are no snapshots.
pub fn ticket_of(recording: &Recording, when: &str) -> Result<Option<u64>> {
    let trace = &recording.trace;
    match when {
        "cumulative" | "live" | "end" | "heap-peak" => Ok(None),
        "peak" => recording
            .peak_ticket()
            .context("the trace has no snapshot of resident memory; use --when heap-peak"),
        name => {
            let known: Vec<&str> = trace.marks.iter().map(|mark| mark.name.as_str()).collect();
            let mark = trace.marks.iter().rev().find(|mark| mark.name == name);
            let mark = mark.with_context(|| {
                let names = if known.is_empty() { "none".into() } else { known.join(", ") };
                format!(
                    "--when {name}: no such moment; use cumulative, live, peak, heap-peak, or a mark \
                     (this trace has: {names})"
                )
            })?;
            Ok(Some(mark.ticket))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        assert_eq!(moment("peak"), None);
        assert_eq!(moment("end"), Some(At::End));
        assert_eq!(moment("after-free"), Some(At::AfterFree));
        assert_eq!(moment("1.5s"), Some(At::Time(1_500_000_000)));
        assert_eq!(moment("20ms"), Some(At::Time(20_000_000)));
        for mark in ["phases", "s", "-1s", "nans", "load end"] {
            assert_eq!(moment(mark), Some(At::Mark(mark.into())));
        }
    }
}
