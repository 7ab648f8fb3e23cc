//! Control groups: one of the second version as the kernel lays it out in a folder, and a real one where root may make
//! it; and metrics over HTTP.
//!
//! ```text
//!   memory.stat, memory.current … ─► skinflint memory --cgroup FOLDER ─► tree, JSON, difference, OpenMetrics
//! ```

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use skinflint_test_support::need;

use crate::tool::{Bench, PATIENCE, Running};
use crate::{WAITS, amount, sum};

const STAT: &str = "anon 104857600\nfile 52428800\nkernel 2097152\nkernel_stack 65536\npagetables 131072\npercpu 4096\n\
    sock 8192\nshmem 1048576\nfile_mapped 524288\nswapcached 0\ninactive_file 31457280\nactive_file 19922944\n\
    slab_reclaimable 1048576\nslab_unreclaimable 131072\n";

/// Lays out a group; `usage` is what is charged.
fn lay(folder: &Path, usage: u64, pid: i32) {
    for (name, text) in [
        ("memory.stat", STAT.to_owned()),
        ("memory.current", format!("{usage}\n")),
        ("memory.max", "268435456\n".to_owned()),
        ("memory.swap.current", "0\n".to_owned()),
        (
            "memory.events",
            "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n".to_owned(),
        ),
        ("cgroup.procs", format!("{pid}\n")),
    ] {
        fs::write(folder.join(name), text).expect("written");
    }
}

