//! How a thread in the middle of an allocation tells the bus, and waits a little.
//!
//! ```text
//!   refused thread: level, wanted ─► post ─► eventfd ─► bus thread: take ─► round ─► answer ─► futex
//!        └── waits for the answer, with patience ◄──────────────────────────────────────────────┘
//! ```
//!
//! H1  Nothing here allocates, locks, or touches thread-local storage: it runs inside malloc.
//! H2  A bell is never freed, since the allocator may call it a moment after it was taken away; the next bus gets it
//!     ([`Bell::get`]). So there are as many as there ever were buses at once.
//! H3  A ticket that is answered had its level in a round that began after it was posted, and ended (`tickets`).
//! H4  The wait is bounded: the refused thread may hold the very lock that a listener wants. Listeners, too, wait for
//!     locks with a bound only (`listener`, N1).
//! H5  The bus's own thread does not wait for itself, and a child of fork, which has no such thread, does not wait.
//! H6  Who waits is known ([`Bell::waiting`]), as far as there is room: nobody should wait for him.
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

/// One bus's bell.
#[derive(Debug)]
pub struct Bell {
    wake: OwnedFd,
    /// The bus's thread and its process; 0: nobody answers.
    thread: AtomicU32,
    process: AtomicU32,
    tickets: Tickets,
    calls: AtomicU64,
    waits_in_vain: AtomicU64,
    /// How long a refused thread waits for a round.
    patience_ns: AtomicU64,
    waiting: [AtomicU32; WAITERS],
}

/// Waiting threads that are known (H6). One that is not is waited for as long as its mailbox's patience.
pub const WAITERS: usize = 8;

/// Bells without a bus (H2).
static IDLE: Mutex<Vec<&'static Bell>> = Mutex::new(Vec::new());

/// What was asked since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    /// The highest level.
    pub level: Level,
    /// The most that was wanted.
    pub wanted_bytes: usize,
    /// Tickets up to this one are in.
    pub ticket: u64,
}

impl Bell {
    /// One that nobody has.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn get() -> io::Result<&'static Bell> {
        if let Some(bell) = IDLE.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            return Ok(bell);
        }
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Box::leak(Box::new(Bell {
            // SAFETY: a new descriptor of nobody else.
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

    /// The bus's thread says that it answers, and how long a refused thread is to wait for that.
    pub fn serve(&self, patience_ns: u64) {
        self.patience_ns.store(patience_ns, Ordering::Relaxed); // ORDER: a thread that sees 0 does not wait
        self.calls.store(0, Ordering::Relaxed); // ORDER: statistics of this bus
        self.waits_in_vain.store(0, Ordering::Relaxed); // ORDER: as above
        // ORDER: a thread that sees 0 does not wait, which is always right.
        self.process.store(sys::getpid(), Ordering::Relaxed);
        self.thread.store(sys::gettid(), Ordering::Relaxed); // ORDER: as above
    }

    /// The bus has ended: nobody answers, and whoever waits goes on.
    pub fn retire(&'static self) {
        self.thread.store(0, Ordering::Relaxed); // ORDER: as in `serve`
        // Later ones do not wait.
        self.answer(self.tickets.drawn());
        IDLE.lock().unwrap_or_else(|e| e.into_inner()).push(self);
    }

    /// To poll for reading.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Wakes the bus's thread.
    pub fn wake(&self) {
        // SAFETY: eight bytes of ours are read. Full is woken already.
        unsafe {
            let one = 1u64;
            let args = [self.fd() as u64, &raw const one as u64, 8, 0, 0, 0];
            sys::syscall(libc::SYS_write, args);
        }
    }

    /// Threads that wait, by their kernel's number; 0: none.
    pub fn waiting(&self) -> [u32; WAITERS] {
        // ORDER: by `take`'s Acquire; a thread enters itself before it posts.
        core::array::from_fn(|at| self.waiting[at].load(Ordering::Relaxed))
    }

    /// Enters or strikes a thread from the list of those who wait.
    fn note(&self, from: u32, to: u32) {
        // ORDER: as in `waiting`.
        let change =
            |one: &AtomicU32| one.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.waiting.iter().any(|one| change(one).is_ok());
    }

    /// Posts, and waits until that is answered, as [`Bell::wait`].
    pub fn ask(&self, level: Level, wanted_bytes: usize, patience_ns: u64) -> bool {
        let me = sys::gettid();
        self.note(0, me);
        let ticket = self.post(level, wanted_bytes);
        let answered = self.wait(ticket, patience_ns);
        self.note(me, 0);
        answered
    }

    /// Posts, and draws a ticket.
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
            // Its level was in the round before (T2 of `tickets`).
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

    /// Waits until the ticket is answered. `false`: it was not, within the time.
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

    /// Calls by allocators, and waits that ended without an answer.
    pub fn counts(&self) -> (u64, u64) {
        // ORDER: statistics.
        (
            self.calls.load(Ordering::Relaxed),
            self.waits_in_vain.load(Ordering::Relaxed),
        )
    }

    /// Whether the calling thread may wait (H5).
    pub fn may_wait(&self) -> bool {
        // ORDER: as in `serve`.
        let thread = self.thread.load(Ordering::Relaxed);
        let process = self.process.load(Ordering::Relaxed); // ORDER: as in `serve`
        thread != 0 && thread != sys::gettid() && process == sys::getpid()
    }
}

/// What an allocator calls when it is short: `skinflint_listener` of `skinflint.h`.
///
/// # Safety
/// `bell` is a [`Bell`].
pub unsafe extern "C" fn short(bell: *mut c_void, level: i32, wanted_bytes: usize) {
    // SAFETY: as the caller promises; it is never freed (H2).
    let bell = unsafe { &*bell.cast::<Bell>() };
    bell.calls.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
    if !bell.may_wait() {
        return;
    }
    // The allocator's 1 is "a limit is near", and the next pages may be the last: no time for small steps.
    let level = match level {
        1 | 2 => Level::High,
        _ => Level::Critical,
    };
    let patience_ns = bell.patience_ns.load(Ordering::Relaxed); // ORDER: as in `serve`
    bell.ask(level, wanted_bytes, patience_ns);
}
