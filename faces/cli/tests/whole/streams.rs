//! The program keeps its streams, its signals and its status; the tool's own output is kept apart.

use crate::tool::{Bench, PATIENCE, Running, program, run_within, signal};

#[test]
fn stdin_stdout_and_stderr_are_the_programs() {
    let bench = Bench::new();
    let input: Vec<u8> = (0..100_000u32)
        .flat_map(|n| format!("{n}\n").into_bytes())
        .collect();
    let done = run_within(bench.recording(&[], ["cat"]), &input, PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert!(
        done.stdout.as_bytes() == input,
        "{} bytes",
        done.stdout.len()
    );
    let done = bench.record(["sh", "-c", "echo out; echo err >&2; pwd"]);
    let folder = bench.path("").canonicalize().expect("it is there");
    let out = format!("out\n{}\n", folder.display());
    assert_eq!(
        (&*done.stdout, &*done.stderr),
        (&*out, "err\n"),
        "{done:#?}"
    );
}

#[test]
fn every_status_is_passed_on() {
    let bench = Bench::new();
    // Every 17th status: these have each high and each low digit, and those that mean something to a shell.
    for status in (0..=255)
        .step_by(17)
        .chain([1, 2, 3, 126, 127, 128, 137, 254])
    {
        let done = bench.record(["sh", "-c", &format!("exit {status}")]);
        assert_eq!(done.status.code(), Some(status), "{done:#?}");
    }
    let done = bench.tool(["run", "--no-html", "--quiet", "--", "sh", "-c", "exit 77"]);
    assert_eq!(done.status.code(), Some(77));
}

#[test]
fn a_signal_that_ends_the_program_is_its_status() {
    let bench = Bench::new();
    for (name, number) in [
        ("TERM", 15),
        ("KILL", 9),
        ("INT", 2),
        ("SEGV", 11),
        ("XFSZ", 25),
    ] {
        let done = bench.record(["sh", "-c", &format!("ulimit -c 0; kill -{name} $$")]);
        assert_eq!(done.status.code(), Some(128 + number), "{name}: {done:#?}");
        let ended = format!("signal {number} (SIG{name})");
        assert_eq!(bench.report().text("program.ended"), ended);
    }
}

/// Starts a program that reads commands, under the tool; returns its process id, too.
fn talking(bench: &Bench, options: &[&str]) -> (Running, i32) {
    let mut running = Running::start(bench.recording(options, [program("talk")]));
    let pid = running.line().parse().expect("its process id");
    (running, pid)
}

#[test]
fn a_signal_to_the_tool_reaches_the_program() {
    for (number, status, ended) in [
        // Handled by the program.
        (libc::SIGTERM, 17, "exit 17"),
        (libc::SIGHUP, 128 + 1, "signal 1 (SIGHUP)"),
        // Not typed at the terminal, so the tool alone got it.
        (libc::SIGINT, 128 + 2, "signal 2 (SIGINT)"),
    ] {
        let bench = Bench::new();
        let (mut running, pid) = talking(&bench, &[]);
        running.say(b"a");
        assert_eq!(running.line(), "done a");
        assert_ne!(running.pid, pid, "the tool and the program");
        signal(running.pid, number);
        let done = running.signalled(PATIENCE);
        assert_eq!(done.status.code(), Some(status), "{done:#?}");
        let report = bench.report();
        report.is_complete();
        assert_eq!(report.text("program.ended"), ended);
        assert_eq!(report.blocks_of(61), (10, 6));
    }
}

#[test]
fn an_interrupt_of_both_as_from_a_terminal_leaves_the_tool_to_report() {
    // The program dies of the signal, the tool does not: here the program alone is hit first.
    let bench = Bench::new();
    let (mut running, pid) = talking(&bench, &[]);
    running.say(b"ab");
    assert_eq!(running.line(), "done a");
    assert_eq!(running.line(), "done b");
    signal(pid, libc::SIGINT);
    let done = running.signalled(PATIENCE);
    assert_eq!(done.status.code(), Some(128 + libc::SIGINT), "{done:#?}");
    let report = bench.report();
    report.is_complete();
    assert_eq!(report.text("program.ended"), "signal 2 (SIGINT)");
    assert_eq!(report.blocks_of(61), (10, 6));
    assert_eq!(report.blocks_of(67), (10, 10));
}

#[test]
fn a_run_reports_on_stderr_and_writes_a_page() {
    let bench = Bench::new();
    let done = bench.tool([
        "run".as_ref(),
        "--".as_ref(),
        program("predicted").as_os_str(),
    ]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert_eq!(done.stdout, crate::tool::expected("predicted"));
    for text in [
        "complete: 14,870 events, none lost",
        "= resident",
        // What grows here stays in place, and is no finding; a stack that holds is one.
        "64 blocks of 1,032 bytes",
        "terminator",
        "trace",
    ] {
        assert!(done.stderr.contains(text), "no {text:?} in {}", done.stderr);
    }
    assert!(!done.stderr.contains('\x1b'), "colour, and no terminal");
    let traces = bench.traces();
    assert_eq!(traces.len(), 1, "{traces:?}");
    let page = bench.path(&traces[0]).with_extension("html");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("grow_by_one") && page.starts_with("<!doctype html>"));
}

#[test]
fn every_help_has_an_example() {
    let bench = Bench::new();
    let top = bench.tool(["--help"]);
    assert_eq!((top.status.code(), &*top.stderr), (Some(0), ""));
    assert!(top.stdout.contains("Example:\n  skinflint run -- "));
    // This covers every subcommand that the help lists, so that a new one cannot be forgotten.
    let groups = top.stdout.lines().take_while(|line| *line != "Options:");
    let names: Vec<&str> = groups
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_ascii_whitespace().next())
        .collect();
    for known in ["run", "record", "report", "counts", "exec", "js", "doctor"] {
        assert!(names.contains(&known), "{names:?}");
    }
    for name in names {
        let help = bench.tool([name, "--help"]);
        assert_eq!((help.status.code(), &*help.stderr), (Some(0), ""));
        let example = format!("Examples:\n  skinflint {name} ");
        assert!(help.stdout.contains(&example), "{name}: {}", help.stdout);
    }
}

#[test]
fn the_environment_of_the_program_is_its_own_but_for_ours() {
    let bench = Bench::new();
    let mut plain = bench.command("env");
    plain
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("KEPT", "x y");
    let plain = crate::tool::run(plain).stdout;
    let mut tool = bench.recording(&[], ["env"]);
    tool.env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("KEPT", "x y");
    tool.env("SKINFLINT_RECORDER", crate::tool::recorder());
    let seen = crate::tool::run(tool).stdout;
    let ours = |line: &&str| line.starts_with("LD_PRELOAD=") || line.starts_with("SKINFLINT_");
    let others: Vec<&str> = seen.lines().filter(|line| !ours(line)).collect();
    assert_eq!(others, plain.lines().collect::<Vec<_>>());
}
