//! Ends: processes that go while they are watched or read, that stop, that are many; the agent's own.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use skinflint_test_support::random::Random;

use crate::tool::{self, Bench, signal};
use crate::{Agent, Profiled, program, sockets};
use skinflint_test_support::wait::until;

#[test]
fn a_process_that_is_killed_is_counted_and_gone() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let of = Profiled::start(&bench, "wait", &[]);
    let listed = || agent.text("/").1.contains(&format!("pid={}, ", of.pid));
    until("it is closed", || listed().then_some(()));
    let lost = agent
        .metric("skinflint_agent_unclosed_total")
        .expect("a figure");
    signal(of.running.pid, libc::SIGKILL);
    until("it is gone", || (!listed()).then_some(()));
    assert!(agent.metric("skinflint_agent_unclosed_total") > Some(lost));
    let done = of.running.finish(crate::PATIENCE);
    assert_eq!(done.shell_status(), 137);
    let (status, said) = agent.text(&format!("/debug/pprof/heap?pid={}", of.pid));
    assert_eq!(
        (status, said),
        (404, format!("there is no process {}\n", of.pid))
    );
}

#[test]
fn an_agent_that_is_killed_leaves_nothing_and_another_takes_its_place() {
    let bench = Bench::new();
    let of = Profiled::start(&bench, "wait", &[]);
    let agent = Agent::start(&bench, &[]);
    let path = format!("/debug/pprof/heap?pid={}", of.pid);
    agent.profile(&path);
    let port = agent.address.rsplit(':').next().expect("a port").to_owned();
    signal(agent.running.pid, libc::SIGKILL);
    assert_eq!(agent.running.finish(crate::PATIENCE).shell_status(), 137);
    let again = Agent::start(&bench, &["--port", &port]);
    again.profile(&path);
    // The process never noticed.
    let done = of.running.finish(crate::PATIENCE);
    assert_eq!((done.shell_status(), &*done.stderr), (0, ""), "{done:#?}");
}

/// What was closed is on disk, whole, whenever the agent is killed; what was not is counted: of a process that is killed, and of one
/// that an agent meets which took another's place. With `SKINFLINT_LONG` at a hundred moments.
#[test]
fn whatever_is_killed_loses_what_was_not_closed_and_that_is_counted() {
    let moments = match std::env::var_os("SKINFLINT_LONG") {
        Some(_) => 100,
        None => 6,
    };
    let bench = Bench::new();
    let spool = bench.path("spool");
    let folder = spool.to_str().expect("text");
    // Nothing listens on the first port: all that is closed waits.
    let options = [
        "--push",
        "otlp=http://127.0.0.1:1",
        "--spool",
        folder,
        "--spool-age",
        "86400",
    ];
    let on_disk = || {
        let files = std::fs::read_dir(spool.join("otlp-1")).expect("there");
        let files = files.filter_map(|file| file.ok()?.path().into_os_string().into_string().ok());
        files.filter(|file| file.ends_with(".profile")).count() as f64
    };
    let mut random = Random::new(0x5eed_0023);
    let mut of = Profiled::start(&bench, "wait", &[]);
    let mut closed_before = 0.0;
    for moment in 0..moments {
        let agent = Agent::start(&bench, &options);
        let figure = |name: &str| {
            let found = agent.metric(&format!("skinflint_agent_{name}"));
            found.unwrap_or_else(|| panic!("no {name}"))
        };
        let closes = |pid: u32| {
            until("it is closed", || {
                agent
                    .text("/")
                    .1
                    .contains(&format!("pid={pid}, "))
                    .then_some(())
            });
        };
        closes(of.pid);
        assert!(
            figure("met_running_total") >= 1.0,
            "moment {moment}: it ran before the agent"
        );
        if moment % 2 == 1 {
            let lost = figure("unclosed_total");
            pause(&mut random);
            signal(of.running.pid, libc::SIGKILL);
            until("it is counted", || {
                (figure("unclosed_total") > lost).then_some(())
            });
            assert_eq!(of.running.finish(crate::PATIENCE).shell_status(), 137);
            of = Profiled::start(&bench, "wait", &[]);
            closes(of.pid);
        }
        let closed = figure("closings_total");
        pause(&mut random);
        signal(agent.running.pid, libc::SIGKILL);
        assert_eq!(agent.running.finish(crate::PATIENCE).shell_status(), 137);
        closed_before += closed;
        let waits = on_disk();
        assert!(
            waits >= closed_before,
            "moment {moment}: {waits} on disk, {closed_before} were closed"
        );
        // What was closed after the last look is on the disk as well.
        closed_before = waits;
    }
    let mut check = bench.command("sh");
    check.args([
        "-c",
        "for f in \"$0\"/*.profile; do gzip -t < \"$f\" || exit 1; done",
    ]);
    check.arg(spool.join("otlp-1"));
    let done = tool::run(check);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert_eq!(of.running.finish(crate::PATIENCE).shell_status(), 0);
}