#[test]
fn a_group_adds_up_in_every_output() {
    let bench = Bench::new();
    let mut command = bench.command("python3");
    command.args(["-c", WAITS]);
    let mut running = Running::start(command);
    running.line();
    let folder = bench.path("group");
    fs::create_dir(&folder).expect("made");
    lay(&folder, 160_000_000, running.pid);
    let done = bench.tool(["memory", "--cgroup", "group", "--json"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let json = done.stdout.as_str();
    assert_eq!(sum(json, "memory"), 160_000_000);
    assert_eq!(sum(json, "memory/anonymous"), 104_857_600);
    let python = format!("memory/anonymous/python3 (pid {})", running.pid);
    assert!(
        (30_000_000..104_857_600).contains(&sum(json, &python)),
        "{json}"
    );
    assert_eq!(
        sum(json, "memory/not-explained"),
        160_000_000 - 104_857_600 - 52_428_800 - 2_097_152 - 8192
    );
    assert_eq!(sum(json, "working-set"), 160_000_000 - 31_457_280);
    assert_eq!(amount(json, "groups"), None, "there is none below");

    let text = bench.tool(["memory", "--cgroup", "group", "--threshold", "50"]);
    // What is left over is never among the tiny rows.
    assert!(
        text.stdout.contains("0.58 MiB (00.38%) ── not-explained"),
        "{text:#?}"
    );
    let saved = bench.tool(["memory", "--cgroup", "group", "--save", "before.json"]);
    assert_eq!(saved.shell_status(), 0, "{saved:#?}");
    lay(&folder, 150_000_000, running.pid);
    let changed = bench.tool([
        "memory",
        "--cgroup",
        "group",
        "--diff",
        "before.json",
        "--exact",
    ]);
    assert!(
        changed
            .stdout
            .contains("-10,000,000 B -- memory/not-explained"),
        "{changed:#?}"
    );
    let metrics = bench.tool([
        "memory",
        "--cgroup",
        "group",
        "--openmetrics",
        "--series",
        "3",
    ]);
    let samples = metrics
        .stdout
        .lines()
        .filter(|line| line.starts_with("skinflint_memory_bytes{"));
    assert_eq!(samples.count(), 4, "{metrics:#?}");

    for (arguments, words) in [
        (
            &["memory", "--cgroup", "/no/such"][..],
            "no control group that counts memory",
        ),
        (
            &["memory", "before.json", "--cgroup"],
            "only a process has a control group",
        ),
        (&["memory", "1", "--cgroup", "group"], "name one of them"),
        (
            &["memory", "--cgroup", "group", "--gc"],
            "cannot be used with",
        ),
        (
            &["memory", "before.json", "--openmetrics=0"],
            "does not change",
        ),
    ] {
        let done = bench.tool(arguments);
        assert_eq!(done.shell_status(), 2, "{arguments:?}: {done:#?}");
        assert!(done.stderr.contains(words), "{arguments:?}: {done:#?}");
    }
    assert_eq!(running.finish(PATIENCE).shell_status(), 0);
}

/// A control group of the first version, removed when it is dropped.
struct Made(PathBuf);

impl Made {
    fn new() -> Option<Made> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups
            .lines()
            .find_map(|line| line.split_once(":memory:"))?
            .1
            .to_owned();
        let above = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/'));
        let folder = above.join(format!("skinflint-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        Some(Made(folder))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A process that has just ended may still be in it: then it stays, empty.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn the_kernels_own_group_is_explained_by_its_process() {
    let made = Made::new();
    if !need::that(
        made.is_some(),
        "a memory control group of the first version",
        "run as root where one is mounted",
    ) {
        return;
    }
    let group = made.expect("just asked");
    fs::write(group.0.join("memory.limit_in_bytes"), "268435456").expect("a limit");
    let bench = Bench::new();
    let mut command = bench.command("sh");
    let procs = group.0.join("cgroup.procs");
    let script = "echo $$ > \"$0\" && exec python3 -c \"$1\"";
    command.args(["-c", script]).arg(procs).arg(WAITS);
    let mut running = Running::start(command);
    running.line();
    let done = bench.tool(["memory", &running.pid.to_string(), "--cgroup", "--json"]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let json = done.stdout.as_str();
    let whole = sum(json, "memory");
    assert!((30_000_000..268_435_456).contains(&whole), "{json}");
    // The kernel charges in batches of 64 pages for each processor.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
    assert!(
        sum(json, "memory/not-explained").abs() <= (processors + 1) * (64 * 4096),
        "{json}"
    );
    let elsewhere = amount(json, "memory/anonymous/charged-elsewhere").unwrap_or(0);
    assert!(
        sum(json, "memory/anonymous/not-explained") - elsewhere <= 1 << 20,
        "{json}"
    );
    assert_eq!(
        (sum(json, "limit"), sum(json, "processes")),
        (268_435_456, 1)
    );
    assert_eq!(running.finish(PATIENCE).shell_status(), 0);
}

/// Asks a server, and returns its answer with its headers.
fn asked(url: &str, host: &str, more: &str) -> String {
    let address = url
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let host = if host.is_empty() { address } else { host };
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn metrics_are_served_until_the_process_ends() {
    let bench = Bench::new();
    let mut command = bench.command("python3");
    command.args(["-c", WAITS]);
    let mut running = Running::start(command);
    running.line();
    let pid = running.pid.to_string();
    let mut server =
        Running::start(bench.skinflint(["memory", &pid, "--openmetrics=0", "--series=5"]));
    let url = server.line();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.ends_with("/metrics"),
        "{url}"
    );
    for _ in 0..2 {
        let answer = asked(&url, "", "");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"),
            "{answer}"
        );
        assert!(
            answer.contains("application/openmetrics-text; version=1.0.0"),
            "{answer}"
        );
        let samples = answer
            .lines()
            .filter(|line| line.starts_with("skinflint_memory_bytes{"));
        // Five, and the others: lines of the kernel are of one kind.
        assert_eq!(samples.count(), 6, "{answer}");
    }
    // Another name that leads here, and a web page.
    for (host, more) in [
        ("evil.example", ""),
        ("", "Origin: http://evil.example\r\n"),
    ] {
        let answer = asked(&url, host, more);
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    assert_eq!(running.finish(PATIENCE).shell_status(), 0);
    // No collector asks any more.
    let done = server.finish(PATIENCE);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(done.stderr.contains("the process has ended"), "{done:#?}");
}
