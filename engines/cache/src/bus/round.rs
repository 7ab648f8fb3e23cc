//! A round: listeners are asked, cheapest first, until enough has come back.
//!
//! ```text
//!   for each listener, by Rebuild, then by order of joining:
//!       release ─► dropped ─► trim ─► resident now      enough? the others are spared
//! ```
//!
//! Q1  At [`Level::Critical`] every listener is asked. Below, once enough came back, the remaining listeners are not
//!     asked; if it is unknown what is enough, listeners of the last two sorts are not asked.
//! Q2  A listener that panics is named, and the round goes on: whatever it is that panics, its `release`, its
//!     `rebuild` (what it drops then counts as [`Rebuild::Lose`]) or its `name` (it has none then).
//! Q3  After a listener that dropped nothing memory is neither trimmed nor measured, unless the listener panicked: its
//!     row says 0.
//! Q4  What a listener says that it dropped is bounded by what was resident before, and decides nothing: resident
//!     memory tells whether there is enough. Where the program asks for bytes (`relieve`), what the allocator has free
//!     since then is enough as well, if it says: small values share their pages with others, so resident memory follows
//!     only when nearly all are gone, and five caches dropped 100 MB for 20. Other signals are about resident memory.
//!
//! Not here: when there is a round (`level`), where signals come from (`watch`, `notifier`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skinflint_reporters::heap;

use super::event::{Event, Row, Source};
use super::giveback::{Trim, resident};
use super::level::Level;
use super::listener::{Ask, Listener, Rebuild};
use super::notifier::WAITERS;
use super::watch::Signal;

/// Reports whether a round brought little: less than a 256th of what was resident, or than 256 KiB if that is more.
pub fn is_little(event: &Event) -> bool {
    let least = (event.before_bytes / 256).max(256 << 10) as i64;
    event.came_back_bytes() < least
}

/// Bounds what a listener says that it dropped by the resident bytes; `resident` 0 means that they are unknown (Q4).
fn bounded(said: usize, resident: usize) -> usize {
    match resident {
        0 => said.min(isize::MAX as usize),
        resident => said.min(resident),
    }
}

/// The cause and the aim of a round.
#[derive(Clone, Copy, Debug)]
pub struct What {
    /// The signal that caused it.
    pub signal: Signal,
    /// The way in which free memory goes back.
    pub trim: Trim,
    /// How long the round may take; listeners see it as [`Ask::until`].
    pub bound: Duration,
    /// Threads that wait for the round.
    pub waiting: [u32; WAITERS],
    /// For the log.
    pub at_ms: u64,
    /// For the log.
    pub number: u64,
}

/// Calls a function of the program's, on the bus's thread. `None`: it panicked, which was printed.
pub(super) fn caught<R>(act: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Dropping it may panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Runs a round.
pub fn run(listeners: &[Arc<dyn Listener>], what: What) -> Event {
    let What {
        signal,
        trim,
        bound,
        waiting,
        at_ms,
        number,
    } = what;
    let begin = Instant::now();
    // Asked once.
    let cost = |listener: &Arc<dyn Listener>| caught(|| listener.rebuild());
    let mut order: Vec<_> = listeners.iter().map(|one| (cost(one), one)).collect();
    order.sort_by_key(|(cost, _)| cost.unwrap_or(Rebuild::Lose));
    let by_allocator = signal.source == Source::Program
        && signal.wanted_bytes > 0
        && signal.level < Level::Critical;
    let live = || by_allocator.then(heap::live_bytes).flatten();
    let (before, live_before) = (resident().unwrap_or(0), live().unwrap_or(0));
    let (mut now, mut freed) = (before, 0);
    let mut rows: Vec<Row> = Vec::with_capacity(order.len());
    let mut spared = 0;
    for (cost, listener) in order {
        let rebuild = cost.unwrap_or(Rebuild::Lose);
        let back = before.saturating_sub(now).max(freed);
        let enough = match signal.wanted_bytes {
            _ if signal.level == Level::Critical => false,
            0 => rebuild >= Rebuild::Fetch,
            // For a little the next one is not asked to drop what is dearer.
            wanted => back >= wanted - wanted / 64,
        };
        if enough {
            spared += 1;
            continue;
        }
        let ask = Ask {
            level: signal.level,
            wanted_bytes: signal.wanted_bytes.saturating_sub(back),
            until: begin + bound,
            waiting,
        };
        let asked = Instant::now();
        let dropped = caught(|| listener.release(ask));
        let took = asked.elapsed();
        let name = caught(|| listener.name().to_owned());
        let mut row = Row {
            panicked: dropped.is_none() || name.is_none() || cost.is_none(),
            listener: name.unwrap_or_default(),
            rebuild,
            dropped_bytes: bounded(dropped.unwrap_or(0), now),
            came_back_bytes: 0,
            took_ns: took.as_nanos() as u64,
            trim_ns: 0,
        };
        if row.dropped_bytes > 0 || row.panicked {
            let trimmed = Instant::now();
            freed = live().map_or(0, |now| live_before.saturating_sub(now) as usize);
            trim.run();
            row.trim_ns = trimmed.elapsed().as_nanos() as u64;
            let after = resident().unwrap_or(now);
            row.came_back_bytes = now as i64 - after as i64;
            now = after;
        }
        rows.push(row);
    }
    Event {
        number,
        at_ms,
        source: signal.source,
        level: signal.level,
        wanted_bytes: signal.wanted_bytes,
        before_bytes: before,
        after_bytes: now,
        rows,
        spared,
        took_ns: begin.elapsed().as_nanos() as u64,
    }
}
