//! From a trace to a report: glue between `trace`, `analysis` and `symbols`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use skinflint_analysis::falls::FallSearch;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::{Frame, Report};
use skinflint_analysis::pass::Pass;
use skinflint_analysis::{Analyzer, At, Facts, Options, Symbolizer, WindowLimits};
use skinflint_symbols::{SymbolOptions, Symbols};
use skinflint_trace::{Event, OriginKind, SnapshotCause, Trace};

use crate::args::AnalysisOptions;
use crate::debuginfod;
use crate::reach;

/// Events between two updates of the progress bar.
pub const PROGRESS_EVENTS: u64 = 1 << 20;
/// Traces with fewer events are read before a bar could be looked at.
const PROGRESS_FROM: u64 = 8 << 20;

/// A report, and what its reader should know about names.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// How to get names for what has none.
    pub hints: Vec<String>,
}

struct Names(Symbols);

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

/// The moment that `--at` names.
pub fn moment(text: &str) -> Option<At> {
    match text {
        "peak" => None,
        "end" => Some(At::End),
        "heap-peak" => Some(At::HeapPeak),
        "after-free" => Some(At::AfterFree),
        text => Some(time(text).map_or_else(|| At::Mark(text.to_owned()), At::Time)),
    }
}

/// `1.5s`, `200ms`: nanoseconds after the start. A mark of such a name is shadowed.
fn time(text: &str) -> Option<u64> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e6),
        None => (text.strip_suffix('s')?, 1e9),
    };
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * unit_ns) as u64)
}

/// Opens a trace.
///
/// # Errors
/// What keeps it from being read, with the next step.
pub fn open(path: &Path) -> Result<Trace> {
    Ok(Trace::open(path)?)
}

/// Analyses a trace; with the figures for windows, which the page needs, if `windows` says so.
///
/// # Errors
/// If it cannot be read, or does not have the moment that was asked for.
pub fn analyse(path: &Path, options: &AnalysisOptions, windows: bool) -> Result<Analysed> {
    let more = More {
        windows,
        ..More::default()
    };
    analyse_with(&open(path)?, path, options, more)
}

/// What an analysis may do besides.
#[derive(Default)]
pub struct More {
    /// Figures for windows.
    pub windows: bool,
    /// Every stack that pins pages at the report's instant, and not the largest only.
    pub all_pins: bool,
    /// One more pass.
    pub pass: Option<Box<dyn Pass>>,
}

/// The same for an opened trace.
///
/// # Errors
/// As [`analyse`], the opening apart.
pub fn analyse_with(
    trace: &Trace,
    path: &Path,
    options: &AnalysisOptions,
    more: More,
) -> Result<Analysed> {
    let mut wanted = Options {
        at: moment(&options.at),
        windows: more.windows.then(WindowLimits::default),
        ..Options::default()
    };
    if more.all_pins {
        wanted.limits.pins = usize::MAX;
    }
    if wanted.at == Some(At::HeapPeak) {
        wanted.heap_peak_ticket = heap_peak_ticket(trace);
    }
    if wanted.at == Some(At::AfterFree) {
        wanted.after_free_ticket = after_free_ticket(trace);
    }
    let facts = Facts::of(trace);
    let mut analyzer = Analyzer::new(facts, wanted)?;
    if let Some(pass) = more.pass {
        analyzer.add_pass(pass);
    }
    if let Some(found) = reach::of(trace, path, &options.at) {
        analyzer.add_pass(Box::new(found.pass()));
    }
    if let Some(missing) = inherit(trace, path, &mut |event| analyzer.inherit(event)) {
        analyzer.damaged(missing);
    }
    let bar = progress(trace.event_count());
    let mut events = trace.events();
    let mut seen = 0u64;
    events.for_each(|event| {
        analyzer.event(event);
        seen += 1;
        if seen.is_multiple_of(PROGRESS_EVENTS) {
            bar.set_position(seen);
        }
    });
    bar.finish_and_clear();
    for damage in events.damage() {
        analyzer.damaged(damage.to_string());
    }
    let mut names = Names(symbols(trace, path, options)?);
    let mut report = analyzer.finish(&mut names);
    report.analysed_by = format!("skinflint {}", env!("CARGO_PKG_VERSION"));
    Ok(Analysed {
        report,
        hints: names.0.hints(),
    })
}

