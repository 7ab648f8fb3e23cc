//! A build with make: hundreds of short processes, one report, nothing lost.
//!
//! ```text
//!   n files ─ make -j2 ─► make 1, gcc n + 2, cc1 n + 1, as n + 1, collect2 1, ld 1     (main.c is one file more)
//! ```
//!
//! U1  The number of processes of each program follows from the number of files: gcc's manual says how gcc works.
//! U2  Sums are compared with what other commands print about the single traces.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::tool::{Bench, program, run_within};

/// The longest that a build may take; many builds run at once during tests.
const PATIENCE: Duration = Duration::from_secs(240);

/// Writes a C program of `files` files and one with main, and its Makefile.
fn write_program(folder: &Path, files: usize) {
    let write = |name: String, text: &str| {
        std::fs::write(folder.join(name), text).expect("a file of its own folder");
    };
    let (mut declared, mut called, mut objects) = (String::new(), String::new(), String::new());
    for n in 0..files {
        let text = format!(
            "#include <stdio.h>\nint f{n}(int x) {{ int s = {n}; while (x--) s += x; return s; }}\n"
        );
        write(format!("f{n}.c"), &text);
        let _ = writeln!(declared, "int f{n}(int);");
        let _ = writeln!(called, "  s += f{n}(3);");
        let _ = write!(objects, " f{n}.o");
    }
    let main = format!("{declared}int main(void) {{ int s = 0;\n{called}  return s & 1; }}\n");
    write("main.c".into(), &main);
    let make = format!("app: main.o{objects}\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n");
    write("Makefile".into(), &make);
}

fn json(bench: &Bench, arguments: &[&str]) -> Value {
    let done = bench.tool(arguments);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    serde_json::from_str(&done.stdout).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

fn sum(rows: &Value, field: &str) -> u64 {
    let rows = rows.as_array().expect("rows");
    rows.iter().map(|row| number(&row[field])).sum()
}

#[test]
fn a_parallel_build_is_one_report_and_nothing_is_lost() {
    let files: usize = match std::env::var_os("SKINFLINT_LONG") {
        Some(_) => 300,
        None => 40,
    };
    let bench = Bench::new();
    write_program(&bench.path(""), files);
    std::fs::create_dir(bench.path("traces")).expect("a folder");
    let mut build = bench.skinflint(["record", "-q", "--dir", "traces", "--", "make", "-s", "-j2"]);
    build.env_remove("MAKEFLAGS");
    let done = run_within(build, b"", PATIENCE * if files > 100 { 4 } else { 1 });
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(done.stderr, "");
    // The assemblers and the drivers were small beside the compilers: their traces are gone, and their rows are here.
    let left = traces_in(&bench.path("traces"));
    assert!(left.contains("cc1") && left.contains("make"), "{left:?}");
    assert!(!left.contains("as") && !left.contains("gcc"), "{left:?}");
    let report = json(&bench, &["report", "--json", "traces"]);
    assert_eq!(report["missing"], serde_json::json!([]), "{report:#}");

    let n = files as u64;
    let programs = report["programs"].as_array().expect("programs");
    let mut seen: Vec<(String, u64)> = programs
        .iter()
        .map(|row| {
            (
                row["name"].as_str().expect("a name").into(),
                number(&row["processes"]),
            )
        })
        .collect();
    seen.sort();
    let expected = [
        ("as", n + 1),
        ("cc1", n + 1),
        ("collect2", 1),
        ("gcc", n + 2),
        ("ld", 1),
        ("make", 1),
    ];
    assert_eq!(seen, expected.map(|(name, count)| (name.to_owned(), count)));

    // Each compiler is under a gcc, and each gcc under the make; all ended well.
    let rows = report["processes"].as_array().expect("rows");
    for row in rows {
        assert_eq!(row["ended"], "exit 0", "{row}");
        let parent = row["parent"]
            .as_u64()
            .map(|index| &rows[index as usize]["name"]);
        let expected = match row["name"].as_str() {
            Some("make") => None,
            Some("gcc") => Some("make"),
            Some("ld") => Some("collect2"),
            _ => Some("gcc"),
        };
        assert_eq!(parent.and_then(Value::as_str), expected, "{row}");
    }
    sums_hold(&bench, &report);
    // The compilers are the large ones, not the make that waited for them.
    let make = rows.iter().find(|row| row["name"] == "make").expect("make");
    let largest = rows.iter().map(|row| number(&row["peak_rss_bytes"])).max();
    assert!(
        number(&make["peak_rss_bytes"]) * 3 < largest.expect("rows"),
        "{make}"
    );
    text_and_page(&bench, &report);
}

/// Returns the names of the programs whose traces are in a folder.
fn traces_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.filter_map(|name| {
        let name = name.to_string_lossy().into_owned();
        let name = name.strip_prefix("skinflint.")?.strip_suffix(".sft")?;
        Some(name.rsplit_once('.')?.0.to_owned())
    });
    names.collect()
}

