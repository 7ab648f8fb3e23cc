//! Prints a made-up report: `cargo run -p skinflint-view --example sample [html|text|json|empty|hostile] [SITES]`.
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
        "empty" => skinflint_view::html::render(&Default::default(), &Default::default())?,
        "hostile" => skinflint_view::html::render(&hostile(report), &Default::default())?,
        other => format!("unknown view {other}: use html, text, json, empty or hostile\n"),
    };
    std::io::stdout().write_all(text.as_bytes())
}

/// Returns the same report with names that try to be markup, and one of 10 KiB; without any snapshot.
fn hostile(mut report: skinflint_analysis::model::Report) -> skinflint_analysis::model::Report {
    let long = format!(
        "std::map<{}>::insert",
        "Foo<int, std::vector<Bar>>, ".repeat(400)
    );
    let bad = [
        "</script><img src=x onerror=alert(1)>",
        "<b>\u{2028}&amp;\u{202e}",
        "",
        long.as_str(),
    ];
    for (index, frame) in report.frames.iter_mut().enumerate() {
        frame.function = bad[index % bad.len()].to_owned();
        frame.file = Some(bad[(index + 1) % bad.len()].to_owned());
    }
    report.program.name = bad[0].to_owned();
    for instant in &mut report.instants {
        instant.label = bad[0].to_owned();
        instant.books = None;
    }
    for finding in &mut report.findings {
        finding.title = long.clone();
        finding.change = bad[0].to_owned();
    }
    report
}
