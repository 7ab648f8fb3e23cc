//! Programs that are hard to attach to: in namespaces of their own, of another user, waiting in a system call, with many
//! threads, stopped; and those that cannot be attached to.
//!
//! ```text
//!   unshare … talk        setpriv … talk        waits.c KIND        kill -STOP        still, a zombie, 32 bits, seccomp
//! ```
//!
//! N1  What the program prints and how it ends is the same as without the recorder.
//! N2  Nothing is left in a container: no file, no descriptor, no socket.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use skinflint_test_support::{executable, need};

use crate::attached::{attach, detach, leads, tell};
use crate::tool::{Bench, PATIENCE, Running, SKINFLINT, program, recorder, run, signal};

/// Returns the only child of a process.
fn child_of(pid: i32) -> String {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.expect("it lives").trim().to_owned()
}

/// Returns the names in a folder, sorted.
fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect(folder);
    let names = entries.map(|entry| {
        entry
            .expect(folder)
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn status_line(pid: &str, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.expect(key).trim().to_owned()
}

/// Its mount namespace hides the recorder and the session's socket, its network namespace the abstract name, and in
/// its PID namespace it is number 1.
#[test]
fn a_program_in_namespaces_of_its_own() {
    if !need::root("unshare") || !need::program("unshare") {
        return;
    }
    let bench = Bench::new();
    let hidden = recorder().parent().expect("a folder");
    let mut command = bench.command("unshare");
    command.args([
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--uts",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
    ]);
    command.arg("mount -t tmpfs none /tmp && mount -t tmpfs none \"$0\" && exec \"$1\"");
    command.arg(hidden).arg(program("talk"));
    let mut talk = Running::start(command);
    assert_eq!(talk.line(), "1", "its own number");
    let pid = child_of(talk.pid);
    assert!(!Path::new(&format!("/proc/{pid}/root{}", recorder().display())).exists());
    let before = (
        names(&format!("/proc/{pid}/fd")),
        names(&format!("/proc/{pid}/root/tmp")),
    );
    let attached = attach(&bench, &pid, "inside.sft", &[]);
    assert!(leads(&pid) >= 5, "its tables lead to the recorder");
    for letter in ["b", "f", "b", "a"] {
        tell(&mut talk, letter);
    }
    bench.tool(["ctl", &pid, "mark", "here"]).says(0, &[]);
    detach(&bench, &pid, attached);
    assert_eq!(leads(&pid), 0);
    // The second time, the recorder is there already: it is not loaded once more.
    let again = attach(&bench, &pid, "again.sft", &[]);
    tell(&mut talk, "b");
    detach(&bench, &pid, again);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let copies = maps
        .lines()
        .filter(|line| line.contains("r-xp") && line.contains("skinflint"));
    assert_eq!(copies.count(), 1, "{maps}");
    // N2.
    let after = (
        names(&format!("/proc/{pid}/fd")),
        names(&format!("/proc/{pid}/root/tmp")),
    );
    assert_eq!(before, after);
    let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).expect("it lives");
    assert!(!sockets.contains("skinflint"), "{sockets}");
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));

    let report = bench.report_at("inside.sft", "end");
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert_eq!(report.blocks_of(67), (20, 10));
    assert_eq!(report.blocks_of(61), (10, 6));
    assert_eq!(report.text("program.name"), "talk");
    assert_eq!(report.number("program.pid").to_string(), pid);
    // Its thread has a name, found by the number that it has outside.
    let thread = &report.0["threads"][0];
    assert_eq!(
        (thread["name"].as_str(), thread["tid"].to_string()),
        (Some("talk"), pid)
    );
    assert_eq!(bench.report_at("again.sft", "end").blocks_of(67), (10, 10));
}

#[test]
fn a_program_of_another_user() {
    if !need::root("another user, by setpriv") || !need::program("setpriv") {
        return;
    }
    let bench = Bench::new();
    let mut command = bench.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(program("talk"));
    let mut talk = Running::start(command);
    let pid = talk.line();
    assert_eq!(
        status_line(&pid, "Uid:").split_whitespace().next(),
        Some("65534")
    );
    let attached = attach(&bench, &pid, "other.sft", &[]);
    tell(&mut talk, "b");
    detach(&bench, &pid, attached);
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
    assert_eq!(bench.report_at("other.sft", "end").blocks_of(67), (10, 10));
}

/// The calls end as if nobody had been there: with what they waited for, and without EINTR. Those in the second line are
/// not restarted by the kernel.
#[test]
fn a_program_that_waits_in_a_system_call() {
    let kinds = [
        ("read", 1),
        ("poll", 1),
        ("select", 1),
        ("futex", 0),
        ("sleep", 0),
        ("epoll", 1),
        ("recv", 1),
        ("sigtimedwait", 10),
        ("semop", 0),
    ];
    let bench = Bench::new();
    for (kind, result) in kinds {
        let mut command = bench.command(program("waits"));
        let mut waits = Running::start({
            command.arg(kind);
            command
        });
        let pid = waits.line();
        let state = |wanted: &str| status_line(&pid, "State:").starts_with(wanted);
        while !state("S") {
            std::thread::yield_now();
        }
        let attached = attach(&bench, &pid, "waits.sft", &[]);
        assert!(state("S"), "{kind}: it waits again");
        detach(&bench, &pid, attached);
        assert!(state("S"), "{kind}: it still waits");
        waits.say(b"x");
        // Its errno is what it was, too.
        assert_eq!(waits.line(), format!("{kind} {result} 77"));
        assert_eq!(waits.finish(PATIENCE).status.code(), Some(6), "{kind}");
    }
}

