//! The thread that is inside a reporter or an action.
//!
//! ```text
//!   FREE ── enter ─► process and thread ── leave ─► FREE ── remove ─► REMOVED
//! ```
//!
//! U1  At most one thread is inside at a time, and none after the removal.
//! U2  A reporter that a thread of the parent was inside at the time of a fork is free in the child: that thread does
//!     not exist there.
//! U3  Every wait has a bound, and no thread waits for itself.
//!
//! Not here: what the thread does inside (`round`, `act`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skinflint_base::sys;

const FREE: u64 = 0;
const REMOVED: u64 = u64::MAX;
/// The time between two looks at the state.
const PAUSE: Duration = Duration::from_millis(1);

/// The state: free, a thread (process id in the upper half, thread id in the lower half), or removed.
pub(crate) struct Busy(AtomicU64);

/// The result of an attempt to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entered {
    /// The thread is inside until it calls `leave`.
    In,
    /// Another thread of this process is inside, or this one already.
    Busy,
    /// The reporter or action was removed.
    Removed,
}

thread_local! {
    /// The number of reporters and actions that this thread is inside.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this thread is inside a reporter or an action: it must not wait for one.
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
            // ORDER: AcqRel: meets the Release of `leave`: the last thread has left when this one enters. Relaxed:
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

    /// Leaves; to be called by the thread that is inside.
    pub(crate) fn leave(&self) {
        INSIDE.set(INSIDE.get().saturating_sub(1));
        self.0.store(FREE, Ordering::Release); // ORDER: Release: meets `enter`, `is_free` and `remove`
    }

    /// Returns whether no thread of this process is inside.
    pub(crate) fn is_free(&self) -> bool {
        let seen = self.0.load(Ordering::Acquire); // ORDER: Acquire: meets the Release of `leave`
        seen == FREE || seen == REMOVED || seen >> 32 != here() >> 32
    }

    /// Removes it. After this has returned `true` no thread enters any more. `false`: a thread was still inside after
    /// `patience`, or this thread is (U3).
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

/// Waits until a condition holds. Returns `false` if it does not hold within `patience`.
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
