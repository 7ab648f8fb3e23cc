//! A daemon: its first process forks and exits, and the report is of the process that stays.

use std::time::Duration;

use crate::tool::{Bench, Running, SKINFLINT, signal};

/// The launcher holds as much as the daemon that it leaves; the daemon ends with its stdin at the latest.
const DAEMON: &str = "
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
held = bytearray(1)
print('up', os.getpid(), flush=True)
sys.stdin.read()
";

#[test]
fn the_report_is_of_the_process_that_stays() {
    let bench = Bench::new();
    std::fs::write(bench.path("daemon.py"), DAEMON).expect("a script");
    let script = format!("exec {SKINFLINT} run --no-html -o first.sft -- python3 daemon.py 2>&1");
    let mut command = bench.command("sh");
    command.args(["-c", &script]);
    let mut running = Running::start(command);
    let up = running.line();
    let pid = up.trim().strip_prefix("up ").expect("it is up").to_owned();
    let said = running.line();
    assert!(
        said.contains(&format!("left process {pid} running")),
        "{said}"
    );
    assert!(said.contains("Ctrl-C, or kill "), "{said}");
    signal(running.pid, libc::SIGINT);
    // It says which trace the report is of, and fails here if it ends without.
    let trace = format!("skinflint.python3.{pid}.sft");
    let screen = |line: &String| line.contains("Report: ") || line.contains(".sft");
    let first = std::iter::repeat_with(|| running.line()).find(screen);
    assert!(first.expect("endless").contains(&trace), "the launcher's");
    let done = running.signalled(Duration::from_secs(60));
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}
