//! The command line by itself: what it prints when nothing is asked, for shells, for `man`; what this machine allows.
//!
//! These run on the build of the test's own profile.

use std::process::Command;

use skinflint_test_support::need;

use crate::tool::{Bench, Done, run};

#[test]
fn alone_it_says_five_lines() {
    let done = Bench::new().tool::<&str>([]);
    assert_eq!((done.status.code(), &*done.stdout), (Some(2), ""));
    assert_eq!(done.stderr.lines().count(), 5, "{}", done.stderr);
    for word in ["run", "exec", "compare", "doctor", "help"] {
        assert!(
            done.stderr.contains(&format!("skinflint {word}")),
            "{word}: {}",
            done.stderr
        );
    }
}

#[test]
fn a_program_needs_no_dashes_before_it() {
    let bench = Bench::new();
    for command in ["record", "run"] {
        let done = bench.tool([
            command, "-q", "--output", "a.sft", "sh", "-c", "exit $0", "7",
        ]);
        assert_eq!(done.status.code(), Some(7), "{command}: {done:#?}");
        // The program's own, though we have one of that name.
        let done = bench.tool([
            command,
            "-q",
            "--output",
            "b.sft",
            "sh",
            "-c",
            "echo \"$@\"",
            "sh",
            "--output",
            "--",
            "x",
        ]);
        assert_eq!(&*done.stdout, "--output -- x\n", "{command}: {done:#?}");
    }
}

#[test]
fn commands_are_listed_in_groups() {
    let done = Bench::new().tool(["help"]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let groups = [
        "Find out",
        "Give memory back:",
        "Compare:",
        "Other tools' files:",
        "Laboratory:",
    ];
    let at: Vec<_> = groups.iter().map(|group| done.stdout.find(group)).collect();
    assert!(
        at.is_sorted() && at.iter().all(Option::is_some),
        "{at:?}: {}",
        done.stdout
    );
    let line = |name: &str| {
        done.stdout
            .lines()
            .position(|line| line.trim_start().starts_with(name))
    };
    assert!(
        line("exec") > line("Give memory") && line("exec") < line("Compare:"),
        "{}",
        done.stdout
    );
}

/// At 60 columns, a paragraph that was wrapped at 98 before had a stump in each second line.
#[test]
fn help_is_wrapped_once() {
    let bench = Bench::new();
    let mut help = bench.skinflint(["help", "run"]);
    help.env("COLUMNS", "60");
    let done = run(help);
    let after: Vec<_> = done
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("The report goes"))
        .collect();
    assert!(after.len() >= 3, "{done:#?}");
    for line in &after[..after.len() - 1] {
        assert!(line.len() > 40, "a stump: {line:?} in {after:#?}");
    }
}

#[test]
fn each_shell_is_told_every_command() {
    let bench = Bench::new();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let done = bench.tool(["completions", shell]);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        for word in ["doctor", "dark-matter", "--mark-signal", "detach"] {
            let word = if shell == "fish" {
                word.trim_start_matches('-')
            } else {
                word
            };
            assert!(done.stdout.contains(word), "{shell}: no {word}");
        }
        let has_shell = Command::new(shell).args(["-c", "exit"]).status().is_ok();
        if need::that(has_shell, shell, "apt-get install bash zsh fish") {
            let script = bench.path(shell);
            std::fs::write(&script, &done.stdout).expect("ours");
            let mut command = Command::new(shell);
            command.arg(check).arg(&script);
            let done = run(command);
            assert_eq!(
                (done.status.code(), &*done.stderr),
                (Some(0), ""),
                "{shell}: {done:#?}"
            );
        }
    }
}

#[test]
fn each_command_has_a_page() {
    let bench = Bench::new();
    let done = bench.tool(["man", "--dir", "man1"]);
    assert_eq!(
        (done.status.code(), &*done.stdout),
        (Some(0), ""),
        "{done:#?}"
    );
    let pages = std::fs::read_dir(bench.path("man1"))
        .expect("a folder")
        .count();
    assert!(pages > 20, "{pages}");
    let page = |done: &Done, wanted: &[&str]| {
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        for text in wanted {
            assert!(
                done.stdout.contains(text),
                "no {text:?} in: {}",
                done.stdout
            );
        }
    };
    page(
        &bench.tool(["man", "run"]),
        &[
            ".TH skinflint-run 1",
            "skinflint run",
            "mark\\-signal",
            "skinflint run \\-\\-at end",
        ],
    );
    page(
        &bench.tool(["man"]),
        &[
            ".TH skinflint 1",
            "skinflint\\-doctor(1)",
            "SKINFLINT_RECORDER",
        ],
    );
    bench
        .tool(["man", "nonsense"])
        .says(2, &["skinflint-nonsense", "no such page"]);
}

#[test]
fn the_doctor_says_a_line_for_each_need() {
    let bench = Bench::new();
    let done = bench.tool(["doctor", "--json"]);
    let findings: serde_json::Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:#?}"));
    let findings = findings.as_array().expect("a list");
    let names: Vec<_> = findings
        .iter()
        .filter_map(|finding| finding["name"].as_str())
        .collect();
    for name in [
        "libraries",
        "ptrace",
        "pagemap",
        "ksm",
        "perf",
        "pressure",
        "cgroup",
        "names",
        "rseq",
        "libc",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let denied = findings.iter().any(|finding| finding["allowed"] == "no");
    assert_eq!(done.status.code(), Some(i32::from(denied)), "{done:#?}");
    for finding in findings {
        assert_eq!(
            finding["allowed"] == "yes",
            finding["change"].is_null(),
            "{finding}"
        );
    }
    let text = bench.tool(["doctor"]);
    assert_eq!(text.stdout.lines().count(), names.len(), "{text:#?}");
}

#[test]
fn the_doctor_says_no_if_the_recorder_is_not_there() {
    let bench = Bench::new();
    let mut doctor = bench.skinflint(["doctor"]);
    doctor.env("SKINFLINT_RECORDER", "/nowhere/recorder.so");
    let done = run(doctor);
    assert_eq!(done.status.code(), Some(1), "{done:#?}");
    let first = done.stdout.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("libraries no") && first.contains("/nowhere/recorder.so"),
        "{first}"
    );
}
