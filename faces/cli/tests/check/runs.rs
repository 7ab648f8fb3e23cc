//! Programs that are run for a check: their status, their streams, histories; real programs (check.V3).

use skinflint_test_support::need;

use crate::tool::{Bench, program};

#[test]
fn the_programs_stdout_is_its_own_and_nothing_is_left() {
    let bench = Bench::new();
    let rounds = program("rounds");
    let rounds = rounds.to_str().expect("a path");
    let done = bench.tool(["check", "--peak-live", "1MiB", "--json", "--", rounds]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(done.stdout, "rounds: 341 blocks, 41 live\n");
    assert!(done.stderr.contains("\"verdict\": \"held\""), "{done:#?}");
    assert_eq!(bench.traces(), Vec::<String>::new());
    let done = bench.tool([
        "check",
        "--peak-live",
        "1KiB",
        "-o",
        "kept.sft",
        "--",
        rounds,
    ]);
    done.says(3, &["BROKEN", "by warm"]);
    assert_eq!(bench.traces(), ["kept.sft"]);
}

#[test]
fn a_program_that_fails_is_not_held() {
    let bench = Bench::new();
    let script = |code: &str, limit: &str| {
        let python = "/usr/bin/python3";
        bench.tool(["check", "--peak-live", limit, "--", python, "-c", code])
    };
    script("raise SystemExit(7)", "1GiB").says(1, &["FAILED  ", "failed (status 7)"]);
    script("raise SystemExit(7)", "1").says(3, &["BROKEN", "failed (status 7)"]);
    script("pass", "1GiB").says(0, &["HELD"]);
}

#[test]
fn one_process_of_several_is_judged_by_its_name() {
    let bench = Bench::new();
    let rounds = program("rounds");
    let rounds = rounds.to_str().expect("a path");
    let line = format!("{rounds}; true");
    let judged = |name: &str, line: &str| {
        let process = format!("--process={name}");
        bench.tool([
            "check",
            "--allocations=341",
            &process,
            "--",
            "sh",
            "-c",
            line,
        ])
    };
    judged("rounds", &line).says(0, &["HELD  rounds"]);
    judged("other", &line).says(2, &["--process other", "rounds"]);
    judged("rounds", &format!("{rounds}; {line}")).says(2, &["2 processes"]);
}

#[test]
fn a_planted_five_per_cent_is_found_in_a_history() {
    let bench = Bench::new();
    for build in 0..8 {
        // 8,000 blocks of 100, and from build 5 on 400 more.
        let blocks = if build < 5 { 8000 } else { 8400 };
        let code = format!(
            "import ctypes\nm = ctypes.CDLL(None).malloc\nfor i in range({blocks}): m(100)"
        );
        let label = format!("--label=b{build}");
        let python = "/usr/bin/python3";
        let done = bench.tool([
            "check",
            "--history=h.jsonl",
            &label,
            "--",
            python,
            "-c",
            &code,
        ]);
        done.says(0, &["NO BUDGET  python3", "allocations"]);
        assert!(!done.stderr.contains("NOT DECIDED"), "{done:#?}");
    }
    let done = bench.tool(["check", "--show-history", "h.jsonl"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let text = done.stdout;
    let at = text.find("blocks-at-end").expect("the figure");
    let step = text[at..].lines().nth(1).expect("its step");
    assert!(step.contains("% at b5: "), "{text}");
    assert!(
        !text.contains(" at b4: ") && !text.contains(" at b6: "),
        "{text}"
    );
}

/// The verdicts of 20 runs of a real program against a recording of it.
#[track_caller]
fn twenty_of_twenty(command: &[&str]) {
    let bench = Bench::new();
    let done = bench.record(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    for _ in 0..20 {
        let mut all = vec!["check", "--baseline", "main.sft", "--peak-live=+2%"];
        all.extend([
            "--live-at-end=+2%",
            "--peak-blocks=+2%",
            "--allocations=+2%",
        ]);
        all.extend(["--pinned-at-end=+20%", "--peak-rss=1GiB", "--"]);
        all.extend(command);
        bench.tool(all).says(0, &["HELD"]);
    }
    let mut all = vec!["check", "--baseline", "main.sft", "--peak-live=-2%", "--"];
    all.extend(command);
    for _ in 0..5 {
        bench.tool(all.clone()).says(3, &["BROKEN"]);
    }
}

#[test]
fn sqlite_has_one_verdict() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c where x<2000) \
                 select count(*) from (select x, hex(x) h from c order by h);";
    twenty_of_twenty(&["sqlite3", ":memory:", query]);
}

#[test]
fn jq_has_one_verdict() {
    if !need::program("jq") {
        return;
    }
    twenty_of_twenty(&["jq", "-n", "[range(2000) | tostring] | length"]);
}
