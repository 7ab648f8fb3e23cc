//! Checks the page as text: nothing of the report is markup, nothing is fetched. What it does in a
//! browser is checked by `tests/browser/check.mjs`.

#[path = "../examples/sample/synthetic.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use skinflint_analysis::model::{Node, Report, Site, SizeRow};
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
    // The summary for browsers without scripts shortens names; everywhere else they are whole.
    let (before, rest) = text.split_once("<noscript>").expect("has a summary");
    let (_, after) = rest.split_once("</noscript>").expect("ends");
    assert_eq!(
        before.matches("@@SCRIPT@@").count() + after.matches("@@SCRIPT@@").count(),
        1 + 1 + report.frames.len(),
        "the name in title, data and frames is not filled in"
    );
}

/// Returns the text of the script element with this id.
fn element<'a>(text: &'a str, id: &str) -> &'a str {
    let opening = format!("id=\"{id}\">");
    let start = text.find(&opening).expect("has it") + opening.len();
    &text[start..start + text[start..].find("</script>").expect("ends")]
}

/// Returns the columns by name, read by the description in columns.rs and with none of its code.
fn columns(text: &str) -> BTreeMap<String, Vec<i128>> {
    let packed = base64::engine::general_purpose::STANDARD
        .decode(text)
        .expect("is base64");
    let mut bytes = Vec::new();
    flate2::read::DeflateDecoder::new(packed.as_slice())
        .read_to_end(&mut bytes)
        .expect("inflates");
    let mut at = 0;
    let number = |at: &mut usize| {
        let (mut value, mut shift) = (0u128, 0);
        loop {
            let byte = bytes[*at];
            *at += 1;
            value |= u128::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value as i128;
            }
        }
    };
    let mut columns = BTreeMap::new();
    while at < bytes.len() {
        let length = number(&mut at) as usize;
        let name = String::from_utf8(bytes[at..at + length].to_vec()).expect("a name");
        at += length;
        let [kind, count, size] = std::array::from_fn(|_| number(&mut at));
        let (start, mut last) = (at, 0);
        let values = (0..count).map(|_| {
            let coded = number(&mut at);
            let signed = if coded % 2 == 1 {
                -(coded + 1) / 2
            } else {
                coded / 2
            };
            match kind {
                0 => coded,
                1 => {
                    last += signed;
                    last
                }
                _ => signed,
            }
        });
        let values: Vec<i128> = values.collect();
        assert_eq!(at - start, size as usize, "{name}");
        columns.insert(name, values);
    }
    columns
}

#[test]
fn the_data_reads_back() {
    let mut report = synthetic::report(2, 30);
    report.sites[4].live_resident_bytes = Some(77);
    let text = page(&report);
    let back: Report = serde_json::from_str(element(&text, "report-data")).expect("reads");
    assert_eq!(back.program.argv, report.program.argv);
    assert_eq!(back.findings.len(), report.findings.len());
    assert!(back.sites.is_empty() && back.nodes.is_empty() && back.windows.is_none());
    let columns = columns(element(&text, "report-columns"));
    let same = |name: &str, values: Vec<u64>| {
        let values: Vec<i128> = values.into_iter().map(i128::from).collect();
        assert_eq!(columns[name], values, "{name}");
    };
    let sites = |of: fn(&Site) -> u64| report.sites.iter().map(|site| of(site) + 1).collect();
    same("sites.node", sites(|site| u64::from(site.node)));
    same("sites.first_ns", sites(|site| site.first_ns));
    same(
        "sites.end_usable_bytes",
        sites(|site| site.end_usable_bytes),
    );
    let resident: Vec<i128> = columns["sites.live_resident_bytes"].clone();
    assert_eq!((resident[3], resident[4]), (0, 78), "null is not 0");
    assert!(back.sizes.is_empty(), "they are columns, too");
    let sizes = |of: fn(&SizeRow) -> u64| report.sizes.iter().map(|row| of(row) + 1).collect();
    same("sizes.size", sizes(|row| row.size));
    same("sizes.allocations", sizes(|row| row.allocations));
    let nodes = |of: fn(&Node) -> u32| {
        report
            .nodes
            .iter()
            .map(|node| u64::from(of(node)))
            .collect()
    };
    same("nodes.parent", nodes(|node| node.parent));
    same("nodes.frame", nodes(|node| node.frame));
    let windows = report.windows.as_ref().expect("the sample has windows");
    same("changes.end", windows.bucket_ends.clone());
    same("changes.acquired", windows.acquired.clone());
    same(
        "edges.time_ns",
        windows.edges.iter().map(|edge| edge.time_ns).collect(),
    );
    let net: Vec<i128> = windows
        .acquired
        .iter()
        .zip(&windows.released)
        .map(|(acquired, released)| i128::from(*acquired) - i128::from(*released))
        .collect();
    assert_eq!(columns["changes.net"], net);
    assert!(net.iter().any(|net| *net < 0), "a dull sample");
}

