//! A thread of another process, stopped as a debugger stops it, and put back as it was.
//!
//! ```text
//!   seize ─ interrupt ─► Stopped ─ keep ─► call … call ─► drop: registers, signal mask, signals that were held back
//! ```
//!
//! P1  Whatever happens, a thread that was stopped gets its registers and its signal mask back and goes on: `Drop` does
//!     it, and the end of the thread of ours that stopped it lets go what `Drop` could not.
//! P2  No handler of the program runs inside a call: signals wait in the kernel, blocked. Only those that a fault of the
//!     call itself raises are not, since the kernel would take their handlers away; sent by others, they are held back
//!     here and sent again.
//! P3  Waits ask for this thread only, and each has a bound.
//! P4  A thread that does not stop in time (it waits in the kernel, or for a processor) is looked at again later, and let
//!     go as soon as it stands: it may hold what a call waits for.
//!
//! Not here: which thread, and whether it is at a place that allows calls (fit.rs).

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::machine::{self, Registers, Unreadable, Vectors};
use super::memory::Memory;

/// The longest wait for a thread to stop: one that waits in the kernel, as in vfork, does not.
const STOP_PATIENCE: Duration = Duration::from_millis(50);
/// The event of a stop that was asked for, in a wait status.
const EVENT_STOP: i32 = 128;
/// Signals that are not blocked (P2), beside those that cannot be.
const OF_FAULTS: [i32; 6] = [
    libc::SIGTRAP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSYS,
];
/// The C library's own signal by which a thread that changes its user has all others change theirs, and waits for it,
/// with a lock that loading a library takes.
const OF_USERS: i32 = 33;
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
const GET_SEQUENCES: u32 = 0x420f;

/// Why a thread is not stopped.
pub(super) enum NotStopped {
    /// It has ended.
    Gone,
    /// It did not stop in time.
    Waits,
    /// It was about to get a signal, and has got it.
    Signalled,
    /// It runs 32-bit code.
    Narrow,
    /// The kernel's error.
    Refused(io::Error),
}

/// How a call ended that did not come back.
#[derive(Debug)]
pub(super) enum Fault {
    /// The process ended.
    Ended,
    /// It was not done in time; this is the address of the code that it was in.
    Late(u64),
    /// It got this signal, at this address.
    Signal(i32, u64),
    /// The kernel's error.
    Kernel(io::Error),
}

struct Kept {
    registers: Registers,
    vectors: Vectors,
    mask: u64,
}

/// A thread that stands still until this is dropped.
pub(super) struct Stopped {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) registers: Registers,
    /// When it was seen to stand.
    pub(super) since: Instant,
    kept: Option<Kept>,
    /// Whether it was told to run and has not been seen to stand since.
    runs: bool,
    is_gone: bool,
    held_back: Vec<i32>,
    late: Late,
}

enum Waited {
    Runs,
    Gone,
    /// The signal, or 0 for a stop that we asked for.
    Stands(i32),
}

fn wait(tid: u32) -> Waited {
    let mut status = 0;
    let options = libc::__WALL | libc::WNOHANG | libc::__WNOTHREAD;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(tid as i32, &mut status, options) };
    match waited {
        0 => Waited::Runs,
        _ if waited < 0 || !libc::WIFSTOPPED(status) => Waited::Gone,
        _ if status >> 16 == EVENT_STOP => Waited::Stands(0),
        _ => Waited::Stands(libc::WSTOPSIG(status)),
    }
}

/// Waits for a stop until `until`, with steps that grow: most stops come within microseconds. Does `meanwhile` at each.
fn wait_until(tid: u32, until: Instant, mut meanwhile: impl FnMut()) -> Waited {
    let mut step = Duration::from_micros(10);
    loop {
        meanwhile();
        match wait(tid) {
            // CLOCK: a bounded wait, and its bound ends it
            Waited::Runs if Instant::now() < until => std::thread::sleep(step),
            waited => return waited,
        }
        step = (step + step / 8).min(Duration::from_millis(2));
    }
}

