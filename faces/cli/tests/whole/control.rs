//! The control socket: a program that does what it is told, while recording starts and stops.
//!
//! ```text
//!   talk.c:  a = take 10 x 61, free 4     b = take 10 x 67     f = free what the last b took     r = grow it to 97
//! ```

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::report::{Report, text};
use crate::tool::{Bench, Done, PATIENCE, Running, program};

fn tell(talk: &mut Running, letter: &str) {
    talk.say(letter.as_bytes());
    assert_eq!(talk.line(), format!("done {letter}"));
}

fn ctl(bench: &Bench, arguments: &[&str]) -> Done {
    bench.tool(["ctl"].iter().chain(arguments))
}

#[track_caller]
fn ok(bench: &Bench, arguments: &[&str]) -> String {
    let done = ctl(bench, arguments);
    assert_eq!(done.status.code(), Some(0), "{arguments:?}: {done:#?}");
    done.stdout
}

fn start(bench: &Bench, options: &[&str]) -> (Running, String) {
    let mut talk = Running::start(bench.recording(options, [program("talk")]));
    let pid = talk.line();
    (talk, pid)
}

fn marks(report: &Report) -> Vec<&str> {
    let marks = report.list("marks").iter();
    marks.map(|mark| text(mark, "name")).collect()
}

#[test]
fn recording_starts_and_stops_and_what_lives_stays_known() {
    let bench = Bench::new();
    let (mut talk, pid) = start(&bench, &["--paused"]);
    let pid = pid.as_str();
    tell(&mut talk, "a");
    assert!(ok(&bench, &[pid, "status"]).contains("not begun"));
    assert!(ok(&bench, &[pid, "start"]).contains("recording started"));
    tell(&mut talk, "b");
    ok(&bench, &[pid, "stop"]);
    // 10 acquisitions that are not seen, 4 releases of unknown blocks that are.
    tell(&mut talk, "a");
    // The 10 of b are seen to be released; nothing of the next b is.
    tell(&mut talk, "f");
    tell(&mut talk, "b");
    ok(&bench, &[pid, "start"]);
    tell(&mut talk, "f");
    tell(&mut talk, "b");
    ok(&bench, &[pid, "stop"]);
    // Released as 67; not seen as 97.
    tell(&mut talk, "r");
    ok(&bench, &[pid, "start"]);
    ok(&bench, &[pid, "mark", "here"]);
    let snapshot = ok(&bench, &[pid, "snapshot"]);
    ok(&bench, &[pid, "status"]);
    ok(&bench, &[pid, "snapshot"]);
    tell(&mut talk, "b");
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));

    let report = bench.report();
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert_eq!(report.blocks_of(67), (30, 10));
    assert_eq!((report.some_of(61), report.some_of(97)), ((0, 0), (0, 0)));
    // 4 of the second a, 10 of the b that was not seen.
    assert_eq!(report.number("completeness.unknown_frees"), 14);
    let notes = report.notes().join(" ");
    // a, a, b, and the ten reallocs.
    assert!(
        notes.contains("40 acquisitions were not recorded"),
        "{notes}"
    );
    let seen = marks(&report);
    let expected = ["started", "stopped", "started", "stopped", "started"];
    assert_eq!(seen[..5], expected.map(|what| format!("recording {what}")));
    assert_eq!(seen[5], "here");
    // Snapshots are counted, and no other requests.
    assert_eq!(seen[6..], ["snapshot 1", "snapshot 2"]);
    assert!(
        snapshot.contains(&format!("{:?}", seen[6])),
        "{snapshot} {seen:?}"
    );
    // A snapshot is a moment with books.
    let then = bench.report_at("main.sft", seen[6]);
    assert_eq!(then.some_of(67), (30, 0));
}

#[test]
fn who_is_recorded_is_told_and_mistakes_have_words() {
    let bench = Bench::new();
    let (mut talk, pid) = start(&bench, &[]);
    let pid = pid.as_str();
    let status: Value =
        serde_json::from_str(&ok(&bench, &[pid, "status", "--json"])).expect("JSON");
    assert_eq!(status["state"], "recording");
    let process = &status["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    assert_eq!(process["name"], "talk");
    assert!(
        process["trace"]
            .as_str()
            .is_some_and(|path| path.ends_with("/main.sft"))
    );
    assert_eq!(status["collector"].as_i64(), Some(i64::from(talk.pid)));
    // Skinflint's own process id leads there as well, and so does the socket, which only its owner may use.
    let by_own = ok(&bench, &[&talk.pid.to_string(), "status"]);
    let socket = by_own
        .lines()
        .next()
        .and_then(|line| line.split("socket ").nth(1));
    let socket = socket.expect("its path");
    let mode = std::fs::metadata(socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    ok(&bench, &["--socket", socket, "mark", "by socket"]);

    ctl(&bench, &[pid, "start"]).says(2, &["recording already"]);
    ctl(&bench, &[pid, "mark", " "]).says(2, &["needs a name"]);
    ctl(&bench, &[pid, "mark", &"x".repeat(5000)]).says(2, &["give a shorter name"]);
    ctl(&bench, &["1", "status"]).says(2, &["1: not a process that is being recorded"]);
    ctl(&bench, &["--socket", "/nowhere/ctl", "status"]).says(2, &["no such socket"]);
    ok(&bench, &[pid, "stop"]);
    ctl(&bench, &[pid, "stop"]).says(2, &["start it first"]);
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
    ctl(&bench, &["--socket", socket, "status"]).says(2, &["may have ended"]);
    let seen = bench.report();
    assert_eq!(marks(&seen), ["by socket", "recording stopped"]);
    tell_nobody(&bench);
}

/// Tells a process id that no recording has.
fn tell_nobody(bench: &Bench) {
    let done = ctl(bench, &["4194305", "status"]);
    assert_eq!(done.status.code(), Some(2), "{done:#?}");
    assert!(done.stderr.contains("4194305: "), "{done:#?}");
}

/// Tests that `status` lists all recordings; tests that run beside this one may have others.
#[test]
fn the_status_of_several_recordings_is_a_list() {
    let (one, other) = (Bench::new(), Bench::new());
    let (first, pid) = start(&one, &[]);
    let (second, other_pid) = start(&other, &[]);
    let said = ok(&one, &["status"]);
    for (bench, pid) in [(&one, &pid), (&other, &other_pid)] {
        let trace = bench.path("main.sft").display().to_string();
        let line = said.lines().find(|line| line.ends_with(&trace));
        let line = line.unwrap_or_else(|| panic!("{trace}: {said}"));
        assert_eq!(line.split_whitespace().next(), Some(pid.as_str()), "{line}");
    }
    let json: Value = serde_json::from_str(&ok(&one, &["status", "--json"])).expect("JSON");
    assert!(json.as_array().is_some_and(|all| all.len() >= 2), "{json}");
    for running in [first, second] {
        assert_eq!(running.finish(PATIENCE).status.code(), Some(5));
    }
}
