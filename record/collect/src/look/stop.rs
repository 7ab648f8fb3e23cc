//! Stops every thread of a process, and lets it go on as if nothing had happened.
//!
//! P1  A thread that was about to get a signal gets it when it is let go.
//! P2  All threads are stopped: the list of threads is read again until a reading has no new one, and a stopped thread
//!     starts none.
//! P3  A thread that waits for a child of ours may see its stops: all waits in this process ask only for ends
//!     (cli launch.rs checks what it is told).
//!
//! Not here: memory.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use skinflint_procfs::process::threads;
use skinflint_procfs::stat;
use skinflint_procfs::status::{WHO_MAY, tracer};

use super::registers::Registers;

/// A process that is stopped until this is dropped.
pub(super) struct Stopped {
    /// Its threads.
    pub threads: Vec<StoppedThread>,
}

/// A thread that is stopped.
pub(super) struct StoppedThread {
    /// Kernel id.
    pub tid: u32,
    /// The signal that it was about to get, or 0 (P1).
    signal: i32,
    /// The contents of its registers.
    pub registers: Registers,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.threads {
            detach(thread.tid, thread.signal);
        }
    }
}

fn detach(tid: u32, signal: i32) {
    // SAFETY: no memory is involved. A thread that is gone needs nothing.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0, libc::c_long::from(signal)) };
}

/// Stops every thread of a process, by `until` at the latest.
///
/// # Errors
/// Why they cannot be stopped, as a sentence without its full stop; all threads go on then.
pub(super) fn all(pid: u32, until: Instant) -> Result<Stopped, String> {
    let mut stopped = Stopped {
        threads: Vec::new(),
    };
    let mut known: BTreeMap<u32, bool> = BTreeMap::new();
    loop {
        let mut fresh = false;
        for tid in threads(pid) {
            if !known.contains_key(&tid) && is_living(pid, tid) {
                fresh = true;
                known.insert(tid, false);
                seize(pid, tid)?;
            }
        }
        if known.is_empty() {
            return Err(format!("process {pid} has ended"));
        }
        while known.values().any(|stands| !stands) {
            for (tid, stands) in known.iter_mut().filter(|(_, stands)| !**stands) {
                match stop_of(*tid)? {
                    Waited::Stands(thread) => {
                        *stands = true;
                        stopped.threads.push(*thread);
                    }
                    Waited::Gone => *stands = true,
                    Waited::Runs => {}
                }
            }
            if Instant::now() > until {
                return Err(format!(
                    "a thread of process {pid} did not stop in time (it waits in the kernel, as in vfork)"
                ));
            }
            if known.values().any(|stands| !stands) {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        if !fresh {
            return Ok(stopped);
        }
    }
}

/// Returns whether a thread can be stopped: the first one may have ended while others go on.
fn is_living(pid: u32, tid: u32) -> bool {
    stat::of_thread(pid, tid).is_some_and(|stat| !stat.is_dead())
}

fn seize(pid: u32, tid: u32) -> Result<(), String> {
    // SAFETY: no memory is involved.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) };
    if seized != 0 {
        let error = io::Error::last_os_error();
        // The thread ended between the reading of the list and the call.
        if error.raw_os_error() == Some(libc::ESRCH) || !is_living(pid, tid) {
            return Ok(());
        }
        return Err(refused(pid, &error));
    }
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) };
    Ok(())
}

/// Returns why a process cannot be stopped, and what to do.
fn refused(pid: u32, error: &io::Error) -> String {
    if let Some(tracer) = tracer(pid) {
        return format!("process {tracer} (a debugger, strace) is tracing process {pid}");
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => format!("process {pid} may not be stopped: {error}; {WHO_MAY}"),
        scope => format!(
            "process {pid} may not be stopped: {error}; kernel.yama.ptrace_scope is {scope}: be root, or start the \
             program by skinflint"
        ),
    }
}

enum Waited {
    Runs,
    Gone,
    Stands(Box<StoppedThread>),
}

fn stop_of(tid: u32) -> Result<Waited, String> {
    const EVENT_STOP: i32 = 128;
    let mut status = 0;
    let options = libc::__WALL | libc::WNOHANG | libc::__WNOTHREAD;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(tid as i32, &mut status, options) };
    if waited == 0 {
        return Ok(Waited::Runs);
    }
    if waited < 0 || !libc::WIFSTOPPED(status) {
        return Ok(Waited::Gone);
    }
    let signal = match status >> 16 {
        EVENT_STOP => 0,
        _ => libc::WSTOPSIG(status),
    };
    let registers = Registers::of(tid);
    if let Err(error) = &registers {
        detach(tid, signal);
        if error.raw_os_error() == Some(libc::ESRCH) {
            return Ok(Waited::Gone);
        }
        return Err(format!(
            "the registers of thread {tid} cannot be read: {error}"
        ));
    }
    Ok(match registers {
        Ok(registers) => Waited::Stands(Box::new(StoppedThread {
            tid,
            signal,
            registers,
        })),
        Err(_) => Waited::Gone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_stands_and_goes_on() {
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; read line; echo $line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "ready");
        let pid = child.id();
        // CLOCK: a bound that is never reached, as long as a test may take.
        let stopped = all(pid, Instant::now() + Duration::from_secs(60)).expect("it is ours");
        assert_eq!(stopped.threads.len(), 1);
        assert_ne!(stopped.threads[0].registers.stack, 0);
        // SAFETY: asks for a number. The kernel names the thread that traces.
        let own = unsafe { libc::gettid() } as u32;
        assert_eq!(tracer(pid), Some(own));
        drop(stopped);
        assert_eq!(tracer(pid), None);
        use std::io::Write;
        writeln!(child.stdin.take().expect("piped"), "onward").expect("it reads");
        assert_eq!(lines.next().expect("a line").expect("text"), "onward");
        assert!(child.wait().expect("wait").success());
    }
}
