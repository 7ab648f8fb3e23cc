//! `skinflint run --dark-matter`: programs with reporters in C and Python, asked at a mark, at their end, or not at all.
//!
//! ```text
//!   corner (C), Python ── run --dark-matter --at full ─► answered ─► stdin closes ─► trace, memory report
//!                                            dark-matter TRACE REPORT --json ─► rows ── as predicted in corner.c
//! ```
//!
//! W1  What is predicted is in the head of tests/reporters/corner.c; rows are found by what they hold, names in the text.
//! W2  A program waits until the tool says that it has answered, not for a fixed time.
//!
//! Not here: the joining of files (tests/export/dark.rs), a host in Rust (examples/document-host/tests/dark.rs).

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use skinflint_test_support::artifact;
use skinflint_test_support::wait::until;
use tool::{Bench, Done, Running, root, run};

const PATIENCE: Duration = Duration::from_secs(100);

fn reporters() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| artifact::released("skinflint-reporters-so"))
}

fn corner() -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let folder = PROGRAMS.get_or_init(|| tool::made("tests/reporters", "reporter-programs"));
    folder.join("corner")
}

/// Runs a command of the tool until it says that the program has answered; then ends the program's input (W2).
/// Returns its stderr, too.
#[track_caller]
fn until_answered(bench: &Bench, command: Command) -> (Done, String) {
    let said = bench.path("said");
    let mut shell = bench.command("sh");
    let arguments = command.get_args().map(|one| one.to_owned());
    shell.args(["-c", "exec \"$@\" 2>said", "sh"]);
    shell.arg(command.get_program()).args(arguments);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let running = Running::start(shell);
    let read = || std::fs::read_to_string(&said).unwrap_or_default();
    until("the program has answered", || {
        read().contains("has answered --dark-matter").then_some(())
    });
    let done = running.finish(PATIENCE);
    (done, read())
}

