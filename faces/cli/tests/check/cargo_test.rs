//! `cargo skinflint test` on a small package (tests/cargo): tests of three targets, budgets by name.

use std::process::Command;

use crate::tool::{Bench, Done, SKINFLINT, recorder, root, run};

/// Runs it as cargo would, in a copy of the package; `more` are its words after `test`.
fn tested(bench: &Bench, more: &[&str]) -> Done {
    let package = bench.path("app");
    if !package.exists() {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(root().join("tests/cargo"))
            .arg(&package)
            .status();
        assert!(copied.expect("cp").success());
    }
    // What cargo starts: the name of the subcommand is its first word.
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-skinflint"));
    command.args(["skinflint", "test"]).args(more);
    command.current_dir(&package);
    command.env("SKINFLINT_RECORDER", recorder());
    command.env("CARGO_TARGET_DIR", bench.path("target"));
    run(command)
}

#[track_caller]
fn told(done: &Done, status: i32, texts: &[&str]) {
    assert_eq!(done.status.code(), Some(status), "{done:#?}");
    for text in texts {
        assert!(done.stdout.contains(text), "no {text:?} in: {done:#?}");
    }
}

#[test]
fn each_test_is_held_to_its_own_budgets() {
    let bench = Bench::new();
    let done = tested(&bench, &[]);
    told(
        &done,
        3,
        &[
            "HELD  app: tests::small",
            "BROKEN  app: tests::large",
            // The stack is that of the package's function.
            "by app::load (src/lib.rs:",
            "HELD  outside: uses_it",
            // A harness of its own is one test, under its target's name.
            "HELD  whole: whole",
            "3 tests held, 1 broken, 0 failed, 0 not decided; 3 without a budget, not run",
        ],
    );
    // Only those with a name like it; options of ours, of cargo's, and names.
    let done = tested(
        &bench,
        &["--quiet", "--peak-live", "32MiB", "--lib", "--", "large"],
    );
    told(&done, 0, &["1 test held, 0 broken"]);
    assert!(!done.stdout.contains("HELD"), "{done:#?}");
    let done = tested(&bench, &["--json", "--lib", "--", "small"]);
    told(
        &done,
        0,
        &["\"verdict\": \"held\"", "\"name\": \"peak-live\""],
    );
    // A test that fails is not held, whatever its memory.
    let done = tested(&bench, &["--peak-live", "1GiB", "--lib", "--", "fails"]);
    told(
        &done,
        1,
        &["FAILED  app: unbound::tests_fails", "it fails on purpose"],
    );
}

#[test]
fn what_is_wrong_is_told_before_a_test_runs() {
    let bench = Bench::new();
    tested(&bench, &["--peak-live", "much"]).says(2, &["--peak-live", "64MiB"]);
    tested(&bench, &["--peak-live", "+5%"]).says(2, &["no baseline here"]);
    let file = bench.path("wrong.toml");
    std::fs::write(&file, "[test.\"*\"]\n\npeak-life = 3\n").expect("a file");
    let budgets = format!("--budgets={}", file.display());
    tested(&bench, &[&budgets]).says(2, &["wrong.toml:3: ", "peak-live"]);
    std::fs::write(&file, "[test.\"tests::smal\"]\npeak-live = 3\n").expect("a file");
    tested(&bench, &[&budgets]).says(4, &["\"tests::smal\": no test is called so"]);
    let done = tested(&bench, &["--no-such-option"]);
    done.says(1, &["do not build"]);
    let help = run(Command::new(SKINFLINT));
    assert_eq!(help.status.code(), Some(2));
}

/// The figure of a budget in JSON.
#[track_caller]
fn figure(checked: &serde_json::Value, name: &str) -> u64 {
    let figure = &checked["figures"][name];
    assert_eq!(figure["low"], figure["high"], "{checked}");
    figure["low"].as_u64().expect("a figure")
}

#[test]
fn what_the_harness_takes_to_wait_is_in_no_figure() {
    let bench = Bench::new();
    let held = tested(
        &bench,
        &["--json", "--live-at-end", "1GiB", "--lib", "--", "sleeps"],
    );
    assert_eq!(held.status.code(), Some(0), "{held:#?}");
    let held: serde_json::Value = serde_json::from_str(&held.stdout).expect("JSON");
    // The same as any other program: its waiting is in its figures.
    let executables = std::fs::read_dir(bench.path("target/debug/deps")).expect("built");
    let mut executables = executables.map(|entry| entry.expect("a file").path());
    let tests = executables.find(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("app-") && path.extension().is_none()
    });
    let mut command = bench.skinflint(["record", "-o", "plain.sft", "--"]);
    command.arg(tests.expect("the library's tests"));
    command.args(["waited_for::the_harness_sleeps", "--exact"]);
    command.args(["--test-threads=1", "--nocapture"]);
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let plain = bench.tool(["check", "--json", "--live-at-end", "1GiB", "plain.sft"]);
    let plain: serde_json::Value = serde_json::from_str(&plain.stdout).expect("JSON");
    for name in ["allocations", "blocks-at-end", "live-at-end"] {
        let (held, plain) = (figure(&held[0], name), figure(&plain, name));
        assert!(held < plain, "{name}: {held} of {plain}");
        // A few blocks: all else is in both.
        let most = if name == "live-at-end" { 1024 } else { 8 };
        assert!(plain - held <= most, "{name}: {held} of {plain}");
    }
}
