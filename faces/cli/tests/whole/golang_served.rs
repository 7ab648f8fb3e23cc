//! Heap profiles that programs serve (`--pprof`): of Go, of any other program, and where there is none.
//!
//! P1  At a mark the profile is what `go tool pprof` gets from the same address, by function and line.
//! P2  The program is as it was: output and status, whatever becomes of the profile.
//!
//! Not here: what is read of a profile, and each way to be none (collect's served/).

use std::path::{Path, PathBuf};
use std::process::Command;

use skinflint_test_support::need;

use crate::golang::{Lines, built, of_profile, of_report};
use crate::report::{Report, number, text};
use crate::tool::{Bench, PATIENCE, Running, program};

/// Starts the server of tests/golang by a command in front of it; returns it once it listens, its id and its address.
fn serving(
    bench: &Bench,
    command: impl FnOnce(&Path, &str) -> Command,
) -> (Running, String, String) {
    let server = built(bench, "./serve", &[]);
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port().to_string();
    drop(free);
    let mut running = Running::start(command(&server, &port));
    let ready = running.line();
    let pid = ready.strip_prefix("ready ").expect("its process id");
    let pid = pid.trim().to_owned();
    (running, pid, format!("http://127.0.0.1:{port}"))
}

/// Of a program's own functions.
fn own(lines: Lines) -> Lines {
    lines
        .into_iter()
        .filter(|((name, _), _)| name.starts_with("main."))
        .collect()
}

fn sum(lines: &Lines, function: &str) -> u64 {
    let all = lines.iter().filter(|((name, _), _)| name == function);
    all.map(|(_, bytes)| bytes).sum()
}

fn is_served(report: &Report) {
    let allocator = report.text("process.allocator");
    assert!(
        allocator.starts_with("the profile that it serves (http://"),
        "{allocator}"
    );
    let rows = report.list("rows").iter();
    let bytes: i64 = rows.map(|row| row["bytes"].as_i64().expect("bytes")).sum();
    assert_eq!(bytes, report.number("resident_bytes") as i64);
}

#[test]
fn a_mark_has_what_pprof_gets_from_the_same_address() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let (mut running, pid, url) = serving(&bench, |server, port| {
        let url = format!("http://127.0.0.1:{port}");
        bench.recording(&["--pprof", &url], [server.as_os_str(), port.as_ref()])
    });
    running.say(b"\n");
    assert_eq!(running.line().trim(), "more");
    // Its trace begins with the first profile.
    let is_met = || bench.tool(["ctl", &pid, "status"]).status.success();
    assert!((0..600).any(|_| is_met()), "{pid}: no profile came");
    bench.tool(["ctl", &pid, "mark", "now"]).says(0, &[]);
    let theirs = own(of_profile(&bench, format!("{url}/debug/pprof/heap")));
    let done = running.finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (5, ""), "{done:#?}");
    let report = bench.report_at("main.sft", "now");
    is_served(&report);
    let ours = own(of_report(&report));
    let whole: u64 = theirs.values().sum();
    assert!(whole > 20_000_000, "{theirs:?}");
    let equal: u64 = theirs
        .iter()
        .map(|(line, bytes)| ours.get(line).copied().unwrap_or(0).min(*bytes))
        .sum();
    let all: u64 = ours.values().sum();
    assert!(
        equal * 100 >= whole * 95 && all * 95 <= whole * 100,
        "{ours:#?} {theirs:#?}"
    );
}

#[test]
fn a_running_program_of_go_is_attached_to_from_outside() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let (running, pid, url) = serving(&bench, |server, port| {
        let mut command = bench.command(server);
        command.arg(port);
        command
    });
    for (trace, options) in [("served.sft", vec!["--pprof", &url]), ("read.sft", vec![])] {
        let mut attach = vec!["attach", &pid, "-q", "--for", "1", "-o", trace];
        attach.extend(&options);
        bench.tool(&attach).says(0, &[]);
        let report = bench.report_at(trace, "end");
        assert_eq!(
            report.text("process.allocator").starts_with("Go's heap"),
            options.is_empty()
        );
        let lines = of_report(&report);
        // Sixty samples of 32,768,000 bytes, made by `filled` for `first`.
        let held = sum(&lines, "main.filled") + sum(&lines, "main.first");
        assert!(
            (16_000_000..66_000_000).contains(&held),
            "{trace}: {lines:?}"
        );
    }
    // What is no heap profile is refused before anything is done, and so is what a recorder would do.
    let other = format!("{url}/debug/pprof/goroutine");
    bench
        .tool(["attach", &pid, "--pprof", &other])
        .says(2, &["it is no heap profile"]);
    bench
        .tool(["attach", &pid, "--reachable"])
        .says(2, &["--reachable has nothing to do"]);
    let done = running.finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (5, ""), "{done:#?}");
}

/// Waits for a file with a line.
fn line_of(file: &PathBuf) -> String {
    for _ in 0..6000 {
        if let Ok(text) = std::fs::read_to_string(file)
            && text.ends_with('\n')
        {
            return text.trim().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
    }
    panic!("{} never came", file.display());
}

/// Bytes and blocks that live by `planted` in a served profile.
fn planted(report: &Report) -> (u64, String) {
    let stacks = report.list("stacks").iter();
    let live: u64 = stacks
        .clone()
        .map(|stack| number(stack, "live.bytes"))
        .sum();
    let held = stacks
        .clone()
        .find(|stack| number(stack, "live.bytes") > 0)
        .expect("a stack that holds");
    let node = &report.list("nodes")[number(held, "node") as usize];
    let frame = &report.list("frames")[number(node, "frame") as usize];
    let (file, line) = (text(frame, "file"), number(frame, "line"));
    (live, format!("{} {file}:{line}", text(frame, "function")))
}

#[test]
fn any_program_has_its_blocks_and_beside_them_its_profile_to_the_end() {
    let bench = Bench::new();
    let file = bench.path("port");
    let server = program("pprofd");
    let mut plain = Running::start({
        let mut command = bench.command(&server);
        command.arg(&file);
        command
    });
    let url = format!("http://127.0.0.1:{}", line_of(&file));
    let pid = plain.pid.to_string();
    let mut attached = bench.skinflint(["attach", &pid, "-q", "-o", "main.sft", "--pprof", &url]);
    attached.args(["--for", "1"]);
    let done = Running::start(attached).finish(PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
    assert_eq!(bench.traces(), ["main.heap.sft", "main.sft"]);
    let report = bench.report_at("main.heap.sft", "end");
    assert_eq!(planted(&report), (3000, "planted served.c:17".into()));
    plain.say(b"x\n");
    assert_eq!(plain.finish(PATIENCE).shell_status(), 6);
}

#[test]
fn a_profile_that_cannot_be_had_is_said_and_the_program_is_recorded() {
    let bench = Bench::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", port.local_addr().expect("bound"));
    drop(port);
    let run = |arguments: &[&str]| {
        let mut command = bench.skinflint(["record", "-o", "main.sft", "--pprof", &url, "--"]);
        command.args(arguments);
        Running::start(command).finish(PATIENCE)
    };
    let done = run(&["sh", "-c", "read line; exit 4"]);
    assert_eq!(done.shell_status(), 4, "{done:#?}");
    let wanted = format!("--pprof {url}/debug/pprof/heap: nothing listens there");
    assert!(done.stderr.contains(&wanted), "{done:#?}");
    assert_eq!(bench.traces(), ["main.sft"]);
    bench
        .tool(["record", "--pprof", "https://localhost:1", "--", "true"])
        .says(2, &["no TLS is spoken"]);
}
