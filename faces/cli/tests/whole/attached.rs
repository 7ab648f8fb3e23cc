//! Programs that ran before they were to be recorded: attached to, left, attached to again.
//!
//! ```text
//!   talk.c, told b, f, a (control.rs)      redis under load, on jemalloc      python that loads modules meanwhile
//! ```
//!
//! A1  What the program prints and how it ends is the same as without the recorder.
//! A2  After detaching, no word of the program's data leads to the recorder: this is read from its memory, not asked
//!     of us.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use skinflint_test_support::need;

use crate::tool::{Bench, PATIENCE, Running, program, run_within};
use skinflint_test_support::wait::until;

/// Other tests run meanwhile.
const ATTACH_PATIENCE: Duration = Duration::from_secs(180);

/// Starts `skinflint attach`; returns when every call of the program leads to the recorder.
pub fn attach(bench: &Bench, pid: &str, trace: &str, options: &[&str]) -> Running {
    let mut command = bench.skinflint(["attach", "-q", "-o", trace]);
    command.args(options).arg(pid);
    let running = Running::start(command);
    let begun = Instant::now();
    while begun.elapsed() < ATTACH_PATIENCE {
        let status = bench.tool(["ctl", pid, "status"]);
        if status.stdout.contains(trace) && !status.stdout.contains("attaching") {
            return running;
        }
        std::thread::sleep(Duration::from_millis(50)); // CLOCK: poll step of a bounded wait
    }
    panic!("not attached: {:#?}", running.finish(PATIENCE));
}

/// Tells the recorder to leave, and waits until it has.
pub fn detach(bench: &Bench, pid: &str, attached: Running) {
    let done = run_within(bench.skinflint(["detach", pid]), b"", ATTACH_PATIENCE);
    if done.status.code() != Some(0) {
        let said = attached.finish(PATIENCE);
        panic!("not left: {done:#?}\nthe session: {said:#?}");
    }
    let done = attached.finish(ATTACH_PATIENCE);
    assert_eq!(
        (done.status.code(), done.stderr.as_str()),
        (Some(0), ""),
        "{done:#?}"
    );
}

/// Counts the words of the tables of a program and its libraries that lead into the recorder (A2): those of file
/// mappings that are data, without the recorder's own.
pub fn leads(pid: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("ours");
    let range = |line: &str| {
        let (low, high) = line.split(' ').next()?.split_once('-')?;
        Some((
            u64::from_str_radix(low, 16).ok()?,
            u64::from_str_radix(high, 16).ok()?,
        ))
    };
    let is_ours = |line: &&str| line.contains("libskinflint_record.so");
    let code: Vec<_> = maps.lines().filter(is_ours).filter_map(range).collect();
    let tables = maps
        .lines()
        .filter(|line| line.contains(".so") || line.contains("/bin/") || line.contains("/talk"));
    let tables = tables.filter(|line| line.contains(" r--p ") || line.contains(" rw-p "));
    let mut found = 0;
    for (low, high) in tables
        .filter(|line| !is_ours(line) && !line.contains("/ld-"))
        .filter_map(range)
    {
        let mut words = vec![0; (high - low) as usize];
        if memory.read_exact_at(&mut words, low).is_err() {
            continue;
        }
        let words = words
            .chunks_exact(8)
            .map(|w| u64::from_le_bytes(w.try_into().expect("8")));
        found += words
            .filter(|w| code.iter().any(|(low, high)| (low..high).contains(&w)))
            .count();
    }
    found
}

/// Tells talk.c what to do, and waits until it is done.
pub fn tell(talk: &mut Running, letter: &str) {
    talk.say(letter.as_bytes());
    assert_eq!(talk.line(), format!("done {letter}"));
}

