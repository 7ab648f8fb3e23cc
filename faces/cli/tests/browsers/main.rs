//! Exported files in the programs that only open them in a window: Firefox's about:memory, and speedscope.
//!
//! ```text
//!   predicted ─ record, export ─► memory-report.json.gz ─► about:memory in Firefox ─► the text of its page
//!                              └► speedscope, folded, pprof ─► speedscope in Chromium ─► its table
//! ```
//!
//! I1  What is compared is what a user reads on the page, with the figures of `predicted.c`'s head.
//! I2  Run by `make consumers-test`, which installs both browsers. What is missing fails, by name.
//!
//! Not here: everything that can be opened without a window (tests/export).

#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

use std::process::Command;
use std::time::Duration;

use skinflint_test_support::artifact;
use tool::{Bench, program, root, run_within};

/// The longest that a browser may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Records `predicted` and exports it as of the end.
#[track_caller]
fn exported(format: &str, file: &str) -> Bench {
    let bench = Bench::new();
    let done = bench.record([program("predicted")]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let done = bench.tool([
        "export", "main.sft", "--at", "end", "--format", format, "-o", file,
    ]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    bench
}

/// Returns what a script of `tests/export/consumers` prints.
#[track_caller]
fn page(bench: &Bench, interpreter: &str, script: &str, file: &str, browser: &str) -> String {
    let there = Command::new("sh")
        .args(["-c", "command -v \"$0\" >/dev/null", browser])
        .status();
    assert!(
        there.is_ok_and(|status| status.success()),
        "{browser} is missing: apt-get install {browser}"
    );
    let mut command = bench.command(interpreter);
    command
        .arg(root().join("faces/cli/tests/export/consumers").join(script))
        .arg(file);
    let done = run_within(command, b"", PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    done.stdout
}

#[test]
fn a_memory_report_in_firefox() {
    let bench = exported("memory-report", "memory-report.json.gz");
    let shown = page(
        &bench,
        "/usr/bin/python3",
        "about_memory.py",
        "memory-report.json.gz",
        "firefox-esr",
    );
    let line = |end: &str| {
        let mut lines = shown.lines();
        let found = lines
            .find(|line| line.ends_with(end))
            .unwrap_or_else(|| panic!("no {end:?}: {shown}"));
        let figure = found.trim_start_matches(|c: char| !c.is_ascii_digit());
        figure.split(' ').next().expect("a figure").replace(',', "")
    };
    assert_eq!(line("-- heap"), "1272920");
    assert_eq!(line("-- requested/main"), "1264256");
    assert_eq!(line("-- slop"), "8664");
    // What no reporter covers, by Firefox's own reckoning.
    assert_eq!(line("heap-unclassified"), "0");
    assert_eq!(line("\u{2500} large"), "1048576");
    assert_eq!(line("heap-allocated"), "1272920");
    assert_eq!(line("heap-blocks"), "456");
    assert_eq!(line("-- resident-by-row"), line("\u{2500} resident"));
    assert!(!shown.contains("NaN"), "{shown}");
}

#[test]
fn a_program_s_own_report_in_firefox() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let library = artifact::released("skinflint-reporters-so");
    let programs = tool::made("tests/reporters", "reporter-programs");
    let sockets = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(sockets.path(), std::fs::Permissions::from_mode(0o700)).expect("mode");
    let mut command = bench.command(programs.join("cache"));
    command.arg(sockets.path()).env("LD_PRELOAD", library);
    let mut running = tool::Running::start(command);
    let first = running.line();
    assert!(first.starts_with("ready "), "{first}");
    let pid = running.pid.to_string();
    // The file has blocks, which Firefox does not know and passes over.
    let done = bench.tool(["memory", &pid, "--blocks", "--save", "own.json.gz"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let plain = bench.tool(["memory", "own.json.gz", "--save", "plain.json"]);
    assert_eq!(plain.status.code(), Some(0), "{plain:#?}");
    let named = std::fs::read_to_string(bench.path("plain.json")).expect("a file");
    assert_eq!(named.matches("\"0x").count(), 1000);
    let ours = bench.tool(["memory", "own.json.gz", "--exact", "--threshold", "0"]);
    let python = "/usr/bin/python3";
    let shown = page(
        &bench,
        python,
        "about_memory.py",
        "own.json.gz",
        "firefox-esr",
    );
    // Both show the same tree; Firefox's sums and its heap-unclassified are its own.
    let mut rows = ours
        .stdout
        .lines()
        .skip_while(|line| !line.ends_with("-- explicit"));
    let mut compared = 0;
    for row in rows.by_ref().take_while(|line| !line.is_empty()) {
        let figure = row.trim_start_matches(|c: char| !c.is_ascii_digit());
        assert!(
            shown.lines().any(|line| line.ends_with(figure)),
            "no {figure}: {shown}"
        );
        compared += 1;
    }
    assert!(compared >= 6, "{ours:#?}");
    assert!(
        ours.stdout.contains("heap-unclassified") && !shown.contains("NaN"),
        "{shown}"
    );
}

#[test]
fn three_formats_in_speedscope() {
    let rows = |format: &str, file: &str| {
        let bench = exported(format, file);
        let shown = page(&bench, "node", "speedscope_page.mjs", file, "chromium");
        let lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines
    };
    // A table has total, self and function, one line each.
    let has = |rows: &[String], total: &str, function: &str| {
        let found = rows
            .windows(3)
            .any(|row| row[0].starts_with(total) && row[2] == function);
        assert!(found, "no {total} {function}: {rows:#?}");
    };
    let own = rows("speedscope", "app.json");
    has(&own, "1.21 MB (100%)", "main");
    has(&own, "64.06 KB", "terminator");
    // The list of profiles: number, name, total.
    for (name, total) in [
        ("alloc_objects", "7,662"),
        ("inuse_objects", "456"),
        ("inuse_slop", "8.46 KB"),
    ] {
        assert!(
            own.windows(2).any(|row| row[0] == name && row[1] == total),
            "{name}: {own:#?}"
        );
    }
    let folded = rows("folded", "app.folded");
    has(&folded, "1,264,256 (100%)", "main");
    has(&folded, "65,600", "terminator");
    has(&rows("pprof", "app.pb.gz"), "1.21 MB (100%)", "main");
}
