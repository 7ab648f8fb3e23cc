//! Threads that take no signal away from the program.
//!
//! ```text
//!   signal to the process ─► any thread that does not block it: never one of ours
//!   SIGSEGV, SIGBUS, … raised by a reporter ─► its own thread: the program's handler runs, as anywhere
//! ```
//!
//! Q1  A thread begins with all signals blocked, except those that the processor raises for what the thread itself
//!     does. So a program that waits for signals (`signalfd`, `sigwait`) gets them, and a handler runs where it expects
//!     to; and a client that hangs up while it is answered causes no SIGPIPE, which would end a program in C.
//! Q2  The thread that starts another gets its own mask back, whether the start succeeds or not.
//!
//! Not here: what the threads do (`round`, `act`, `endpoint`).

use std::io;
use std::thread::{Builder, JoinHandle};

/// The signals that are raised for what a thread itself does; if blocked, they would end the program past its handlers.
const OWN: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The mask of the thread that starts another; restored when this is dropped (Q2).
struct Blocked(libc::sigset_t);

impl Blocked {
    fn nearly_all() -> Blocked {
        // SAFETY: both sets are ours and written before they are read; a set of zeros is one.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            for signal in OWN {
                libc::sigdelset(&mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is ours.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Starts a thread with nearly all signals blocked (Q1).
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::nearly_all();
    Builder::new().name(name.to_owned()).spawn(work)
}
