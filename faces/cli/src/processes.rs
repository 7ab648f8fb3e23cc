//! `skinflint report FOLDER` or `report A B …`: several traces as one report.
//!
//! ```text
//!   traces ─► recording::analyse_all ─► text, JSON, page, and pages of the largest processes
//! ```
//!
//! Not here: reading the traces (`recording`), what the sums are (`analysis::processes`), how they look
//! (`view::processes`).

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use skinflint_analysis::processes::Processes;
use skinflint_recording::analyse_all;
use skinflint_view::processes as view;

use crate::analyse::{self, plain};
use crate::args::{AnalysisOptions, ReportArgs};
use crate::commands;

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
    let mut report = analyse_all(traces, lenient).map_err(plain)?;
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
