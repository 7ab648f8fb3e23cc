//! Waiting for the collector: as long as it shows signs of life.
//!
//! ```text
//!   tick moves ──────────────────────────────► wait on
//!   tick stands for GONE_NS, no such process ─► over
//!   tick stands for SILENT_NS ────────────────► over   (it is stopped, or starved)
//! ```
//!
//! Q1  A thread waits for a bounded time after the collector's last sign of life, whatever became of it.
//! Q2  A busy machine makes the collector late, not silent: its clock is the tick, not the time that a wait takes.
//! Q3  After a wait that was over, none for a snapshot begins at the same tick: a program that sets a mark again and
//!     again beside a stopped collector waits for it once. A full ring waits all the same: its recording ends otherwise.
//!
//! Not here: what becomes of the recording then (ring.rs, process.rs).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use skinflint_base::ring::SessionPage;
use skinflint_base::sys;

/// The time between two looks at the tick, at most.
pub const LOOK_NS: u64 = 20_000_000;
/// The longest waits without a sign of life: if the collector is gone, and if it may only be stopped.
const GONE_NS: u64 = 300_000_000;
const SILENT_NS: u64 = 5_000_000_000;
/// The value of [`SILENT_AT`] before any wait was over.
const NEVER: u64 = u64::MAX;

/// The tick at which a wait was over (Q3).
static SILENT_AT: AtomicU64 = AtomicU64::new(NEVER);

/// How long a thread has waited for a sign of life of the collector.
pub struct Patience {
    session: &'static SessionPage,
    /// Whether the recording is over.
    off: &'static AtomicBool,
    tick: u32,
    since: u64,
}

impl Patience {
    /// Begins a wait for the collector of this session, while the flag is not set.
    pub fn begin(session: &'static SessionPage, off: &'static AtomicBool) -> Patience {
        Patience {
            session,
            off,
            tick: tick(session),
            since: sys::monotonic_ns(),
        }
    }

    /// Returns whether the collector is still as silent as when a wait was last over (Q3).
    pub fn is_still_silent(&self) -> bool {
        // ORDER: Relaxed; a number that stands alone.
        SILENT_AT.load(Ordering::Relaxed) == u64::from(self.tick)
    }

    /// Returns whether the collector has shown no sign of life for too long, or the recording is over. Cost: reading the
    /// clock, and a system call if the tick has stood for a while.
    pub fn is_over(&mut self) -> bool {
        // ORDER: Relaxed; only a flag.
        if self.off.load(Ordering::Relaxed) {
            return true;
        }
        let tick = tick(self.session);
        let now = sys::monotonic_ns();
        if tick != self.tick {
            self.tick = tick;
            self.since = now;
            return false;
        }
        let silent_ns = now - self.since;
        let is_over = silent_ns > SILENT_NS || (silent_ns > GONE_NS && is_gone(self.session));
        if is_over {
            SILENT_AT.store(u64::from(tick), Ordering::Relaxed); // ORDER: Relaxed; as above.
        }
        is_over
    }
}

fn tick(session: &SessionPage) -> u32 {
    session.tick.load(Ordering::Relaxed) // ORDER: Relaxed; a sign of life.
}

fn is_gone(session: &SessionPage) -> bool {
    // ORDER: Relaxed; a constant of the session.
    !sys::process_exists(session.collector_pid.load(Ordering::Relaxed))
}
