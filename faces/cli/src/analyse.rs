//! Recordings opened and analysed for a command: its options, its bar, its errors.
//!
//! ```text
//!   options ─► recording ─► report, or an error that `commands::exit_code` knows          Bar: on a terminal
//! ```
//!
//! Not here: the analysis itself (`recording`).

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use skinflint_recording::{Analysed, Error, More, Progress, Recording};

use crate::options::AnalysisOptions;

/// Traces with fewer events are read before a progress bar could be seen.
const PROGRESS_FROM: u64 = 8 << 20;

/// Opens a trace, together with the traces of the processes that it is a copy of. A folder of a run stands for the
/// trace that the run's report was about.
///
/// # Errors
/// If it cannot be read; the error says what to do next.
pub fn open(path: &Path) -> Result<Recording> {
    let trace = skinflint_recording::the_trace_of(path).map_err(plain)?;
    Ok(Recording::open(&trace)?)
}

/// Returns the traces that paths mean, one each ([`open`]).
///
/// # Errors
/// If a folder is of several runs, or has no trace.
pub fn one_each(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let traces = paths
        .iter()
        .map(|path| skinflint_recording::the_trace_of(path));
    traces.map(|trace| trace.map_err(plain)).collect()
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

/// Analyses a trace that is already open.
///
/// # Errors
/// Those of [`analyse`], except for the opening.
pub fn analyse_with(
    recording: &Recording,
    options: &AnalysisOptions,
    more: More,
) -> Result<Analysed> {
    let names = options.names.sources();
    let analysed = recording.analyse(&options.at, &names, more, &Bar::default());
    analysed.map_err(plain)
}

/// Returns an error of a recording as what it is of, so that its kind can be asked for.
pub fn plain(error: Error) -> anyhow::Error {
    match error {
        Error::Open(error) => error.into(),
        Error::NoneRead(error) => {
            anyhow::Error::new(error).context("none of the traces can be read")
        }
        Error::Analysis(error) => error.into(),
        Error::Names(error) => error.into(),
        error => error.into(),
    }
}

/// A progress bar on stderr, for long work on a terminal.
#[derive(Default)]
pub struct Bar(RefCell<Option<ProgressBar>>);

impl Progress for Bar {
    fn begin(&self, events: u64) {
        *self.0.borrow_mut() = bar(events);
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

/// Returns a bar, if the work is long enough to be seen and there is a terminal.
fn bar(events: u64) -> Option<ProgressBar> {
    if events < PROGRESS_FROM || !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(events);
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} events, {eta} left")
    {
        bar.set_style(style);
    }
    bar.set_message("analysing");
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(bar)
}
