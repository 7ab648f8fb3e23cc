//! Showing a report: on which width, in which colours, with which hints, and as a page.
//!
//! ```text
//!   options, terminal ─► style ─► view::text          report ─► view::html ─► a whole file, or none
//! ```
//!
//! Not here: the text and the page (`view`).

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use skinflint_analysis::model::Report;
use skinflint_recording::Analysed;
use skinflint_view::units::plural;
use skinflint_view::{html, text};

use crate::options::{AnalysisOptions, When};

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

/// Prints which modules have functions without names, and why.
///
/// # Errors
/// Those of writing.
pub fn hints(out: &mut impl Write, analysed: &Analysed) -> io::Result<()> {
    const SHOWN: usize = 3;
    for hint in analysed.hints.iter().take(SHOWN) {
        writeln!(out, "Names: {hint}")?;
    }
    if analysed.hints.len() > SHOWN {
        let more = plural((analysed.hints.len() - SHOWN) as u64, "more module");
        writeln!(out, "Names: … and {more}")?;
    }
    Ok(())
}

/// Writes the page; if the disk fills, no half of it is left behind. `next` is what to do then.
pub fn write_html(report: &Report, path: &Path, next: &str) -> Result<()> {
    let page = html::render(report, &html::HtmlOptions::default())?;
    write_whole(path, &page, next)
}

/// Writes a page, or leaves nothing behind.
///
/// # Errors
/// If it cannot be written; `next` is what to do then.
pub fn write_whole(path: &Path, page: &str, next: &str) -> Result<()> {
    let existed = path.exists();
    std::fs::write(path, page)
        .inspect_err(|_| {
            if !existed {
                let _ = std::fs::remove_file(path);
            }
        })
        .with_context(|| format!("{}: the page cannot be written; {next}", path.display()))
}
