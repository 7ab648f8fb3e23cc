//! Bad input: exit 2, the option or file and line, and the next step.

use crate::recorded;
use crate::tool::Bench;

#[test]
fn what_cannot_be_judged_is_said_before_anything_runs() {
    let bench = Bench::new();
    let refused = |arguments: &[&str], texts: &[&str]| {
        let mut all = vec!["check"];
        all.extend(arguments);
        bench.tool(all).says(2, texts);
    };
    let program = ["--", "touch", "ran"];
    let before = |more: &[&'static str]| [more, &program[..]].concat();
    refused(&before(&[]), &["no budget", "--peak-live 64MiB"]);
    refused(
        &before(&["--peak-live", "much"]),
        &["--peak-live: \"much\"", "64MiB"],
    );
    refused(
        &before(&["--peak-rss", "5%"]),
        &["--peak-rss: ", "write +5% or -5%"],
    );
    refused(
        &before(&["--allocations", "+5%"]),
        &["--allocations: +5%", "--baseline OLD.sft"],
    );
    refused(
        &before(&["--stack", "load"]),
        &["--stack load", "PATTERN=BYTES"],
    );
    refused(
        &before(&["--growth-per", "=3"]),
        &["--growth-per", "MARK=BYTES"],
    );
    refused(
        &before(&["--peak-live", "1", "--baseline", "none.sft"]),
        &["--baseline none.sft", "check the name"],
    );
    refused(
        &before(&["--budgets", "none.toml"]),
        &["--budgets none.toml"],
    );
    refused(
        &before(&["--peak-live", "1", "main.sft"]),
        &["main.sft", "one of them"],
    );
    refused(&["--peak-live", "1"], &["nothing to judge"]);
    refused(&["--peak-live", "1", "none.sft"], &["none.sft"]);
    refused(&["--show-history", "none"], &["--show-history none"]);
    assert!(!bench.path("ran").exists(), "the program was started");
}

#[test]
fn a_file_of_budgets_is_told_by_its_line() {
    let bench = Bench::new();
    std::fs::write(bench.path("m.toml"), "[budget]\n\npeak-liv = 5\n").expect("a file");
    let done = bench.tool(["check", "--budgets", "m.toml", "a.sft"]);
    done.says(2, &["--budgets m.toml:3: ", "peak-live"]);
    std::fs::write(bench.path("m.toml"), "[budget]\npeak-live = \n").expect("a file");
    let done = bench.tool(["check", "--budgets", "m.toml", "a.sft"]);
    done.says(2, &["--budgets m.toml:2: "]);
}

#[test]
fn a_file_that_cannot_be_written_is_told_by_its_option() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    for option in ["--sarif", "--junit", "--history", "--markdown"] {
        let to = format!("{option}=none/there");
        let done = bench.tool(["check", "main.sft", "--peak-live", "1GiB", &to]);
        done.says(2, &[&format!("{option} none/there"), "name another file"]);
    }
    std::fs::write(bench.path("h"), "no history\n").expect("a file");
    let done = bench.tool(["check", "--show-history", "h"]);
    done.says(2, &["--show-history h", "no line of a history"]);
}
