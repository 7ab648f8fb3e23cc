//! `skinflint diff` on real runs: figures by the head of `predicted.c`, and stacks across two builds.
//!
//! F1  Rows are compared one by one; the printed text is compared with what `--json` has.

use serde_json::Value;

use crate::recorded;
use crate::report::{list, number, text};
use crate::tool::{Bench, run};

#[track_caller]
fn diff(bench: &Bench, arguments: &[&str]) -> Value {
    let mut all = vec!["diff", "--json", "--rows", "0"];
    all.extend(arguments);
    let done = bench.tool(all);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// Returns the blocks before and after of rows with this function as a frame.
#[track_caller]
fn blocks(diff: &Value, function: &str) -> (u64, u64) {
    let (mut before, mut after) = (0, 0);
    for row in list(diff, "rows") {
        let mut frames = list(row, "frames").iter().filter_map(Value::as_str);
        if frames.any(|frame| frame.split(" (").next() == Some(function)) {
            before += number(row, "before.blocks");
            after += number(row, "after.blocks");
        }
    }
    (before, after)
}

#[test]
fn a_moment_that_there_is_not_is_told_by_its_option() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for option in ["--from", "--to"] {
        let asked = |moment| bench.tool(["diff", "main.sft", option, moment]);
        asked("nowhere").says(
            2,
            &[&format!("{option} nowhere: no such mark"), "request begin"],
        );
        asked("1.5").says(2, &[&format!("{option} 1.5: "), "1.5s or 1.5ms"]);
    }
}

#[test]
fn two_marks_of_one_run() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let found = diff(
        &bench,
        &["main.sft", "--from", "request begin", "--to", "request end"],
    );
    // Ten of a hundred are left at the end mark; 7 blocks of `keep` come later.
    assert_eq!(blocks(&found, "request"), (0, 10));
    assert_eq!(blocks(&found, "small_sizes"), (250, 250));
    assert_eq!(blocks(&found, "keep"), (0, 0));
    let found = diff(&bench, &["main.sft", "--from", "request end"]);
    assert_eq!(blocks(&found, "request"), (10, 6));
    assert_eq!(blocks(&found, "keep"), (0, 7));
    assert_eq!(number(&found, "after.total.blocks"), 456);
    assert_eq!(number(&found, "after.total.requested_bytes"), 1_264_256);
    let changes: Vec<&str> = list(&found, "rows")
        .iter()
        .map(|row| text(row, "change"))
        .collect();
    assert_eq!(changes.iter().filter(|one| **one == "appeared").count(), 1);
    assert_eq!(changes.iter().filter(|one| **one == "shrank").count(), 1);
    let said = bench
        .tool(["diff", "main.sft", "--from", "request end"])
        .stdout;
    let sum = said.lines().last().expect("a sum");
    // 3 bytes from blocks: 7 * 312 given for `keep`, 4 * 72 less for `request`.
    assert!(sum.contains("+3") && sum.ends_with("sum"), "{said}");
    assert!(
        said.contains("appeared") && said.contains("keep (predicted)"),
        "{said}"
    );
}

/// A program whose one function holds `blocks` blocks of 1000 bytes.
const SOURCE: &str = "
#include <stdlib.h>
void *kept[4096];
static void *make(int n) { void *p = malloc(n); return p; }
void hold(int blocks) { for (int i = 0; i < blocks; i++) kept[i] = make(1000); }
#ifdef NEW
void extra(void) { kept[4000] = malloc(5000); }
#endif
int main(void) {
    hold(COUNT);
#ifdef NEW
    extra();
#endif
    return kept[0] == 0;
}
";

#[test]
fn two_builds_of_one_program() {
    let bench = Bench::new();
    std::fs::write(bench.path("app.c"), SOURCE).expect("a file");
    for (name, options) in [
        ("app-1", "-O0 -g -DCOUNT=100 -no-pie"),
        ("app-2", "-O2 -g -DCOUNT=300 -DNEW -fno-builtin -pie -fPIE"),
    ] {
        let mut compiler = bench.command("gcc");
        compiler
            .args(options.split(' '))
            .args(["-o", name, "app.c"]);
        assert_eq!(
            run(compiler).status.code(),
            Some(0),
            "apt-get install gcc libc6-dev"
        );
        let program = bench.path(name);
        let mut record = bench.skinflint(["record", "-q", "-o"]);
        record.arg(format!("{name}.sft")).arg("--").arg(program);
        assert_eq!(run(record).status.code(), Some(0));
    }
    let found = diff(
        &bench,
        &["app-1.sft", "app-2.sft", "--from", "end", "--to", "end"],
    );
    assert_eq!(number(&found, "before.total.blocks"), 100);
    assert_eq!(number(&found, "after.total.blocks"), 301);
    // There is one row for `hold`, although everything is inlined in the second build; and one for what is new.
    let rows = list(&found, "rows");
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert_eq!(blocks(&found, "hold"), (100, 300));
    assert_eq!(blocks(&found, "extra"), (0, 1));
    let doubts = list(&found, "doubts");
    assert_eq!(doubts.len(), 1, "{doubts:#?}");
    assert!(
        doubts[0]
            .as_str()
            .is_some_and(|doubt| doubt.contains("app-1 and app-2"))
    );
}

#[test]
fn unrelated_programs_are_doubted() {
    let bench = Bench::new();
    recorded(&bench, "longjmp");
    std::fs::rename(bench.path("main.sft"), bench.path("a.sft")).expect("renamed");
    recorded(&bench, "predicted");
    let said = bench.tool(["diff", "a.sft", "main.sft"]);
    assert!(
        said.stdout
            .contains("doubt:  only 0% of all bytes allocated"),
        "{said:#?}"
    );
}

#[test]
fn wrong_use() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    bench
        .tool(["diff", "main.sft"])
        .says(2, &["--from", "--to"]);
    bench
        .tool(["diff", "main.sft", "--from", "end"])
        .says(2, &["same moment"]);
    bench
        .tool(["diff", "main.sft", "--from", "nowhere"])
        .says(2, &["nowhere", "request begin"]);
    bench
        .tool([
            "diff",
            "main.sft",
            "--from",
            "request end",
            "--by",
            "allocations",
        ])
        .says(2, &["--by allocations"]);
    bench
        .tool(["diff", "main.sft", "absent.sft"])
        .says(1, &["absent.sft"]);
}
