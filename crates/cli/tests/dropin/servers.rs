//! A server under load: Redis, which Debian links with jemalloc. The preload must win all the same.
//!
//! ```text
//!   redis-server (unix socket) ◄── redis-benchmark, redis-cli      maps, figures ─► whose malloc it was
//! ```

use std::process::Command;
use std::time::{Duration, Instant};

use crate::library::{PATIENCE, is_long, on_ours};
use crate::tool::{Bench, Running, run_within};

/// A client's command, run to its end.
fn client(bench: &Bench, program: &str, arguments: &[&str]) -> String {
    let socket = bench.path("redis.sock");
    let mut command: Command = bench.command(program);
    command.arg("-s").arg(socket).args(arguments);
    let done = run_within(command, b"", PATIENCE);
    assert_eq!(
        done.status.code(),
        Some(0),
        "apt-get install redis-tools: {done:#?}"
    );
    done.stdout
}

/// Starts a server, waits until it answers, loads it, and asks it what it holds. What it answered, and
/// what it said on stderr.
fn session(ours: bool) -> (String, String) {
    let bench = Bench::new();
    let mut server = bench.command("redis-server");
    server
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(bench.path("redis.sock"))
        .env("SKINFLINT_STATS", "1");
    let server = if ours { on_ours(server) } else { server };
    let running = Running::start(server);
    let begun = Instant::now();
    while !bench.path("redis.sock").exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "apt-get install redis-server: no socket"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.pid)).expect("it lives");
    assert_eq!(maps.contains("libskinflint.so"), ours);
    let requests = if is_long() { "300000" } else { "10000" };
    client(
        &bench,
        "redis-benchmark",
        &[
            "-q",
            "-n",
            requests,
            "-t",
            "set,get,incr,lpush,rpush,sadd,hset,zadd,mset,lrange_100",
        ],
    );
    let fill = "for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('v', i % 3000)) end \
                for i = 1, 20000, 3 do redis.call('DEL', 'k' .. i) end return redis.call('DBSIZE') > 10000";
    let script = client(&bench, "redis-cli", &["EVAL", fill, "0"]);
    // Its child allocates while it writes.
    let saved = client(&bench, "redis-cli", &["SAVE"]);
    let background = client(&bench, "redis-cli", &["BGSAVE"]);
    let sum = client(
        &bench,
        "redis-cli",
        &[
            "EVAL",
            "local n = 0 for i = 1, 20000 do n = n + redis.call('STRLEN', 'k' .. i) end return n",
            "0",
        ],
    );
    client(&bench, "redis-cli", &["SHUTDOWN", "NOSAVE", "FORCE"]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    (format!("{script}{saved}{background}{sum}"), done.stderr)
}

/// A figure of `malloc_stats`: the total in use.
fn in_use(stderr: &str) -> Option<u64> {
    let line = stderr
        .lines()
        .rfind(|line| line.starts_with("in use bytes"))?;
    line.split('=').nth(1)?.trim().parse().ok()
}

#[test]
fn redis() {
    let (glibc, _) = session(false);
    let (ours, said) = session(true);
    assert_eq!(ours, glibc);
    // The values alone are 20 MB: on jemalloc our figure would be a few kilobytes.
    let used = in_use(&said);
    assert!(used.is_some_and(|bytes| bytes > 20_000_000), "{said}");
}
