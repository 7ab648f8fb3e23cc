//! `skinflint dark-matter`: what a program's own memory reporters leave out, and what two of them claim.
//!
//! ```text
//!   TRACE ─► report (stacks, instant) ─► ledger up to the instant ─► live blocks ┐
//!   memory-report.json[.gz] ─► claims ───────────────────────────────────────────┴─► dark_matter::Dark
//!
//!   run, record --dark-matter: the report comes from the program itself (`dark_matter::Asker`), of the moment between two marks
//! ```
//!
//! K1  Before anything is printed, the rows are checked to add up, and the live blocks to be the report's.
//!
//! Not here: what is dark, how a memory report is read, when a program is asked (`dark_matter`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;
use skinflint_dark_matter::{Asker, Dark, Reported, Taken, keep, living, render};
use skinflint_export::LivesPass;
use skinflint_recording::More;
use skinflint_sessions::Outcome;

use crate::analyse::{self, plain};
use crate::options::NameOptions;

pub const HELP: &str = "\
Examples:
  skinflint dark-matter app.sft memory-report.json.gz
  skinflint dark-matter app.sft report.json --at 'memory report' --json
  skinflint run --dark-matter -- ./app            # records it, asks it, and prints this

The memory report is Firefox's (about:memory, version 1), of the moment that --at names. With
totals only it is known how much no reporter covers, and stacks are \"possible\". A report whose
entries list the addresses they have measured (\"blocks\", \"ranges\": docs/export.md) is compared
byte by byte: `run --dark-matter` and `record --dark-matter` have the program write one, `memory
PID --blocks --save FILE` too.";

#[derive(ClapArgs, Debug)]
pub struct DarkArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The memory report: JSON, or gzipped
    #[arg(value_name = "REPORT")]
    pub report: PathBuf,

    /// The moment at which the memory report was made: peak, end, heap-peak, after-free, most-kept, the name
    /// of a mark, or a time after the start
    #[arg(long, value_name = "MOMENT", default_value = "end")]
    pub at: String,

    /// The moment at which the measurement had ended: what came or went before is not judged
    #[arg(long, value_name = "MARK")]
    pub until: Option<String>,

    /// The process in the memory report [default: the one with the trace's process id, or the only one]
    #[arg(long, value_name = "NAME")]
    pub process: Option<String>,

    /// Lines of each table; 0 prints all
    #[arg(long, alias = "limit", value_name = "N", default_value_t = 25)]
    pub rows: usize,

    /// Print everything as JSON (docs/export.md)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub names: NameOptions,
}

/// The printed part of the result, as JSON.
struct Printed<'a> {
    process: Option<&'a str>,
    limit: usize,
    json: bool,
    names: &'a NameOptions,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn dark(args: &DarkArgs) -> Result<u8> {
    let named = || args.report.display().to_string();
    let file = File::open(&args.report)
        .with_context(|| format!("{}: cannot be read; check the name", named()))?;
    let reported = Reported::read(file).with_context(named)?;
    let printed = Printed {
        process: args.process.as_deref(),
        limit: args.rows,
        json: args.json,
        names: &args.names,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let moments = (args.at.as_str(), args.until.as_deref());
    join(
        &args.trace,
        &reported,
        &named(),
        moments,
        &printed,
        &mut out,
    )?;
    Ok(0)
}

/// Joins a memory report with a trace, and prints the result.
fn join(
    path: &Path,
    reported: &Reported,
    report_name: &str,
    (at, until): (&str, Option<&str>),
    printed: &Printed<'_>,
    out: &mut impl Write,
) -> Result<()> {
    let recording = analyse::open(path)?;
    let process = reported
        .choose(printed.process, recording.trace.process.pid)
        .with_context(|| report_name.to_owned())?;
    let heap = reported.heap(process);
    let until = match until {
        None => None,
        Some(mark) => recording
            .ticket_of(mark)
            .map_err(plain)
            .context("--until")?,
    };
    let (pass, found) = LivesPass::new(false, 0);
    let options = printed.names.at(at);
    let more = More {
        pass: Some(Box::new(pass)),
        ..More::default()
    };
    let analysed = analyse::analyse_with(&recording, &options, more)?;
    let lives = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    let report = &analysed.report;
    let living = living(&recording, report, &lives, until).map_err(anyhow::Error::msg)?;
    let dark = Dark::new(report, &heap, &living);
    if let Err(fault) = dark.adds_up() {
        bail!(fault);
    }
    if printed.json {
        serde_json::to_writer_pretty(&mut *out, &dark).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        let rows = match printed.limit {
            0 => usize::MAX,
            limit => limit,
        };
        out.write_all(render(&dark, report, rows, 5).as_bytes())?;
    }
    out.flush()?;
    for note in &report.completeness.notes {
        if !report.completeness.complete {
            say!("skinflint: {}: {note}", path.display());
        }
    }
    for hint in analysed.hints.iter().take(2) {
        say!("Names: {hint}");
    }
    Ok(())
}

/// Prints what a run's own reporters leave out; a failure is only printed, and is no error of the run.
pub fn of_run(asker: Asker, outcome: &Outcome, names: &NameOptions) {
    let done = asker.finish().and_then(|taken| {
        let (trace, file) = kept(&taken, outcome)?;
        let printed = Printed {
            process: taken.reported.choose_pid(taken.pid),
            limit: 10,
            json: false,
            names,
        };
        let mut out = BufWriter::new(io::stderr().lock());
        let moments = (taken.marks[0].as_str(), Some(taken.marks[1].as_str()));
        writeln!(out, "\nDark matter: what its own reporters leave out")?;
        join(
            &trace,
            &taken.reported,
            &file.display().to_string(),
            moments,
            &printed,
            &mut out,
        )?;
        drop(out);
        say!("\nAgain: {}", again(&trace, &file, &taken));
        Ok(())
    });
    if let Err(error) = done {
        say!("skinflint: --dark-matter: {error:#}");
    }
}

/// Keeps the answer of a recorded program's reporters, and prints how to look at it.
pub fn of_record(asker: Asker, outcome: &Outcome) {
    let done = asker.finish().and_then(|taken| {
        let (trace, file) = kept(&taken, outcome)?;
        say!("skinflint: {}", again(&trace, &file, &taken));
        Ok(())
    });
    if let Err(error) = done {
        say!("skinflint: --dark-matter: {error:#}");
    }
}

fn again(trace: &Path, file: &Path, taken: &Taken) -> String {
    format!(
        "skinflint dark-matter {} {} --at '{}' --until '{}'",
        trace.display(),
        file.display(),
        taken.marks[0],
        taken.marks[1]
    )
}

/// Keeps the answer, and prints which reporters were left out of it.
fn kept(taken: &Taken, outcome: &Outcome) -> Result<(PathBuf, PathBuf)> {
    for fault in &taken.faults {
        say!("skinflint: {fault}");
    }
    keep(taken, &outcome.recorded)
}
