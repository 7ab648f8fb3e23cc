//! What is served: profiles, books, metrics, the index, and what is refused.

use skinflint_test_support::need;

use crate::decoded::Profile;
use crate::tool::{self, Bench, run};
use crate::{Agent, Profiled, asked};
use skinflint_test_support::wait::until;

const BYTES: f64 = 12_000_000.0;
const FIVE: f64 = 5.0 * 0.037;

#[track_caller]
fn about(figure: i64, why: &str) {
    let figure = figure as f64;
    assert!((figure / BYTES - 1.0).abs() < FIVE, "{why}: {figure}");
}

/// Returns the sum of a type over stacks through a function of the program.
#[track_caller]
fn of_function(profile: &Profile, kind: &str, offset: u64) -> i64 {
    profile.sum(kind, |stack| profile.passes(stack, "/profile", offset, 32))
}

#[test]
fn a_heap_is_served_as_go_serves_its_own() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "wait", &[]);
    // Before the first closing after its start, too.
    let heap = agent.profile(&format!("/debug/pprof/heap?pid={}", of.pid));
    let types: Vec<_> = heap
        .types
        .iter()
        .map(|(name, unit)| (&**name, &**unit))
        .collect();
    let go = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    assert_eq!(types, go);
    assert_eq!(
        (&*heap.shown, heap.period, heap.duration_ns),
        ("inuse_space", 16384, 0)
    );
    about(of_function(&heap, "inuse_space", of.holds), "kept, in use");
    about(
        of_function(&heap, "alloc_space", of.holds),
        "kept, of all time",
    );
    about(
        of_function(&heap, "alloc_space", of.drops),
        "freed, of all time",
    );
    assert_eq!(of_function(&heap, "inuse_space", of.drops), 0);
    about(
        of_function(&heap, "inuse_objects", of.holds) * 3000,
        "blocks",
    );
    // The program comes first, with its build id; no address is one of the process.
    assert!(
        heap.mappings[0].file.ends_with("/profile"),
        "{:?}",
        heap.mappings
    );
    assert!(
        heap.mappings
            .iter()
            .all(|map| map.file.starts_with('[') || map.build_id.len() == 40)
    );
    let own = skinflint_maps(of.pid);
    for location in &heap.locations {
        let inside = own
            .iter()
            .any(|(start, end)| (*start..*end).contains(&location.address));
        assert!(!inside, "{location:?}");
    }
    let allocs = agent.profile(&format!("/debug/pprof/allocs?pid={}", of.pid));
    assert_eq!(allocs.shown, "alloc_space");
}

/// Returns the mappings of a process.
fn skinflint_maps(pid: u32) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        ))
    };
    maps.lines().filter_map(range).collect()
}

#[test]
fn what_comes_in_a_time_is_the_difference() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "churn", &[]);
    let since = agent.profile(&format!("/debug/pprof/heap?pid={}&seconds=1", of.pid));
    assert_eq!(since.duration_ns, 1_000_000_000);
    assert!(of_function(&since, "alloc_space", of.drops) > 0);
    // What is kept was there before.
    assert_eq!(of_function(&since, "alloc_space", of.holds), 0);
    assert_eq!(of_function(&since, "inuse_space", of.holds), 0);
}

#[test]
fn books_add_up_to_resident_memory() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "wait", &[]);
    let books = agent.profile(&format!("/debug/pprof/books?pid={}", of.pid));
    let rss = books.closed();
    // The kernel, asked by another way, says nearly the same: the process waits.
    let status = std::fs::read_to_string(format!("/proc/{}/status", of.pid)).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    let kernel = line
        .trim()
        .trim_end_matches(" kB")
        .parse::<i64>()
        .expect("a number")
        * 1024;
    assert!((rss - kernel).abs() < (1 << 20), "{rss} and {kernel}");
    // 3,000 bytes have a block of 3,072, or of 3,008 once that size is earned.
    about(of_function(&books, "inuse_space", of.holds), "kept, in use");
    let slop = of_function(&books, "slop_space", of.holds);
    let inuse = of_function(&books, "inuse_space", of.holds);
    let each = slop as f64 / (inuse as f64 / 3000.0);
    assert!((7.9..72.1).contains(&each), "{slop} of {inuse}");
    // What was freed beside what is kept pins pages, or is free; the exact sum is the row of what samples are off.
    let named = |name: &str| {
        books.sum("inuse_space", |stack| {
            books.locations[stack[0]].name == name
        })
    };
    assert!(named("(sampling)") != 0, "{books:?}");
    assert!(named("(live, not resident)") <= 0);
    assert!(
        books.sum("mapped_space", |stack| books.locations[stack[0]].name
            == "(files)")
            > 0
    );
    let (status, said) = agent.text(&format!("/debug/pprof/books?pid={}&seconds=1", of.pid));
    assert_eq!(
        (status, &*said),
        (400, "seconds: books are of a moment; leave it out\n")
    );
}

