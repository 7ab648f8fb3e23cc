//! Recorded programs, compiled and replayed: with their threads, in their order, in their memory.
//!
//! ```text
//!   program ─► skinflint record ─► .sft ─► compile ─► script ─► skinflint-replay ─► report
//! ```
//!
//! R1  A replay of a whole trace has no violations, whatever the threads did, and all operations of the trace.
//! R2  What the program touched is touched, and what it did not touch is not.
//!
//! Not here: scripts and traces by hand (crate replay), other allocators (compare's tests).

use std::os::unix::net::UnixStream;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use skinflint_compare::compile::{Compiled, compile};
use skinflint_trace::Trace;

use skinflint_test_support::{artifact, need};

use crate::tool::{Bench, PATIENCE, Running, expected, program, run, run_within};
use skinflint_test_support::wait::until;

fn player() -> &'static PathBuf {
    static PLAYER: OnceLock<PathBuf> = OnceLock::new();
    PLAYER.get_or_init(|| artifact::released("skinflint-replay"))
}

/// The lines of a replay's report.
struct Replay {
    compiled: Compiled,
    lines: Vec<Value>,
}

impl Replay {
    /// Compiles a trace of the folder and replays it; fails on any violation (R1).
    #[track_caller]
    fn of(bench: &Bench, trace: &str, options: &[&str]) -> Replay {
        let script = bench.path("script.sfp");
        let mut out = std::fs::File::create(&script).expect("a file");
        let trace = Trace::open(bench.path(trace)).expect("a trace");
        let compiled = compile(&trace, &mut out).expect("it compiles");
        let mut command = bench.command(player());
        command.arg(&script).args(["--report", "-"]).args(options);
        let done = run(command);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let lines = done
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let replay = Replay {
            compiled,
            lines: lines.collect(),
        };
        for count in ["order_violations", "double_uses", "overwritten", "refused"] {
            assert_eq!(replay.number("end", count), 0, "{count}");
        }
        assert_eq!(replay.number("end", "ops"), replay.compiled.ops);
        replay
    }

    /// Returns a field of the point of this name, or of the last line.
    #[track_caller]
    fn number(&self, name: &str, field: &str) -> u64 {
        let point = self
            .lines
            .iter()
            .find(|line| line["name"] == name && line["line"] == "point");
        let line = if name == "end" {
            self.lines.last()
        } else {
            point
        };
        line.and_then(|line| line[field].as_u64())
            .unwrap_or_else(|| panic!("no {field} of {name}"))
    }
}

#[test]
fn producers_and_consumers() {
    let bench = Bench::new();
    let done = bench.record([program("conveyor")]);
    assert_eq!(done.stdout, expected("conveyor"), "{}", done.stderr);
    for round in 0..3 {
        let replay = Replay::of(
            &bench,
            "main.sft",
            if round == 2 { &[] } else { &["--check"] },
        );
        assert!(
            replay.compiled.notes().is_empty(),
            "{:?}",
            replay.compiled.notes()
        );
        assert_eq!(replay.number("end", "malloc"), 100_000);
        assert_eq!(replay.number("end", "free"), 100_000);
        assert_eq!(replay.number("end", "threads_started"), 4);
        // Frees that come close behind another thread's malloc. Their number depends on how the threads ran.
        assert!(replay.number("end", "waits") > 1000);
    }
}

#[test]
fn ten_thousand_threads() {
    let bench = Bench::new();
    let done = bench.record([program("threads")]);
    assert_eq!(done.stdout, expected("threads"), "{}", done.stderr);
    let replay = Replay::of(&bench, "main.sft", &["--check"]);
    assert_eq!(replay.number("end", "threads_started"), 10_000 + 2 + 50);
    assert!(replay.number("end", "live_bytes") >= 5000 * 97);
}

#[test]
fn what_was_never_touched_stays_so() {
    let bench = Bench::new();
    let done = bench.record([program("partly")]);
    assert_eq!(done.stdout, expected("partly"), "{}", done.stderr);
    let replay = Replay::of(&bench, "main.sft", &[]);
    assert_eq!(replay.compiled.partly_touched, 2);
    assert!(replay.number("peak", "live_bytes") > 107 << 20);
    let mib = replay.number("peak", "rss_bytes") as f64 / f64::from(1 << 20);
    assert!((34.2..37.8).contains(&mib), "{mib} MiB, not 36");
}

/// Tests redis-server with threads of its own for requests and for what is freed in the background, under load.
#[test]
fn redis_under_load() {
    if !need::programs(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let bench = Bench::new();
    let socket = bench.path("redis.sock");
    let socket = socket.to_str().expect("a path");
    let server = [
        "redis-server",
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
        socket,
    ];
    let threads = [
        "--io-threads",
        "4",
        "--io-threads-do-reads",
        "yes",
        "--lazyfree-lazy-user-del",
        "yes",
    ];
    let running =
        Running::start(bench.recording(&["--preload", "libc.so.6"], server.iter().chain(&threads)));
    // The socket exists before the server listens at it.
    until("a socket (apt-get install redis-server)", || {
        UnixStream::connect(bench.path("redis.sock")).ok()
    });
    let client = |program: &str, arguments: &[&str]| {
        let mut command: Command = bench.command(program);
        command.args(["-s", socket]).args(arguments);
        let done = run_within(command, b"", PATIENCE);
        assert_eq!(
            done.status.code(),
            Some(0),
            "apt-get install redis-tools: {done:#?}"
        );
    };
    client(
        "redis-benchmark",
        &[
            "-q",
            "-n",
            "20000",
            "-P",
            "32",
            "-r",
            "5000",
            "-d",
            "700",
            "-t",
            "set,get,lpush,hset",
        ],
    );
    let fill = "for i = 1, 5000 do redis.call('RPUSH', 'l' .. i % 5, string.rep('v', i % 900)) end";
    client("redis-cli", &["EVAL", fill, "0"]);
    client("redis-cli", &["UNLINK", "l0", "l1", "l2", "l3", "l4"]);
    client("redis-cli", &["FLUSHALL", "ASYNC"]);
    client("redis-cli", &["SHUTDOWN", "NOSAVE", "FORCE"]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let replay = Replay::of(&bench, "main.sft", &["--check"]);
    assert!(replay.compiled.threads >= 2, "{:?}", replay.compiled);
    assert!(replay.number("end", "ops") > 100_000);
}
