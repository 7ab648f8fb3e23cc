//! Real programs with the allocator's invariants checked while they run: all of them, bits and pages too.
//!
//! Q1  Each program reports at its end how often they held; one that reports nothing was not checked.
//!
//! Not here: whether the output is that of glibc's (`real`, without checks, at full speed).

use std::os::unix::net::UnixStream;

use skinflint_test_support::need;

use crate::library::{PATIENCE, on_ours};
use crate::tool::{Bench, Running, run_within};

/// Returns how often the invariants held, by the last line about it.
fn held(stderr: &str) -> u32 {
    let line = stderr
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("skinflint: check: held "));
    line.and_then(|line| line.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[track_caller]
fn checked(program: &str, arguments: &[&str], stdin: &[u8], least: u32) {
    let bench = Bench::new();
    let mut command = on_ours(bench.command(program));
    command
        .args(arguments)
        .env("SKINFLINT_CHECK", "3")
        .env("PYTHONMALLOC", "malloc");
    let done = run_within(command, stdin, PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert!(held(&done.stderr) >= least, "{:#?}", done.stderr);
}

#[test]
fn python() {
    let program = "import random, threading, os\nrandom.seed(7)\n\
        def work(n):\n\
        \x20   d = {}\n\
        \x20   for i in range(n):\n\
        \x20       d[random.randrange(4000)] = bytearray(random.randrange(1, 9000))\n\
        \x20       if i % 3 == 0: d.pop(random.randrange(4000), None)\n\
        for t in range(3): work(20000)\n\
        ts = [threading.Thread(target=work, args=(6000,)) for _ in range(4)]\n\
        [t.start() for t in ts]; [t.join() for t in ts]\n\
        if os.fork() == 0: work(2000); os._exit(0)\n\
        raise SystemExit(os.wait()[1])\n";
    checked("python3", &["-c", program], b"", 20);
}

#[test]
fn sqlite() {
    let work = b"create table t(a integer, b text);\n\
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)\n\
        insert into t select i, hex(randomblob(i % 200)) from n;\n\
        create index x on t(b);\n\
        select count(*), max(length(b)) from t where b like '%AB%';\n\
        delete from t where a % 3 = 0;\nvacuum;\nselect count(*) from t;\n";
    checked("sqlite3", &[":memory:"], work, 10);
}

#[test]
fn redis() {
    if !need::programs(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let bench = Bench::new();
    let mut server = on_ours(bench.command("redis-server"));
    server
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ])
        .arg(bench.path("redis.sock"))
        .env("SKINFLINT_CHECK", "3");
    let running = Running::start(server);
    let begun = std::time::Instant::now();
    // The socket exists before the server listens at it.
    while UnixStream::connect(bench.path("redis.sock")).is_err() {
        // CLOCK: a bounded wait, and its bound ends it
        assert!(
            begun.elapsed() < PATIENCE / 2,
            "apt-get install redis-server: no socket"
        );
        std::thread::sleep(std::time::Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
    }
    let ask = |program: &str, arguments: &[&str]| {
        let mut client = bench.command(program);
        client
            .arg("-s")
            .arg(bench.path("redis.sock"))
            .args(arguments);
        let done = run_within(client, b"", PATIENCE);
        assert_eq!(
            done.status.code(),
            Some(0),
            "apt-get install redis-tools: {done:#?}"
        );
    };
    ask(
        "redis-benchmark",
        &[
            "-q",
            "-n",
            "5000",
            "-r",
            "3000",
            "-d",
            "700",
            "-t",
            "set,get,lpush,hset,zadd",
        ],
    );
    let drop = "for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('v', i % 3000)) end \
                for i = 1, 20000 do if i % 5 > 0 then redis.call('DEL', 'k' .. i) end end return 1";
    ask("redis-cli", &["EVAL", drop, "0"]);
    ask("redis-cli", &["MEMORY", "PURGE"]);
    ask("redis-cli", &["SHUTDOWN", "NOSAVE", "FORCE"]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    assert!(held(&done.stderr) >= 20, "{:#?}", done.stderr);
}