#[test]
fn a_program_with_two_hundred_threads_in_malloc() {
    let bench = Bench::new();
    let mut command = bench.command(program("waits"));
    command.arg("crowd");
    let mut crowd = Running::start(command);
    let pid = crowd.line();
    let attached = attach(&bench, &pid, "crowd.sft", &[]);
    crowd.say(b"x");
    assert_eq!(crowd.line(), "taken");
    detach(&bench, &pid, attached);
    assert_eq!(leads(&pid), 0);
    crowd.say(b"x");
    assert_eq!(crowd.line(), "crowd 200");
    assert_eq!(crowd.finish(PATIENCE).status.code(), Some(6));
    let report = bench.report_at("crowd.sft", "end");
    assert_eq!(report.number("completeness.lost_events"), 0);
    assert_eq!(report.blocks_of(89), (200, 200));
}

/// It holds the allocator's lock nearly whenever it is stopped: a call from there would wait for itself.
#[test]
fn a_program_that_does_nothing_but_allocate() {
    let bench = Bench::new();
    let mut command = bench.command(program("waits"));
    command.arg("churn");
    let mut churn = Running::start(command);
    let pid = churn.line();
    for _ in 0..5 {
        let attached = attach(&bench, &pid, "churn.sft", &[]);
        detach(&bench, &pid, attached);
        assert_eq!(leads(&pid), 0);
        let report = bench.report_at("churn.sft", "end");
        assert_eq!(report.number("completeness.lost_events"), 0);
    }
    churn.say(b"x");
    assert_eq!(churn.line(), "churn 64 77");
    assert_eq!(churn.finish(PATIENCE).status.code(), Some(6));
}

/// It was stopped by a signal before, and is afterwards.
#[test]
fn a_program_that_is_stopped_stays_so() {
    let bench = Bench::new();
    let mut talk = Running::start(bench.command(program("talk")));
    let pid = talk.line();
    signal(talk.pid, libc::SIGSTOP);
    while !status_line(&pid, "State:").starts_with('T') {
        std::thread::yield_now();
    }
    let attached = attach(&bench, &pid, "stopped.sft", &[]);
    assert!(status_line(&pid, "State:").starts_with('T'));
    signal(talk.pid, libc::SIGCONT);
    tell(&mut talk, "b");
    detach(&bench, &pid, attached);
    talk.say(b"q");
    assert_eq!(talk.finish(PATIENCE).status.code(), Some(5));
    assert_eq!(
        bench.report_at("stopped.sft", "end").blocks_of(67),
        (10, 10)
    );
}

#[test]
fn what_nothing_can_be_loaded_into_is_refused_with_the_reason() {
    let bench = Bench::new();
    let refused = |pid: i32, texts: &[&str]| {
        let pid = pid.to_string();
        bench
            .tool(["attach", &pid])
            .says(2, &[&[pid.as_str()], texts].concat());
    };
    let mut fixed = Running::start(bench.command(program("waits-static")));
    refused(fixed.pid, &["has no glibc", "statically linked"]);
    fixed.line();
    fixed.say(b"x");
    assert_eq!(fixed.line(), "read 1 77");
    // It has ended, and is waited for below.
    let mut zombie = bench.command("true").spawn().expect("true");
    let ended = zombie.id();
    while !status_line(&ended.to_string(), "State:").starts_with('Z') {
        std::thread::yield_now();
    }
    refused(ended as i32, &["has ended", "zombie"]);
    zombie.wait().expect("waited for");
    if need::root("filters of another process") {
        let mut filtered = bench.command(program("waits"));
        filtered.arg("filtered");
        let mut filtered = Running::start(filtered);
        filtered.line();
        refused(
            filtered.pid,
            &["seccomp", "would end it at socket", "skinflint record"],
        );
        filtered.say(b"x");
        assert_eq!(filtered.line(), "filtered 1 77");
    }
    // What traces it is this process.
    let traced = Running::start(bench.command(program("talk")));
    // SAFETY: no memory is involved; it is let go when this thread ends.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, traced.pid, 0, 0) };
    assert_eq!(seized, 0);
    refused(traced.pid, &["is tracing it", "end that first"]);
}

#[test]
fn another_users_program_is_refused_to_who_is_not_root() {
    if !need::root("another user, by setpriv") || !need::program("setpriv") {
        return;
    }
    let bench = Bench::new();
    let open = tempfile::Builder::new()
        .prefix("skinflint-whole-")
        .permissions(PermissionsExt::from_mode(0o777))
        .tempdir_in("/tmp")
        .expect("a folder in /tmp");
    let copy = |from: &Path, name: &str| {
        let to = open.path().join(name);
        executable::copied(from, &to, 0o755);
        to
    };
    let mut talk = Running::start(bench.command(program("talk")));
    let pid = talk.line();
    let mut command = bench.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(copy(Path::new(SKINFLINT), "skinflint"))
        .args(["attach", &pid])
        .env(
            "SKINFLINT_RECORDER",
            copy(recorder(), "libskinflint_record.so"),
        )
        .current_dir(open.path());
    run(command).says(2, &[&pid, "be its user, or root"]);
    tell(&mut talk, "a");
}
