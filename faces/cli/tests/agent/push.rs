//! What is pushed: each form against a receiver that checks it by its interface's book (tests/agent/receiver.py), and what
//! happens when that refuses, fails, hangs or is gone.
//!
//! R1  The receiver is ours, in Python: Pyroscope, Parca and OpenTelemetry's Collector cannot be had in a test, so none of them
//!     has been seen to take these profiles.

use serde_json::Value;

use crate::tool::{self, Bench, Running, signal};
use crate::{Agent, Profiled};
use skinflint_test_support::wait::until;

const BYTES: i64 = 12_000_000;

/// A receiver, and its address.
struct Receiver {
    running: Running,
    port: String,
}

impl Receiver {
    /// Starts one that answers its first requests with these statuses.
    #[track_caller]
    fn start(bench: &Bench, answers: &[&str]) -> Receiver {
        let mut command = bench.command("python3");
        command
            .arg(tool::root().join("tests/agent/receiver.py"))
            .args(answers);
        let mut running = Running::start(command);
        let port = running.line();
        assert!(port.parse::<u16>().is_ok(), "{port}");
        Receiver { running, port }
    }

    fn of(&self, form: &str) -> String {
        format!("{form}=http://127.0.0.1:{}", self.port)
    }

    /// Returns the next request of a process; others of this machine may be pushed, too.
    #[track_caller]
    fn next(&mut self, pid: u32) -> Vec<Value> {
        loop {
            let said: Value = serde_json::from_str(&self.running.line()).expect("JSON");
            assert_eq!(said.get("wrong"), None, "{said}");
            let Some(taken) = said["taken"].as_array() else {
                continue;
            };
            let is_its = |one: &&Value| {
                let labels = &one["labels"];
                labels["pid"].as_str() == Some(&*pid.to_string()) || labels["process.pid"] == pid
            };
            let its: Vec<Value> = taken.iter().filter(is_its).cloned().collect();
            if !its.is_empty() {
                return its;
            }
        }
    }
}

/// Returns the sum of a type over what was taken.
#[track_caller]
fn sum(taken: &[Value], kind: &str) -> i64 {
    let found = taken.iter().find_map(|one| one["sums"][kind].as_i64());
    found.unwrap_or_else(|| panic!("no {kind}: {taken:?}"))
}

/// Checks the books of a process that waits, and that what it asked for before is not sent as new.
#[track_caller]
fn check(taken: &[Value], has_past: bool) {
    assert!(sum(taken, "inuse_space") > BYTES * 8 / 10, "{taken:?}");
    assert_eq!(sum(taken, "alloc_space") > BYTES, has_past, "{taken:?}");
    for kind in ["slop_space", "retained_space", "mapped_space"] {
        assert!(sum(taken, kind) > 0, "{kind}: {taken:?}");
    }
    assert!(taken[0]["build_ids"].as_u64() >= Some(2), "{taken:?}");
}

#[test]
fn each_form_is_taken_by_a_receiver_that_checks_it() {
    let bench = Bench::new();
    let of = Profiled::start(&bench, "wait", &[("OTEL_SERVICE_NAME", "shop")]);
    for (form, has_past) in [("pyroscope", false), ("parca", true), ("otlp", false)] {
        let mut receiver = Receiver::start(&bench, &[]);
        let agent = Agent::start(&bench, &["--push", &receiver.of(form), "--label", "zone=a"]);
        let first = receiver.next(of.pid);
        check(&first, has_past);
        let labels = &first[0]["labels"];
        let service = if form == "otlp" {
            &labels["service.name"]
        } else {
            &labels["service_name"]
        };
        let zone = if form == "otlp" {
            &labels["skinflint.zone"]
        } else {
            &labels["zone"]
        };
        assert_eq!(
            (service.as_str(), zone.as_str()),
            (Some("shop"), Some("a")),
            "{labels}"
        );
        let second = receiver.next(of.pid);
        check(&second, has_past);
        if form == "pyroscope" {
            assert_eq!(labels["__delta__"], "false");
            assert!(first[0]["id"] != first[1]["id"] && first[0]["id"] != second[0]["id"]);
            // What came since the first closing.
            assert!(second[0]["duration"].as_u64() > Some(0), "{second:?}");
        }
        let name = format!("skinflint_agent_push_sent_total{{receiver=\"{form}-1\"}}");
        until("it is counted", || {
            (agent.metric(&name) >= Some(2.0)).then_some(())
        });
    }
}

