//! The result of a series as a table for a terminal.
//!
//! ```text
//!   Series ─► a row for each figure, a column for each subject ─► differences, what was left, doubts: a line each
//! ```
//!
//! Not here: the page (report_page.rs), the figures (figures.rs).

use crate::report_page;
use crate::result::{Row, Series};

/// Renders the table for a terminal: one row for each figure, one column for each browser.
pub fn render(series: &Series) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let heads = |first: &str, of: &dyn Fn(&Row) -> String| -> Vec<String> {
        std::iter::once(first.to_owned())
            .chain(series.rows.iter().map(of))
            .collect()
    };
    rows.push(heads("", &|row| row.label.clone()));
    rows.push(heads("complete runs", &|row| {
        format!("{} of {}", row.complete, row.runs)
    }));
    rows.push(heads("failed loads", &|row| {
        format!("{} of {}", row.failed_loads, row.loads)
    }));
    for name in report_page::names(&series.rows) {
        rows.push(heads(&name, &|row| match row.figure(&name) {
            Some(spread) => match report_page::say_spread(&name, spread) {
                (mid, range) if range.is_empty() => mid,
                (mid, range) => format!("{mid} [{range}]"),
            },
            None => "–".into(),
        }));
    }
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = format!(
        "{} · {} · {}\n",
        series.plan.name,
        series.machine,
        versions(series)
    );
    for row in &rows {
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at] - cell.chars().count());
            out += &if at == 0 {
                format!("{cell}{pad}")
            } else {
                format!("  {pad}{cell}")
            };
        }
        out.push('\n');
    }
    for one in &series.versus {
        out += &format!("{}\n", report_page::say_versus(one));
    }
    for run in series.runs.iter().filter(|run| run.complete) {
        out += &format!("left: {}\n", report_page::say_left(run));
    }
    for doubt in report_page::doubts_of(series) {
        out += &format!("note: {doubt}\n");
    }
    out
}

fn versions(series: &Series) -> String {
    let versions: Vec<&str> = series.rows.iter().map(|row| row.version.as_str()).collect();
    let mut distinct = versions.clone();
    distinct.dedup();
    distinct.join("; ")
}
