//! What each subcommand does.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use skinflint_analysis::missing::{self, Missing};
use skinflint_analysis::model::Report;
use skinflint_collect::Recorded;
use skinflint_compare::compile::CompileError;
use skinflint_recording::Analysed;
use skinflint_trace::{LostKind, OpenError};
use skinflint_view::units::bytes;
use skinflint_view::{brief, html, json, text};

use crate::analyse::{self, plain};
use crate::args::{AnalysisOptions, Command, RecordArgs, RecordOptions, ReportArgs, RunArgs, When};
use crate::asked::Asker;
use crate::attach;
use crate::compare;
use crate::counted;
use crate::ctl;
use crate::dark;
use crate::diff;
use crate::exec;
use crate::export;
use crate::fit;
use crate::gc;
use crate::heap;
use crate::import;
use crate::js;
use crate::launch::{self, Outcome};
use crate::memory;
use crate::processes;
use crate::tabs;
use crate::top;
use crate::what_if;

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Run(args) => run(&args),
        Command::Record(args) => record(&args),
        Command::Report(args) => report(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Detach(args) => attach::detach(&args),
        Command::Top(args) => top::top(&args),
        Command::Ctl(args) => ctl::ctl(&args),
        Command::Counts(args) => counted::counts(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Heap(args) => heap::heap(&args),
        Command::DarkMatter(args) => dark::dark(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Exec(args) => exec::exec(&args),
        Command::Memory(args) => memory::memory(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Fit(args) => fit::fit(&args),
        Command::WhatIf(args) => what_if::what_if(&args),
        Command::Gc(args) => gc::gc(&args),
        Command::Tabs(args) => tabs::tabs(&args),
        Command::Js(args) => js::js(&args),
    }
}

/// Returns 2 for what the user can put right on the command line, 1 for the rest.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<OpenError>()
        || error.is::<fit::Unfit>()
        || error.is::<CompileError>()
        || error.is::<skinflint_heap_snapshot::read::ReadError>()
        || import::is_of_log(error)
        || gc::is_of_trace(error)
        || memory::is_of_subject(error)
    {
        1
    } else {
        2
    }
}

/// Returns what asks the program's reporters, if the options want them asked.
fn asker(options: &RecordOptions, at: &str) -> Result<Option<Asker>> {
    let whom = options.dark_matter.as_deref();
    whom.map(|whom| Asker::new(whom, at)).transpose()
}

fn record(args: &RecordArgs) -> Result<u8> {
    let mut asker = asker(&args.record, &args.at)?;
    let outcome = launch::record(&args.record, &mut asker)?;
    if !args.record.quiet {
        const SHOWN: usize = 20;
        for trace in outcome.recorded.iter().take(SHOWN) {
            say!("skinflint: {}", one_line(trace));
            for lost in not_recorded(trace) {
                say!("skinflint: {}: {lost}", trace.path.display());
            }
            say_looks(trace);
        }
        if let Some(rest) = outcome
            .recorded
            .get(SHOWN..)
            .filter(|rest| !rest.is_empty())
        {
            let folder = rest[0].path.parent().unwrap_or(Path::new("."));
            say!(
                "skinflint: … and {} more; `skinflint report {}` has a row for each",
                rest.len(),
                folder.display()
            );
        }
    }
    complain(&outcome, &args.record);
    if let Some(asker) = asker {
        dark::of_record(asker, &outcome);
    }
    Ok(outcome.exit_code())
}

/// Prints how long the program was stopped to be looked at, and why a look failed, one line each.
pub fn say_looks(trace: &Recorded) {
    let taken = trace.looks.iter().filter(|look| look.missing.is_empty());
    let longest = taken.clone().map(|look| look.stopped_ns).max();
    if let Some(longest) = longest {
        say!(
            "skinflint: its pointers were read {}; it stood still for {} at most",
            skinflint_view::units::plural(taken.count() as u64, "time"),
            skinflint_view::units::duration(longest)
        );
    }
    let missing = trace.looks.iter().find(|look| !look.missing.is_empty());
    if let Some(look) = missing {
        say!(
            "skinflint: what points where is not known: {}",
            look.missing
        );
    }
}

/// Describes in one line what was recorded.
pub fn one_line(trace: &Recorded) -> String {
    let name = format!(
        "{} ({} {})",
        trace.path.display(),
        trace.process.name,
        trace.process.pid
    );
    let Some(ending) = &trace.ending else {
        return format!("{name}: cut");
    };
    let lost = match ending.lost_events {
        0 => String::new(),
        lost => format!(", {lost} events lost"),
    };
    let size = bytes(trace.bytes);
    format!("{name}: {} events, {size}{lost}", ending.events)
}

/// Returns the processes that came out of a recorded one and were not recorded, one line each.
fn not_recorded(trace: &Recorded) -> Vec<String> {
    let mut lines = missing::children(&trace.lost);
    let became = trace.lost.iter().filter(|lost| lost.what == LostKind::Exec);
    lines.extend(became.map(|lost| Missing::Program(lost.clone()).to_string()));
    lines
}

/// Prints one line for all traces that could not be written: what stopped one stopped the others.
fn complain_of_files(outcome: &Outcome) {
    // The program's own trace says most; a build has thousands of others.
    let own = outcome
        .unwritten()
        .find(|trace| trace.process.pid == outcome.pid);
    let Some(trace) = own.or_else(|| outcome.unwritten().next()) else {
        return;
    };
    let error = trace.error.as_deref().unwrap_or_default();
    let others = match outcome.unwritten().count() - 1 {
        0 => String::new(),
        n => format!(" and {n} other traces"),
    };
    say!(
        "skinflint: {}{others}: {error}; the program went on, what was written before can be read",
        trace.path.display()
    );
}

/// Prints what went wrong while recording; the program is not to suffer from it.
fn complain(outcome: &Outcome, options: &RecordOptions) {
    complain_of_files(outcome);
    if let Some(error) = &outcome.refused {
        say!(
            "skinflint: a process or thread was not recorded: no shared memory for it: {error}; look at \
             `ulimit -f` and at the room in memory"
        );
    }
    if !outcome.recorded.is_empty() || outcome.refused.is_some() {
        return;
    }
    let program = options.command[0].to_string_lossy();
    match outcome.status & 0x7f {
        0 => say!(
            "skinflint: nothing was recorded: {program} never loaded the recorder. It may be a script \
             or wrapper for a statically linked or set-user-id program, or it clears its environment \
             (LD_PRELOAD); name the program itself after --"
        ),
        signal => say!(
            "skinflint: nothing was recorded: {program} was killed by signal {signal} before it reached \
             the recorder. If it does not die so without skinflint, please report it; \
             --preload libraries are loaded before the program and may be the cause"
        ),
    }
}

fn run(args: &RunArgs) -> Result<u8> {
    let mut asker = asker(&args.record, &args.analysis.at)?;
    let outcome = launch::record(&args.record, &mut asker)?;
    complain(&outcome, &args.record);
    let main = most_interesting(&outcome)
        // There is nothing to tell of a trace that was never begun, and another process's would stand for it.
        .filter(|main| main.error.is_none() || main.ending.is_some());
    if let Some(main) = main {
        // The program's status counts, whatever becomes of the report.
        if let Err(error) = report_of_run(args, &outcome, main) {
            say!("skinflint: {}: {error:#}", main.path.display());
        }
    }
    if let Some(asker) = asker {
        dark::of_run(asker, &outcome, &args.analysis.names);
    }
    Ok(outcome.exit_code())
}

/// Returns the process that the screen is about: the program itself, unless another process that it started grew to
/// more than twice its size (a wrapper, a build, a daemon).
fn most_interesting(outcome: &Outcome) -> Option<&Recorded> {
    let size = |trace: &Recorded| {
        trace
            .ending
            .as_ref()
            .and_then(|e| e.max_rss_bytes)
            .unwrap_or(0)
    };
    let own = outcome
        .recorded
        .iter()
        .rfind(|trace| trace.process.pid == outcome.pid);
    let largest = outcome.recorded.iter().max_by_key(|trace| size(trace))?;
    if let Some(own) = own.filter(|own| own.error.is_some()) {
        return Some(own);
    }
    Some(match own {
        Some(own) if size(largest) <= size(own) * 2 => own,
        _ => largest,
    })
}

fn report_of_run(args: &RunArgs, outcome: &Outcome, main: &Recorded) -> Result<()> {
    let analysed = analyse::analyse(&main.path, &args.analysis, !args.no_html)?;
    let mut html_path = None;
    let mut html_error = None;
    if !args.no_html {
        let path = main.path.with_extension("html");
        match write_html(&analysed.report, &path, "choose another folder with --dir") {
            Ok(()) => html_path = Some(path),
            Err(error) => html_error = Some(error),
        }
    }
    let alone = outcome.recorded.len() < 2;
    let mut out = io::stderr().lock();
    let style = style(
        &args.analysis,
        io::stderr().is_terminal(),
        &main.path,
        html_path.as_deref(),
    );
    writeln!(out)?;
    out.write_all(text::render(&analysed.report, &style).as_bytes())?;
    hints(&mut out, &analysed)?;
    if let Some(error) = html_error {
        writeln!(out, "skinflint: {error:#}")?;
    }
    if !alone {
        drop(out);
        all_processes(args, outcome, main)?;
    }
    Ok(())
}

/// Prints the table of all processes of a run, and writes its page.
fn all_processes(args: &RunArgs, outcome: &Outcome, main: &Recorded) -> Result<()> {
    const SHOWN: usize = 8;
    let mut traces: Vec<_> = outcome.recorded.iter().map(|t| t.path.clone()).collect();
    traces.sort();
    traces.dedup();
    let mut report = skinflint_recording::analyse_all(&traces, true).map_err(plain)?;
    let mut page = None;
    if !args.no_html {
        let path = main.path.with_extension("processes.html");
        let own = main.path.with_extension("html");
        let images = report.processes.iter_mut().flat_map(|row| &mut row.images);
        for image in images.filter(|image| Path::new(&image.trace) == main.path && own.exists()) {
            image.page = own
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
        }
        processes::write_page(&report, &path)?;
        page = Some(path);
    }
    let mut out = io::stderr().lock();
    let options = processes::options(&args.analysis, io::stderr().is_terminal(), SHOWN);
    writeln!(out)?;
    out.write_all(skinflint_view::processes::render(&report, &options).as_bytes())?;
    if let Some(path) = page {
        writeln!(out, "All processes as a page: {}", path.display())?;
    }
    Ok(())
}

fn hints(out: &mut impl Write, analysed: &Analysed) -> io::Result<()> {
    const SHOWN: usize = 3;
    for hint in analysed.hints.iter().take(SHOWN) {
        writeln!(out, "Names: {hint}")?;
    }
    if analysed.hints.len() > SHOWN {
        writeln!(
            out,
            "Names: … and {} more modules",
            analysed.hints.len() - SHOWN
        )?;
    }
    Ok(())
}

/// Chooses how text looks on this terminal.
pub fn style(
    options: &AnalysisOptions,
    terminal: bool,
    trace: &Path,
    html: Option<&Path>,
) -> text::Style {
    let default = text::Style::default();
    let size = terminal_size::terminal_size_of(io::stderr());
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seen = if terminal {
        size.map(|(width, _)| usize::from(width.0))
    } else {
        None
    };
    let color = match options.color {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
    };
    text::Style {
        width: columns.or(seen).unwrap_or(default.width),
        color,
        full_stacks: options.full_stacks,
        trace: Some(trace.display().to_string()),
        html: html.map(|path| path.display().to_string()),
        ..default
    }
}

/// Writes the page; if the disk fills, no half of it is left behind. `next` is what to do then.
pub fn write_html(report: &Report, path: &Path, next: &str) -> Result<()> {
    let page = html::render(report, &html::HtmlOptions::default())?;
    let existed = path.exists();
    std::fs::write(path, page)
        .inspect_err(|_| {
            if !existed {
                let _ = std::fs::remove_file(path);
            }
        })
        .with_context(|| format!("{}: the page cannot be written; {next}", path.display()))
}

fn report(args: &ReportArgs) -> Result<u8> {
    let traces = skinflint_recording::traces_of(&args.traces).map_err(plain)?;
    // A folder stands for several processes, even if it holds the trace of one.
    let [trace] = &args.traces[..] else {
        return processes::report(args, &traces);
    };
    if trace.is_dir() {
        return processes::report(args, &traces);
    }
    if let Some(whom) = &args.who_holds {
        return who_holds(trace, whom, &args.analysis);
    }
    let windows = args.html.is_some() || args.windows;
    let mut analysed = analyse::analyse(trace, &args.analysis, windows)?;
    if let Some(path) = &args.html {
        write_html(&analysed.report, path, "name another file with --html")?;
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
        let style = style(&args.analysis, io::stdout().is_terminal(), trace, None);
        let text = skinflint_view::reach::render(&analysed.report, style.width, style.color);
        out.write_all(text.as_bytes())?;
    } else {
        let terminal = io::stdout().is_terminal();
        let style = style(&args.analysis, terminal, trace, args.html.as_deref());
        out.write_all(text::render(&analysed.report, &style).as_bytes())?;
        hints(&mut io::stderr().lock(), &analysed)?;
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