/// Names for a trace's addresses.
///
/// # Errors
/// A file that was named cannot be read.
pub fn symbols(trace: &Trace, path: &Path, options: &AnalysisOptions) -> Result<Symbols> {
    let places = SymbolOptions {
        debug_dirs: debuginfod::folders(&options.names, &trace.modules)?,
        sysroot: options.names.sysroot.clone(),
        perf_maps: perf_maps(path, &options.names.perf_map)?,
    };
    Ok(Symbols::new(&trace.modules, places))
}

/// The perf maps that were named, or the one that was kept beside the trace.
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

/// Where the live heap is largest: known only when all events were seen once.
fn heap_peak_ticket(trace: &Trace) -> Option<u64> {
    let mut ledger = Ledger::new(16);
    trace
        .events()
        .for_each(|event| ledger.apply(event, &mut |_, _| {}));
    Some(ledger.heap_peak().ticket)
}

/// The snapshot after the largest fall of live memory, in a reading of its own as well.
fn after_free_ticket(trace: &Trace) -> Option<u64> {
    let mut ledger = Ledger::new(16);
    let mut search = FallSearch::new(&trace.snapshots);
    trace.events().for_each(|event| {
        search.before(event.ticket, &ledger);
        ledger.apply(event, &mut |_, _| {});
    });
    search.finish(&ledger)
}

/// A child of fork began with its parent's live blocks: hands on the parent's events before the fork.
/// What to say if they are not to be had.
fn inherit(trace: &Trace, path: &Path, each: &mut dyn FnMut(&Event)) -> Option<String> {
    let origin = trace.process.origin.as_ref()?;
    if origin.how != OriginKind::Fork {
        return None;
    }
    let Some(parent) = find_trace(path, &origin.uid, origin.pid) else {
        return Some(format!(
            "the trace of the parent (process {}) is not in the same folder: what was inherited \
             from it is not known",
            origin.pid
        ));
    };
    let mut events = parent.events();
    while let Some(event) = events.next_event() {
        if event.ticket >= origin.fork_ticket {
            break;
        }
        each(&event);
    }
    None
}

/// All events once more, for what a ledger alone can tell: it inherits what a fork left, then `each`
/// gets the events of the trace.
pub fn events_again(
    trace: &Trace,
    path: &Path,
    ledger: &mut Ledger,
    each: &mut dyn FnMut(&mut Ledger, &Event),
) {
    // That the parent is missing is said by the report.
    let _ = inherit(trace, path, &mut |event| ledger.inherit(event));
    trace.events().for_each(|event| each(ledger, event));
}

/// The trace with this identity, in the same folder.
fn find_trace(beside: &Path, uid: &str, pid: u32) -> Option<Trace> {
    let folder = beside
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension == "sft"))
        .collect();
    // Those whose name holds the process id are the likeliest.
    let likely = format!(".{pid}.");
    files.sort_by_key(|file| !file.to_string_lossy().contains(&likely));
    const LOOKED_AT: usize = 2000;
    files
        .iter()
        .take(LOOKED_AT)
        .filter_map(|file| Trace::open(file).ok())
        .find(|trace| trace.process.uid == uid)
}

/// A bar on stderr, for long work on a terminal.
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

/// The last ticket of a moment, for counts; `None` for the end.
///
/// # Errors
/// No such mark, or no snapshots.
pub fn ticket_of(trace: &Trace, when: &str) -> Result<Option<u64>> {
    match when {
        "cumulative" | "live" | "end" | "heap-peak" => Ok(None),
        "peak" => {
            let resident = |s: &skinflint_trace::Snapshot| {
                s.mappings
                    .iter()
                    .map(|mapping| mapping.rss_bytes)
                    .sum::<u64>()
            };
            let peak = trace
                .snapshots
                .iter()
                .max_by_key(|snapshot| resident(snapshot));
            let peak =
                peak.context("the trace has no snapshot of resident memory; use --when heap-peak")?;
            let at_end = peak.cause == SnapshotCause::Exit;
            Ok((!at_end).then_some(peak.ticket))
        }
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