/// A buffer that grows by a word passes through hundreds of thousands of sizes: 70 MB of JSON, once.
#[test]
fn many_sizes_make_no_large_page() {
    let mut report = synthetic::report(2, 30);
    let few = page(&report).len();
    let grown = (1..=200_000).map(|step| SizeRow {
        size: step * 8,
        usable: (step * 8 + 8).next_multiple_of(16) + 8,
        allocations: 1,
        slop_bytes: 16 - step % 2 * 8,
        ..SizeRow::default()
    });
    report.sizes.extend(grown);
    let more = page(&report).len() - few;
    assert!(more < 400_000, "{more} bytes for 200,000 sizes");
}

/// Checks that every field of the model that the JSON has is in the page, without a change to the packing.
#[test]
fn no_field_of_a_site_is_left_out() {
    let report = synthetic::report(2, 30);
    let columns = columns(element(&page(&report), "report-columns"));
    let site = serde_json::to_value(&report.sites[0]).expect("writes");
    let fields: Vec<String> = site
        .as_object()
        .expect("an object")
        .keys()
        .map(|key| format!("sites.{key}"))
        .collect();
    let packed: Vec<String> = columns
        .into_keys()
        .filter(|name| name.starts_with("sites."))
        .collect();
    assert_eq!(packed, fields);
}

/// A browser without scripts shows the text report, as text.
#[test]
fn without_scripts_the_summary_is_there() {
    let mut report = synthetic::report(2, 30);
    report.program.name = "<b>app</b>".into();
    let text = page(&report);
    let start = text.find("<noscript>").expect("has it");
    let inside = &text[start..start + text[start..].find("</noscript>").expect("ends")];
    assert!(
        inside.contains("Resident memory at one of the largest readings")
            && inside.contains("= resident")
    );
    assert!(inside.contains("&lt;b&gt;app") && !inside.contains("<b>"));
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

/// The sample with which the page is looked at has to be right itself (synthetic.Y2, synthetic.Y3).
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
        windows_add_up(&report);
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

/// Checks that at each edge that is an instant, the windows have the instant's figures.
fn windows_add_up(report: &Report) {
    let windows = report.windows.as_ref().expect("the sample has windows");
    let mut live = vec![0u64; windows.cells.len()];
    let mut from = 0;
    for (edge, end) in windows.edges[1..].iter().zip(&windows.bucket_ends) {
        for change in from..*end as usize {
            let cell = &mut live[windows.changed_cell[change] as usize];
            *cell = *cell + windows.acquired[change] - windows.released[change];
        }
        from = *end as usize;
        let instant = &report.instants[edge.instants[0] as usize];
        let bytes = live.iter().zip(&windows.cells);
        assert_eq!(
            live.iter().sum::<u64>(),
            instant.live_blocks,
            "{}",
            instant.label
        );
        assert_eq!(
            bytes
                .map(|(blocks, cell)| blocks * cell.usable)
                .sum::<u64>(),
            instant.live_usable_bytes,
            "{}",
            instant.label
        );
    }
}
