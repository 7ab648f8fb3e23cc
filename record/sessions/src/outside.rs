//! Programs of Go that call no C, read from outside: nothing in them would call a recorder.
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
//!
//! Not here: reading (collect's go/).

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use skinflint_collect::{GoProgram, Watcher};
use skinflint_launch::preflight;
use skinflint_procfs::status;

/// How long the program runs before its trace begins: it sets the profile's rate, if it does, when it begins.
const SETTLES: Duration = Duration::from_millis(10);

/// Finds a program of Go that calls no C; `None`: it is another, or is refused for what it is.
///
/// # Errors
/// If it is one and its heap cannot be read, or if one of these options is wanted.
pub(crate) fn find(
    command: &OsStr,
    options: &[(bool, &str)],
) -> Result<Option<(PathBuf, GoProgram)>> {
    let Ok(path) = preflight::find(command, &preflight::RECORD) else {
        return Ok(None);
    };
    let program = match GoProgram::of(&path) {
        None => return Ok(None),
        Some(Ok(program)) if program.calls_c() => return Ok(None),
        Some(Ok(program)) => program,
        Some(Err(why)) => bail!(
            "{}: a Go program without C, of which the heap profile is all that could be recorded, and {why}; build it with a \
             version that is known",
            path.display()
        ),
    };
    if let Some((_, option)) = options.iter().find(|(is_wanted, _)| *is_wanted) {
        bail!(
            "{}: a Go program without C: its own heap profile is read from outside, so {option} has nothing to do; leave it out",
            path.display()
        );
    }
    Ok(Some((path, program)))
}

/// Starts a program of Go and records it. The thread ends with the program.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(
    mut command: Command,
    program: GoProgram,
    watcher: Watcher,
) -> io::Result<(Child, JoinHandle<()>)> {
    let (to, started) = channel();
    let thread = std::thread::Builder::new()
        .name("skinflint-outside".into())
        .spawn(move || {
            // SAFETY: between fork and exec it makes a system call alone, which allocates nothing (T1).
            unsafe { command.pre_exec(trace_me) };
            match command.spawn() {
                Ok(child) => follow(child, program, &watcher, &to),
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

/// Follows a child from its first instruction to its end.
fn follow(child: Child, program: GoProgram, watcher: &Watcher, to: &Sender<io::Result<Child>>) {
    let pid = child.id();
    let mut is_traced = status::tracer(pid).is_some_and(|tracer| tracer != 0);
    if is_traced {
        is_traced = matches!(next(pid), Some(Stop::Other(_)));
        if let Some(at) = program.switch(pid) {
            switch_on(pid, at);
        }
        request(libc::PTRACE_DETACH as _, pid, 0);
        is_traced &= request(
            libc::PTRACE_SEIZE as _,
            pid,
            libc::PTRACE_O_TRACEEXIT as usize,
        );
    }
    let _ = to.send(Ok(child));
    std::thread::sleep(SETTLES);
    if watcher.begin(pid, program).is_err() || !is_traced {
        return;
    }
    while let Some(stop) = next(pid) {
        match stop {
            Stop::End => {
                watcher.ends(pid);
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

/// Sets the byte that says that the profile was left out to zero (T3).
fn switch_on(pid: u32, at: u64) {
    let mut zero = [0u8];
    let local = libc::iovec {
        iov_base: zero.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: the local vector is our byte; the remote one is a variable of the other process, which stands still (T3).
    unsafe { libc::process_vm_writev(pid as i32, &local, 1, &remote, 1, 0) };
}
