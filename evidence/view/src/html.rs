//! The HTML file, which needs nothing else: the report's JSON, and small scripts that draw it.
//!
//! ```text
//!   page.html + page.css + *.js  (include_str!, readable as they are)
//!      + json::embedded    the report without its long tables
//!      + columns::pack     sites, sizes, nodes, windows: some thirty times smaller than as JSON
//!      + text::render      for a browser that runs no scripts
//! ```
//!
//! H1  The file makes no request: a content security policy forbids it.
//! H2  Only scripts that carry this file's nonce run; text of the program reaches the page through
//!     `textContent` alone.
//! H3  The same report gives the same bytes.
//!
//! Not here: what each view shows (page/*.js).

use std::hash::{DefaultHasher, Hash, Hasher};

use skinflint_analysis::model::Report;

use crate::{columns, json, text};

const PAGE: &str = include_str!("page/page.html");
/// The style of our pages: colours for light and dark, tables, sections.
const STYLE: &str = include_str!("page/page.css");
/// The scripts, in the order in which they run: core defines what the views register with, main starts them.
const SCRIPTS: [&str; 16] = [
    include_str!("page/core.js"),
    include_str!("page/columns.js"),
    include_str!("page/windows.js"),
    include_str!("page/span.js"),
    include_str!("page/tree.js"),
    include_str!("page/brush.js"),
    include_str!("page/timeline.js"),
    include_str!("page/overview.js"),
    include_str!("page/findings.js"),
    include_str!("page/flame.js"),
    include_str!("page/functions.js"),
    include_str!("page/memory_tree.js"),
    include_str!("page/sizes.js"),
    include_str!("page/tables.js"),
    include_str!("page/pinned.js"),
    include_str!("page/main.js"),
];

/// Options of the page.
#[derive(Clone, Debug, Default)]
pub struct HtmlOptions {
    /// Title of the document; the program's name if empty.
    pub title: String,
}

/// Begins a page that makes no request and runs nothing, up to its title within an open `header`. `styles` follow the
/// common one.
pub fn begin(title: &str, styles: &[&str]) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
         form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{0} · skinflint</title>\n<style>\n{STYLE}{1}</style>\n\
         </head>\n<body>\n<header>\n<h1>{0}</h1>\n",
        escape(title),
        styles.concat()
    )
}

/// Renders the page.
///
/// # Errors
/// Those of [`json::render`].
pub fn render(report: &Report, options: &HtmlOptions) -> Result<String, serde_json::Error> {
    let data = json::embedded(&without_tables(report))?;
    let columns = columns::pack(report)?;
    let plain = text::render(report, &text::Style::default());
    // A nonce keeps markup that slipped in from running: it depends on all of the data, and data
    // that contain their own nonce cannot practically be made.
    let mut hasher = DefaultHasher::new();
    (&data, &columns).hash(&mut hasher);
    let nonce = format!("{:016x}", hasher.finish());
    let title = if options.title.is_empty() {
        format!(
            "{} · {} · skinflint",
            report.program.name, report.program.pid
        )
    } else {
        options.title.clone()
    };
    let script = SCRIPTS.concat();
    let values = [
        ("TITLE", escape(&title)),
        ("NONCE", nonce),
        ("STYLE", STYLE.to_owned()),
        ("PLAIN", escape(&plain)),
        ("DATA", data),
        ("COLUMNS", columns),
        ("SCRIPT", script),
    ];
    Ok(fill(PAGE, &values))
}

/// Returns a report without what comes as columns. Field by field: a copy of the whole would be as large as all that the
/// analysis still holds.
fn without_tables(report: &Report) -> Report {
    Report {
        schema: report.schema,
        analysed_by: report.analysed_by.clone(),
        program: report.program.clone(),
        completeness: report.completeness.clone(),
        verdict: report.verdict.clone(),
        totals: report.totals.clone(),
        instants: report.instants.clone(),
        at: report.at,
        findings: report.findings.clone(),
        sites: Vec::new(),
        mappers: Vec::new(),
        through: report.through.clone(),
        own_heaps: report.own_heaps.clone(),
        sizes: Vec::new(),
        growth: report.growth.clone(),
        zombies: report.zombies.clone(),
        in_growth: Vec::new(),
        places: Vec::new(),
        reach: report.reach.clone(),
        timeline: report.timeline.clone(),
        windows: None,
        threads: report.threads.clone(),
        marks: report.marks.clone(),
        nodes: Vec::new(),
        frames: report.frames.clone(),
        plumbing: report.plumbing.clone(),
    }
}

/// Replaces `@@KEY@@` in the template only, never in the inserted values.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let size: usize = values.iter().map(|(_, value)| value.len()).sum();
    let mut out = String::with_capacity(template.len() + size);
    for (index, piece) in template.split("@@").enumerate() {
        match values
            .iter()
            .find(|(key, _)| index % 2 == 1 && *key == piece)
        {
            Some((_, value)) => out.push_str(value),
            None => out.push_str(piece),
        }
    }
    out
}

/// Escapes text as the content of an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}
