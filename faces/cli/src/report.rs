//! `skinflint report`: a trace, or several as one, as text, JSON or a page.
//!
//! ```text
//!   TRACE ─► analyse ─► text, --json, --html, --reachable, --who-holds      FOLDER, A B … ─► processes
//!   .sfo ──► objects
//! ```

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args as ClapArgs;
use skinflint_recording::{Named, Several};
use skinflint_view::{brief, brief_processes, json, text};

use crate::analyse::{self, plain};
use crate::options::AnalysisOptions;
use crate::{objects, processes, sampled, shown};

pub const HELP: &str = "\
Examples:
  skinflint report app.sft
  skinflint report traces/                      # all processes of a build, a row each
  skinflint report app.sft --at 'load end' --html app.html
  skinflint report app.sft --json | jq '.findings[0]'
  skinflint report app.sfo                      # objects of a garbage-collected heap: sizes, lives, origins, kinds";

#[derive(ClapArgs, Debug)]
pub struct ReportArgs {
    /// The trace; several, or a folder of them, become one report with a row for each process
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,

    /// Of several processes: print at most N rows; one more row sums up the others
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Of several processes: with --html, also write a page for each of the N largest
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub pages: usize,

    #[command(flatten)]
    pub analysis: AnalysisOptions,

    /// Print the report as JSON (documented in SCHEMA.md)
    #[arg(long)]
    pub json: bool,

    /// With --json: the verdict, the books, the largest findings and stacks (of several traces: the largest
    /// processes), in less than 64 KiB
    #[arg(long, requires = "json", conflicts_with = "windows")]
    pub brief: bool,

    /// With --json: also what each stack held, acquired and released at up to a thousand moments,
    /// from which any window of the run follows
    #[arg(long, requires = "json")]
    pub windows: bool,

    /// Write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print only the blocks that nothing points to and those that only cycles keep, all of them (of a trace recorded
    /// with --reachable)
    #[arg(long, conflicts_with_all = ["json", "html"])]
    pub reachable: bool,

    /// Print how roots lead to a block (0xADDRESS), or to blocks with this function in their stacks (of a trace
    /// recorded with --reachable)
    #[arg(long, value_name = "ADDRESS|FUNCTION", conflicts_with_all = ["json", "html", "reachable"])]
    pub who_holds: Option<String>,
}

impl ReportArgs {
    /// Returns the option that a sampled recording cannot answer, if one is given.
    fn needs_every_event(&self) -> Option<&'static str> {
        let options = [
            (self.html.is_some(), "--html"),
            (self.brief, "--brief"),
            (self.windows, "--windows"),
            (self.reachable, "--reachable"),
            (self.who_holds.is_some(), "--who-holds"),
        ];
        let given = options.into_iter().find(|(is_given, _)| *is_given);
        given.map(|(_, option)| option)
    }
}

/// Does what was asked.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn report(args: &ReportArgs) -> Result<u8> {
    if let [path] = &args.traces[..]
        && path.is_file()
        && objects::is_object_trace(path)
    {
        ensure!(
            args.html.is_none()
                && !args.brief
                && !args.windows
                && !args.reachable
                && args.who_holds.is_none(),
            "{}: an object trace has no stacks and no books: it is reported as text, or with --json",
            path.display()
        );
        return objects::report(path, args.json);
    }
    let named = skinflint_recording::named(&args.traces).map_err(plain)?;
    // A folder stands for several processes, even if it holds the trace of one.
    let [trace] = &args.traces[..] else {
        return several(args, &named);
    };
    if trace.is_dir() {
        return several(args, &named);
    }
    if let Some(recording) = sampled::open(trace)? {
        return match args.needs_every_event() {
            Some(option) => sampled::refuse(option, &recording),
            None => sampled::report(&recording, &args.analysis, args.json),
        };
    }
    if let Some(whom) = &args.who_holds {
        return who_holds(trace, whom, &args.analysis);
    }
    let windows = args.html.is_some() || args.windows;
    let mut analysed = analyse::analyse(trace, &args.analysis, windows)?;
    if let Some(path) = &args.html {
        shown::write_html(&analysed.report, path, "name another file with --html")?;
    }
    if !args.windows {
        analysed.report.windows = None;
    }
    let mut out = io::stdout().lock();
    if args.brief {
        writeln!(out, "{}", brief::render(&analysed.report)?)?;
    } else if args.json {
        json::write(&analysed.report, true, &mut out)?;
        writeln!(out)?;
    } else if args.reachable {
        if analysed.report.reach.is_none() {
            anyhow::bail!("{}: {NO_LOOK}", trace.display());
        }
        let style = shown::style(&args.analysis, io::stdout().is_terminal(), trace, None);
        let text = skinflint_view::reach::render(&analysed.report, style.width, style.color);
        out.write_all(text.as_bytes())?;
    } else {
        let terminal = io::stdout().is_terminal();
        let style = shown::style(&args.analysis, terminal, trace, args.html.as_deref());
        out.write_all(text::render(&analysed.report, &style).as_bytes())?;
        shown::hints(&mut io::stderr().lock(), &analysed)?;
    }
    out.flush()?;
    Ok(0)
}

/// Shows several traces as one report.
///
/// # Errors
/// If traces cannot be read, files cannot be written, or an option is only for one trace.
fn several(args: &ReportArgs, named: &Named) -> Result<u8> {
    if args.analysis.at != "peak" {
        bail!(
            "--at {}: a moment is of one trace, and {} were given; give one of them",
            args.analysis.at,
            named.traces.len()
        );
    }
    if args.windows {
        bail!(
            "--windows: windows are of one trace, and {} were given; give one of them",
            named.traces.len()
        );
    }
    let mut all = Several::of(named).map_err(plain)?;
    let mut report = all.report().map_err(plain)?;
    if let Some(path) = &args.html {
        processes::write_pages(&mut report, path, args.pages, &args.analysis)?;
    }
    let mut out = io::stdout().lock();
    if args.brief {
        writeln!(out, "{}", brief_processes::render(&report)?)?;
    } else if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let options = processes::options(&args.analysis, io::stdout().is_terminal(), args.rows);
        out.write_all(skinflint_view::processes::render(&report, &options).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// Why a trace has nothing about pointers.
const NO_LOOK: &str = "its pointers were not read; record with --reachable, and let the program end in an orderly way or \
                       mark a moment";

/// Prints how roots lead to blocks.
fn who_holds(path: &Path, whom: &str, options: &AnalysisOptions) -> Result<u8> {
    let recording = analyse::open(path)?;
    let Some(found) = skinflint_recording::reach_of(&recording, &options.at) else {
        anyhow::bail!("{}: {NO_LOOK}", path.display());
    };
    let names = options.names.sources();
    let mut symbols = recording.symbols(&names).map_err(plain)?;
    let text = found.who_holds(whom, &mut symbols).map_err(plain)?;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(0)
}
