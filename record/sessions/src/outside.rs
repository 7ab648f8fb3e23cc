//! Programs that are watched to their end from outside: of Go, whose exit no library sees.
//!
//! Of those that call no C, nothing in them would call a recorder: their heap is read from outside alone.
//!
//! ```text
//!   fork ─ PTRACE_TRACEME ─ exec ─► stops ─► its profile is switched on ─► let go, seized anew: stops at its end alone
//!                                                                            └─► read for the last time ─► goes on
//! ```
//!
//! T1  The thread that starts the program is its tracer, and stays until the program ends. Signals that come to the traced
//!     thread are handed on as they are. If we end, the kernel lets the program go.
//! T2  Where the program may not be traced it runs all the same: it is read at marks and from time to time, and not at its end.
//! T3  Go's linker leaves the profile out of a program that cannot ask for it, by one byte. It is set to zero before the first
//!     instruction: the samples are then taken as in any other Go program.
//! T4  A program of Go that another program starts is found some 20 ms after it began (collect's kin.rs), too late for T3: one
//!     that never asks for its profile has no samples, which its report says. What ends before is named as lost.
//!
//! Not here: reading (collect's go/).

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use skinflint_collect::{GoProgram, Watcher, WeakWatcher};
use skinflint_launch::preflight;
use skinflint_procfs::status;

/// How long the program runs before its trace begins: it sets the profile's rate, if it does, when it begins.
const SETTLES: Duration = Duration::from_millis(10);

/// How a program is recorded that is watched from outside.
pub(crate) enum Way {
    /// Its heap is read: it calls no C.
    Heap(Box<GoProgram>),
    /// The recorder is in it; Go ends it without the C library.
    End,
    /// No recorder can be in it: its profile is all that there is.
    Profile,
}

/// Finds a program that is watched from outside; `None`: it is another, or is refused for what it is. `serves`: it serves its
/// heap profile.
///
/// # Errors
/// If it is one and its heap cannot be read, or if one of these options is wanted.
pub(crate) fn find(
    command: &OsStr,
    options: &[(bool, &str)],
    serves: bool,
) -> Result<Option<(PathBuf, Way)>> {
    let Ok(path) = preflight::find(command, &preflight::RECORD) else {
        return Ok(None);
    };
    let is_refused = || preflight::check(command, &preflight::RECORD).is_err();
    let way = match GoProgram::of(&path) {
        Some(Ok(program)) if program.calls_c() => return Ok(Some((path, Way::End))),
        Some(_) if serves => Way::Profile,
        None if serves && is_refused() => Way::Profile,
        None => return Ok(None),
        Some(Ok(program)) => Way::Heap(Box::new(program)),
        Some(Err(why)) => bail!(
            "{}: a Go program without C, of which the heap profile is all that could be recorded, and {why}; build it with a \
             version that is known, or have it serve its profile (net/http/pprof) and name that with --pprof",
            path.display()
        ),
    };
    if let Some((_, option)) = options.iter().find(|(is_wanted, _)| *is_wanted) {
        bail!(
            "{}: no recorder can be in it (a Go program without C, or linked statically): its heap profile is read from \
             outside, so {option} has nothing to do; leave it out",
            path.display()
        );
    }
    Ok(Some((path, way)))
}

/// Starts a program and watches it; one whose heap is read is recorded by that. The thread ends with the program.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(
    mut command: Command,
    way: Way,
    watcher: Watcher,
) -> io::Result<(Child, JoinHandle<()>)> {
    let (to, started) = channel();
    let thread = std::thread::Builder::new()
        .name("skinflint-outside".into())
        .spawn(move || {
            // SAFETY: between fork and exec it makes a system call alone, which allocates nothing (T1).
            unsafe { command.pre_exec(trace_me) };
            match command.spawn() {
                Ok(child) => follow(child, way, &watcher, &to),
                Err(error) => drop(to.send(Err(error))),
            }
        })?;
    let gone = |_| io::Error::other("the thread that starts it ended");
    let child = started.recv().map_err(gone)??;
    Ok((child, thread))
}

fn trace_me() -> io::Result<()> {
    // SAFETY: no memory is involved. If it fails, the program is not traced (T2).
    unsafe { libc::ptrace(libc::PTRACE_TRACEME as _, 0, 0usize, 0usize) };
    Ok(())
}

/// Makes a request of the kernel about a tracee; false if it refuses.
fn request(what: u32, pid: u32, data: usize) -> bool {
    // SAFETY: none of the requests here has an address; `data` is a number.
    let result = unsafe { libc::ptrace(what as _, pid as libc::pid_t, 0usize, data) };
    result != -1
}

/// The most processes that are followed to their ends at a time; of others the last reading is of before.
const MOST_FOLLOWED: usize = 64;