#[test]
fn what_happens_between_attach_and_detach_is_recorded_and_nothing_else() {
    let bench = Bench::new();
    let mut talk = Running::start(bench.command(program("talk")));
    let pid = talk.line();
    tell(&mut talk, "a");
    tell(&mut talk, "b");
    let first = attach(&bench, &pid, "first.sft", &[]);
    assert!(leads(&pid) >= 5, "its tables lead to the recorder");
    // 10 blocks from before are released; 10 are acquired and 10 more, 10 of which are released.
    for letter in ["f", "b", "f", "b"] {
        tell(&mut talk, letter);
    }
    let again = bench.tool(["attach", &pid]);
    again.says(2, &["is being recorded already"]);
    bench.tool(["ctl", &pid, "mark", "here"]).says(0, &[]);
    detach(&bench, &pid, first);
    assert_eq!(leads(&pid), 0);
    tell(&mut talk, "f");
    let second = attach(&bench, &pid, "second.sft", &["--paused"]);
    tell(&mut talk, "b");
    bench.tool(["ctl", &pid, "start"]).says(0, &[]);
    tell(&mut talk, "r");
    tell(&mut talk, "a");
    talk.say(b"q");
    let done = talk.finish(PATIENCE);
    assert_eq!(
        (done.status.code(), done.stderr.as_str()),
        (Some(5), ""),
        "{done:#?}"
    );
    let done = second.finish(ATTACH_PATIENCE);
    assert_eq!(
        (done.status.code(), done.stderr.as_str()),
        (Some(0), ""),
        "{done:#?}"
    );

    let report = bench.report_at("first.sft", "end");
    // It went on, as what it printed and its status say.
    assert_eq!(report.text("program.ended"), "detached");
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert_eq!(report.blocks_of(67), (20, 10));
    assert_eq!(report.some_of(61), (0, 0));
    assert_eq!(report.heap(), (20, 10));
    assert_eq!(report.number("completeness.unknown_frees"), 10);
    assert_eq!(report.text("program.name"), "talk");
    let notes = report.notes().join(" ");
    assert!(
        notes.contains("(attached): blocks acquired before are unknown"),
        "{notes}"
    );
    // The stacks are those of the program, although it stood in the middle of a call.
    let sites = report
        .sites()
        .iter()
        .filter(|site| site["end_blocks"] == 10);
    let names: Vec<_> = sites
        .map(|s| report.functions(crate::report::number(s, "node")))
        .collect();
    assert!(
        names
            .iter()
            .any(|n| n.contains(&"second") && n.contains(&"main")),
        "{names:?}"
    );

    // Ten reallocs, of unknown blocks; ten of a. The program ended while it was recorded.
    let report = bench.report_at("second.sft", "end");
    assert_eq!(
        (report.blocks_of(97), report.blocks_of(61)),
        ((10, 10), (10, 6))
    );
    assert_eq!(report.some_of(67), (0, 0));
    assert!(matches!(report.text("program.ended"), "exit 5" | "unknown"));
}

/// `--keep`, `--when` and `--sample` are those of `record`.
#[test]
fn an_attached_recording_keeps_its_last_part_or_a_sample() {
    let bench = Bench::new();
    let mut talk = Running::start(bench.command(program("talk")));
    let pid = talk.line();
    tell(&mut talk, "b");
    let first = attach(
        &bench,
        &pid,
        "first.sft",
        &["--keep=1h", "--when=mark=here"],
    );
    tell(&mut talk, "f");
    tell(&mut talk, "b");
    bench.tool(["ctl", &pid, "mark", "here"]).says(0, &[]);
    let aside = bench.path("first.kept-1.sft");
    until("something is put aside", || aside.exists().then_some(()));
    tell(&mut talk, "f");
    tell(&mut talk, "b");
    detach(&bench, &pid, first);
    let report = bench.report_at("first.kept-1.sft", "when mark=here");
    assert_eq!(report.blocks_of(67), (10, 10));
    let report = bench.report_at("first.sft", "end");
    assert_eq!(report.blocks_of(67), (20, 10));
    assert_eq!(report.text("program.ended"), "detached");

    let second = attach(
        &bench,
        &pid,
        "second.sft",
        &["--sample=64K", "--seed=1", "--keep=1h"],
    );
    tell(&mut talk, "b");
    detach(&bench, &pid, second);
    let report = bench.report_at("second.sft", "end");
    assert_eq!(report.number("sample_bytes"), 64 << 10);
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
    let refused = bench.tool(["attach", &pid, "--keep=1h", "--reachable"]);
    refused.says(2, &["cannot be used with"]);
}

