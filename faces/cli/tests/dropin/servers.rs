//! A server under load: Redis, which Debian links with jemalloc. The preload must win all the same.
//!
//! ```text
//!   redis-server (unix socket) ◄── redis-benchmark, redis-cli      smaps ─► whose malloc it was
//! ```

use std::os::unix::net::UnixStream;
use std::process::Command;

use skinflint_test_support::need;

use crate::library::{PATIENCE, is_long, on_ours};
use crate::tool::{Bench, Running, run_within};
use skinflint_test_support::wait::until;

/// Runs a client's command to its end.
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

/// Returns the resident bytes of a process in the range of addresses that our blocks come from (ARCHITECTURE.md).
/// They are read from the kernel: a counter of the allocator would prove nothing.
fn on_our_heap(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let mut sum = 0;
    let mut is_ours = false;
    for line in text.lines() {
        let first = line.split('-').next().unwrap_or("");
        if let Ok(address) = u64::from_str_radix(first, 16) {
            is_ours = (0x1200_0000_0000..0x2240_0000_0000).contains(&address);
        } else if let (true, Some(kb)) = (is_ours, line.strip_prefix("Rss:")) {
            let kb = kb.trim().trim_end_matches(" kB");
            sum += kb.parse::<u64>().expect("a number") * 1024;
        }
    }
    sum
}

/// Starts a server, waits until it answers, loads it, and asks it what it holds. Returns its answers, and how much
/// memory was on our heap.
fn session(ours: bool) -> (String, u64) {
    let bench = Bench::new();
    let mut server = bench.command("redis-server");
    server
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(bench.path("redis.sock"));
    let server = if ours { on_ours(server) } else { server };
    let running = Running::start(server);
    // The socket exists before the server listens at it.
    until("a socket (apt-get install redis-server)", || {
        UnixStream::connect(bench.path("redis.sock")).ok()
    });
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
    let bytes = on_our_heap(running.pid);
    client(&bench, "redis-cli", &["SHUTDOWN", "NOSAVE", "FORCE"]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    (format!("{script}{saved}{background}{sum}"), bytes)
}

#[test]
fn redis() {
    if !need::programs(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let (glibc, none) = session(false);
    let (ours, bytes) = session(true);
    assert_eq!(ours, glibc);
    // The values alone are 20 MB.
    assert_eq!(none, 0);
    assert!(bytes > 20_000_000, "{bytes} bytes on our heap");
}
