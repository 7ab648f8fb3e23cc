//! Prints a made-up report: `cargo run -p skinflint-view --example sample [html|text|json] [SITES]`.
//!
//! It exists so that the views can be looked at and checked without a recording; the figures are
//! seeded and add up.

mod synthetic;

use std::io::Write;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("html", String::as_str);
    let sites = arguments
        .get(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(400);
    let report = synthetic::report(7, sites);
    let text = match what {
        "html" => skinflint_view::html::render(&report, &Default::default())?,
        "json" => skinflint_view::json::render(&report, true)?,
        "text" => {
            let style = skinflint_view::text::Style {
                color: arguments.iter().any(|a| a == "color"),
                full_stacks: arguments.iter().any(|a| a == "full"),
                width: arguments.get(2).and_then(|t| t.parse().ok()).unwrap_or(100),
                trace: Some("skinflint.indexer.4711.sft".into()),
                html: Some("skinflint.indexer.4711.html".into()),
                ..Default::default()
            };
            skinflint_view::text::render(&report, &style)
        }
        other => format!("unknown view {other}: use html, text or json\n"),
    };
    std::io::stdout().write_all(text.as_bytes())
}