fn request(what: libc::c_uint, tid: u32, data: i32) -> io::Result<()> {
    // SAFETY: none of the requests made by this touches memory of ours.
    let result = unsafe { libc::ptrace(what as _, tid, 0usize, data as usize) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves the signal mask in or out.
fn mask(what: u32, tid: u32, mask: &mut u64) -> io::Result<()> {
    // SAFETY: the kernel moves the eight bytes that it is told of.
    let result = unsafe { libc::ptrace(what as _, tid, 8usize, std::ptr::from_mut(mask)) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Threads that were told to stop and have not done so yet: they stay seized, and stand as soon as they can (P4).
#[derive(Clone, Default)]
pub(super) struct Late(Rc<RefCell<Vec<u32>>>);

impl Late {
    fn has(&self, tid: u32) -> bool {
        self.0.borrow().contains(&tid)
    }

    fn remove(&self, tid: u32) {
        self.0.borrow_mut().retain(|other| *other != tid);
    }

    /// Lets those go that stand by now.
    fn let_go(&self, pid: u32) {
        let all = self.0.borrow().clone();
        for tid in all {
            drop(Stopped::stop(pid, tid, self));
        }
    }
}

impl Stopped {
    /// Stops a thread, or looks whether one of the late ones has stopped.
    pub(super) fn stop(pid: u32, tid: u32, late: &Late) -> Result<Stopped, NotStopped> {
        let mut until = Instant::now();
        if !late.has(tid) {
            request(libc::PTRACE_SEIZE as _, tid, 0).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::ESRCH) => NotStopped::Gone,
                    _ => NotStopped::Refused(error),
                }
            })?;
            let _ = request(libc::PTRACE_INTERRUPT as _, tid, 0);
            until += STOP_PATIENCE;
        }
        let waited = wait_until(tid, until, || ());
        late.remove(tid);
        match waited {
            Waited::Runs => {
                late.0.borrow_mut().push(tid);
                return Err(NotStopped::Waits);
            }
            Waited::Gone => return Err(NotStopped::Gone),
            Waited::Stands(0) => {}
            Waited::Stands(signal) => {
                // With all that came with it, which a signal that is sent again would lack.
                let _ = request(libc::PTRACE_DETACH as _, tid, signal);
                return Err(NotStopped::Signalled);
            }
        }
        let since = Instant::now();
        match Registers::of(tid) {
            Ok(registers) => Ok(Stopped {
                pid,
                tid,
                registers,
                since,
                kept: None,
                runs: false,
                is_gone: false,
                held_back: Vec::new(),
                late: late.clone(),
            }),
            Err(error) => {
                let _ = request(libc::PTRACE_DETACH as _, tid, 0);
                Err(match error {
                    Unreadable::Narrow => NotStopped::Narrow,
                    Unreadable::Error(error) => NotStopped::Refused(error),
                })
            }
        }
    }

    /// Whether it is in a restartable sequence: the kernel would not know, when it goes on there, that it was interrupted.
    pub(super) fn is_in_restartable_sequence(&self, memory: &Memory) -> bool {
        let mut configuration = [0u64; 3];
        let (to, size) = (configuration.as_mut_ptr(), size_of_val(&configuration));
        // SAFETY: the kernel writes at most as many bytes as it is told.
        let got = unsafe { libc::ptrace(GET_SEQUENCES as _, self.tid, size, to) };
        // Before Linux 5.13 it is not said, and hardly used.
        if got <= 0 || configuration[0] == 0 {
            return false;
        }
        let current = memory.word(configuration[0] + 8).filter(|at| *at != 0);
        let bounds = current.and_then(|at| Some((memory.word(at + 8)?, memory.word(at + 16)?)));
        bounds.is_some_and(|(start, len)| self.registers.pc().wrapping_sub(start) < len)
    }

    /// Prepares for calls: keeps what they change, and blocks signals (P2).
    pub(super) fn keep(&mut self) -> io::Result<()> {
        let mut own = 0;
        mask(GET_MASK, self.tid, &mut own)?;
        let vectors = Vectors::of(self.tid)?;
        let not_blocked = OF_FAULTS.iter().chain([&OF_USERS]);
        let open = not_blocked.fold(0, |open, signal| open | 1u64 << (signal - 1));
        mask(SET_MASK, self.tid, &mut !open)?;
        self.kept = Some(Kept {
            registers: self.registers.clone(),
            vectors,
            mask: own,
        });
        Ok(())
    }

    /// Lets the thread run with these registers until it meets the breakpoint. Returns its registers then.
    pub(super) fn run(
        &mut self,
        registers: &Registers,
        breakpoint: u64,
        patience: Duration,
    ) -> Result<Registers, Fault> {
        registers.set(self.tid).map_err(Fault::Kernel)?;
        let until = Instant::now() + patience;
        let mut passed_on = 0;
        loop {
            request(libc::PTRACE_CONT as _, self.tid, passed_on).map_err(Fault::Kernel)?;
            self.runs = true;
            let signal = match wait_until(self.tid, until, || self.late.let_go(self.pid)) {
                Waited::Runs => return Err(self.interrupt()),
                Waited::Gone => {
                    self.is_gone = true;
                    return Err(Fault::Ended);
                }
                Waited::Stands(signal) => signal,
            };
            self.runs = false;
            let now = match Registers::of(self.tid) {
                Ok(now) => now,
                Err(Unreadable::Error(error)) => return Err(Fault::Kernel(error)),
                Err(Unreadable::Narrow) => return Err(Fault::Signal(signal, 0)),
            };
            passed_on = 0;
            match signal {
                0 => {}
                OF_USERS => passed_on = signal,
                libc::SIGTRAP if now.is_stopped_by(breakpoint) => return Ok(now),
                _ if self.is_sent() => self.held_back.push(signal),
                _ => return Err(Fault::Signal(signal, now.pc())),
            }
        }
    }

    /// Stops it in the middle of a call that takes too long.
    fn interrupt(&mut self) -> Fault {
        let _ = request(libc::PTRACE_INTERRUPT as _, self.tid, 0);
        match wait_until(self.tid, Instant::now() + STOP_PATIENCE, || ()) {
            Waited::Runs => {}
            Waited::Gone => self.is_gone = true,
            Waited::Stands(signal) => {
                self.runs = false;
                // The breakpoint, after all, is no signal of the program's.
                let is_sent = signal != 0 && self.is_sent();
                self.held_back.extend(is_sent.then_some(signal));
            }
        }
        Fault::Late(Registers::of(self.tid).map_or(0, |now| now.pc()))
    }

    /// Whether the signal that stopped it was sent by a process, and is no fault of the thread's.
    fn is_sent(&self) -> bool {
        // SAFETY: all-zero is valid; the kernel fills it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is what the request fills.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0usize, &raw mut info) };
        got == 0 && info.si_code <= 0
    }

    /// Puts everything back that calls have changed.
    fn put_back(&mut self) {
        if self.runs {
            let _ = self.interrupt();
        }
        let Some(mut kept) = self.kept.take() else {
            return;
        };
        // What fails here fails because the thread is gone.
        let _ = kept.vectors.set(self.tid);
        let _ = mask(SET_MASK, self.tid, &mut kept.mask);
        // A signal that waits ends the system call as it would have done without us.
        if kept.registers.gives_up_a_call() && !has_signal(self.pid, self.tid) {
            kept.registers.begin_again();
        }
        let _ = kept.registers.set(self.tid);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        // Also without calls: a stop alone ends some system calls.
        if self.kept.is_none()
            && self.registers.gives_up_a_call()
            && !has_signal(self.pid, self.tid)
        {
            self.registers.begin_again();
            let _ = self.registers.set(self.tid);
        }
        self.put_back();
        let _ = request(libc::PTRACE_DETACH as _, self.tid, 0);
        for signal in &self.held_back {
            // SAFETY: no memory is involved.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid, *signal) };
        }
    }
}

/// Whether a signal waits for a thread that it neither blocks nor ignores.
fn has_signal(pid: u32, tid: u32) -> bool {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let set = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key));
        value.map_or(0, |value| {
            u64::from_str_radix(value.trim(), 16).unwrap_or(0)
        })
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

/// Whether a call of a function can come back: not where the processor checks return addresses.
pub(super) fn can_return(thread: &Stopped) -> bool {
    !machine::has_shadow_stack(thread.tid)
}
