//! Parquet, read by DuckDB: every column's sum is the report's, and nulls are null.
//!
//! ```text
//!   report of made-up sites ─► parquet::write ─► file ─► DuckDB (python) ─► sums ─► equal
//! ```
//!
//! Q1  Figures are large and uneven, so that a wrong type, width or column shows.
//!
//! Not here: where the report comes from.

use std::process::Command;

use skinflint_analysis::model::{Frame, Instant, Node, Report, Site};
use skinflint_export::{Lives, Source, parquet};
use skinflint_test_support::{artifact, need};

const SITES: u64 = 70_001;

/// Builds more sites than a row group has; every figure of site `i` is its own.
fn report() -> Report {
    let mut report = Report::default();
    report.program.name = "app".into();
    report.frames = vec![Frame::default(); 2];
    report.frames[1] = Frame {
        function: "parse;\"it\"".into(),
        module: "libx.so".into(),
        file: Some("/src/x.c".into()),
        line: Some(7),
        inlined: false,
    };
    report.frames.push(Frame {
        function: "main".into(),
        module: "app".into(),
        ..Frame::default()
    });
    report.nodes = vec![
        Node::default(),
        Node {
            parent: 0,
            frame: 2,
        },
        Node {
            parent: 1,
            frame: 1,
        },
    ];
    report.instants.push(Instant {
        label: "end".into(),
        ..Instant::default()
    });
    report.sites = (0..SITES)
        .map(|i| Site {
            node: [2, 1, 0][i as usize % 3],
            allocations: i * 3,
            requested_bytes: i << 32,
            usable_bytes: (i << 32) + i,
            live_blocks: i % 7,
            live_requested_bytes: i % 11,
            live_usable_bytes: i % 13,
            live_resident_bytes: (i % 2 == 0).then_some(i),
            end_blocks: i % 17,
            end_requested_bytes: i % 19,
            end_usable_bytes: i % 23,
            ..Site::default()
        })
        .collect();
    report
}

const SCRIPT: &str = "
import json, sys, duckdb
t = duckdb.connect()
t.execute(\"create view s as select * from read_parquet('%s')\" % sys.argv[1])
row = lambda q: [int(x) if x is not None else None for x in t.execute(q).fetchone()]
print(json.dumps({
  'sums': row('select count(*), sum(allocations), sum(requested_bytes), sum(usable_bytes), sum(live_blocks), '
              'sum(live_requested_bytes), sum(live_usable_bytes), sum(live_resident_bytes), sum(end_blocks), '
              'sum(end_requested_bytes), sum(end_usable_bytes) from s'),
  'nulls': row('select count(*) filter (live_resident_bytes is null), count(*) filter (file is null) from s'),
  'stacks': [list(x) for x in t.execute('select stack, \"function\", module, file, line, count(*) from s '
             'group by all order by 1').fetchall()],
  'about': [v.decode() for k, v in t.execute(\"select key, value from parquet_kv_metadata('%s')\" % sys.argv[1])
            .fetchall() if k == b'skinflint.program'],
}))
";

#[test]
fn read_by_duckdb() {
    let packages = artifact::root().join("target/consumers/python");
    if !need::file(&packages.join("duckdb"), "make parquet-deps") {
        return;
    }
    let report = report();
    let lives = Lives::default();
    let folder = std::env::temp_dir().join(format!("skinflint-parquet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("stacks.parquet");
    let mut out = std::fs::File::create(&file).unwrap();
    parquet::write(
        Source {
            report: &report,
            lives: &lives,
        },
        &mut out,
    )
    .unwrap();
    let done = Command::new("/usr/bin/python3")
        .args(["-c", SCRIPT])
        .arg(&file)
        .env("PYTHONPATH", packages)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let seen: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let sum = |of: fn(&Site) -> u64| report.sites.iter().map(of).sum::<u64>();
    let sums = [
        SITES,
        sum(|site| site.allocations),
        sum(|site| site.requested_bytes),
        sum(|site| site.usable_bytes),
        sum(|site| site.live_blocks),
        sum(|site| site.live_requested_bytes),
        sum(|site| site.live_usable_bytes),
        sum(|site| site.live_resident_bytes.unwrap_or(0)),
        sum(|site| site.end_blocks),
        sum(|site| site.end_requested_bytes),
        sum(|site| site.end_usable_bytes),
    ];
    assert_eq!(seen["sums"], serde_json::json!(sums));
    // Every third stack has a file; the odd ones no resident bytes.
    let third = SITES.div_ceil(3);
    assert_eq!(seen["nulls"], serde_json::json!([SITES / 2, SITES - third]));
    let wanted = serde_json::json!([
        ["[no stack]", "[no stack]", "", null, null, SITES / 3],
        ["main", "main", "app", null, null, (SITES + 1) / 3],
        [
            "main;parse:\"it\"",
            "parse;\"it\"",
            "libx.so",
            "/src/x.c",
            7,
            third
        ],
    ]);
    assert_eq!(seen["stacks"], wanted);
    assert_eq!(seen["about"], serde_json::json!(["app"]));
}
