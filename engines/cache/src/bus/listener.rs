//! Listeners: code that can give memory back, and the questions that it is asked.
//!
//! ```text
//!   Bus ──Ask──► Listener::release ──► bytes dropped, by its own count
//!    order: Free ─► Decode ─► Compute ─► Fetch ─► Lose
//! ```
//!
//! N1  A listener runs on the bus's thread (a [`super::Mailbox`]: on its owner's). It takes locks with a bound only, and
//!     allocates little: it may have been called because a thread waits in malloc with that very lock.
//! N2  What it says that it dropped is bytes as the allocator counts them. What came back is measured by the bus.
//!
//! Not here: measuring, order, log (`round`).

use core::fmt;
use std::time::Instant;

use super::level::Level;
use super::notifier::WAITERS;

/// The cost of getting back what a listener drops. It decides the order in which listeners are asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Rebuild {
    /// Nothing: spare room, free lists, dead objects that await collection.
    Free,
    /// Microseconds to milliseconds, from what stays in memory: decoded images, computed metrics.
    Decode,
    /// Milliseconds and more of computing: layout, compiled code, query results.
    Compute,
    /// A disk or network access: documents, pages.
    Fetch,
    /// The data cannot be had again, or the user sees that it went: undo steps, background tabs.
    Lose,
}

impl fmt::Display for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rebuild::Free => "free",
            Rebuild::Decode => "decode",
            Rebuild::Compute => "compute",
            Rebuild::Fetch => "fetch",
            Rebuild::Lose => "lose",
        })
    }
}

/// A request to a listener.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// How short memory is.
    pub level: Level,
    /// Bytes still wanted from all listeners together; 0: unknown.
    pub wanted_bytes: usize,
    /// The time at which the listener should be done, whatever it still has.
    pub until: Instant,
    /// Threads that wait for this round, by the kernel's number; 0: none. Waiting for one of them would be in vain.
    pub waiting: [u32; WAITERS],
}

impl Ask {
    /// Returns the bytes that a listener that holds `holds_bytes` should drop: all of them at [`Level::Critical`];
    /// below that the wanted bytes, or, if those are unknown, a quarter ([`Level::Near`]) or half ([`Level::High`]).
    /// None at [`Level::Calm`].
    pub fn of(&self, holds_bytes: usize) -> usize {
        match (self.level, self.wanted_bytes) {
            (Level::Calm, _) => 0,
            (Level::Critical, _) => holds_bytes,
            (_, wanted) if wanted > 0 => wanted.min(holds_bytes),
            (Level::Near, _) => holds_bytes / 4,
            (Level::High, _) => holds_bytes / 2,
        }
    }
}

/// A part of the program that can give memory back.
pub trait Listener: Send + Sync {
    /// Returns the name that the log uses.
    fn name(&self) -> &str;

    /// Returns what it costs to rebuild what this listener drops.
    fn rebuild(&self) -> Rebuild;

    /// Drops what is asked for; returns the bytes dropped, as the allocator counts them.
    fn release(&self, ask: Ask) -> usize;

    /// Runs now and then, with the level: for what expires by itself and, while the level is calm, for limits that go
    /// up again. Returns the bytes dropped.
    fn tick(&self, level: Level) -> usize {
        let _ = level;
        0
    }
}
