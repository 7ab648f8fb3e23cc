//! `skinflint report` and `run` of a sampled recording: estimates with their errors, as text or JSON.
//!
//! ```text
//!   TRACE ─► sampled? ─┬─ no: the full report
//!                      └─► recording::sampled ─► view::sampled, --json
//! ```
//!
//! Y1  What needs every event is refused in one sentence, as other commands refuse the trace itself.
//!
//! Not here: the estimates (`analysis::sampled`).

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use skinflint_collect::Recorded;
use skinflint_recording::{Kin, Recording};
use skinflint_sessions::Outcome;
use skinflint_view::sampled::render;
use skinflint_view::units::plural;

use crate::analyse::{Bar, plain};
use crate::options::AnalysisOptions;
use crate::recorded;

/// Opens a trace if it is sampled; what cannot be read is left to the full report to complain of.
///
/// # Errors
/// If a folder is of several runs.
pub fn open(trace: &Path) -> Result<Option<Recording>> {
    let recording = Recording::open_any(trace, &mut Kin::beside(trace)).ok();
    Ok(recording.filter(Recording::is_sampled))
}

/// Says that an option needs every event.
///
/// # Errors
/// The name of the option, and what to do.
pub fn refuse(option: &str, recording: &Recording) -> Result<u8> {
    bail!(
        "{option}: {} is a sampled recording, and this needs every event; leave {option} out, or record again without \
         --sample",
        recording.path.display()
    )
}

/// Prints the report of a sampled recording.
///
/// # Errors
/// If there is no such moment.
pub fn report(recording: &Recording, options: &AnalysisOptions, json: bool) -> Result<u8> {
    let names = options.names.sources();
    let sampled = recording.sampled(&options.at, &names, &Bar::default());
    let sampled = sampled.map_err(plain)?;
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &sampled)?;
        writeln!(out)?;
    } else {
        out.write_all(render(&sampled).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// Prints the report of what was read from outside beside a run that has a report, on stderr.
///
/// # Errors
/// If it cannot be read.
pub fn beside(trace: &Path, options: &AnalysisOptions) -> Result<()> {
    let recording = Recording::open_any(trace, &mut Kin::beside(trace))?;
    let names = options.names.sources();
    // A moment that this trace does not have: its largest stands for it.
    let sampled = recording.sampled(&options.at, &names, &Bar::default());
    let sampled = sampled.or_else(|_| recording.sampled("peak", &names, &Bar::default()));
    let text = render(&sampled.map_err(plain)?);
    let mut out = io::stderr().lock();
    writeln!(out)?;
    out.write_all(text.as_bytes())?;
    writeln!(out, "Trace: {}", recording.path.display())?;
    Ok(())
}

/// Names the other processes of a run of which there are estimates alone: programs of Go, read from outside.
pub fn name_others(outcome: &Outcome, main: &Recorded) {
    const SHOWN: usize = 8;
    let others = outcome
        .recorded
        .iter()
        .filter(|one| one.process.sample_bytes > 0);
    let others: Vec<_> = others
        .filter(|one| !one.beside && one.path != main.path)
        .collect();
    for one in others.iter().take(SHOWN) {
        say!(
            "skinflint: read from outside: {}; `skinflint report` shows it",
            recorded::one_line(one)
        );
    }
    if others.len() > SHOWN {
        say!("skinflint: … and {} more", others.len() - SHOWN);
    }
}

/// Prints the report of a run that was sampled, on stderr. There is no page.
///
/// # Errors
/// If there is no such moment.
pub fn of_run(recording: &Recording, options: &AnalysisOptions, outcome: &Outcome) -> Result<()> {
    let names = options.names.sources();
    let sampled = recording.sampled(&options.at, &names, &Bar::default());
    let text = render(&sampled.map_err(plain)?);
    let mut out = io::stderr().lock();
    writeln!(out)?;
    out.write_all(text.as_bytes())?;
    let others = outcome.recorded.len().saturating_sub(1) as u64;
    if others > 0 {
        writeln!(
            out,
            "Beside it: {}, each for `skinflint report`.",
            plural(others, "trace")
        )?;
    }
    writeln!(out, "Trace: {}", recording.path.display())?;
    Ok(())
}