#[test]
fn what_fails_is_tried_again_and_what_is_refused_is_counted() {
    let bench = Bench::new();
    let of = Profiled::start(&bench, "wait", &[]);
    let mut receiver = Receiver::start(&bench, &["503", "429", "400"]);
    let agent = Agent::start(&bench, &["--push", &receiver.of("pyroscope")]);
    check(&receiver.next(of.pid), false);
    let metric = |name: &str| {
        agent.metric(&format!(
            "skinflint_agent_push_{name}{{receiver=\"pyroscope-1\"}}"
        ))
    };
    assert_eq!(metric("retries_total"), Some(2.0));
    assert_eq!(metric("refused_total"), Some(1.0));
    signal(agent.running.pid, libc::SIGKILL);
    let done = agent.running.finish(crate::PATIENCE);
    for words in [
        "/push.v1.PusherService/Push: status 503: as it was told to",
        "1 profiles were dropped",
    ] {
        assert!(done.stderr.contains(words), "{done:#?}");
    }
}

/// A receiver that hangs holds up neither another receiver nor a scraper.
#[test]
fn a_receiver_that_hangs_holds_up_no_other() {
    let bench = Bench::new();
    let of = Profiled::start(&bench, "wait", &[]);
    let hangs = Receiver::start(&bench, &["hang"; 9]);
    let mut takes = Receiver::start(&bench, &[]);
    let agent = Agent::start(
        &bench,
        &["--push", &hangs.of("otlp"), "--push", &takes.of("parca")],
    );
    check(&takes.next(of.pid), true);
    check(&takes.next(of.pid), true);
    agent.profile(&format!("/debug/pprof/heap?pid={}", of.pid));
    assert_eq!(
        agent.metric("skinflint_agent_push_sent_total{receiver=\"otlp-1\"}"),
        Some(0.0)
    );
}

/// What waits on disk is sent by the next agent, after a kill of the first; the sum of the counts is that of the closings.
#[test]
fn a_spool_outlives_the_agent_and_is_bounded() {
    let bench = Bench::new();
    let of = Profiled::start(&bench, "wait", &[]);
    let mut receiver = Receiver::start(&bench, &[]);
    // Nothing listens there yet: the port of a receiver that has ended.
    let gone = Receiver::start(&bench, &[]);
    let nowhere = gone.of("pyroscope");
    signal(gone.running.pid, libc::SIGKILL);
    drop(gone);
    let spool = bench.path("spool");
    let folder = spool.to_str().expect("text");
    let agent = Agent::start(&bench, &["--push", &nowhere, "--spool", folder]);
    let waiting = || agent.metric("skinflint_agent_push_waiting{receiver=\"pyroscope-1\"}");
    // Other processes of this machine may be among them; this one is closed, so one is its own.
    let closed = || agent.text("/").1.contains(&format!("pid={}, ", of.pid));
    until("three wait", || {
        (closed() && waiting() >= Some(3.0)).then_some(())
    });
    let taken = bench.tool([
        "agent", "--port", "0", "--push", &nowhere, "--spool", folder,
    ]);
    taken.says(2, &["another agent has this folder"]);
    signal(agent.running.pid, libc::SIGKILL);
    assert_eq!(agent.running.finish(crate::PATIENCE).shell_status(), 137);
    let files = || {
        std::fs::read_dir(spool.join("pyroscope-1"))
            .expect("there")
            .count()
    };
    assert!(files() > 3, "three profiles and the lock");
    let again = Agent::start(
        &bench,
        &[
            "--push",
            &receiver.of("pyroscope"),
            "--spool",
            folder,
            "--interval",
            "3600",
        ],
    );
    check(&receiver.next(of.pid), false);
    until("nothing waits", || (files() == 1).then_some(()));
    drop(again);
    // With next to no room and age what does not fit is dropped, and each is counted once.
    let bounded = Agent::start(
        &bench,
        &["--push", &nowhere, "--spool-size", "1", "--spool-age", "1"],
    );
    let of = |name: &str| {
        bounded.metric(&format!(
            "skinflint_agent_push_{name}{{receiver=\"pyroscope-1\"}}"
        ))
    };
    until("some were dropped", || {
        (of("dropped_for_age_total") >= Some(2.0)).then_some(())
    });
}

#[test]
fn what_cannot_be_pushed_to_is_refused() {
    let bench = Bench::new();
    for (options, words) in [
        (
            &["--push", "jaeger=http://localhost"][..],
            "pyroscope=URL, parca=URL or otlp=URL",
        ),
        (
            &["--push", "otlp=https://localhost"],
            "this program speaks no TLS",
        ),
        (
            &["--push", "otlp=localhost:4318"],
            "no address; as in http://localhost:4040",
        ),
        (
            &["--push", "otlp=http://h", "--push", "otlp=http://h/"],
            "is there twice",
        ),
        (&["--spool", "x"], "--push"),
        (
            &["--push", "otlp=http://h", "--spool-size", "0"],
            "1..=65536",
        ),
        (
            &["--push", "otlp=http://h", "--spool", "/dev/null/x"],
            "/dev/null/x",
        ),
    ] {
        let mut arguments = vec!["agent", "--port", "0"];
        arguments.extend(options);
        bench.tool(arguments).says(2, &[words]);
    }
}
