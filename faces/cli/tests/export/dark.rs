//! `skinflint dark-matter` on a program that prints where its blocks are.
//!
//! K1  The program itself writes the memory report, as a real one would; the test changes its content.

use serde_json::{Value, json};

use crate::report::{list, number, text};
use crate::tool::{Bench, run};

/// A program with three caches: of `a` it reports everything, of `b` the first of two, of `c` nothing; and it reports
/// one block of `a` once more under `b`.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
void *a[3], *b[2], *c[4];
__attribute__((noinline)) void fill_a(void) { for (int i = 0; i < 3; i++) a[i] = malloc(1000); }
__attribute__((noinline)) void fill_b(void) { for (int i = 0; i < 2; i++) b[i] = malloc(2000); }
__attribute__((noinline)) void fill_c(void) { for (int i = 0; i < 4; i++) c[i] = malloc(500); }
int main(void) {
    static char room[4096];
    setvbuf(stdout, room, _IOFBF, sizeof room);
    fill_a();
    fill_b();
    fill_c();
    printf("%p %p %p %p\n", a[0], a[1], a[2], b[0]);
    return 0;
}
"#;

/// Usable bytes of 1000, 2000 and 500 under glibc: see the head of `predicted.c`.
const A: u64 = 1000;
const B: u64 = 2008;
const C: u64 = 504;

fn entry(path: &str, kind: u64, amount: u64, more: Value) -> Value {
    let mut entry = json!({"process": "app (pid 1)", "path": path, "kind": kind, "units": 0, "amount": amount,
                           "description": "A."});
    for (name, value) in more.as_object().expect("an object") {
        entry[name] = value.clone();
    }
    entry
}

/// Records the program, and returns the addresses that it prints.
#[track_caller]
fn addresses(bench: &Bench) -> Vec<String> {
    std::fs::write(bench.path("app.c"), SOURCE).expect("a file");
    let mut compiler = bench.command("gcc");
    compiler.args(["-O0", "-g", "-o", "app", "app.c"]);
    assert_eq!(
        run(compiler).status.code(),
        Some(0),
        "apt-get install gcc libc6-dev"
    );
    let done = bench.record([bench.path("app")]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    done.stdout.split_whitespace().map(str::to_owned).collect()
}

#[track_caller]
fn dark(bench: &Bench, reports: &[Value]) -> (Value, String) {
    let file = json!({"version": 1, "hasMozMallocUsableSize": true, "reports": reports});
    std::fs::write(bench.path("report.json"), file.to_string()).expect("a file");
    let done = bench.tool(["dark-matter", "main.sft", "report.json", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let said = bench.tool(["dmd", "main.sft", "report.json"]);
    assert_eq!(said.status.code(), Some(0), "{said:#?}");
    (
        serde_json::from_str(&done.stdout).expect("JSON"),
        said.stdout,
    )
}

#[test]
fn by_addresses_it_is_exact() {
    let bench = Bench::new();
    let at = addresses(&bench);
    let (found, said) = dark(
        &bench,
        &[
            entry(
                "explicit/a",
                1,
                3 * A,
                json!({"blocks": [at[0], at[1], at[2]]}),
            ),
            entry(
                "explicit/b",
                1,
                B + A,
                json!({"ranges": [[at[3], B]], "blocks": [at[1]]}),
            ),
        ],
    );
    assert_eq!(text(&found, "mode"), "exact");
    assert_eq!(number(&found, "live_bytes"), 3 * A + 2 * B + 4 * C);
    assert_eq!(number(&found, "dark_bytes"), B + 4 * C);
    let figures = |row: &Value| {
        [
            "live_blocks",
            "unreported_bytes",
            "once_bytes",
            "twice_bytes",
        ]
        .map(|name| number(row, name))
    };
    let rows: Vec<[u64; 4]> = list(&found, "rows").iter().map(figures).collect();
    assert_eq!(rows, [[4, 4 * C, 0, 0], [2, B, B, 0], [3, 0, 2 * A, A]]);
    let twice = &list(&found, "twice")[0];
    assert_eq!(
        (
            text(twice, "first"),
            text(twice, "second"),
            number(twice, "bytes")
        ),
        ("explicit/a", "explicit/b", A)
    );
    assert!(said.contains("mode: exact"), "{said}");
    let position = |name: &str| {
        said.find(name)
            .unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    assert!(position("fill_c") < position("fill_b"), "{said}");
    assert!(said.contains("explicit/a and explicit/b"), "{said}");
}

#[test]
fn by_totals_it_is_a_guess_and_says_so() {
    let bench = Bench::new();
    addresses(&bench);
    let heap = 3 * A + 2 * B + 4 * C;
    let reports = [
        entry("explicit/a", 1, 3 * A, json!({})),
        entry("heap-allocated", 2, heap, json!({})),
    ];
    let (found, said) = dark(&bench, &reports);
    assert_eq!(
        (text(&found, "mode"), number(&found, "dark_bytes")),
        ("totals", heap - 3 * A)
    );
    let rows = list(&found, "rows");
    // `b` has 4016 bytes, and 3000 are claimed in all.
    assert_eq!(number(&rows[0], "surely_dark_bytes"), 2 * B - 3 * A);
    assert_eq!(rows[2]["explained_by"], json!("explicit/a"));
    assert!(
        said.contains("mode: totals only") && said.contains("Possible, by stack"),
        "{said}"
    );
    // Our own export claims everything.
    let done = bench.tool([
        "export",
        "main.sft",
        "--format",
        "memory-report",
        "--at",
        "end",
        "-o",
        "own.json.gz",
    ]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let done = bench.tool(["dark-matter", "main.sft", "own.json.gz", "--json"]);
    let found: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(
        (
            number(&found, "dark_bytes"),
            number(&found, "overclaimed_bytes")
        ),
        (0, 0)
    );
}

#[test]
fn reports_that_cannot_be_read() {
    let bench = Bench::new();
    addresses(&bench);
    let refused = |name: &str, content: &[u8], status: i32, texts: &[&str]| {
        std::fs::write(bench.path(name), content).expect("a file");
        let done = bench.tool(["dark-matter", "main.sft", name]);
        done.says(status, &[&[name], texts].concat());
        assert_eq!(done.stdout, "");
    };
    refused("empty.json", b"", 1, &["cut off", "at byte 0"]);
    refused(
        "text.json",
        b"hello",
        1,
        &["not JSON", "at byte 1 ", "a memory report"],
    );
    refused(
        "cut.json",
        b"{\"version\":1,\n\"reports\":[{\"process\":",
        1,
        &["cut off", "at byte 36 "],
    );
    refused(
        "cut.gz",
        &[0x1f, 0x8b, 8, 0, 0],
        1,
        &["the gzip data are damaged"],
    );
    let two = json!({"version": 1, "reports": [entry("a", 2, 1, json!({})), {
        "process": "web (pid 2)", "path": "a", "kind": 2, "units": 0, "amount": 1, "description": ""}]});
    refused(
        "two.json",
        two.to_string().as_bytes(),
        2,
        &["--process", "app (pid 1), web (pid 2)"],
    );
    bench
        .tool(["dark-matter", "main.sft", "absent.json"])
        .says(2, &["absent.json"]);
}
