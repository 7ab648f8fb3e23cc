//! Who is in a reporter or an action.
//!
//! ```text
//!   FREE ── enter ─► process and thread ── leave ─► FREE ── remove ─► REMOVED
//! ```
//!
//! U1  One thread at a time is in it, and after it is removed none is.
//! U2  What another process's thread was in when this process forked off is free here: that thread did not come along.
//! U3  Every wait has a bound, and nobody waits for himself.
//!
//! Not here: what is done in it (`turn`, `act`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skinflint_base::sys;

const FREE: u64 = 0;
const REMOVED: u64 = u64::MAX;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The state: nobody, a thread (process in the upper half, thread in the lower one), or never again.
pub(crate) struct Busy(AtomicU64);

/// Whether one may go in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// In it; `leave` ends that.
    In,
    /// Somebody is in it.
    Busy,
    /// It was removed.
    Removed,
}

thread_local! {
    /// How many of them this thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a reporter or an action: it must not wait for one.
pub(crate) fn inside() -> bool {
    INSIDE.get() > 0
}

fn here() -> u64 {
    u64::from(sys::getpid()) << 32 | u64::from(sys::gettid())
}

impl Busy {
    pub(crate) const fn new() -> Busy {
        Busy(AtomicU64::new(FREE))
    }

    pub(crate) fn enter(&self) -> Entered {
        let (me, mut seen) = (here(), self.0.load(Ordering::Relaxed)); // ORDER: Relaxed: the exchange orders
        loop {
            match seen {
                REMOVED => return Entered::Removed,
                FREE => {}
                // U2.
                other if other >> 32 == me >> 32 => return Entered::Busy,
                _ => {}
            }
            // ORDER: AcqRel: meets the Release of `leave`: the last turn in it has ended when this one begins. Relaxed:
            // looked at again.
            match self
                .0
                .compare_exchange(seen, me, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        INSIDE.set(INSIDE.get() + 1);
        Entered::In
    }

    /// By the thread that is in it.
    pub(crate) fn leave(&self) {
        INSIDE.set(INSIDE.get().saturating_sub(1));
        self.0.store(FREE, Ordering::Release); // ORDER: Release: meets `enter`, `is_free` and `remove`
    }

    /// Whether no thread of this process is in it.
    pub(crate) fn is_free(&self) -> bool {
        let seen = self.0.load(Ordering::Acquire); // ORDER: Acquire: meets the Release of `leave`
        seen == FREE || seen == REMOVED || seen >> 32 != here() >> 32
    }

    /// Nobody goes in any more, once this has said `true`. `false`: somebody still is, or it is this thread (U3).
    pub(crate) fn remove(&self, patience: Duration) -> bool {
        let (me, begin) = (here(), Instant::now());
        loop {
            // ORDER: Acquire: meets the Release of `leave`.
            let seen = self.0.load(Ordering::Acquire);
            if seen == REMOVED {
                return true;
            }
            if seen == me {
                return false;
            }
            let is_free = seen == FREE || seen >> 32 != me >> 32;
            // ORDER: AcqRel: as in `enter`. Relaxed: looked at again.
            let swap = || {
                self.0
                    .compare_exchange(seen, REMOVED, Ordering::AcqRel, Ordering::Relaxed)
            };
            if is_free && swap().is_ok() {
                return true;
            }
            if begin.elapsed() > patience {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Waits until something is so. `false`: it is not, after so long.
pub(crate) fn wait_until(so: impl Fn() -> bool, patience: Duration) -> bool {
    let begin = Instant::now();
    while !so() {
        if begin.elapsed() > patience {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
