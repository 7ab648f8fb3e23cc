//! `skinflint export`, `diff`, `dark-matter` and `import`, each file opened by the program it is written for.
//!
//! ```text
//!   program ─ record ─► .sft ─┬─ report --json ────────────────► totals ─┐
//!                             └─ export ─► file ─► its consumer ─► sums ─┴─► equal, to the unit
//! ```
//!
//! I1  A consumer is somebody else's program, as Debian, npm or the Go distribution has it. What a machine
//!     lacks fails the test with the name of the package.
//! I2  Sums of `predicted` are those that are worked out in its head; of other programs, the report's.
//!
//! Not here: what is in a row (the crate's own tests), Parquet (the crate's tests, with its feature).

mod consumers;
mod dark;
mod diff;
mod import;
// Each of these files is used in part.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;
mod use_of_it;

use std::path::PathBuf;
use std::process::Command;

use report::Report;
use skinflint_test_support::need;
use tool::{Bench, program, root, run};

/// A program of tests/programs, recorded into `main.sft`.
#[track_caller]
pub fn recorded(bench: &Bench, name: &str) {
    let done = bench.record([program(name)]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

/// Python with some thousand stacks, recorded into `main.sft`.
#[track_caller]
pub fn recorded_python(bench: &Bench) {
    let script = "import json\nd = [{'a': i, 'b': str(i) * 3} for i in range(3000)]\n\
                  e = json.loads(json.dumps(d))\ndel d\nimport decimal, re\nre.compile('a(b|c)*d')";
    let mut python = vec!["/usr/bin/python3".to_owned(), "-c".into(), script.into()];
    python.insert(0, "PYTHONMALLOC=malloc".into());
    python.insert(0, "env".into());
    let done = bench.record(python);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

/// Exports `main.sft`; the file's path.
#[track_caller]
pub fn exported(bench: &Bench, format: &str, file: &str, more: &[&str]) -> PathBuf {
    let mut arguments = vec!["export", "main.sft", "--format", format, "-o", file];
    arguments.extend(more);
    let done = bench.tool(arguments);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains(&format!("{file}: ")), "{done:#?}");
    bench.path(file)
}

/// What a command prints; it must end with 0 (I1).
#[track_caller]
pub fn printed(mut command: Command) -> String {
    command.env(
        "HOME",
        std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into()),
    );
    let shown = format!("{command:?}");
    let done = tool::run_within(command, b"", 3 * tool::PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{shown}\n{done:#?}");
    done.stdout
}

/// Whether node is there, and what its scripts of `consumers/` take; if not, the test is counted as skipped.
#[must_use]
#[track_caller]
pub fn node_packages() -> bool {
    let packages = root().join("faces/cli/tests/export/consumers/node_modules");
    let mut all = ["ajv", "speedscope"].iter();
    need::program("node") && all.all(|name| need::file(&packages.join(name), "make test-deps"))
}

/// A script of `consumers/` run by node.
#[track_caller]
pub fn node(bench: &Bench, script: &str, arguments: &[&str]) -> serde_json::Value {
    let folder = root().join("faces/cli/tests/export/consumers");
    let mut command = bench.command("node");
    command.arg(folder.join(script)).args(arguments);
    serde_json::from_str(&printed(command)).expect("JSON")
}

/// A column of the report's sites, added up.
#[track_caller]
pub fn sum(report: &Report, column: &str) -> u64 {
    let sites = report.sites().iter();
    sites.map(|site| report::number(site, column)).sum()
}

/// The report's totals, as formats name them, at its moment.
#[track_caller]
pub fn totals(report: &Report) -> [(&'static str, u64); 5] {
    let requested = sum(report, "live_requested_bytes");
    [
        ("alloc_objects", report.number("totals.allocations")),
        ("alloc_space", report.number("totals.requested_bytes")),
        ("inuse_objects", sum(report, "live_blocks")),
        ("inuse_space", requested),
        ("inuse_slop", sum(report, "live_usable_bytes") - requested),
    ]
}

/// What the head of `predicted.c` says of its end.
pub const PREDICTED_END: [(&str, u64); 5] = [
    ("alloc_objects", 7662),
    ("alloc_space", 6_689_751),
    ("inuse_objects", 456),
    ("inuse_space", 1_264_256),
    ("inuse_slop", 1_272_920 - 1_264_256),
];

/// What it says of its largest heap.
pub const PREDICTED_HEAP_PEAK: [(&str, u64); 5] = [
    ("alloc_objects", 7662),
    ("alloc_space", 6_689_751),
    ("inuse_objects", 444),
    ("inuse_space", 2_310_348),
    ("inuse_slop", 2_322_960 - 2_310_348),
];

/// A file unpacked.
#[track_caller]
pub fn unpacked(bench: &Bench, file: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = std::fs::read(bench.path(file)).expect("the file");
    let mut reader = flate2::read::GzDecoder::new(&packed[..]);
    std::io::Read::read_to_end(&mut reader, &mut bytes).expect("gzip");
    bytes
}

/// Runs a shell line in the folder.
#[track_caller]
pub fn shell(bench: &Bench, line: &str) {
    let mut command = bench.command("sh");
    command.args(["-c", line]);
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{line}\n{done:#?}");
}
