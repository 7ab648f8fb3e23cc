//! `skinflint run`: records a program, and prints where its memory went.
//!
//! ```text
//!   CMD ─► recorded ─► the most interesting trace ─► report on stderr, page      several ─► their table, its page
//! ```
//!
//! R1  The program's status counts, whatever becomes of the report.
//! R2  A full disk is one line, however many files it keeps from being written.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args as ClapArgs;
use skinflint_collect::Recorded;
use skinflint_recording::Several;
use skinflint_sessions::Outcome;
use skinflint_view::text;

use crate::analyse::{self, plain};
use crate::options::{AnalysisOptions, RecordOptions};
use crate::recorded::ELSEWHERE;
use crate::{dark, dropped, processes, recorded, sampled, shown};

pub const HELP: &str = "\
Examples:
  skinflint run -- python3 service.py
  skinflint run --at end --html server.html -- ./server --port 8080
  skinflint run --reachable -- ./app                      # leaks: what nothing points to, and cycles
  skinflint run --preload libjemalloc.so.2 -- redis-server
  skinflint run --dark-matter --at loaded -- ./viewer     # what its own reporters leave out

The report goes to stderr, so that the program's own output stays what it is. The trace
(skinflint.NAME.PID.sft) and the HTML report are written to the current folder, or to --dir; traces
of processes that it starts go into a folder of their own there, skinflint-NAME-PID. A daemon is
followed to the process that stays; the report appears when that ends, or on Ctrl-C.";

#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub analysis: AnalysisOptions,

    /// File for the HTML report [default: the name of the trace, with the ending .html]
    #[arg(long, value_name = "FILE", conflicts_with = "no_html")]
    pub html: Option<PathBuf>,

    /// Write no HTML report
    #[arg(long)]
    pub no_html: bool,

    #[command(flatten)]
    pub record: RecordOptions,
}

/// Does what was asked. Returns the program's exit status.
///
/// # Errors
/// Whatever keeps the program from being started or recorded.
pub fn run(args: &RunArgs) -> Result<u8> {
    let (outcome, asker) =
        recorded::record(&args.record, &args.analysis.at, args.analysis.names.frames)?;
    recorded::complain(&outcome, &args.record, ELSEWHERE);
    let main = outcome
        .most_interesting()
        // There is nothing to tell of a trace that was never begun, and another process's would stand for it.
        .filter(|main| main.error.is_none() || main.ending.is_some());
    let mut all = dropped::open(&outcome);
    if let Some(main) = main {
        // The program's status counts, whatever becomes of the report.
        if let Err(error) = report_of_run(args, &outcome, main, all.as_mut()) {
            say!("skinflint: {}: {error:#}", main.path.display());
        }
        for beside in outcome.beside(main) {
            if let Err(error) = sampled::beside(&beside.path, &args.analysis) {
                say!("skinflint: {}: {error:#}", beside.path.display());
            }
        }
        if main.process.sample_bytes == 0 {
            sampled::name_others(&outcome, main);
        }
    }
    if let Some(asker) = asker {
        dark::of_run(asker, &outcome, &args.analysis.names);
    }
    // The table has been made, and every trace been read that was asked for.
    dropped::drop_small(&outcome, all, &args.record, &[]);
    Ok(outcome.exit_code())
}

fn report_of_run(
    args: &RunArgs,
    outcome: &Outcome,
    main: &Recorded,
    all: Option<&mut Several>,
) -> Result<()> {
    if let Some(recording) = sampled::open(&main.path)? {
        return sampled::of_run(&recording, &args.analysis, outcome);
    }
    let analysed = analyse::analyse(&main.path, &args.analysis, !args.no_html)?;
    let mut html_path = None;
    let mut html_error = None;
    if !args.no_html {
        let path = args.page_of(main);
        match shown::write_html(&analysed.report, &path, args.elsewhere()) {
            Ok(()) => html_path = Some(path),
            Err(error) => html_error = Some(error),
        }
    }
    let mut out = io::stderr().lock();
    let style = shown::style(
        &args.analysis,
        io::stderr().is_terminal(),
        &main.path,
        html_path.as_deref(),
    );
    writeln!(out)?;
    out.write_all(text::render(&analysed.report, &style).as_bytes())?;
    shown::hints(&mut out, &analysed)?;
    // A trace that could not be written has been complained of (R2).
    let is_said = outcome.unwritten().next().is_some();
    if let Some(error) = html_error.as_ref().filter(|_| !is_said) {
        writeln!(out, "skinflint: {error:#}")?;
    }
    if let Some(all) = all {
        drop(out);
        let with_page = !args.no_html && html_error.is_none();
        all_processes(args, outcome, main, all, with_page)?;
    }
    Ok(())
}

impl RunArgs {
    /// Returns the file for the page on a trace.
    fn page_of(&self, main: &Recorded) -> PathBuf {
        let beside = || main.path.with_extension("html");
        self.html.clone().unwrap_or_else(beside)
    }

    /// Returns what to do if a page cannot be written.
    fn elsewhere(&self) -> &'static str {
        match self.html {
            Some(_) => "name another file with --html",
            None => ELSEWHERE,
        }
    }
}

/// Prints the table of all processes of a run, and writes its page if `with_page`.
fn all_processes(
    args: &RunArgs,
    outcome: &Outcome,
    main: &Recorded,
    all: &mut Several,
    with_page: bool,
) -> Result<()> {
    const SHOWN: usize = 8;
    let mut report = all.report().map_err(plain)?;
    let mut page = None;
    let mut failed = None;
    if with_page {
        let own = args.page_of(main);
        let path = own.with_extension("processes.html");
        let images = report.processes.iter_mut().flat_map(|row| &mut row.images);
        for image in images.filter(|image| Path::new(&image.trace) == main.path && own.exists()) {
            image.page = own
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
        }
        match processes::write_page(&report, &path, args.elsewhere()) {
            Ok(()) => page = Some(path),
            Err(error) => failed = Some(error),
        }
    }
    let mut out = io::stderr().lock();
    let options = processes::options(&args.analysis, io::stderr().is_terminal(), SHOWN);
    writeln!(out)?;
    out.write_all(skinflint_view::processes::render(&report, &options).as_bytes())?;
    if let Some(path) = page {
        writeln!(out, "All processes as a page: {}", path.display())?;
    }
    if let Some(error) = failed.filter(|_| outcome.unwritten().next().is_none()) {
        writeln!(out, "skinflint: {error:#}")?;
    }
    Ok(())
}
