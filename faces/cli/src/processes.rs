//! `skinflint report FOLDER` or `report A B …`: several traces as one report.
//!
//! ```text
//!   traces ─ open each ─► members ─► their peak together ─► read each one's events ─► report ─► text, JSON, page
//! ```
//!
//! M1  No more traces are open at a time than there are processors: a build leaves thousands of traces.
//! M2  A file of a folder that is no whole trace is named in the report; one that was named on the command line is an
//!     error.
//! M3  A recording counts once, however many copies of it lie there.
//!
//! Not here: what the sums are (analysis::processes), how they look (view::processes).

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use skinflint_analysis::processes::{self, Counted, Counter, Member, Processes};
use skinflint_trace::Trace;
use skinflint_view::processes as view;

use crate::analyse;
use crate::args::{AnalysisOptions, ReportArgs};
use crate::commands;

/// Returns the traces that arguments name: files as they are, and all `*.sft` of a folder.
///
/// # Errors
/// If a folder cannot be read, or has no trace.
pub fn traces_of(arguments: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut traces = Vec::new();
    for argument in arguments {
        if !argument.is_dir() {
            traces.push(argument.clone());
            continue;
        }
        let shown = argument.display();
        let entries = std::fs::read_dir(argument)
            .with_context(|| format!("{shown}: the folder cannot be read"))?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "sft"))
            .collect();
        if found.is_empty() {
            bail!(
                "{shown}: no traces (*.sft) in this folder; `skinflint record --dir {shown} -- CMD` puts them there"
            );
        }
        found.sort();
        traces.append(&mut found);
    }
    Ok(traces)
}

/// Applies `work` to all items, on all processors, and keeps their order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..workers.min(items.len()) {
            scope.spawn(|| {
                loop {
                    // ORDER: Relaxed; hands out numbers, the lock orders the results.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn member(path: &Path) -> Result<Member> {
    let trace = Trace::open(path)?;
    Ok(Member {
        trace: path.display().to_string(),
        threads: trace.threads.len() as u64,
        damage: trace.damage.iter().map(ToString::to_string).collect(),
        lost: trace.lost,
        process: trace.process,
        ending: trace.ending,
        rss: trace.rss,
    })
}

fn count(path: &Path, at_ns: Option<u64>, ended_ns: u64) -> Result<(Counted, Vec<String>)> {
    let trace = Trace::open(path)?;
    let mut counter = Counter::new(at_ns);
    let mut events = trace.events();
    events.for_each(|event| counter.event(event));
    let damage = events.damage().iter().map(ToString::to_string).collect();
    Ok((counter.finish(ended_ns), damage))
}

/// Returns the trace of the member that is the same recording (a copy, perhaps cut): its memory would count twice.
fn copy_of<'m>(members: &'m [Member], member: &Member) -> Option<&'m str> {
    let same = |other: &&Member| other.process.uid == member.process.uid;
    members.iter().find(same).map(|other| other.trace.as_str())
}

/// Analyses these traces together. If `lenient`, those that cannot be read are named in the report (M2).
///
/// # Errors
/// If a trace cannot be read and `lenient` is not set, or none can be read.
pub fn analyse_all(traces: &[PathBuf], lenient: bool) -> Result<Processes> {
    let mut unread = Vec::new();
    let mut first = None;
    let mut members = Vec::new();
    let mut paths = Vec::new();
    for (path, opened) in traces.iter().zip(in_parallel(traces, |path| member(path))) {
        match opened {
            Ok(member) => match copy_of(&members, &member) {
                None => {
                    members.push(member);
                    paths.push(path.clone());
                }
                Some(first) if lenient => unread.push(format!(
                    "{} is of the same recording as {first}, and was left out: move it elsewhere.",
                    member.trace
                )),
                Some(first) => bail!(
                    "{}: the same recording as {first}; give each once, or compare them with `skinflint diff`",
                    member.trace
                ),
            },
            Err(error) if lenient => {
                unread.push(format!("{error:#}."));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let (true, Some(error)) = (members.is_empty(), first) {
        return Err(error.context("none of the traces can be read"));
    }
    let together = processes::together(&members);
    let work: Vec<(&PathBuf, Option<u64>, u64)> = paths
        .iter()
        .zip(&members)
        .map(|(path, member)| {
            let ended = member.ending.as_ref().map_or(u64::MAX, |end| end.time_ns);
            (path, together.peak_ns_in(member), ended)
        })
        .collect();
    let results = in_parallel(&work, |(path, at, ended)| count(path, *at, *ended));
    let mut counted = Vec::with_capacity(members.len());
    for (result, member) in results.into_iter().zip(&mut members) {
        let (count, damage) = result?;
        member.damage.extend(damage);
        counted.push(count);
    }
    let mut report = processes::report(&members, &counted, together);
    report.missing.extend(unread);
    Ok(report)
}

/// Does what was asked.
///
/// # Errors
/// If traces cannot be read, files cannot be written, or an option is only for one trace.
pub fn report(args: &ReportArgs, traces: &[PathBuf]) -> Result<u8> {
    if args.analysis.at != "peak" {
        bail!(
            "--at {}: a moment is of one trace, and {} were given; give one of them",
            args.analysis.at,
            traces.len()
        );
    }
    if args.windows {
        bail!(
            "--windows: windows are of one trace, and {} were given; give one of them",
            traces.len()
        );
    }
    let lenient = args.traces.iter().any(|path| path.is_dir());
    let mut report = analyse_all(traces, lenient)?;
    if let Some(path) = &args.html {
        write_pages(&mut report, path, args.pages, &args.analysis)?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let options = options(&args.analysis, io::stdout().is_terminal(), args.rows);
        out.write_all(view::render(&report, &options).as_bytes())?;
    }
    out.flush()?;
    Ok(0)
}

/// Returns the options of the table's view.
pub fn options(analysis: &AnalysisOptions, terminal: bool, rows: usize) -> view::Options {
    let style = commands::style(analysis, terminal, Path::new(""), None);
    view::Options {
        width: style.width,
        color: style.color,
        rows,
    }
}

/// Writes the page, and beside it the pages of the `pages` largest processes, which it links to.
///
/// # Errors
/// If a page cannot be written.
pub fn write_pages(
    report: &mut Processes,
    path: &Path,
    pages: usize,
    options: &AnalysisOptions,
) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let (shown, _) = view::largest(report, pages);
    for index in shown {
        let row = &mut report.processes[index];
        for image in &mut row.images {
            let trace = PathBuf::from(&image.trace);
            let Some(stem) = trace.file_stem() else {
                continue;
            };
            let name = format!("{}.html", stem.to_string_lossy());
            let own = folder.join(&name);
            if own == path {
                bail!(
                    "--html {}: the page of {} would have the same name; name another file",
                    path.display(),
                    image.trace
                );
            }
            let analysed = analyse::analyse(&trace, options, true)?;
            commands::write_html(
                &analysed.report,
                &own,
                "name a file in another folder with --html",
            )?;
            image.page = Some(name);
        }
    }
    write_page(report, path)
}

/// Writes only the page.
///
/// # Errors
/// If it cannot be written.
pub fn write_page(report: &Processes, path: &Path) -> Result<()> {
    let first = report.processes.first();
    let title = match (first, report.processes.len()) {
        (Some(first), n) => format!("{} and its processes ({n})", first.name),
        (None, _) => "No processes".into(),
    };
    std::fs::write(path, view::page(report, &title)).with_context(|| {
        format!(
            "{}: the page cannot be written; name another file with --html",
            path.display()
        )
    })
}
