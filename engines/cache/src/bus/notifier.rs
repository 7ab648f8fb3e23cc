//! The notifier: a thread in the middle of an allocation tells the bus, and waits a little.
//!
//! ```text
//!   refused thread: level, wanted ─► post ─► eventfd ─► bus thread: take ─► round ─► answer ─► futex
//!        └── waits for the answer, with patience ◄──────────────────────────────────────────────┘
//! ```
//!
//! H1  Nothing here allocates, locks, or touches thread-local storage: it runs inside malloc.
//! H2  A notifier is never freed, since the allocator may call it a moment after it was removed there; the next bus gets it
//!     ([`Notifier::get`]). So there are no more notifiers than buses that ever ran at the same time.
//! H3  A ticket that is answered had its level in a round that began after it was posted, and ended (`tickets`).
//! H4  The wait is bounded: the refused thread may hold the very lock that a listener wants. Listeners, too, wait for
//!     locks with a bound only (listener.N1).
//! H5  The bus's own thread does not wait for itself, and a child of fork, which has no such thread, does not wait.
//! H6  Waiting threads are known ([`Notifier::waiting`]), as far as there is room: a listener should not wait for them.
//!
//! Not here: what a round is.

use core::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_base::sys;

use super::level::Level;
use super::tickets::Tickets;

/// A bus's notifier.
#[derive(Debug)]
pub struct Notifier {
    wake: OwnedFd,
    /// The bus's thread and its process; 0: no thread answers.
    thread: AtomicU32,
    process: AtomicU32,
    tickets: Tickets,
    calls: AtomicU64,
    waits_in_vain: AtomicU64,
    /// How long a refused thread waits for a round.
    patience_ns: AtomicU64,
    waiting: [AtomicU32; WAITERS],
}

/// Waiting threads that are known (H6). A thread beyond these is waited for as long as its mailbox's patience.
pub const WAITERS: usize = 8;

/// Notifiers without a bus (H2).
static IDLE: Mutex<Vec<&'static Notifier>> = Mutex::new(Vec::new());

/// The requests since the last [`Notifier::take`].
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    /// The highest level that was posted.
    pub level: Level,
    /// The most bytes that were wanted.
    pub wanted_bytes: usize,
    /// Tickets up to this one are included.
    pub ticket: u64,
}

