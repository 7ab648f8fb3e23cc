//! A round: listeners are asked, cheapest first, until enough has come back.
//!
//! ```text
//!   for each listener, by Rebuild, then by order of joining:
//!       release ─► dropped ─► trim ─► resident now      enough? the others are spared
//! ```
//!
//! Q1  At [`Level::Critical`] every listener is asked. Below, once enough came back, the remaining listeners are not
//!     asked; if it is unknown what is enough, listeners of the last two sorts are not asked.
//! Q2  A listener that panics is named, and the round goes on.
//! Q3  After a listener that dropped nothing memory is neither trimmed nor measured, unless the listener panicked: its
//!     row says 0.
//! Q4  What a listener says that it dropped is bounded by what was resident before, and decides nothing: resident
//!     memory alone tells whether there is enough.
//!
//! Not here: when there is a round (`level`), where signals come from (`watch`, `notifier`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::{Event, Row};
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
    let mut order: Vec<&Arc<dyn Listener>> = listeners.iter().collect();
    order.sort_by_key(|listener| listener.rebuild());
    let before = resident().unwrap_or(0);
    let mut now = before;
    let mut rows: Vec<Row> = Vec::with_capacity(order.len());
    let mut spared = 0;
    for listener in order {
        let back = before.saturating_sub(now);
        let enough = match signal.wanted_bytes {
            _ if signal.level == Level::Critical => false,
            0 => listener.rebuild() >= Rebuild::Fetch,
            wanted => back >= wanted,
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
        let result = catch_unwind(AssertUnwindSafe(|| listener.release(ask)));
        let took = asked.elapsed();
        let mut row = Row {
            listener: listener.name().to_owned(),
            rebuild: listener.rebuild(),
            dropped_bytes: bounded(*result.as_ref().unwrap_or(&0), now),
            came_back_bytes: 0,
            took_ns: took.as_nanos() as u64,
            trim_ns: 0,
            panicked: result.is_err(),
        };
        if row.dropped_bytes > 0 || row.panicked {
            let trimmed = Instant::now();
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
