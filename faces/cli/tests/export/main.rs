//! `skinflint export`, `diff`, `dark-matter` and `import`, each file opened by the program it is written for.
//!
//! ```text
//!   program ─ record ─► .sft ─┬─ report --json ────────────────► totals ─┐
//!                             └─ export ─► file ─► its consumer ─► sums ─┴─► equal, to the unit
//! ```
//!
//! I1  A consumer is a third party's program, as Debian, npm or the Go distribution has it. If a machine lacks one,
//!     the test fails with the name of the package.
//! I2  Sums of `predicted` are those worked out in its head; of other programs, the report's.
//!
//! Not here: what is in a row (the crate's own tests), Parquet (the crate's tests, with its feature).

mod anonymous;
mod consumers;
mod dark;
mod diff;
mod import;
// Only a part of each of these files is used.
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

/// Records a program of tests/programs into `main.sft`.
#[track_caller]
pub fn recorded(bench: &Bench, name: &str) {
    let done = bench.record([program(name)]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

/// Records Python with some thousand stacks into `main.sft`.
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

/// Exports `main.sft`, and returns the file's path.
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

/// Returns what a command prints; it must end with 0 (I1).
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

/// Reports whether node and the packages that the scripts of `consumers/` need are there; if not, the test is counted
/// as skipped.
#[must_use]
#[track_caller]
pub fn node_packages() -> bool {
    let packages = root().join("faces/cli/tests/export/consumers/node_modules");
    let mut all = ["ajv", "speedscope"].iter();
    need::program("node") && all.all(|name| need::file(&packages.join(name), "make test-deps"))
}

/// Runs a script of `consumers/` with node, and returns its JSON.
#[track_caller]
pub fn node(bench: &Bench, script: &str, arguments: &[&str]) -> serde_json::Value {
    let folder = root().join("faces/cli/tests/export/consumers");
    let mut command = bench.command("node");
    command.arg(folder.join(script)).args(arguments);
    serde_json::from_str(&printed(command)).expect("JSON")
}

/// Adds up a column of the report's sites.
#[track_caller]
pub fn sum(report: &Report, column: &str) -> u64 {
    let sites = report.sites().iter();
    sites.map(|site| report::number(site, column)).sum()
}

/// Returns the report's totals, by the formats' names, at its moment.
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

/// The figures that the head of `predicted.c` states for its end.
pub const PREDICTED_END: [(&str, u64); 5] = [
    ("alloc_objects", 7662),
    ("alloc_space", 6_689_751),
    ("inuse_objects", 456),
    ("inuse_space", 1_264_256),
    ("inuse_slop", 1_272_920 - 1_264_256),
];

/// The figures that it states for its largest heap.
pub const PREDICTED_HEAP_PEAK: [(&str, u64); 5] = [
    ("alloc_objects", 7662),
    ("alloc_space", 6_689_751),
    ("inuse_objects", 444),
    ("inuse_space", 2_310_348),
    ("inuse_slop", 2_322_960 - 2_310_348),
];

/// Unpacks a file.
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
