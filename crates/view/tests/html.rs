//! The page as text: nothing of the report is markup, nothing is fetched. What it does in a browser
//! is checked by `tests/browser/check.mjs`.

#[path = "../examples/sample/synthetic.rs"]
mod synthetic;

use skinflint_analysis::model::Report;
use skinflint_view::html::{HtmlOptions, render};

fn page(report: &Report) -> String {
    render(report, &HtmlOptions::default()).expect("a report is written")
}

#[test]
fn hostile_names_stay_text() {
    let clean = page(&synthetic::report(2, 30));
    let mut report = synthetic::report(2, 30);
    let evil = "</script><img src=x onerror=alert(1)><!--@@SCRIPT@@\u{2028}";
    report.program.name = evil.into();
    for frame in &mut report.frames {
        frame.function = evil.into();
    }
    let text = page(&report);
    assert!(
        !text.contains("<img"),
        "markup of the program's reached the page"
    );
    assert_eq!(
        text.matches("</script").count(),
        clean.matches("</script").count()
    );
    assert_eq!(
        text.matches("@@SCRIPT@@").count(),
        1 + 1 + report.frames.len(),
        "the name in title, data and frames is not filled in"
    );
}

#[test]
fn the_data_reads_back() {
    let report = synthetic::report(2, 30);
    let text = page(&report);
    let start = text.find("id=\"report-data\">").expect("has data") + "id=\"report-data\">".len();
    let end = start + text[start..].find("</script>").expect("ends");
    let back: Report = serde_json::from_str(&text[start..end]).expect("reads");
    assert_eq!(back.sites.len(), 30);
    assert_eq!(back.program.argv, report.program.argv);
}

#[test]
fn nothing_is_fetched_and_the_same_report_gives_the_same_page() {
    let report = synthetic::report(2, 30);
    let text = page(&report);
    assert!(text.contains("default-src 'none'"));
    for part in [
        "src=\"http",
        "href=\"http",
        "@import",
        "url(",
        "fetch(",
        "innerHTML",
        "<link",
    ] {
        assert!(!text.contains(part), "{part}");
    }
    assert_eq!(text, page(&report));
    assert!(page(&Report::default()).contains("report-data"));
}

/// The sample that the page is looked at with has to be right itself (Y2, Y3).
#[test]
fn the_sample_adds_up() {
    for seed in 1..20 {
        let report = synthetic::report(seed, 80);
        let live: u64 = report.sites.iter().map(|site| site.live_usable_bytes).sum();
        let sizes: u64 = report
            .sizes
            .iter()
            .map(|row| row.size * row.live_blocks + row.live_slop_bytes)
            .sum();
        assert_eq!(
            (live, sizes),
            (report.instants[0].live_usable_bytes, live),
            "seed {seed}"
        );
        assert_eq!(
            report
                .sites
                .iter()
                .map(|site| site.allocations)
                .sum::<u64>(),
            report.totals.allocations
        );
        for books in report
            .instants
            .iter()
            .filter_map(|instant| instant.books.as_ref())
        {
            assert_eq!(
                books.rows.iter().map(|row| row.bytes).sum::<u64>(),
                books.resident_bytes,
                "seed {seed}"
            );
            for row in books.rows.iter().filter(|row| !row.parts.is_empty()) {
                assert_eq!(
                    row.parts.iter().map(|part| part.bytes).sum::<u64>(),
                    row.bytes,
                    "{}",
                    row.id
                );
            }
        }
        for node in 1..report.nodes.len() {
            assert!((report.nodes[node].parent as usize) < node);
        }
    }
}