fn sums_hold(bench: &Bench, report: &Value) {
    for rows in [&report["processes"], &report["programs"]] {
        for field in ["events", "blocks"] {
            assert_eq!(
                sum(rows, field),
                number(&report["totals"][field]),
                "{field}"
            );
        }
        let at_peak = sum(rows, "pss_at_peak_bytes");
        assert_eq!(at_peak, number(&report["peak"]["pss_bytes"]));
    }
    let peak = &report["peak"];
    assert_eq!(number(&peak["skew_ns"]), 0, "one roll call");
    // At least once, two jobs had a compiler each: shared pages were counted once.
    assert!(number(&peak["processes"]) >= 2);
    assert!(
        number(&peak["pss_bytes"]) < number(&peak["rss_bytes"]),
        "{peak}"
    );
    assert!(
        number(&peak["live_bytes"]) < number(&peak["pss_bytes"]),
        "{peak}"
    );
    // The single reports of some of them say the same.
    for row in report["processes"]
        .as_array()
        .expect("rows")
        .iter()
        .step_by(25)
    {
        let trace = row["images"][0]["trace"].as_str().expect("a trace");
        // It was small: this row is all that is left of it.
        if trace.is_empty() {
            continue;
        }
        let own = bench.report_at(trace, "end");
        own.is_complete();
        assert_eq!(
            own.number("totals.allocations"),
            number(&row["blocks"]),
            "{trace}"
        );
    }
}

fn text_and_page(bench: &Bench, report: &Value) {
    let done = bench.tool([
        "report", "traces", "--rows", "5", "--pages", "2", "--html", "all.html",
    ]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    let events = number(&report["totals"]["events"]);
    let others = format!("{} others", number(&report["totals"]["processes"]) - 5);
    for text in [
        "none lost",
        "by program",
        "largest reading of all together",
        &others,
    ] {
        assert!(done.stdout.contains(text), "no {text:?} in {}", done.stdout);
    }
    let digits: String = done.stdout.chars().filter(|c| *c != ',').collect();
    assert!(
        digits.contains(&format!("complete: {events} events")),
        "{}",
        done.stdout
    );
    let page = std::fs::read_to_string(bench.path("all.html")).expect("the page");
    let linked: Vec<&str> = page.split("href=\"").skip(1).collect();
    assert_eq!(linked.len(), 2, "two own pages");
    for link in linked {
        let name = link.split('"').next().expect("a name");
        assert!(bench.path(name).exists(), "{name}");
    }
}

#[test]
fn threads_and_forks_together() {
    let bench = Bench::new();
    for (name, command) in [("a.sft", "threads"), ("b.sft", "forks")] {
        let path = program(command);
        let done = run_within(
            bench.skinflint(["record", "-q", "-o", name, "--", &path.to_string_lossy()]),
            b"",
            PATIENCE,
        );
        assert!(done.status.code().is_some(), "{done:#?}");
    }
    let report = json(&bench, &["report", "--json", "."]);
    assert_eq!(report["missing"], serde_json::json!([]), "{report:#}");
    // tests/programs/forks.c: fork, clone, a grandchild; exec, vfork, spawn; the daemon's parent; four of a server.
    let rows = report["processes"].as_array().expect("rows");
    let made = |how: &str| rows.iter().filter(|row| row["made_by"] == how).count();
    assert_eq!((made("first"), made("fork")), (2, 8));
    assert_eq!(number(&report["totals"]["traces"]), 13);
    let forks = rows.iter().find(|row| row["name"] == "forks");
    assert_eq!(forks.expect("it")["depth"], 0);
}

#[test]
fn what_cannot_be_one_report_is_refused() {
    let bench = Bench::new();
    bench
        .tool(["report", "."])
        .says(2, &["no traces (*.sft) in this folder", "--dir"]);
    let done = bench.record(["true"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    bench
        .tool(["report", ".", "--at", "end"])
        .says(2, &["--at end", "a moment is of one trace"]);
    bench
        .tool(["report", "main.sft", "gone.sft"])
        .says(1, &["gone.sft"]);
    bench
        .tool(["report", "main.sft", "main.sft", "--windows", "--json"])
        .says(2, &["--windows", "of one trace"]);
    bench
        .tool(["report", "main.sft", "./main.sft"])
        .says(2, &["./main.sft: the same recording as main.sft"]);
    // In a folder it is reported, and the rest is analysed.
    std::fs::write(bench.path("cut.sft"), b"\x89SF").expect("a file");
    let done = bench.tool(["report", "."]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert!(
        done.stdout.contains("incomplete: 1 reason"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("cut.sft"), "{}", done.stdout);
    // A copy counts once.
    std::fs::copy(bench.path("main.sft"), bench.path("cut.sft")).expect("a copy");
    let done = bench.tool(["report", ".", "--json"]);
    let copied: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(number(&copied["totals"]["traces"]), 1);
    assert!(done.stdout.contains("was left out"), "{}", done.stdout);
}