/// Runs the command that a run prints for repeating its result, and returns the JSON.
#[track_caller]
fn again(bench: &Bench, said: &str) -> Value {
    let arguments = arguments_said(said);
    let mut shell = bench.command("sh");
    let command = format!("exec \"$0\" dark-matter {arguments} --json");
    shell.args(["-c", &command, tool::SKINFLINT]);
    let done = run(shell);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// Returns the arguments that the tool says to give to `dark-matter`.
#[track_caller]
fn arguments_said(said: &str) -> &str {
    let line = said
        .lines()
        .find_map(|line| line.split_once("skinflint dark-matter "));
    line.unwrap_or_else(|| panic!("no command: {said}")).1
}

fn figures(row: &Value) -> [u64; 5] {
    [
        "live_blocks",
        "live_bytes",
        "unreported_bytes",
        "once_bytes",
        "twice_bytes",
    ]
    .map(|name| row[name].as_u64().expect("a number"))
}

/// Returns the row that has this number of blocks and bytes.
#[track_caller]
fn row(found: &Value, blocks: u64, bytes: u64) -> [u64; 5] {
    let rows = found["rows"].as_array().expect("rows").iter().map(figures);
    let mut these = rows.filter(|row| (row[0], row[1]) == (blocks, bytes));
    these
        .next()
        .unwrap_or_else(|| panic!("no row of {bytes}: {found:#}"))
}

#[track_caller]
fn as_predicted(found: &Value) {
    assert_eq!(found["mode"], "exact");
    assert_eq!(row(found, 10, 10_000), [10, 10_000, 0, 10_000, 0]);
    assert_eq!(row(found, 7, 21_000), [7, 21_000, 21_000, 0, 0]);
    assert_eq!(row(found, 5, 10_040), [5, 10_040, 0, 0, 10_040]);
    assert_eq!(row(found, 4, 16_032), [4, 16_032, 8_032, 8_000, 0]);
    assert_eq!(row(found, 3, 18_024), [3, 18_024, 0, 18_024, 0]);
    let pair = &found["twice"][0];
    assert_eq!(
        (
            &pair["first"],
            &pair["second"],
            &pair["bytes"],
            &pair["blocks"]
        ),
        (
            &"explicit/owner".into(),
            &"explicit/user".into(),
            &10_040.into(),
            &5.into()
        )
    );
    assert_eq!(found["twice"].as_array().expect("a list").len(), 1);
    for claim in found["claims"].as_array().expect("claims") {
        assert_eq!(claim["amount_bytes"], claim["covered_bytes"], "{claim:#}");
        let strays = ["stray_blocks", "stray_bytes", "changed_bytes"].map(|name| &claim[name]);
        assert_eq!(strays, [&Value::from(0); 3], "{claim:#}");
    }
    // These are all of heap-unclassified and of what differs from it (adds_up has checked that it is `dark_bytes`).
    assert_eq!(found["account"]["claimed_twice_bytes"], 10_040);
    assert_eq!(found["account"]["without_addresses_bytes"], 0);
    assert_eq!(found["account"]["claimed_beyond_bytes"], 0);
}

fn preload() -> String {
    reporters().display().to_string()
}

#[test]
fn a_program_in_c_asked_at_its_mark() {
    let bench = Bench::new();
    let mut command = bench.skinflint([
        "run",
        "--no-html",
        "--dark-matter",
        "--at",
        "full",
        "--preload",
    ]);
    command.arg(preload()).arg("--").arg(corner()).arg("mark");
    let (done, said) = until_answered(&bench, command);
    // This is the program's own status.
    assert_eq!(done.status.code(), Some(7), "{said}");
    as_predicted(&again(&bench, &said));
    // The same with the two moments exchanged.
    let exchanged = arguments_said(&said)
        .replace("--at", "--then")
        .replace("--until", "--at")
        .replace("--then", "--until");
    let mut shell = bench.command("sh");
    let command = format!("exec \"$0\" dark-matter {exchanged}");
    shell.args(["-c", &command, tool::SKINFLINT]);
    run(shell).says(2, &["--until: the measurement ended", "exchange them"]);
    // The darkest of the program's own stacks comes first, by name, and the claims that overlap.
    let unreported = said.find("Unreported, by stack").expect("a table");
    let twice = said.find("Claimed twice, by stack").expect("a table");
    let at = |name: &str| said[unreported..].find(name).map(|at| at + unreported);
    assert!(at("fill_dark").is_some_and(|at| at < twice), "{said}");
    assert!(at("fill_dark") < at("fill_halves"), "{said}");
    assert!(said[twice..].contains("fill_twice"), "{said}");
    assert!(said.contains("explicit/owner and explicit/user"), "{said}");
    assert!(
        !said[unreported..].contains("fill_named") && !said[unreported..].contains("fill_inside"),
        "{said}"
    );
}

#[test]
fn a_program_in_c_asked_at_its_end() {
    let bench = Bench::new();
    let mut command = bench.skinflint(["record", "--dark-matter", "--at", "end", "--preload"]);
    command.arg(preload()).arg("--").arg(corner()).arg("end");
    let done = run(command);
    assert_eq!(done.status.code(), Some(7), "{done:#?}");
    as_predicted(&again(&bench, &done.stderr));
}

#[test]
fn on_our_allocator_unreported_is_heap_unclassified() {
    let bench = Bench::new();
    let mut command = bench.skinflint(["run", "--no-html", "--dark-matter", "--at", "full"]);
    for library in [tool::allocator(), reporters()] {
        command.arg("--preload").arg(library);
    }
    command.arg("--").arg(corner()).arg("mark");
    let (_, said) = until_answered(&bench, command);
    let found = again(&bench, &said);
    let account = &found["account"];
    let of = |name: &str| {
        account[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name}: {found:#}"))
    };
    assert_eq!(of("recorded_more_bytes"), 0, "{account:#}");
    let doubled = of("claimed_twice_bytes");
    assert!(doubled >= 10_000, "{account:#}");
    // For inside() the program guesses glibc's size.
    let dark = found["dark_bytes"].as_i64().expect("a number");
    let unclassified = of("heap_unclassified_bytes");
    assert_eq!(
        dark,
        unclassified + doubled + of("claimed_beyond_bytes") + of("went_bytes")
    );
}

#[test]
fn programs_that_cannot_be_asked() {
    let bench = Bench::new();
    let said = |more: &[&str], what: &str, texts: &[&str]| {
        let mut command = bench.skinflint(["record", "--dark-matter"]);
        command.args(more).arg("--preload").arg(preload());
        command.arg("--").arg(corner()).arg(what);
        // The status is the program's own, whatever became of the question (dark_matter::asker.A4).
        run(command).says(7, texts);
    };
    said(
        &["--at", "full"],
        "dark",
        &[
            "--dark-matter: no process of the program can be asked",
            "skinflint_memory_open",
        ],
    );
    said(
        &["--at", "nowhere"],
        "end",
        &["--dark-matter: the program ended, and there was no mark \"nowhere\""],
    );
    said(
        &["--at", "1000s"],
        "end",
        &["--dark-matter: the program ended before it had run for 1000s"],
    );
    let refused = |arguments: &[&str], texts: &[&str]| {
        let mut command = bench.skinflint(["run"]);
        command.args(arguments).args(["--", "true"]);
        run(command).says(2, texts);
    };
    refused(
        &["--dark-matter", "--at", "heap-peak"],
        &["--at heap-peak", "use peak, end, a mark or a time"],
    );
    refused(
        &["--dark-matter=nobody"],
        &["--dark-matter=nobody", "--page"],
    );
}

#[test]
fn by_a_file_and_by_a_page() {
    let bench = Bench::new();
    let mut command = bench.command(corner());
    command.arg("mark").env("LD_PRELOAD", reporters());
    let mut program = Running::start(command);
    let pid = program.pid.to_string();
    until("the reporter's socket", || {
        let listed = bench.tool(["memory"]).stdout;
        listed.contains(&format!("{pid}\tcorner")).then_some(())
    });
    let saved = bench.tool(["memory", &pid, "--blocks", "--save", "corner.json"]);
    assert_eq!(saved.status.code(), Some(0), "{saved:#?}");
    let json = std::fs::read_to_string(bench.path("corner.json")).expect("a file");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let lines = json["reports"].as_array().expect("lines");
    let of = |path: &str| {
        let line = lines.iter().find(|line| line["path"] == path);
        line.unwrap_or_else(|| panic!("no {path}")).clone()
    };
    assert_eq!(
        of("explicit/named")["blocks"].as_array().map(Vec::len),
        Some(10)
    );
    assert_eq!(
        of("explicit/halves")["ranges"].as_array().map(Vec::len),
        Some(4)
    );
    // A page shows the same, and belongs to a process that this recording does not have.
    let mut page = Running::start(bench.skinflint(["memory", &pid, "--page"]));
    let url = page.line();
    let mut command = bench.skinflint([
        "record",
        "--at",
        "0s",
        &format!("--dark-matter={url}"),
        "--",
    ]);
    command.args(["sleep", "2"]);
    run(command).says(
        0,
        &[
            "who was asked is not of this recording",
            &format!("corner (pid {pid})"),
        ],
    );
    program.say(b"");
    let done = program.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(7), "{done:#?}");
}

const PYTHON: &str = r#"
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import skinflint_report

named = bytes(3_000_000)
dark = bytearray(5_000_000)
twice = ctypes.create_string_buffer(7_000_000)

@skinflint_report.reporter("owner")
def owner(out):
    out.heap("explicit/named", sys.getsizeof(named), "Named.", blocks=[id(named)])
    out.heap("explicit/owner", 7_000_000, "Twice.", blocks=[ctypes.addressof(twice)])

@skinflint_report.reporter("user")
def user(out):
    out.heap("explicit/user", 7_000_000, "Twice.", ranges=[(ctypes.addressof(twice), 7_000_000)])

skinflint_report.open()
ctypes.CDLL(None).skinflint_mark(b"full")
sys.stdin.read()
"#;

#[test]
fn a_program_in_python() {
    let bench = Bench::new();
    std::fs::write(bench.path("program.py"), PYTHON).expect("a file");
    let mut command = bench.skinflint([
        "run",
        "--no-html",
        "--dark-matter",
        "--at",
        "full",
        "--",
        "/usr/bin/python3",
    ]);
    command
        .arg(bench.path("program.py"))
        .arg(root().join("bindings/python"));
    command.env("SKINFLINT_REPORT_LIBRARY", reporters());
    let (done, said) = until_answered(&bench, command);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let found = again(&bench, &said);
    let rows: Vec<[u64; 5]> = found["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(figures)
        .collect();
    // Finds the row with a block of this many bytes; small objects of that stack are in it, too.
    let of = |bytes: u64| {
        let found = rows
            .iter()
            .find(|row| (bytes..bytes + 900_000).contains(&row[1]));
        *found.unwrap_or_else(|| panic!("no row of {bytes}: {rows:?}"))
    };
    let (named, dark, twice) = (of(3_000_000), of(5_000_000), of(7_000_000));
    assert!(named[3] >= 3_000_000 && named[2] < 900_000, "{named:?}");
    assert!(dark[2] >= 5_000_000 && dark[3] + dark[4] == 0, "{dark:?}");
    assert_eq!(twice[4], 7_000_000, "{twice:?}");
    assert!(said.contains("explicit/owner and explicit/user"), "{said}");
}
