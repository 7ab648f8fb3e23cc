//! Several traces as one report: its table, its page, and the pages of its largest processes.
//!
//! ```text
//!   Processes ─► options of the table         Processes ─► page, and pages of the largest processes
//! ```
//!
//! Not here: reading the traces (`recording`), what the sums are (`analysis::processes`), how they look
//! (`view::processes`).

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use skinflint_analysis::processes::Processes;
use skinflint_view::processes as view;

use crate::options::AnalysisOptions;
use crate::{analyse, shown};

/// Returns the options of the table's view.
pub fn options(analysis: &AnalysisOptions, terminal: bool, rows: usize) -> view::Options {
    let style = shown::style(analysis, terminal, Path::new(""), None);
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
            shown::write_html(
                &analysed.report,
                &own,
                "name a file in another folder with --html",
            )?;
            image.page = Some(name);
        }
    }
    write_page(report, path, "name another file with --html")
}

/// Writes only the page; if the disk fills, no half of it is left behind. `next` is what to do then.
///
/// # Errors
/// If it cannot be written.
pub fn write_page(report: &Processes, path: &Path, next: &str) -> Result<()> {
    let first = report.processes.first();
    let title = match (first, report.processes.len()) {
        (Some(first), n) => format!("{} and its processes ({n})", first.name),
        (None, _) => "No processes".into(),
    };
    shown::write_whole(path, &view::page(report, &title), next)
}