impl Notifier {
    /// Returns a notifier that no bus has.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn get() -> io::Result<&'static Notifier> {
        if let Some(notifier) = IDLE.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return Ok(notifier);
        }
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Box::leak(Box::new(Notifier {
            // SAFETY: a new descriptor that nothing else owns.
            wake: unsafe { OwnedFd::from_raw_fd(fd) },
            thread: AtomicU32::new(0),
            process: AtomicU32::new(0),
            tickets: Tickets::new(),
            calls: AtomicU64::new(0),
            waits_in_vain: AtomicU64::new(0),
            patience_ns: AtomicU64::new(0),
            waiting: [const { AtomicU32::new(0) }; WAITERS],
        })))
    }

    /// Says that the calling thread, the bus's, answers, and sets how long a refused thread waits for that.
    pub fn serve(&self, patience_ns: u64) {
        self.patience_ns.store(patience_ns, Ordering::Relaxed); // ORDER: a thread that sees 0 does not wait
        self.calls.store(0, Ordering::Relaxed); // ORDER: statistics of this bus
        self.waits_in_vain.store(0, Ordering::Relaxed); // ORDER: as above
        // ORDER: a thread that sees 0 does not wait, which is always right.
        self.process.store(sys::getpid(), Ordering::Relaxed);
        self.thread.store(sys::gettid(), Ordering::Relaxed); // ORDER: as above
    }

    /// Says that the bus has ended: no thread answers, and waiting threads go on.
    pub fn retire(&'static self) {
        self.thread.store(0, Ordering::Relaxed); // ORDER: as in `serve`
        // Threads that post later do not wait.
        self.answer(self.tickets.drawn());
        IDLE.lock().unwrap_or_else(|e| e.into_inner()).push(self);
    }

    /// Returns the descriptor to poll for reading.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Wakes the bus's thread.
    pub fn wake(&self) {
        // SAFETY: eight bytes of ours are read. A full counter means that the thread is woken already.
        unsafe {
            let one = 1u64;
            let args = [self.fd() as u64, &raw const one as u64, 8, 0, 0, 0];
            sys::syscall(libc::SYS_write, args);
        }
    }

    /// Returns the waiting threads, by the kernel's number; 0: none.
    pub fn waiting(&self) -> [u32; WAITERS] {
        // ORDER: by `take`'s Acquire; a thread enters itself before it posts.
        core::array::from_fn(|at| self.waiting[at].load(Ordering::Relaxed))
    }

    /// Replaces `from` by `to` in the list of waiting threads: enters a thread (`from` 0) or strikes it (`to` 0).
    fn note(&self, from: u32, to: u32) {
        // ORDER: as in `waiting`.
        let change =
            |one: &AtomicU32| one.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.waiting.iter().any(|one| change(one).is_ok());
    }

    /// Posts, and waits until the ticket is answered, as [`Notifier::wait`] does.
    pub fn ask(&self, level: Level, wanted_bytes: usize, patience_ns: u64) -> bool {
        let me = sys::gettid();
        self.note(0, me);
        let ticket = self.post(level, wanted_bytes);
        let answered = self.wait(ticket, patience_ns);
        self.note(me, 0);
        answered
    }

    /// Posts, draws a ticket, and wakes the bus's thread.
    fn post(&self, level: Level, wanted_bytes: usize) -> u64 {
        let ticket = self.tickets.post(level as u32, wanted_bytes);
        self.wake();
        ticket
    }

    /// Takes what was posted. `None`: nothing was.
    pub fn take(&self) -> Option<Rung> {
        let mut count = [0u8; 8];
        sys::read(self.fd(), &mut count);
        let posted = self.tickets.take()?;
        if posted.level == 0 {
            // The ticket's level was in the round before (tickets.T2).
            self.answer(posted.ticket);
            return None;
        }
        Some(Rung {
            level: Level::from_number(posted.level),
            wanted_bytes: posted.wanted_bytes,
            ticket: posted.ticket,
        })
    }

    /// Answers all tickets up to this one.
    pub fn answer(&self, ticket: u64) {
        self.tickets.answer(ticket);
        sys::futex_wake(self.tickets.rounds());
    }

    /// Waits until the ticket is answered. `false`: it was not answered in time.
    fn wait(&self, ticket: u64, patience_ns: u64) -> bool {
        let end = sys::monotonic_ns().saturating_add(patience_ns);
        loop {
            let Err(rounds) = self.tickets.look(ticket) else {
                return true;
            };
            // ORDER: as in `serve`.
            let served = self.thread.load(Ordering::Relaxed) != 0;
            let now = sys::monotonic_ns();
            if !served || now >= end {
                self.waits_in_vain.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
                return false;
            }
            sys::futex_wait(self.tickets.rounds(), rounds, end - now);
        }
    }

    /// Returns the number of calls by allocators, and of waits that ended without an answer.
    pub fn counts(&self) -> (u64, u64) {
        // ORDER: statistics.
        (
            self.calls.load(Ordering::Relaxed),
            self.waits_in_vain.load(Ordering::Relaxed),
        )
    }

    /// Reports whether the calling thread may wait (H5).
    pub fn may_wait(&self) -> bool {
        // ORDER: as in `serve`.
        let thread = self.thread.load(Ordering::Relaxed);
        let process = self.process.load(Ordering::Relaxed); // ORDER: as in `serve`
        thread != 0 && thread != sys::gettid() && process == sys::getpid()
    }
}

/// Asks the bus for memory; an allocator that is short of it calls this: `skinflint_listener` of `skinflint.h`.
///
/// # Safety
/// `notifier` is a [`Notifier`].
pub unsafe extern "C" fn short(notifier: *mut c_void, level: i32, wanted_bytes: usize) {
    // SAFETY: as the caller promises; it is never freed (H2).
    let notifier = unsafe { &*notifier.cast::<Notifier>() };
    notifier.calls.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
    if !notifier.may_wait() {
        return;
    }
    // The allocator's 1 is "a limit is near", and the next pages may be the last: no time for small steps.
    let level = match level {
        1 | 2 => Level::High,
        _ => Level::Critical,
    };
    let patience_ns = notifier.patience_ns.load(Ordering::Relaxed); // ORDER: as in `serve`
    notifier.ask(level, wanted_bytes, patience_ns);
}
