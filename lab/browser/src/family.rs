//! Starting programs so that none is left running, whatever happens.
//!
//! ```text
//!   skinflint (reaper of orphans) ─┬─► browser: own process group, dies with us, marked in its environment
//!                                  ├─► driver   likewise
//!                                  └─► display  likewise
//!   end: ask ─► SIGTERM to the tree ─► SIGKILL to the tree ─► SIGKILL to what still bears the mark
//! ```
//!
//! F1  Every program that we start has `SKINFLINT_TABS=TOKEN` in its environment, with a token of this run: we never
//!     signal anything else that is not below a process we started.
//! F2  The kernel kills what we started when we die (`PR_SET_PDEATHSIG`); processes orphaned by that end as their
//!     connections break. While we live, orphans come to us (`PR_SET_CHILD_SUBREAPER`) and are ended with the rest.
//! F3  SIGINT, SIGTERM and SIGHUP set a flag, and every wait checks it: the end is the same orderly one.
//! F4  Own process groups keep a terminal's Ctrl-C from the browser, so that we end it, and it does not end itself
//!     half-way.
//!
//! Not here: what is started (start.rs).

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use skinflint_launch::signals;
use skinflint_procfs::{pids, stat};

use crate::tree::MARK;
use crate::tree::{self, Tree};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static PREPARED: Once = Once::new();

extern "C" fn note(_signal: i32) {
    // ORDER: Relaxed; a flag that stands alone, read by `is_interrupted`.
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Reports whether the user or another process wants this to end.
pub fn is_interrupted() -> bool {
    // ORDER: Relaxed; partner is the store in `note`.
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Becomes the reaper of orphans, and takes signals (F2, F3). Call it once per process.
pub fn prepare() {
    PREPARED.call_once(|| {
        // SAFETY: numbers only.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        // SAFETY: `note` stores into an atomic and does nothing else, which a handler may.
        unsafe { signals::handle(&ends, note as *const () as usize, libc::SA_RESTART) }
            .expect("these can be handled");
    });
}

/// Returns a mark for one run, different from any other's.
pub fn token() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!(
        "{}-{}",
        std::process::id(),
        since.map_or(0, |s| s.as_nanos())
    )
}

/// Starts a program in a group of its own, marked, so that it dies with us. Call it on a thread that lives as long as
/// the program shall: the kernel watches the thread, not the process.
///
/// # Errors
/// If it cannot be started; the error names it.
pub fn start(command: &mut Command, token: &str) -> Result<Child> {
    command.env(MARK, token).process_group(0);
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            Ok(())
        });
    }
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .with_context(|| format!("{name}: cannot be started"))
}

/// Ends a program and all below it. Returns how many processes had to be killed.
pub fn end(child: &mut Child, tree: &mut Tree, grace: Duration) -> usize {
    signal(tree, libc::SIGTERM);
    wait_until_gone(child, tree, grace);
    let mut killed = 0;
    // A process may be forking while we look: so we repeat until none is seen, a bounded number of times.
    for _ in 0..100 {
        let left = tree.members();
        if left.is_empty() {
            break;
        }
        killed = killed.max(left.len());
        signal(tree, libc::SIGKILL);
        wait_until_gone(child, tree, Duration::from_millis(200));
    }
    let _ = child.kill();
    let _ = child.wait();
    reap();
    killed
}

/// Kills the processes that still have the mark (F1). Returns their numbers.
pub fn sweep(token: &str) -> Vec<u32> {
    let left = tree::with_environment(&format!("{MARK}={token}"));
    for pid in &left {
        kill(*pid, libc::SIGKILL);
    }
    reap();
    left
}

fn signal(tree: &mut Tree, signal: i32) {
    for (pid, _) in tree.members() {
        kill(pid, signal);
    }
}

fn kill(pid: u32, signal: i32) {
    if pid > 1 && pid != std::process::id() {
        // SAFETY: no memory is involved; the process was seen to be ours a moment ago (tree.T3, F1).
        unsafe { libc::kill(pid as i32, signal) };
    }
}

fn wait_until_gone(child: &mut Child, tree: &mut Tree, limit: Duration) {
    let until = Instant::now() + limit;
    while Instant::now() < until {
        let _ = child.try_wait();
        if tree.members().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reaps dead orphans that have come to us: zombies of a tree that has ended. Children that are waited for elsewhere
/// lead groups of their own; orphans usually do not, and a group leader is left alone. A process whose first thread
/// is dead can be waited for only when its other threads are: that gets two seconds.
fn reap() {
    let until = Instant::now() + Duration::from_secs(2);
    while reap_once() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns how many are left that could not be waited for.
fn reap_once() -> usize {
    let own = std::process::id();
    let mut left = 0;
    for pid in pids() {
        let dead = stat(pid).is_some_and(|stat| stat.ppid == own && stat.state == b'Z');
        // SAFETY: numbers only.
        if dead && unsafe { libc::getpgid(pid as i32) } != pid as i32 {
            // SAFETY: a zombie that is our child, and belongs to no `Child`; no status is wanted.
            let done = unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) };
            left += usize::from(done == 0);
        }
    }
    left
}

/// Describes how a program ended, in words; `None` while it runs.
pub fn ended(child: &mut Child) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let status = child.try_wait().ok()??;
    Some(match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("ended by signal {signal}"),
        (Some(code), _) => format!("ended with status {code}"),
        _ => "ended".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound of a wait that ends in a failure.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn alive(pid: u32) -> bool {
        stat(pid).is_some_and(|stat| stat.state != b'Z')
    }

    #[test]
    fn nothing_is_left_of_what_ignores_us_and_orphans_its_children() {
        prepare();
        let token = token();
        // It ignores SIGTERM, and so does a grandchild that its parent has left behind in a session of its own.
        let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; while :; do sleep 1; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut child = start(&mut command, &token).expect("a shell");
        let mark = format!("{MARK}={token}");
        let until = Instant::now() + PATIENCE;
        while tree::with_environment(&mark).len() < 3 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
        }
        let all = tree::with_environment(&mark);
        assert!(all.len() >= 3, "{all:?}");
        let mut tree = Tree::new(child.id(), &token, &[]);
        let killed = end(&mut child, &mut tree, Duration::from_millis(200));
        sweep(&token);
        assert!(killed >= 1);
        let is_left =
            || all.iter().any(|pid| alive(*pid)) || !tree::with_environment(&mark).is_empty();
        let until = Instant::now() + PATIENCE;
        while is_left() {
            assert!(Instant::now() < until, "{all:?}");
            std::thread::sleep(Duration::from_millis(20)); // CLOCK: poll step of a bounded wait
        }
    }
}
