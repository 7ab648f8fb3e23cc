//! `skinflint what-if`: a program whose layouts are worked out by hand, recorded and simulated.
//!
//! ```text
//!   fitted.c (its head) ─ record ─► main.sft ─ what-if ─► slop and spans as computed below
//! ```
//!
//! W1  Every figure is worked out here from the head of the program, never copied from an output.
//!
//! Not here: layouts by themselves (`what-if`), how far they are from real allocators (bench/suite).

use serde_json::Value;

use crate::report::{Report, list, number, text};
use crate::tool::{Bench, program};

fn recorded() -> Bench {
    let bench = Bench::new();
    let path = program("fitted");
    let done = bench.tool([
        "record",
        "-q",
        "-o",
        "main.sft",
        "--",
        path.to_str().expect("a path"),
    ]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    bench
}

fn policies(bench: &Bench, names: &str) -> Vec<Value> {
    let done = bench.tool(["what-if", "main.sft", "--json", "--with", names]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    let json = Report::read(&done.stdout).0;
    let trace = &json.as_array().expect("an array")[0];
    assert_eq!(text(trace, "trace"), "main.sft");
    assert_eq!(
        (number(trace, "events"), number(trace, "acquisitions")),
        (9005, 7005)
    );
    // The end is the peak; the largest free is that of the spike, 2,000 times 600 bytes, to nothing.
    assert_eq!(number(trace, "at_peak.requested_bytes"), 9_340_000);
    assert_eq!(number(trace, "at_end.requested_bytes"), 9_340_000);
    assert_eq!(number(trace, "after_free.blocks"), 0);
    assert_eq!(list(trace, "missing").len(), 0);
    list(trace, "policies").to_vec()
}

#[test]
fn a_program_worked_out_by_hand() {
    let bench = recorded();
    let found = policies(
        &bench,
        "skinflint:64k:lowest,skinflint+earned:64k:lowest,glibc",
    );
    let [base, earned, glibc] = found.as_slice() else {
        panic!("three policies: {found:?}");
    };
    assert_eq!(number(base, "at_peak.slop_bytes"), 314_400);
    // Slots in 64 KiB: 14 of 4,608 (300 blocks: 22 spans), 204 of 320 (3,000: 15), 128 of 512 (1,000: 8),
    // 227 of 288 (500: 3), 2 of 30,720 (200: 100).
    assert_eq!(number(base, "at_peak.spans"), 22 + 15 + 8 + 3 + 100);
    // 4,360: 240 bytes beyond 4,368, times 137 pass 32,768: 137 blocks at 248, 163 at 8. 300: 16 beyond 304,
    // times 2,049: 2,049 at 20, 951 at 4. 264 stays below, and tails eat what 30,000 would save.
    let slop =
        137 * 248 + 163 * 8 + 2049 * 20 + 951 * 4 + 1000 * 12 + 500 * 24 + 200 * 720 + 5 * 2400;
    assert_eq!(number(earned, "at_peak.slop_bytes"), slop);
    // Chunks of 4,368, 320, 512, 272, 30,016 and 100,016, each usable but for 8 bytes.
    let slop = 3000 * 12 + 1000 * 4 + 200 * 8 + 5 * 8;
    assert_eq!(number(glibc, "at_peak.slop_bytes"), slop);
    for policy in &found {
        assert_eq!(number(policy, "after_free.floor_bytes"), 0);
        // The spike's pages were touched: 2,000 times 600 bytes at least.
        assert!(
            number(policy, "after_free.resident.never") >= 1_200_000,
            "{policy}"
        );
    }
    assert_eq!(number(base, "after_free.resident.spans"), 0);
}

#[test]
fn compare_simulates_too_and_says_the_same() {
    let bench = recorded();
    let simulated = bench.tool(["what-if", "main.sft"]);
    simulated.says(0, &[]);
    assert!(
        simulated.stdout.contains("\nAt the heap's peak ("),
        "{}",
        simulated.stdout
    );
    assert!(
        simulated.stdout.contains(" 7,005 blocks acquired\n"),
        "{}",
        simulated.stdout
    );
    let compared = bench.tool(["compare", "--what-if", "--json", "out.json", "main.sft"]);
    assert_eq!(compared.stdout, simulated.stdout);
    let json = std::fs::read_to_string(bench.path("out.json")).expect("it was written");
    assert_eq!(bench.tool(["what-if", "--json", "main.sft"]).stdout, json);
}

#[test]
fn wrong_use_names_the_option_and_the_choice() {
    let bench = recorded();
    bench
        .tool(["what-if", "main.sft", "--with", "jemaloc"])
        .says(2, &["--with", "'jemaloc'", "jemalloc, mimalloc"]);
    bench
        .tool(["what-if", "main.sft", "--with", "go:5k:lifo"])
        .says(2, &["no span length is called '5k'", "notail"]);
    bench
        .tool(["compare", "--what-if", "--", "true"])
        .says(2, &["--what-if"]);
    bench
        .tool([
            "compare",
            "--what-if",
            "main.sft",
            "--json",
            "no/such/out.json",
        ])
        .says(2, &["no/such/out.json"]);
    std::fs::write(bench.path("text.sft"), "no trace").expect("a scratch folder");
    bench.tool(["what-if", "text.sft"]).says(1, &["text.sft"]);
    bench.tool(["what-if"]).says(2, &["TRACE"]);
}