#[test]
fn metrics_the_index_and_discovery_name_the_processes() {
    let bench = Bench::new();
    let label = ["--label", "zone=a", "--series", "7"];
    let agent = Agent::start(&bench, &label);
    let of = Profiled::start(&bench, "wait", &[("OTEL_SERVICE_NAME", "shop \"1\"")]);
    let other = Profiled::start(&bench, "wait", &[("OTEL_SERVICE_NAME", "cart")]);
    until("both are closed", || {
        let (_, text) = agent.text("/");
        let closed = |pid: u32| text.contains(&format!("pid={pid}, "));
        (closed(of.pid) && closed(other.pid)).then_some(())
    });
    let (_, text) = agent.text("/");
    assert!(text.contains("service=shop \"1\"\n  zone=a\n"), "{text}");
    let (_, targets) = agent.text("/targets");
    let targets: serde_json::Value = serde_json::from_str(&targets).expect("JSON");
    let found = targets
        .as_array()
        .expect("a list")
        .iter()
        .find(|target| target["labels"]["service"] == "cart");
    let labels = &found.expect("the process")["labels"];
    assert_eq!(labels["__param_pid"], other.pid.to_string());
    assert_eq!(
        (labels["process"].as_str(), labels["zone"].as_str()),
        (Some("profile"), Some("a"))
    );
    // A label chooses; one that both have does not.
    let heap = agent.profile("/debug/pprof/heap?service=shop+%221%22");
    assert!(heap.mappings[0].file.ends_with("/profile"));
    let (status, said) = agent.text("/debug/pprof/heap?zone=a");
    assert_eq!(status, 409, "{said}");
    assert!(
        said.contains(&format!("pid={}", of.pid)) && said.contains(&format!("pid={}", other.pid)),
        "{said}"
    );
    let (status, said) = agent.text("/debug/pprof/heap?service=none");
    assert_eq!(
        (status, &*said),
        (
            404,
            "no process with a profile fits; / lists them with their labels\n"
        )
    );
    let (status, metrics) = agent.text("/metrics");
    assert_eq!(status, 200);
    let series = metrics
        .lines()
        .filter(|line| line.starts_with("skinflint_memory_bytes{"));
    // Seven, and the rest of each process.
    let series = series
        .filter(|line| !line.contains("path=\"(others)\""))
        .count();
    assert_eq!(series, 7, "{metrics}");
    assert!(agent.metric("skinflint_agent_closings_total") >= Some(2.0));
    assert!(agent.metric("skinflint_agent_resident_bytes") > Some(0.0));
}

#[test]
fn requests_that_are_wrong_are_answered_in_words() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "wait", &[]);
    let heap = format!("/debug/pprof/heap?pid={}", of.pid);
    let own = std::process::id();
    for (path, status, words) in [
        (
            format!("{heap}&debug=1"),
            400,
            "debug: there is the binary form only".to_owned(),
        ),
        (
            format!("{heap}&seconds=0"),
            400,
            "seconds: a number from 1 to 300".into(),
        ),
        (
            format!("{heap}&seconds=301"),
            400,
            "seconds: a number from 1 to 300".into(),
        ),
        (
            "/debug/pprof/heap?pid=x".into(),
            400,
            "pid: x is no number".into(),
        ),
        (
            "/debug/pprof/heap?pid=4000000".into(),
            404,
            "there is no process 4000000".into(),
        ),
        (
            format!("/debug/pprof/heap?pid={own}"),
            404,
            format!("process {own} keeps no profile: start it by"),
        ),
        (
            "/debug/pprof/cpu".into(),
            404,
            "there is /, /targets,".into(),
        ),
    ] {
        let (found, said) = agent.text(&path);
        assert_eq!(
            (found, said.contains(&words)),
            (status, true),
            "{path}: {said}"
        );
    }
    let other = "GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n";
    assert_eq!(asked(&agent.address, other).0, 403);
    let page = format!(
        "GET / HTTP/1.0\r\nHost: {0}\r\nOrigin: http://{0}\r\n\r\n",
        agent.address
    );
    assert_eq!(asked(&agent.address, &page).0, 403);
    let post = format!(
        "POST / HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
        agent.address
    );
    assert_eq!(asked(&agent.address, &post).0, 405);
}

