//! What is read of real children, which say by a line that they are there: names of any bytes, orphans, the dead.
//!
//! Not here: texts (beside the parsers).

use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use skinflint_procfs::{
    Membership, Processes, about, climb, maps, process, processes, rollup, stat, status,
};

/// A child that has said a line, and is killed when this goes.
struct Ready {
    child: Child,
    line: String,
}

impl Ready {
    fn start(command: &mut Command) -> Ready {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("its line");
        Ready { child, line }
    }

    fn script(script: &str) -> Ready {
        Ready::start(Command::new("sh").args(["-c", script]))
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The number that it said.
    fn said(&self) -> u32 {
        self.line.trim().parse().expect("a number")
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // What it waits for ends with its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_whose_name_is_no_text() {
    let folder = std::env::temp_dir().join(format!("procfs-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in [&b"a) Z 1 ("[..], b"\xff\xfe)", b"two words"] {
        let program = folder.join(Path::new(std::ffi::OsStr::from_bytes(name)));
        // The name of a program is that of the file, also where it is a link.
        let _ = std::fs::remove_file(&program);
        std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
        let child = Ready::start(Command::new(&program).args(["-c", "echo; read line"]));
        let pid = child.pid();
        let stat = stat(pid).expect("it lives");
        assert_eq!((stat.ppid, stat.is_dead()), (std::process::id(), false));
        assert_eq!(about(pid).expect("it lives").ppid, std::process::id());
        let memory = status::memory(pid).expect("it lives");
        assert!(memory.rss_bytes() > 0 && memory.high_water_bytes >= Some(memory.rss_bytes()));
        assert_eq!(
            process::thread_name(pid, pid),
            Some(String::from_utf8_lossy(name).into_owned())
        );
        assert_eq!(process::arguments(pid)[1..], ["-c", "echo; read line"]);
    }
    std::fs::remove_dir_all(&folder).expect("ours");
}

#[test]
fn a_grandchild_is_below_and_a_sibling_is_not() {
    let root = Ready::script("exec 3<&0; sh -c 'echo $$; read line; :' <&3 & wait");
    let beside = Ready::script("echo; read line");
    let now = Processes::read(|_| true).expect("/proc");
    let place = |pid, _: Option<&_>| match pid == root.pid() {
        true => Membership::Inside,
        false => Membership::AsParent,
    };
    let own = std::process::id();
    let belongs = |pid| now.belongs(pid, own, place, |_| false);
    assert!(belongs(root.pid()) && belongs(root.said()));
    assert!(!belongs(beside.pid()) && !belongs(own) && !belongs(1));
    assert!(now.has(root.said()) && now.has(own) && !now.has(0));
    // The same without reading all.
    let of_root = |pid| (pid == root.pid()).then_some(());
    assert!(climb(root.said(), 64, of_root, processes::parent).is_some());
    assert!(climb(beside.pid(), 64, of_root, processes::parent).is_none());
    // Nothing was wanted: every process is there, and none has a parent.
    let names = Processes::read(|_| false).expect("/proc");
    assert!(names.has(root.said()) && names.stats().next().is_none());
}

/// Waits until a child has ended, and leaves it to be waited for.
fn wait_for_end(pid: u32) {
    // SAFETY: all-zero is a valid `siginfo_t`, and it is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT;
        assert_eq!(libc::waitid(libc::P_PID, pid, &mut info, options), 0);
    }
}

#[test]
fn a_child_that_has_ended_has_a_status_and_no_memory() {
    let mut child = Ready::script("echo; read line; exit 3");
    let pid = child.pid();
    let file = skinflint_procfs::Status::open(pid).expect("it lives");
    assert!(file.memory().is_some() && stat(pid).expect("it lives").wait_status.is_none());
    drop(child.child.stdin.take());
    wait_for_end(pid);
    let zombie = stat(pid).expect("not waited for");
    assert!(zombie.is_dead() && zombie.ppid == std::process::id());
    let status = std::process::ExitStatus::from_raw(zombie.wait_status.expect("ours to know"));
    assert_eq!(status.code(), Some(3));
    assert!(maps(pid).is_empty() && rollup(pid).is_none());
    assert!(status::memory(pid).is_none() && file.memory().is_none());
    child.child.wait().expect("ended");
    assert!(stat(pid).is_none() && about(pid).is_none() && file.memory().is_none());
    assert!(maps(pid).is_empty() && process::threads(pid).is_empty());
}

#[test]
fn the_environment_is_that_of_the_start() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo; read line"]);
    let child = Ready::start(command.env("PROCFS_MARK", "a=b").arg0("a name"));
    assert!(process::has_environment(child.pid(), "PROCFS_MARK=a=b"));
    assert!(!process::has_environment(child.pid(), "PROCFS_MARK=a"));
    assert!(!process::has_environment(child.pid(), "MARK=a=b"));
    assert_eq!(process::arguments(child.pid())[0], "a name");
}