#[test]
fn redis_under_load_notices_nothing() {
    if !need::programs(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    let bench = Bench::new();
    let socket = bench.path("redis.sock");
    let mut server = bench.command("redis-server");
    server.args([
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
    ]);
    server.arg(&socket);
    let server = Running::start(server);
    // The socket exists before the server listens at it.
    until("a socket (apt-get install redis-server)", || {
        UnixStream::connect(&socket).ok()
    });
    let client = |program: &str, arguments: &[&str]| {
        let mut command = bench.command(program);
        command.arg("-s").arg(&socket).args(arguments);
        command
    };
    let ask = |arguments: &[&str]| {
        let done = run_within(client("redis-cli", arguments), b"", PATIENCE);
        assert_eq!(
            done.status.code(),
            Some(0),
            "apt-get install redis-tools: {done:#?}"
        );
        done.stdout
    };
    let fill =
        "for i = 1, 3000 do redis.call('SET', KEYS[1] .. i, string.rep('v', 5000)) end return 1";
    ask(&["EVAL", fill, "1", "before"]);
    let pid = server.pid.to_string();
    let load = Running::start(client(
        "redis-benchmark",
        &["-q", "-n", "60000", "-t", "set,get,lpush"],
    ));
    let attached = attach(&bench, &pid, "redis.sft", &[]);
    ask(&["EVAL", fill, "1", "after"]);
    ask(&[
        "EVAL",
        "for i = 1, 3000 do redis.call('DEL', 'before' .. i) end return 1",
        "0",
    ]);
    assert_eq!(load.finish(PATIENCE).status.code(), Some(0));
    detach(&bench, &pid, attached);
    assert_eq!(leads(&pid), 0);
    let sum =
        "local n = 0 for i = 1, 3000 do n = n + redis.call('STRLEN', 'after' .. i) end return n";
    assert_eq!(ask(&["EVAL", sum, "0"]).trim(), "15000000");
    run_within(client("redis-cli", &["SHUTDOWN", "NOSAVE"]), b"", PATIENCE);
    assert_eq!(server.finish(PATIENCE).status.code(), Some(0));

    let report = bench.report_at("redis.sft", "end");
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert!(report.text("program.allocator").contains("jemalloc"));
    // 3,000 values of 5,000 bytes and a header came and stay; the same number from before went.
    let sizes = (5_001..5_040).map(|size| report.some_of(size).1);
    assert!(sizes.sum::<u64>() >= 3_000);
    assert!(report.number("completeness.unknown_frees") >= 3_000);
}

#[test]
fn python_that_loads_modules_while_it_is_recorded() {
    let bench = Bench::new();
    // sqlite3 is a C module with a library of its own, loaded after attaching; zlib's inflate too.
    let script = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nimport sqlite3\n\
                  base = sqlite3.connect(':memory:')\nbase.execute('create table t (a)')\n\
                  base.executemany('insert into t values (?)', ((str(i) * 20,) for i in range(20000)))\n\
                  kept = [bytes(7001) for _ in range(25)]\n\
                  print(base.execute('select sum(length(a)), count(*) from t').fetchone(), flush=True)\n\
                  sys.stdin.readline()\nprint(len(kept))\nsys.exit(3)\n";
    let mut command = bench.command("/usr/bin/python3");
    command.args(["-c", script]);
    let mut python = Running::start(command);
    assert_eq!(python.line(), "ready");
    let pid = python.pid.to_string();
    let attached = attach(&bench, &pid, "python.sft", &[]);
    python.say(b"go\n");
    assert_eq!(python.line(), "(1777800, 20000)");
    detach(&bench, &pid, attached);
    assert_eq!(leads(&pid), 0);
    python.say(b"end\n");
    assert_eq!(python.line(), "25");
    assert_eq!(python.finish(PATIENCE).status.code(), Some(3));
    let report = bench.report_at("python.sft", "end");
    assert_eq!(report.number("completeness.lost_events"), 0);
    // bytes(7001): a header of 33 bytes.
    assert_eq!(report.blocks_of(7034), (25, 25));
    // sqlite's own allocations, in a library that came after us.
    let sites = report
        .sites()
        .iter()
        .map(|site| report.functions(crate::report::number(site, "node")));
    assert!(
        sites
            .flatten()
            .any(|name| name.starts_with("sqlite3_") || name.starts_with("sqlite3"))
    );
}

#[test]
fn what_cannot_be_attached_to_is_refused_before_it_is_touched() {
    let bench = Bench::new();
    bench
        .tool(["attach", "4194305"])
        .says(2, &["4194305: no such process"]);
    // A kernel thread, or, if none is visible, the first process, which is not ours or has its tracer.
    bench.tool(["attach", "2"]).says(2, &["2: "]);
    bench.tool(["detach", "4194305"]).says(2, &["4194305: "]);
    bench.tool(["attach", "1", "--for=-1"]).says(2, &["--for"]);
    let mut talk = Running::start(bench.recording(&[], [program("talk")]));
    let pid = talk.line();
    bench
        .tool(["attach", &pid])
        .says(2, &[&pid, "is being recorded already"]);
    bench
        .tool(["detach", &pid])
        .says(2, &["was started by skinflint"]);
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
}

/// The kernel joins the recorder's bss with what the program mapped above it: one line of 13 MiB, which is not the
/// recorder's.
#[test]
fn memory_that_the_kernel_joined_with_the_recorders_is_the_programs() {
    const OWN: u64 = 13 << 20;
    let bench = Bench::new();
    let mut joined = Running::start(bench.command(program("joined")));
    let pid = joined.line();
    let attached = attach(&bench, &pid, "joined.sft", &[]);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let mut lines = maps.lines();
    let is_data = |line: &&str| line.contains("rw-p") && line.ends_with("libskinflint_record.so");
    lines.find(is_data).expect("the recorder's data");
    let bss = lines
        .next()
        .and_then(|line| line.split(' ').next()?.split_once('-'));
    let (low, high) = bss.expect("its bss");
    let address = |hex| u64::from_str_radix(hex, 16).expect("an address");
    assert!(address(high) - address(low) > OWN, "not joined: {maps}");
    bench.tool(["ctl", &pid, "snapshot"]).says(0, &[]);
    detach(&bench, &pid, attached);
    // It ends with its stdin.
    assert_eq!(joined.finish(PATIENCE).shell_status(), 0);
    let report = bench.report_at("joined.sft", "end");
    let rows = report.0["instants"][report.number("at") as usize]["books"]["rows"].as_array();
    let row = |id: &str| {
        let rows = rows.expect("books");
        let row = rows.iter().find(|row| row["id"] == id).expect("the row");
        row["bytes"].as_u64().expect("a number")
    };
    assert!(row("recorder") < OWN / 4, "{:#?}", row("recorder"));
    assert!(row("other-mappings") >= OWN);
    assert!(report.number("program.recorder_bytes") < OWN / 4);
}