/// Records the Go programs without C among processes that run a statically linked program, for as long as there is a session
/// (T4). Waits for nothing.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn adopt(watcher: Watcher, strays: Receiver<u32>) -> io::Result<()> {
    let followed = Arc::new(AtomicUsize::new(0));
    let thread = std::thread::Builder::new().name("skinflint-strays".into());
    thread.spawn(move || {
        for pid in strays {
            let exe = PathBuf::from(format!("/proc/{pid}/exe"));
            let program = GoProgram::of(&exe).and_then(Result::ok);
            let Some(program) = program.filter(|program| !program.calls_c()) else {
                continue;
            };
            // ORDER: Relaxed for all; a bound.
            if followed.fetch_add(1, Ordering::Relaxed) >= MOST_FOLLOWED {
                followed.fetch_sub(1, Ordering::Relaxed);
                let _ = watcher.begin(pid, program);
                continue;
            }
            let (own, weak) = (Arc::clone(&followed), watcher.downgrade());
            let begun = std::thread::Builder::new()
                .name("skinflint-stray".into())
                .spawn(move || {
                    follow_stray(pid, program, &weak);
                    own.fetch_sub(1, Ordering::Relaxed); // ORDER: as above.
                });
            if begun.is_err() {
                followed.fetch_sub(1, Ordering::Relaxed); // ORDER: as above.
            }
        }
    })?;
    Ok(())
}

/// Records a process that another one started, and reads it at its end if it may be traced (T4).
fn follow_stray(pid: u32, program: GoProgram, watcher: &WeakWatcher) {
    let is_traced = request(
        libc::PTRACE_SEIZE as _,
        pid,
        libc::PTRACE_O_TRACEEXIT as usize,
    );
    let begun = watcher.upgrade().map(|watcher| watcher.begin(pid, program));
    if !is_traced || !matches!(begun, Some(Ok(()))) {
        return;
    }
    to_its_end(pid, || watcher.upgrade());
}

/// Follows a child from its first instruction to its end.
fn follow(child: Child, way: Way, watcher: &Watcher, to: &Sender<io::Result<Child>>) {
    let pid = child.id();
    let mut is_traced = status::tracer(pid).is_some_and(|tracer| tracer != 0);
    if is_traced {
        is_traced = matches!(next(pid), Some(Stop::Other(_)));
        if let Way::Heap(program) = &way {
            program.switch_on(pid);
        }
        request(libc::PTRACE_DETACH as _, pid, 0);
        is_traced &= request(
            libc::PTRACE_SEIZE as _,
            pid,
            libc::PTRACE_O_TRACEEXIT as usize,
        );
    }
    let _ = to.send(Ok(child));
    if let Way::Heap(program) = way {
        std::thread::sleep(SETTLES);
        if watcher.begin(pid, *program).is_err() {
            return;
        }
    }
    if !is_traced {
        return;
    }
    to_its_end(pid, || Some(watcher));
}

/// Lets a tracee go on whenever it stops, and has it read when it ends.
fn to_its_end<W: std::borrow::Borrow<Watcher>>(pid: u32, watcher: impl Fn() -> Option<W>) {
    while let Some(stop) = next(pid) {
        match stop {
            Stop::End => {
                if let Some(watcher) = watcher() {
                    watcher.borrow().ends(pid);
                }
                request(libc::PTRACE_DETACH as _, pid, 0);
                return;
            }
            // It waits in the state it is in until something else comes.
            Stop::Group => drop(request(libc::PTRACE_LISTEN as _, pid, 0)),
            Stop::Other(signal) => drop(request(libc::PTRACE_CONT as _, pid, signal)),
        }
    }
}

/// Why a tracee stands still.
enum Stop {
    /// It is about to end; its memory is still there.
    End,
    /// A signal that stops processes has come.
    Group,
    /// The signal that it goes on with; 0: none.
    Other(usize),
}

/// Waits until the program stands still, or has ended: `None`.
fn next(pid: u32) -> Option<Stop> {
    loop {
        // SAFETY: `info` is ours; WNOWAIT leaves the end to be waited for by another thread.
        let (result, code, status) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
            let result = libc::waitid(libc::P_PID, pid, &mut info, options);
            (result, info.si_code, info.si_status())
        };
        if result != 0 {
            if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            return None;
        }
        if !matches!(code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
            return None;
        }
        let signal = (status & 0xff) as usize;
        return Some(match status >> 8 {
            libc::PTRACE_EVENT_EXIT => Stop::End,
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP as usize => Stop::Group,
            0 if signal != libc::SIGTRAP as usize => Stop::Other(signal),
            _ => Stop::Other(0),
        });
    }
}