#[test]
fn options_that_are_wrong_are_refused() {
    let bench = Bench::new();
    for (options, words) in [
        (&["--interval", "0"][..], "1..=3600"),
        (&["--label", "a b=c"], "NAME=VALUE, the name of letters"),
        (&["--label", "a="], "NAME=VALUE"),
        (&["--port", "70000"], "70000"),
        (&["--series", "0"], "1..=100000"),
        (&["4711"], "unexpected argument"),
    ] {
        let mut arguments = vec!["agent"];
        arguments.extend(options);
        bench.tool(arguments).says(2, &[words]);
    }
    let agent = Agent::start(&bench, &[]);
    let port = agent.address.rsplit(':').next().expect("a port");
    let taken = bench.tool(["agent", "--port", port]);
    taken.says(2, &["cannot be listened on; does another agent run?"]);
    assert_eq!(taken.stdout, "");
}

#[test]
fn another_user_s_process_is_refused_with_a_sentence() {
    let bench = Bench::new();
    if !need::root("another user's process") || !need::program("setpriv") {
        return;
    }
    let sockets = crate::sockets();
    std::os::unix::fs::chown(sockets.path(), Some(65534), Some(65534)).expect("chown");
    // What another user runs must lie where that user can read it.
    for (from, name) in [
        (tool::allocator().to_owned(), "lib.so"),
        (crate::program("profile"), "profile"),
    ] {
        std::fs::copy(from, sockets.path().join(name)).expect("copied");
    }
    let mut command = bench.command("setpriv");
    command.current_dir("/").args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "env",
    ]);
    command.arg(format!(
        "LD_PRELOAD={}",
        sockets.path().join("lib.so").display()
    ));
    command
        .arg("SKINFLINT_PROFILE=on")
        .arg(format!("XDG_RUNTIME_DIR={}", sockets.path().display()));
    command.arg(sockets.path().join("profile")).arg("wait");
    let mut running = tool::Running::start(command);
    let said = running.line();
    let pid = said.split(' ').next().expect("a process id").to_owned();
    let path = format!("/debug/pprof/heap?pid={pid}");
    let agent = Agent::start(&bench, &[]);
    let (status, said) = agent.text(&path);
    let wanted = format!(
        "process {pid} is another user's (user 65534): an agent of that user can read it, or root's with --all-users\n"
    );
    assert_eq!((status, said), (403, wanted));
    until("a round is over", || {
        (agent.metric("skinflint_agent_closings_total")? >= 0.0).then_some(())
    });
    assert!(!agent.text("/").1.contains(&format!("pid={pid}")));
    let all = Agent::start(&bench, &["--all-users"]);
    assert!(!all.profile(&path).samples.is_empty());
}

#[test]
fn go_tool_pprof_reads_it_and_names_the_functions() {
    if !need::program("go") {
        return;
    }
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "wait", &[]);
    for (page, kind) in [
        ("heap", "inuse_space"),
        ("heap", "alloc_space"),
        ("books", "inuse_space"),
    ] {
        let url = format!("http://{}/debug/pprof/{page}?pid={}", agent.address, of.pid);
        let mut command = bench.command("go");
        command.env("PPROF_TMPDIR", bench.path("profiles"));
        command.args([
            "tool",
            "pprof",
            "-top",
            "-unit",
            "B",
            "-sample_index",
            kind,
            &url,
        ]);
        let done = run(command);
        assert_eq!(done.shell_status(), 0, "{done:#?}");
        assert!(
            done.stdout.starts_with("File: profile\nBuild ID: "),
            "{done:#?}"
        );
        let line = done.stdout.lines().find(|line| line.ends_with(" holds"));
        let line = line.unwrap_or_else(|| panic!("{done:#?}"));
        let bytes = line
            .split_whitespace()
            .next()
            .expect("a figure")
            .trim_end_matches('B');
        about(bytes.parse().expect("bytes"), "holds()");
        assert_eq!(
            done.stdout.contains(" drops\n"),
            kind == "alloc_space",
            "{done:#?}"
        );
    }
}
