//! The folder of a run: where the traces of other processes lie, which of them stay, and which commands take the folder.
//!
//! ```text
//!   sh ─┬─► perl, 60 MiB     kept            app.sft  skinflint-sh-PID/ perl's trace, and the rows
//!       └─► ls, some MiB        its row stays
//! ```

use serde_json::Value;

use crate::tool::Bench;

/// A large program, and a small one after it.
const SCRIPT: &str = "perl -e '$held = \"a\" x 60_000_000'; ls > /dev/null; exit 3";

/// Records the script with these options; returns the folder of the others.
fn recorded(bench: &Bench, options: &[&str]) -> String {
    let mut words = vec!["record", "-o", "app.sft"];
    words.extend(options);
    words.extend(["--", "sh", "-c", SCRIPT]);
    let done = bench.tool(words);
    assert_eq!(done.status.code(), Some(3), "{done:#?}");
    let mut entries = entries(bench, "");
    entries.retain(|name| name != "app.sft");
    let [folder] = &entries[..] else {
        panic!("one folder beside the trace: {entries:?}");
    };
    assert!(folder.starts_with("skinflint-sh-"), "{folder}");
    folder.clone()
}

fn entries(bench: &Bench, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(bench.path(folder)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
    names.sort();
    names
}

fn has(bench: &Bench, folder: &str, program: &str) -> bool {
    let start = format!("skinflint.{program}.");
    let names = entries(bench, folder);
    names
        .iter()
        .any(|name| name.starts_with(&start) && name.ends_with(".sft"))
}

/// Returns the rows of a report: name, events, largest resident size.
fn rows(bench: &Bench, what: &str) -> Vec<(String, u64, u64)> {
    let done = bench.tool(["report", "--json", what]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(report["missing"], serde_json::json!([]), "{report:#}");
    let rows = report["processes"].as_array().expect("rows").iter();
    let number = |value: &Value| value.as_u64().expect("a number");
    let mut rows: Vec<_> = rows
        .map(|row| {
            let name = row["name"].as_str().expect("a name").to_owned();
            (name, number(&row["events"]), number(&row["peak_rss_bytes"]))
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn children_have_a_folder_and_small_ones_a_row() {
    let bench = Bench::new();
    let folder = recorded(&bench, &[]);
    assert!(
        has(&bench, &folder, "perl"),
        "{:?}",
        entries(&bench, &folder)
    );
    assert!(
        !has(&bench, &folder, "ls"),
        "{:?}",
        entries(&bench, &folder)
    );
    let left = rows(&bench, &folder);
    let names: Vec<&str> = left.iter().map(|(name, ..)| &**name).collect();
    assert_eq!(names, ["ls", "perl", "sh"]);
    assert!(
        left.iter().all(|(_, events, rss)| *events > 0 && *rss > 0),
        "{left:?}"
    );
    // The folder above has the same run.
    assert_eq!(rows(&bench, "."), left);
    let said = bench.tool(["report", &folder]).stdout;
    assert!(
        said.contains("1 small process has a row and no trace"),
        "{said}"
    );

    let whole = Bench::new();
    let folder = recorded(&whole, &["--all"]);
    assert!(has(&whole, &folder, "ls"), "{:?}", entries(&whole, &folder));
    let kept = rows(&whole, &folder);
    assert_eq!(kept.iter().map(|row| &row.0).collect::<Vec<_>>(), names);
}

/// Tests that a command that wants one trace takes the folder for the one that a report of the run is about.
#[test]
fn a_folder_stands_for_its_run() {
    let bench = Bench::new();
    let folder = recorded(&bench, &[]);
    let file = entries(&bench, &folder)
        .into_iter()
        .find(|name| name.contains("perl"));
    let file = format!("{folder}/{}", file.expect("its trace"));
    for words in [
        &["diff", "--from", "heap-peak", "--to", "end"][..],
        &["export", "--format", "folded", "-o", "-"],
        &["counts"],
        &["what-if", "--with", "glibc"],
        &["check", "--peak-live", "1G"],
        &["top", "--once"],
    ] {
        let of = |what: &str| {
            let (command, rest) = words.split_first().expect("a command");
            let done = bench.tool([&[*command, what], rest].concat());
            assert_eq!(done.status.code(), Some(0), "{command}: {done:#?}");
            done.stdout.replace(what, "IT")
        };
        let (one, other) = (of(&folder), of(&file));
        assert!(!one.is_empty());
        let same = |text: &str| text.replace(&file, "IT").replace("./", "");
        assert_eq!(same(&one), same(&other), "{words:?}");
    }
    // Two runs in one folder: the one that is meant has to be named.
    recorded_again(&bench);
    let done = bench.tool(["counts", "."]);
    done.says(2, &["traces in this folder, and one is wanted", ".sft"]);
}

fn recorded_again(bench: &Bench) {
    let done = bench.tool(["record", "-o", "b.sft", "--", "sh", "-c", SCRIPT]);
    assert_eq!(done.status.code(), Some(3), "{done:#?}");
}

#[test]
fn a_folder_that_is_not_there_is_made() {
    let bench = Bench::new();
    let done = bench.tool(["record", "-q", "--dir", "new/traces", "--", "ls"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(entries(&bench, "new/traces").len(), 1);
}

#[test]
fn a_page_has_the_name_that_was_asked_for() {
    let bench = Bench::new();
    let done = bench.tool(["run", "--html", "page.html", "-o", "app.sft", "--", "ls"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(entries(&bench, ""), ["app.sft", "page.html"]);
    assert!(done.stderr.contains("page.html"), "{done:#?}");
}
