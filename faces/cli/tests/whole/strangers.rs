//! Access to the collector's socket: other users get nothing; every process that came out of the recording is served.
//!
//! ```text
//!   another user ─► by path: kept out      by name: refused, no descriptors
//!   the program, as another user by now ─► recorded
//! ```
//!
//! S1  Only root can become another user; elsewhere these tests report that they were skipped. What can be done with
//!     a descriptor is tested by the collector's own tests (memory.rs), for every user.

use crate::tool::{Bench, PATIENCE, Running, program, run};

/// Reports whether we are root (S1).
fn is_root(test: &str) -> bool {
    // SAFETY: no memory is involved.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("skipped: {test}: only root can become another user");
    }
    root
}

/// The stranger below: it connects to the session of argument 1 by both of its names, says a hello as the recorder
/// does, and prints what comes back.
const STRANGER: &str = r#"
import os, socket, struct, sys
path, user = sys.argv[1], int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
for name in (path, "\0" + path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        s.connect(name)
    except PermissionError:
        print("kept out")
        continue
    s.settimeout(20)
    s.send(struct.pack("<8sIIQQQQ256s32s", b"SKFLHELO", 4, 1, 0, 0, 0, 1, b"/x", b"9"))
    data, more, _, _ = s.recvmsg(64, socket.CMSG_SPACE(12))
    refused = struct.unpack("<8sQQ", data)[2]
    print("refused" if refused and not more else "served", flush=True)
"#;

/// Runs the stranger as a user, against a recording that is under way.
#[track_caller]
fn stranger(user: &str) -> Vec<String> {
    let bench = Bench::new();
    let mut talking = Running::start(bench.recording(&[], [program("talk")]));
    let pid = talking.line();
    let environment = format!("/proc/{pid}/environ");
    let folder = std::fs::read(environment).expect("its environment");
    let folder = folder
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(b"SKINFLINT_SOCKET="))
        .expect("the collector's address");
    let folder = String::from_utf8(folder.to_vec()).expect("text");
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).expect("it").permissions().mode() & 0o777
    };
    assert_eq!(mode(&folder), 0o600, "the socket");
    assert_eq!(mode(folder.strip_suffix("/s").expect("its folder")), 0o700);
    let mut command = bench.command("python3");
    command.args(["-c", STRANGER, &folder, user]);
    let done = run(command);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    talking.say(b"abq");
    let talked = talking.finish(PATIENCE);
    assert_eq!(talked.shell_status(), 5, "{talked:#?}");
    // The stranger has no trace, and the program's is whole.
    assert_eq!(bench.traces(), ["main.sft"]);
    bench.report().is_complete();
    done.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn another_user_gets_no_rings() {
    if !is_root("another_user_gets_no_rings") {
        return;
    }
    assert_eq!(stranger("65534"), ["kept out", "refused"]);
}

#[test]
fn a_program_that_has_given_up_its_user_is_recorded() {
    if !is_root("a_program_that_has_given_up_its_user_is_recorded") {
        return;
    }
    let bench = Bench::new();
    let target = program("predicted").display().to_string();
    let done = bench.record([
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        &target,
    ]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let report = bench.report();
    assert_eq!(report.text("program.name"), "predicted");
    report.is_complete();
}