/// Waits for some time that no clock tells.
fn pause(random: &mut Random) {
    for _ in 0..random.below(20_000_000) {
        std::hint::spin_loop();
    }
}

/// An answer is a whole profile, or words: never a part of a heap.
#[test]
fn processes_that_end_while_they_are_read() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let (mut whole, mut words) = (0, 0);
    for at in 0..60u32 {
        let of = Profiled::start(&bench, "wait", &[("SKINFLINT_PROFILE_RATE", "1K")]);
        let path = format!("/debug/pprof/books?pid={}", of.pid);
        let address = &agent.address;
        let (status, body) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| crate::get(address, &path));
            // Some are killed before the request arrives, some in the middle, some after: as far as so many looks take.
            for _ in 0..at * 2_000 {
                std::hint::spin_loop();
            }
            signal(of.running.pid, libc::SIGKILL);
            asking.join().expect("an answer")
        });
        if status == 200 {
            let books = crate::decoded::Profile::read(&body);
            // Its blocks were never written to, so what is in use may be nothing; the books are closed all the same.
            assert!(
                books.closed() > 0 && books.sum("alloc_space", |_| true) > 0,
                "{books:?}"
            );
            whole += 1;
        } else {
            let said = String::from_utf8_lossy(&body).into_owned();
            let is_end = [
                "has ended",
                "there is no process",
                "keeps no profile",
                "hung up without an answer",
                "was cut off",
            ];
            let known = is_end.iter().any(|words| said.contains(words));
            assert!(known && [404, 503].contains(&status), "{status} {said}");
            words += 1;
        }
    }
    assert_eq!(whole + words, 60);
}

#[test]
fn a_process_that_stands_still_is_said_and_holds_nobody_up() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let (still, other) = (
        Profiled::start(&bench, "wait", &[]),
        Profiled::start(&bench, "wait", &[]),
    );
    signal(still.running.pid, libc::SIGSTOP);
    let (status, said) = agent.text(&format!("/debug/pprof/heap?pid={}", still.pid));
    let wanted = format!(
        "process {0} is stopped; `kill -CONT {0}` has it go on\n",
        still.pid
    );
    assert_eq!((status, said), (503, wanted));
    until("it is said in the index", || {
        agent
            .text("/")
            .1
            .contains(&format!("process {} is stopped", still.pid))
            .then_some(())
    });
    until("it is counted", || {
        (agent.metric("skinflint_agent_processes_silent") >= Some(1.0)).then_some(())
    });
    agent.profile(&format!("/debug/pprof/heap?pid={}", other.pid));
    signal(still.running.pid, libc::SIGCONT);
    until("it answers", || {
        (agent.get(&format!("/debug/pprof/heap?pid={}", still.pid)).0 == 200).then_some(())
    });
}

#[test]
fn two_hundred_processes_are_closed() {
    const MANY: usize = 200;
    let bench = Bench::new();
    let agent = Agent::start(&bench, &[]);
    let sockets = sockets();
    let mut all = Vec::new();
    for _ in 0..MANY {
        let mut command = bench.command(program("profile"));
        command.arg("wait").env("LD_PRELOAD", tool::allocator());
        command
            .env("SKINFLINT_PROFILE", "on")
            .env("XDG_RUNTIME_DIR", sockets.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        all.push(command.spawn().expect("started"));
    }
    until("all are closed", || {
        let (_, text) = agent.text("/");
        let closed = |pid: u32| text.contains(&format!("pid={pid}, "));
        all.iter().all(|child| closed(child.id())).then_some(())
    });
    for child in &mut all {
        // The end of its input ends it.
        drop(child.stdin.take());
        assert!(child.wait().expect("ended").success());
    }
    until("all are gone", || {
        let (_, text) = agent.text("/");
        all.iter()
            .all(|child| !text.contains(&format!("pid={},", child.id())))
            .then_some(())
    });
    assert!(agent.metric("skinflint_agent_unclosed_total") >= Some(MANY as f64));
}
